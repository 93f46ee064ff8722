"""Out of memory in a micro-batch: it is done again in smaller ones, with the same draws, and says
so."""

import ctypes
import gc
import os
import subprocess
import sys
import textwrap
import threading
import weakref

import pytest
import torch

from plumbline.errors import DeviceMemoryError
from plumbline.policies import memory, open_policy
from plumbline.policies.autoregressive.packing import pack
from plumbline.policies.autoregressive.policy import AutoregressivePolicy
from plumbline.policies.masked.policy import MaskedPolicy
from plumbline.recipe import parse_recipe
from plumbline.reports.page_sections import token_facts
from plumbline.reports.view import RunView
from plumbline.training import microbatches, pipeline, rl
from plumbline.training.optimiser import Optimiser
from plumbline.training.pipeline import run_recipe
from tests.runs.test_changes import recipe
from tests.training.toy_runs import messages, train_toy


class Full:
    """A memory that holds so many trajectories a micro-batch with gradient, or that is full at some
    calls only."""

    def __init__(
        self, monkeypatch, policy=AutoregressivePolicy, *, method="score", holds=10**9, at=()
    ):
        self.microbatches, self.holds, self.at = [], holds, at
        honest = getattr(policy, method)

        def limited(policy, trajectories, *rest, **named):
            self.microbatches.append(len(trajectories))
            if len(trajectories) > self.holds or len(self.microbatches) in self.at:
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
            return honest(policy, trajectories, *rest, **named)

        monkeypatch.setattr(policy, method, limited)


def told(run):
    return messages(run, "out_of_memory")


def weights(policy):
    return {name: weight.detach().clone() for name, weight in policy.trainable().items()}


def assert_alike(run, other, atol):
    """In what is recorded, but for what is estimated from how a batch was cut into
    micro-batches."""
    estimated = {"train/grad_signal", "train/grad_noise", "train/grad_snr"}
    for one, two in zip(run.rows("rl"), other.rows("rl"), strict=True):
        one, two = (
            {name: value for name, value in row.items() if name not in estimated}
            for row in (one, two)
        )
        assert one == pytest.approx(two, abs=atol)


WAYS = {
    "once": {},
    "inner": {"inner_epochs": 2, "old": "rescored", "beta": 0.1},
    "closer": {"inner_epochs": 3, "algorithm": "gspo"},
}


@pytest.mark.parametrize("way", WAYS)
def test_a_memory_that_holds_fewer_is_a_run_of_smaller_passes(
    tiny_folder, tmp_path, monkeypatch, way
):
    settings = {"steps": 2, **WAYS[way]}
    with monkeypatch.context() as patch:
        full = Full(patch, holds=2)
        policy, run = train_toy(tiny_folder, tmp_path / "full", **settings)
    messages = told(run)
    assert sum(count > 2 for count in full.microbatches) == len(messages), (
        "what was too much is not tried again"
    )
    assert " 8192 tokens" in messages[0]
    tokens = int(messages[-1].rsplit("rl.tokens_per_microbatch: ", 1)[1].split()[0])
    other, small = train_toy(
        tiny_folder, tmp_path / "small", tokens_per_microbatch=tokens, **settings
    )
    for name, weight in weights(policy).items():
        assert torch.equal(weight, weights(other)[name]), name
    assert run.rows("rl") == small.rows("rl")
    assert run.files["samples"].rows() == small.files["samples"].rows()
    assert told(small) == []


def test_whichever_pass_fails_the_step_is_done_once(tiny_folder, tmp_path, monkeypatch):
    """Gradients of micro-batches that had fitted are not counted twice, and what an earlier epoch
    has learnt is kept."""
    settings = {"inner_epochs": 2, "steps": 2, "prompts_per_step": 6}
    other, whole = train_toy(tiny_folder, tmp_path / "whole", **settings)
    for call in (1, 2, 4, 8):
        with monkeypatch.context() as patch:
            full = Full(patch, at=(call,))
            policy, run = train_toy(tiny_folder, tmp_path / f"full{call}", **settings)
        assert len(full.microbatches) > 10
        assert len(told(run)) == 1
        assert_alike(run, whole, 1e-6)
        for name, weight in weights(policy).items():
            torch.testing.assert_close(weight, weights(other)[name], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("family", ["autoregressive", "masked"])
def test_sft_does_the_same(tiny_folder, tmp_path, monkeypatch, family):
    """The masked family's loss draws: each demonstration keeps its noise."""
    tiny = {"hidden": 16, "layers": 1, "heads": 2, "vocabulary": 300, "context": 128, "steps": 1}
    sft = {"steps": 2, "batch_size": 4, "optimiser": {"learning_rate": 1e-3}}
    policy, canvas, sampling = (
        (AutoregressivePolicy, {}, {})
        if family == "autoregressive"
        else (MaskedPolicy, {"canvas": 8}, {"steps": 2})
    )
    values = {
        "name": "x",
        "model": {"family": family, "tiny": tiny, **canvas},
        "task": {"name": "tests.toy:open_toy"},
        "sft": sft,
        "sampling": {"max_tokens": 4, **sampling},
        "evaluation": {"every": 0, "final": ["val"], "sampled": False, "untrained": False},
    }
    with monkeypatch.context() as patch:
        full = Full(patch, policy, method="supervised_loss", at=(2,))
        run = run_recipe(parse_recipe(values), tmp_path / "full")
    assert min(full.microbatches) < 4
    (message,) = told(run)
    tokens = int(message.rsplit("sft.tokens_per_microbatch: ", 1)[1].split()[0])
    values["model"] = {"family": family, "name": str(run.model("base")), **canvas}
    small = run_recipe(
        parse_recipe({**values, "sft": {**sft, "tokens_per_microbatch": tokens}}),
        tmp_path / "small",
    )
    one, other = (
        open_policy(parse_recipe(values).model, str(r.folder / "models" / "sft"))
        for r in (run, small)
    )
    for name, weight in weights(one).items():
        torch.testing.assert_close(weight, weights(other)[name], atol=1e-6, rtol=0)


class Gpu:
    """A memory of so many bytes, in which every token of a micro-batch with gradient takes
    `A_TOKEN`, recomputed a quarter."""

    CONSTANT, A_TOKEN = 5_000_000, 10_000

    def __init__(self, monkeypatch, size):
        self.peak, self.tokens = 0, []
        honest, made = AutoregressivePolicy.score, microbatches.Microbatches.__init__

        def score(policy, trajectories, *rest, **named):
            tokens = pack(trajectories, policy.device).ids.numel()
            self.tokens.append(tokens)
            taken = self.CONSTANT + tokens * (
                self.A_TOKEN // (1 if policy.recomputes == "auto" else 4)
            )
            self.peak = max(self.peak, taken)
            if taken > size:
                raise torch.OutOfMemoryError("CUDA out of memory.")
            return honest(policy, trajectories, *rest, **named)

        def on_gpu(microbatches, *rest):
            made(microbatches, *rest)
            microbatches.device, self.count = torch.device("cuda"), microbatches.count

        def begin_peak(device):
            self.peak = self.CONSTANT

        monkeypatch.setattr(AutoregressivePolicy, "score", score)
        monkeypatch.setattr(microbatches.Microbatches, "__init__", on_gpu)
        for module in (microbatches, rl):
            monkeypatch.setattr(module, "begin_peak", begin_peak)
            monkeypatch.setattr(module, "read_peak", lambda device: self.peak)
        monkeypatch.setattr(microbatches, "measure_reachable_memory", lambda device: size)
        monkeypatch.setattr(microbatches, "TRIALS", (60, 200))


def notes(run):
    return messages(run, "note")


def test_auto_is_what_two_small_passes_leave_memory_for(tiny_folder, tmp_path, monkeypatch):
    settings = {"steps": 2, "prompts_per_step": 6, "group_size": 8}
    with monkeypatch.context() as patch:
        gpu = Gpu(patch, size=10_000_000)
        policy, run = train_toy(tiny_folder, tmp_path / "auto", **settings)
    fits = (0.8 * (10_000_000 - 8 * gpu.count) - gpu.CONSTANT) / gpu.A_TOKEN
    (note,) = notes(run)
    said = int(note.split("so up to ")[1].split()[0])
    assert 200 < fits < 300
    assert said == pytest.approx(fits, rel=0.15)
    assert "tokens took 0.01 GB" in note
    assert "8.0 GB" not in note
    assert "Set rl.tokens_per_microbatch" in note
    assert max(gpu.tokens) <= said
    assert told(run) == []
    assert policy.recomputes == "auto"
    _, small = train_toy(tiny_folder, tmp_path / "small", tokens_per_microbatch=said, **settings)
    assert_alike(run, small, 1e-5)


def test_layers_are_recomputed_where_less_than_a_batch_needs_would_fit(
    tiny_folder, tmp_path, monkeypatch
):
    settings = {"steps": 2, "prompts_per_step": 6, "group_size": 8}
    with monkeypatch.context() as patch:
        Gpu(patch, size=7_500_000)
        policy, run = train_toy(tiny_folder, tmp_path / "auto", **settings)
    assert policy.recomputes is True
    first, second = notes(run)
    assert "model.gradient_checkpointing: true" in first
    few, many = (int(each.split("so up to ")[1].split()[0]) for each in (first, second))
    assert many > 2 * few
    _, plain = train_toy(tiny_folder, tmp_path / "plain", **settings)
    assert_alike(run, plain, 1e-5)
    with monkeypatch.context() as patch:
        Gpu(patch, size=7_500_000)
        never, _ = train_toy(
            tiny_folder,
            tmp_path / "never",
            model_options={"gradient_checkpointing": False},
            **settings,
        )
    assert never.recomputes is False


def test_layers_are_recomputed_where_one_answer_alone_does_not_fit(
    tiny_folder, tmp_path, monkeypatch
):
    full = Full(monkeypatch, holds=0)
    honest = AutoregressivePolicy.recompute

    def recompute(policy):
        full.holds = 10**9
        return honest(policy)

    monkeypatch.setattr(AutoregressivePolicy, "recompute", recompute)
    policy, run = train_toy(tiny_folder, tmp_path / "run", steps=1)
    assert policy.recomputes is True
    assert "model.gradient_checkpointing: true" in told(run)[-1]
    assert "rl.tokens_per_microbatch" not in told(run)[-1]


def test_where_one_alone_does_not_fit_the_error_says_what_to_do(tiny_folder, tmp_path, monkeypatch):
    Full(monkeypatch, holds=0)
    with pytest.raises(
        DeviceMemoryError,
        match=r"lower sft\.tokens_per_microbatch .*, lower rl\.tokens_per_microbatch",
    ):
        run_recipe(recipe(tiny_folder), tmp_path / "run")


def test_an_error_that_is_not_of_memory_is_not_tried_again(tiny_folder, tmp_path, monkeypatch):
    calls = []

    def broken(*_, **__):
        calls.append(1)
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")

    monkeypatch.setattr(AutoregressivePolicy, "score", broken)
    with pytest.raises(RuntimeError, match="mat1"):
        train_toy(tiny_folder, tmp_path / "run")
    assert calls == [1]


def test_a_stage_holds_nothing_when_the_next_model_is_opened(tiny_folder, tmp_path, monkeypatch):
    """Model, optimiser and its state, without the garbage collector's help; and each step says what
    it took."""
    held, made, alive = [], Optimiser.__init__, []
    honest = pipeline.open_policy

    def opened(*given):
        alive.append([name for name, each in held if each() is not None])
        policy = honest(*given)
        held.append(("model", weakref.ref(policy.model)))
        return policy

    def remembered(optimiser, *given):
        made(optimiser, *given)
        held.append(("optimiser", weakref.ref(optimiser)))

    monkeypatch.setattr(pipeline, "open_policy", opened)
    monkeypatch.setattr(Optimiser, "__init__", remembered)
    gc.disable()
    try:
        run = run_recipe(recipe(tiny_folder, model__gradient_checkpointing=True), tmp_path / "run")
    finally:
        gc.enable()
    assert len(alive) > 3
    assert not any(alive)
    rows = run.files["timings"].rows()
    assert [row["stage"] for row in rows] == ["sft"] * 3 + ["rl"] * 4
    assert all(0.05 < row["memory/peak_gb"] < 100 for row in rows)
    shown = dict(token_facts(RunView(run.record())))
    assert shown["GRPO, peak memory"] == f"{max(row['memory/peak_gb'] for row in rows):.2f} GB"


COUNTED = """
    import os, resource
    os.environ.pop("GLIBC_TUNABLES", None)
    import torch
    from plumbline.policies import memory
    torch.set_num_threads(1)
    for own in ("", "MALLOC_ARENA_MAX"):
        if os.fork():
            os.wait()
            continue
        os.environ |= {own: "2"} if own else {}
        for step in range(6):
            memory.KEPT = 0.5 if step < 4 else 0
            memory.begin_peak(torch.device("cpu"))
            before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
            for _ in range(4):
                torch.ones(2**24)  # 64 MiB
            print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
            if step == 1:
                memory.keep_pages()
        break
"""


@pytest.fixture
def two_threads(monkeypatch):
    """Two threads that share a batch of a model however small."""
    monkeypatch.setattr("plumbline.policies.pretrained.policy.WIDE", 0)
    monkeypatch.setattr(microbatches, "WORTH_A_MICROBATCH", 1)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("way", WAYS)
def test_threads_share_a_batch_and_add_up_in_a_fixed_order(
    tiny_folder, tmp_path, monkeypatch, two_threads, way
):
    settings = {"steps": 2, "tokens_per_microbatch": 256, **WAYS[way]}
    seen, honest = set(), AutoregressivePolicy.score

    def score(policy, *given, **named):
        seen.add((threading.current_thread().name.partition("_")[0], torch.get_num_threads()))
        return honest(policy, *given, **named)

    monkeypatch.setattr(AutoregressivePolicy, "score", score)
    policy, run = train_toy(tiny_folder, tmp_path / "shared", **settings)
    assert ("micro-batch", 1) in seen, "no micro-batch was done beside"
    assert torch.get_num_threads() == 2
    again, _ = train_toy(tiny_folder, tmp_path / "again", **settings)
    torch.set_num_threads(1)
    alone, other = train_toy(tiny_folder, tmp_path / "alone", **settings)
    for name, weight in weights(policy).items():
        assert torch.equal(weights(again)[name], weight), name
        torch.testing.assert_close(weight, weights(alone)[name], rtol=1e-4, atol=1e-6)
    assert_alike(run, other, 1e-4)


def test_a_replica_in_a_thread_recomputes_and_fails_as_its_learner(
    tiny_folder, tmp_path, monkeypatch, two_threads
):
    full = Full(monkeypatch, at=(3, 4, 5))
    policy, run = train_toy(tiny_folder, tmp_path / "full", steps=2, tokens_per_microbatch=256)
    assert told(run), "what failed in a thread is told"
    assert len(full.microbatches) > 5
    monkeypatch.undo()
    alone, _ = train_toy(tiny_folder, tmp_path / "alone", steps=2)
    for name, weight in weights(policy).items():
        torch.testing.assert_close(weight, weights(alone)[name], rtol=1e-4, atol=1e-6)


def test_work_that_no_replica_can_do_is_done_here(tiny_folder, two_threads, monkeypatch):
    monkeypatch.setattr("plumbline.policies.pretrained.policy.WIDE", 10**6)
    policy = open_policy(recipe(tiny_folder).model, str(tiny_folder))
    found = microbatches.shared_out(
        microbatches.Threads(), policy, [1, 2, 3], lambda parts, _: list(parts)
    )
    assert found == [[1, 2, 3]]


@pytest.mark.parametrize("lora", [None, {"rank": 2, "alpha": 4}])
def test_a_replica_has_the_same_weights_and_gradients_of_its_own(tiny_folder, two_threads, lora):
    policy = open_policy(recipe(tiny_folder, model__lora=lora).model, str(tiny_folder))
    policy.keep_reference()
    other = policy.replica()
    mine, theirs = dict(policy.trainable()), dict(other.trainable())
    assert mine.keys() == theirs.keys()
    for name, weight in mine.items():
        assert weight is not theirs[name], name
        assert weight.data_ptr() == theirs[name].data_ptr(), name
    places = {weight.data_ptr() for weight in policy.model.parameters()}
    assert places == {weight.data_ptr() for weight in other.model.parameters()}, (
        "no weight is there twice"
    )
    with other.as_reference():
        assert policy.trainable().keys() == mine.keys(), (
            "which adapter a replica uses is its own affair"
        )


@pytest.mark.skipif(
    not hasattr(ctypes.CDLL(None), "mallopt"),
    reason="this C library has no settings of its allocator",
)
def test_what_a_step_gave_back_is_there_for_the_next():
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")
    }
    script = [sys.executable, "-c", textwrap.dedent(COUNTED)]
    done = subprocess.run(script, env=environment, capture_output=True, text=True, check=True)
    faults = [int(line) for line in done.stdout.split()]
    for own, (_, before, _, after, scarce, _) in (
        ("", faults[:6]),
        ("MALLOC_ARENA_MAX", faults[6:]),
    ):
        assert before > 4 * 32, (
            "else the system gives such large pages that there is nothing to keep"
        )
        assert scarce > before / 16, "where memory is scarce it is given back between steps"
        # A kernel that reclaims idle pages by itself takes some of what was kept.
        assert (after > before / 2) if own else (after < before / 2), (
            "what the user has set is left alone"
        )


@pytest.mark.parametrize(
    ("groups", "files", "most"),
    [
        ("0::/\n", {"memory.max": "max\n"}, None),
        ("0::/\n", {"memory.max": "max"}, None),
        ("0::/\n", {"memory.max": "4096\n"}, 4096),
        ("0::/a/b\n", {"a/b/memory.max": "max\n", "a/memory.max": "8192\n"}, 8192),
        ("4:memory:/host/path\n3:cpu:/\n0::/\n", {"memory/memory.limit_in_bytes": "4096\n"}, 4096),
        ("4:memory:/\n", {"memory/memory.limit_in_bytes": "9223372036854771712\n"}, None),
        ("3:cpu:/a:b\n", {"memory.max": "4096\n"}, None),
        (None, {}, None),
    ],
)
def test_a_container_may_hold_less_than_its_machine(tmp_path, monkeypatch, groups, files, most):
    monkeypatch.setattr(memory, "LIMITS", tmp_path / "limits")
    monkeypatch.setattr(memory, "GROUPS", tmp_path / "cgroup")
    if groups is not None:
        memory.GROUPS.write_text(groups)
    for name, text in files.items():
        (memory.LIMITS / name).parent.mkdir(parents=True, exist_ok=True)
        (memory.LIMITS / name).write_text(text)
    assert memory.main_memory() == (
        most or os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    )
