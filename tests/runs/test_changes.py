"""What errors advise can be done: a run goes on with other micro-batches, on another device, at
another rate, and says so."""

import shutil
import weakref

import pytest
import torch

from plumbline.errors import DataError, DeviceMemoryError, RunError, TrainingStopped
from plumbline.policies.memory import clear_memory_errors
from plumbline.recipe import parse_recipe
from plumbline.runs.record import RunRecord
from plumbline.runs.run import Run
from plumbline.training import rl
from plumbline.training.optimiser import Optimiser
from plumbline.training.pipeline import run_recipe
from tests.toy import ToyTask
from tests.training.toy_runs import messages

CONSTANT = {"learning_rate": 1e-3, "schedule": "constant"}
VALUES = {
    "name": "changed",
    "task": {"name": "tests.toy:open_toy", "options": {"size": 8}},
    "sft": {"steps": 3, "batch_size": 4, "optimiser": CONSTANT},
    "rl": {"steps": 4, "prompts_per_step": 2, "group_size": 4, "optimiser": CONSTANT},
    "sampling": {"max_tokens": 8},
    "evaluation": {"every": 0, "final": ["val"]},
    "run": {"checkpoint_every": 1},
}


def recipe(folder, **changes):
    """The recipe above with `section__key=value`."""
    values = {**VALUES, "model": {"name": str(folder)}}
    for name, value in changes.items():
        path = name.split("__")
        inner = values
        for part in path[:-1]:
            inner[part] = dict(inner[part])
            inner = inner[part]
        inner[path[-1]] = value
    return parse_recipe(values)


def break_at(patch, module, name, call, error):
    """Let a function of a module raise at its `call`-th call."""
    honest, calls = getattr(module, name), []

    def broken(*arguments, **named):
        calls.append(1)
        if len(calls) == call:
            error()
        return honest(*arguments, **named)

    patch.setattr(module, name, broken)


def fill_the_memory():
    torch.empty(2**50)


def fill_the_gpu():
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.\nmore of it")


def changed(run):
    events = [event for event in run.files["events"].rows() if event["kind"] == "changed"]
    return [
        (event["key"], event["old"], event["new"], event["stage"], event["step"])
        for event in events
    ]


def ends(folder, place, module, name, call, error=fill_the_gpu):
    """The error of a run that runs out of memory at that call."""
    with pytest.MonkeyPatch.context() as patch:
        break_at(patch, module, name, call, error)
        with pytest.raises(DeviceMemoryError) as caught:
            run_recipe(recipe(folder), place)
    return caught.value


@pytest.fixture(scope="module")
def _stopped(tiny_folder, tmp_path_factory):
    folder = tmp_path_factory.mktemp("stopped") / "run"
    ends(tiny_folder, folder, rl, "update_policy", 3)
    return folder


@pytest.fixture
def stopped(_stopped, tmp_path):
    """A run that ran out of memory behind its second step of RL."""
    return shutil.copytree(_stopped, tmp_path / "run")


@pytest.mark.parametrize("full", [fill_the_memory, fill_the_gpu])
def test_out_of_memory_says_what_to_lower(tiny_folder, tmp_path, full):
    error = ends(tiny_folder, tmp_path / "run", rl, "update_policy", 1, full)
    assert "memory" in error.cause
    for advised in ("rl.tokens_per_microbatch (auto now)", "model.rows_at_once"):
        assert advised in error.fix


def test_a_run_that_ran_out_of_memory_goes_on_with_less(tiny_folder, stopped, tmp_path):
    lighter = {
        "rl__tokens_per_microbatch": 64,
        "model__gradient_checkpointing": True,
        "model__rows_at_once": 4,
    }
    run = run_recipe(recipe(tiny_folder, **lighter), stopped, resume=True)
    assert run.result() is not None
    assert changed(run) == [
        ("model.rows_at_once", None, 4, "rl", 2),
        ("model.gradient_checkpointing", "auto", True, "rl", 2),
        ("rl.tokens_per_microbatch", "auto", 64, "rl", 2),
    ]
    assert RunRecord.read(stopped).recipe.rl.tokens_per_microbatch == 64
    again = run_recipe(recipe(tiny_folder, **lighter), tmp_path / "whole")
    for one, other in zip(run.rows("rl"), again.rows("rl"), strict=True):
        assert one["train/loss"] == pytest.approx(other["train/loss"], abs=1e-5)
        assert one["train/reward"] == other["train/reward"]


def test_a_lower_rate_holds_from_the_checkpoint_on(tiny_folder, tmp_path, monkeypatch):
    honest = Optimiser.step

    def poisoned(self, step):
        if self.rate_key == "rl.optimiser.learning_rate" and step == 2:
            for weight in self.weights.values():
                weight.grad = torch.full_like(weight, float("nan"))
        return honest(self, step)

    with monkeypatch.context() as patch:
        patch.setattr(Optimiser, "step", poisoned)
        with pytest.raises(TrainingStopped, match=r"rl\.optimiser\.learning_rate.* --resume"):
            run_recipe(recipe(tiny_folder), tmp_path / "run")
    lower = recipe(tiny_folder, rl__optimiser={**CONSTANT, "learning_rate": 1e-4})
    run = run_recipe(lower, tmp_path / "run", resume=True)
    assert [row["train/learning_rate"] for row in run.rows("rl")] == [1e-3, 1e-3, 1e-4, 1e-4]
    assert changed(run) == [("rl.optimiser.learning_rate", 1e-3, 1e-4, "rl", 2)]
    report = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert "lr 0.0001 (0.001 before step 2)" in report


def test_a_rate_of_a_stage_that_has_not_begun_holds_from_its_start(tiny_folder, tmp_path):
    ends(tiny_folder, tmp_path / "run", Optimiser, "step", 3)
    other = {"rl__optimiser": {**CONSTANT, "learning_rate": 1e-4}, "sft__tokens_per_microbatch": 64}
    run = run_recipe(recipe(tiny_folder, **other), tmp_path / "run", resume=True)
    assert changed(run) == [
        ("sft.tokens_per_microbatch", "auto", 64, "sft", 2),
        ("rl.optimiser.learning_rate", 1e-3, 1e-4, "rl", 0),
    ]
    assert {row["train/learning_rate"] for row in run.rows("rl")} == {1e-4}


def test_everything_else_is_refused_and_says_what_may_change(tiny_folder, stopped):
    stood = (stopped / "recipe.yaml").read_text()
    for change in (
        {"rl__steps": 9},
        {"rl__group_size": 2},
        {"model__dtype": "bfloat16"},
        {"seed": 1},
    ):
        with pytest.raises(RunError, match="another recipe") as caught:
            Run.start(recipe(tiny_folder, **change), stopped, resume=True)
        assert "rl.tokens_per_microbatch" in caught.value.fix
        assert "rl.optimiser.learning_rate" in caught.value.fix
    with pytest.raises(RunError, match=r"sft\.optimiser\.learning_rate: 0\.001 -> 0\.1.*finished"):
        Run.start(
            recipe(tiny_folder, sft__optimiser={**CONSTANT, "learning_rate": 0.1}),
            stopped,
            resume=True,
        )
    assert (stopped / "recipe.yaml").read_text() == stood


def test_a_finished_run_keeps_the_recipe_that_it_was_made_by(tiny_folder, tmp_path):
    run_recipe(recipe(tiny_folder), tmp_path / "run")
    stood = (tmp_path / "run" / "recipe.yaml").read_text()
    run = run_recipe(
        recipe(tiny_folder, rl__tokens_per_microbatch=64), tmp_path / "run", resume=True
    )
    assert run.recipe.rl.tokens_per_microbatch == "auto"
    assert (tmp_path / "run" / "recipe.yaml").read_text() == stood
    assert changed(run) == []


def test_where_a_run_goes_on_elsewhere_is_recorded(tiny_folder, stopped):
    path = stopped / "environment.json"
    path.write_text(path.read_text().replace('"device": "cpu"', '"device": "cuda:0"'))
    run = run_recipe(recipe(tiny_folder), stopped, resume=True)
    said = messages(run, "engine")
    assert ["(device: cuda:0 -> cpu)" in one for one in said] == [True]


def test_other_errors_are_left_as_they_are():
    with pytest.raises(RuntimeError, match="shapes") as caught, clear_memory_errors("advice"):
        raise RuntimeError("shapes do not fit")
    assert not isinstance(caught.value, DeviceMemoryError)


def test_what_failed_gives_its_memory_back():
    kept = []

    def fail():
        large = torch.zeros(3)
        kept.append(weakref.ref(large))
        fill_the_memory()

    with pytest.raises(DeviceMemoryError) as caught, clear_memory_errors("advice"):
        fail()
    assert kept[0]() is None, "the traceback holds what it failed with"
    assert caught.value.fix == "advice"


def test_prompts_too_long_for_rl_are_said_before_sft(tiny_folder, tiny_policy, tmp_path):
    """`sampling.max_tokens` could not be lowered any more after it."""
    task = ToyTask({"size": 8})
    train, val = (
        max(tiny_policy.prompt_length(e.messages) for e in task.examples(s))
        for s in ("train", "val")
    )
    assert train > val
    with pytest.raises(DataError, match="prompts do not fit: train-"):
        run_recipe(
            recipe(tiny_folder, model__context=val + 8, run={"preflight": False}), tmp_path / "run"
        )
    assert not RunRecord.read(tmp_path / "run").rows("sft")
