"""Graphs that outlive a call: equal draws over `tests.fake_gpu.Tape`, and over CUDA graphs where
there is a GPU."""

import copy
import gc
import shutil
from collections import Counter

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from conftest import sharpen
from plumbline.api import sampled
from plumbline.errors import DeviceMemoryError
from plumbline.policies import open_policy
from plumbline.policies.autoregressive import policy as sampler
from plumbline.policies.autoregressive import probe as probing
from plumbline.policies.autoregressive.decoders import graphs as module
from plumbline.policies.autoregressive.decoders.graphs import Graphs, bucket
from plumbline.policies.autoregressive.decoders.lean import LeanDecoder
from plumbline.policies.autoregressive.options import AutoregressiveModel
from plumbline.policies.chunks import chunks
from plumbline.policies.memory import SPARE, clear_memory_errors
from plumbline.recipe import LoraSection
from plumbline.records import Request, Sampling
from tests.fake_gpu import Tape, fake_gpu, waits

CHATS = [[{"role": "user", "content": "o produto " * (1 + 5 * index)}] for index in range(5)]
SAMPLING = Sampling(temperature=1.5, max_tokens=40)


@pytest.fixture(scope="module")
def folder(tiny_folder, tmp_path_factory):
    """The tiny model, far from even, so that what is attended to decides what is drawn."""
    made = tmp_path_factory.mktemp("graphs") / "tiny"
    shutil.copytree(tiny_folder, made)
    sharpen(made, 3.0)
    return made


def opened(folder, **options):
    section = AutoregressiveModel(name=str(folder), dtype="float32", **{"device": "cpu", **options})
    policy = open_policy(section, str(folder))
    # Several stop tokens, so that rows end at many different times and the grid shrinks.
    policy.chat.stop_ids = tuple(range(0, 300, 9))
    return policy


@pytest.fixture
def captured(monkeypatch):
    """Tapes instead of graphs, and how many were made."""
    made = []
    monkeypatch.setattr(module, "capture", lambda *args: made.append(args) or Tape(*args))
    return made


@pytest.fixture
def taped(folder, captured):
    """A policy on the CPU that samples by tapes."""
    policy = opened(folder, lora=LoraSection(rank=2))
    policy._graphs = Graphs()
    return policy


def tokens(policy, chats=CHATS, copies=6, sampling=SAMPLING, seed=0):
    return [
        [t.tokens.tolist() for t in group]
        for group in sampled(policy, chats, copies, sampling, seed)
    ]


def plain(policy, *args, **options):
    """The same, step by step."""
    held, policy._graphs = policy._graphs, None
    try:
        return tokens(policy, *args, **options)
    finally:
        policy._graphs = held


def move(policy, seed):
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in policy.trainable().values():
            weight.add_((torch.randn(weight.shape, generator=generator) * 0.2).to(weight))


@pytest.mark.parametrize("count", range(1, 70))
def test_a_bucket_is_near_and_there_are_few(count):
    assert count <= bucket(count) < 1.5 * count or count == bucket(count)
    assert bucket(bucket(count)) == bucket(count)
    assert len({bucket(each) for each in range(1, count + 1)}) <= 2 * count.bit_length()


def test_a_second_call_of_like_shape_captures_nothing_and_draws_the_same(
    taped, captured, monkeypatch
):
    shapes = []
    original = sampler._smaller_grid
    monkeypatch.setattr(
        sampler, "_smaller_grid", lambda live: shapes.append(live.shape) or original(live)
    )
    drawn = tokens(taped)
    assert drawn == plain(taped)
    assert len(set(shapes)) > 2, "the grid shrinks"
    first = len(captured)
    assert first > 1, "a graph a shape"
    assert tokens(taped) == drawn
    assert len(captured) == first
    # Other prompts, other limits and other grids of the same rounded shape, and buffers that hold
    # another call's keys.
    for chats, copies, sampling in (
        (CHATS[::-1], 6, SAMPLING),
        (CHATS, 5, Sampling(temperature=1.5, max_tokens=34)),
    ):
        assert tokens(taped, chats, copies, sampling, seed=1) == plain(
            taped, chats, copies, sampling, seed=1
        )
    whole = [key for key in taped._graphs.graphs if key[:2] == (6, 6)]
    assert len(whole) == 1


def test_spans_are_graphs_of_their_own(taped, captured, monkeypatch):
    monkeypatch.setattr("plumbline.policies.autoregressive.decoders.lean.GRAPH_SPAN", 16)
    taped.chat.stop_ids = (-1,)
    assert tokens(taped, CHATS[:1], 2) == plain(taped, CHATS[:1], 2)
    assert [key[-1] for key in taped._graphs.graphs] == [16, 32, 48]


@pytest.mark.parametrize("lora", [True, False], ids=["lora", "full"])
def test_kept_graphs_draw_with_weights_as_they_are_now(folder, captured, lora):
    policy = opened(folder, lora=LoraSection(rank=2) if lora else None)
    policy._graphs = Graphs()
    policy.chat.stop_ids = (-1,)
    before = tokens(policy)
    assert len(captured) == 1
    move(policy, seed=1)
    after = tokens(policy)
    assert after == plain(policy)
    assert after != before
    if lora:  # and by the reference's adapters
        policy.keep_reference()
        move(policy, seed=2)
        assert tokens(policy) != after
        with policy.as_reference():
            assert tokens(policy) == after
    assert len(captured) == 1 + lora, "a reference is a weight more, once"


def test_weights_at_another_place_are_captured_anew(taped, captured):
    before = tokens(taped)
    weight = taped.model.get_decoder().layers[0].mlp.down_proj.base_layer.weight
    weight.data = weight.data * -1
    after = tokens(taped)
    assert after == plain(taped)
    assert after != before


def test_a_planted_error_adapters_that_stay_as_captured_are_seen(taped, captured, monkeypatch):
    """The negative control: adapters that are not written into their buffers are those of the first
    call."""
    tokens(taped)
    move(taped, seed=1)
    true = Graphs.place

    def stale(self, name, source, *args, **options):
        if name in self.buffers and ("down" in name or "attention" in name):
            return self.buffers[name].view(source.shape)
        return true(self, name, source, *args, **options)

    monkeypatch.setattr(Graphs, "place", stale)
    assert tokens(taped) != plain(taped)


def test_the_oldest_graphs_go_and_memory_is_bounded(taped, captured, monkeypatch):
    monkeypatch.setattr(module, "KEPT", 3)
    taped.chat.stop_ids = (-1,)
    for copies in (6, 4, 3, 2, 1):
        tokens(taped, CHATS[:1], copies, Sampling(max_tokens=4))
    assert [key[1] for key in taped._graphs.graphs] == [3, 2, 1]
    held = {name: buffer.data_ptr() for name, buffer in taped._graphs.buffers.items()}
    tokens(taped, CHATS[:1], 3, Sampling(max_tokens=4))
    assert [key[1] for key in taped._graphs.graphs] == [2, 1, 3], "the one used last stands last"
    assert {name: buffer.data_ptr() for name, buffer in taped._graphs.buffers.items()} == held
    assert len(captured) == 5
    tokens(taped, CHATS[:1], 8, Sampling(max_tokens=4))
    assert [key[1] for key in taped._graphs.graphs] == [8], (
        "none of those that read smaller buffers"
    )


def test_graphs_are_released_where_memory_is_short_and_not_below_a_call(
    taped, captured, monkeypatch
):
    def out_of_memory():
        with pytest.raises(DeviceMemoryError), clear_memory_errors("use less"):
            raise RuntimeError("CUDA out of memory")

    wanted = plain(taped)
    assert tokens(taped) == wanted
    assert taped._graphs.buffers
    out_of_memory()
    assert not taped._graphs.buffers
    assert not taped._graphs.graphs
    running = taped.sample([Request((1, index), CHATS[0], SAMPLING) for index in range(4)])
    next(running)
    out_of_memory()
    assert taped._graphs.buffers
    list(running)
    monkeypatch.setattr(module, "_memory", lambda buffers: 1000.0)
    assert tokens(taped) == wanted
    assert not taped._graphs.buffers, "more than a share of the device"
    before = len(SPARE)
    taped._graphs = None
    captured.clear()  # of work that holds its decoder
    gc.collect()
    assert len(SPARE) < before


def test_a_capture_without_memory_is_tried_once_more_without_the_others(taped, monkeypatch):
    wanted = plain(taped)
    failed = []

    def full(work, pool):
        if len(taped._graphs.graphs) == 2:
            failed.append(1)
            raise torch.OutOfMemoryError("CUDA out of memory")
        return Tape(work)

    monkeypatch.setattr(module, "capture", full)
    assert tokens(taped) == wanted
    assert failed


def test_calls_that_take_turns_and_copied_policies_have_graphs_of_their_own(taped, captured):
    requests = [Request((1, index), CHATS[index % 3], SAMPLING) for index in range(12)]
    alone = {request.key: t.tokens.tolist() for request, t in taped.sample(requests)}
    one, other = taped.sample(requests), taped.sample(requests[::-1])
    both = [pair for pairs in zip(one, other, strict=True) for pair in pairs]
    assert Counter(request.key for request, _ in both) == dict.fromkeys(alone, 2)
    for request, trajectory in both:
        assert trajectory.tokens.tolist() == alone[request.key]
    twin = copy.deepcopy(taped)
    move(twin, seed=1)
    assert tokens(twin) == plain(twin)
    assert tokens(taped) == plain(taped)


def test_a_capture_that_fails_at_loading_is_left_out_with_its_reason(folder, monkeypatch):
    """On what says it is a GPU: graphs are tried, and what they raise or get wrong is said."""
    model = opened(folder).model

    def outcome(capture):
        monkeypatch.setattr(module, "capture", capture)
        abilities = probing.probe(model)
        return abilities.lean, abilities.graphs, abilities.left_out()

    monkeypatch.setattr(probing, "_on_gpu", lambda model: True)
    assert outcome(Tape) == (True, True, "")

    def refused(work, pool):
        raise RuntimeError("CUDA error: operation not permitted when stream is capturing\nmore")

    reason = "it fails here: CUDA error: operation not permitted when stream is capturing"
    assert outcome(refused) == (True, False, f"CUDA graphs ({reason})")

    class Once(Tape):
        def replay(self):
            if not self.steps[-1][-1].any():
                super().replay()

    assert outcome(Once) == (True, False, "CUDA graphs (its logits differ from the model's own)")


def test_a_step_that_fails_at_loading_leaves_the_lean_decoder_out(folder, monkeypatch):
    def broken(self, tokens):
        raise RuntimeError("no kernel image is available")

    monkeypatch.setattr(probing.LeanDecoder, "step", broken)
    assert opened(folder).engine["why_not_lean"] == "it fails here: no kernel image is available"


class Even:
    """A decoder whose every token is as likely."""

    def begin(self, prompts, copies, max_tokens, shared=0):
        self.words = torch.zeros(1, 300, device="cuda")
        return self.words.expand(len(prompts), 300)

    def step(self, tokens):
        return self.words.expand(len(tokens), 300)

    def keep(self, prompts, copies):
        pass


class Waits(TorchDispatchMode):
    """Counts the operations that a GPU would be waited for."""

    count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += waits(func, args)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    "sampling", [{}, {"top_k": 5}, {"top_p": 0.9}, {"temperature": 0}], ids=str
)
def test_the_loop_waits_for_no_token(sampling):
    def waited(limit):
        requests = [
            Request((1, index), CHATS[index % 2], Sampling(max_tokens=limit, **sampling))
            for index in range(4)
        ]
        (chunk,) = chunks(
            requests, Sampling, lambda request: [1, 2, len(request.messages[0]["content"])], 64
        )
        with fake_gpu(), Waits() as counter:
            list(sampler.decode(Even(), chunk, [7, 8], torch.device("cuda", 0)))
        return counter.count

    assert waited(15) == waited(3), "the same number, whatever the length"
    assert waited(15) < waited(60), "and it is asked at times what has ended"


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("lora", [True, False], ids=["lora", "full"])
def test_cuda_graphs_are_kept_and_draw_what_plain_steps_draw(folder, lora, monkeypatch):
    made, true = [], module.capture
    monkeypatch.setattr(module, "capture", lambda *args: made.append(args) or true(*args))
    policy = opened(folder, device="cuda", lora=LoraSection(rank=2) if lora else None)
    assert policy.engine["decoder"] == "lean"
    assert policy.engine["left_out"] == ""
    made.clear()
    drawn, first = tokens(policy), len(made)
    assert drawn == plain(policy)
    assert first > 1
    assert tokens(policy) == drawn
    assert len(made) == first
    move(policy, seed=1)
    after = tokens(policy)
    assert after == plain(policy)
    assert after != drawn
    policy._graphs.release()
    torch.cuda.empty_cache()
    assert tokens(policy) == after


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize(
    "sampling", [{}, {"top_k": 5}, {"top_p": 0.9}, {"temperature": 0}], ids=str
)
def test_a_gpu_is_waited_for_at_no_token(folder, sampling, monkeypatch):
    policy, steps, true = opened(folder, device="cuda"), [], LeanDecoder.step
    policy.chat.stop_ids = (-1,)
    whole = Sampling(max_tokens=16, **sampling)  # of 16 tokens nothing is asked in between
    tokens(policy, sampling=whole)

    def watched(self, *args):
        steps.append(1)
        torch.cuda.set_sync_debug_mode("error" if 1 < len(steps) < 15 else "default")
        return true(self, *args)

    monkeypatch.setattr(LeanDecoder, "step", watched)
    try:
        tokens(policy, sampling=whole)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert len(steps) == 15
