"""A request is answered by its key and the weights alone: a law of sampling that every family is
held to."""

import copy

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from plumbline.api import sample_trajectories
from plumbline.policies import memory
from plumbline.policies.autoregressive import policy as sampler
from plumbline.policies.autoregressive.decoders.lean import LeanDecoder
from plumbline.policies.flow.options import FlowSampling
from plumbline.policies.masked.options import MaskedSampling
from plumbline.policies.slots.options import SlotSampling
from plumbline.records import Request, Sampling
from tests.policies.families import CHATS, opened

SAMPLINGS = {
    "autoregressive": [Sampling(max_tokens=8), Sampling(max_tokens=8, temperature=0.8)],
    "masked": [
        MaskedSampling(max_tokens=8, steps=4, selector="plackett_luce"),
        MaskedSampling(max_tokens=8, steps=4, selector="threshold", temperature=0.8),
    ],
    "slots": [
        SlotSampling(max_tokens=8, steps=2, selector="plackett_luce"),
        SlotSampling(max_tokens=8, steps=2, selector="random", temperature=0.8),
    ],
    "flow": [
        FlowSampling(max_tokens=4, steps=3),
        FlowSampling(max_tokens=4, steps=3, temperature=0.8),
    ],
}
COPIES = (3, 1, 4, 2)


@pytest.fixture(scope="module", params=sorted(SAMPLINGS))
def policy(request, family_folders):
    policy = opened(request.param, family_folders[request.param])
    if request.param == "autoregressive":
        policy.chat.stop_ids = tuple(range(40))  # so that completions have several lengths
    return policy


@pytest.fixture(scope="module")
def alone(policy):
    """Requests of two distributions and four prompts, in unequal numbers, and the answer to each
    where nothing is beside it."""
    requests = [
        Request((7, f"sampling-{sampling.temperature}", f"chat-{prompt}", copy, 0), chat, sampling)
        for sampling in SAMPLINGS[policy.family]
        for prompt, chat in enumerate(CHATS)
        for copy in range(COPIES[prompt])
    ]
    return [
        (request, trajectory) for each in requests for request, trajectory in policy.sample([each])
    ]


def same(one, other):
    assert len(one.transitions) == len(other.transitions)
    for mine, theirs in zip(one.transitions, other.transitions, strict=True):
        assert mine.positions.tolist() == theirs.positions.tolist()
        assert mine.tokens.tolist() == theirs.tokens.tolist()
    assert (one.text, one.finish) == (other.text, other.finish)
    np.testing.assert_allclose(one.logprobs, other.logprobs, atol=1e-5, rtol=0)


# Derandomised, because equal draws are not certain where a number falls within rounding of a
# border.
@settings(
    max_examples=12,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    order=st.permutations(range(20)),
    count=st.integers(1, 20),
    rows=st.sampled_from([1, 2, 3, 5, 8, 64]),
)
def test_company_order_and_chunks_change_no_draw(policy, alone, order, count, rows):
    wanted = {request.key: trajectory for request, trajectory in alone}
    asked = [alone[index][0] for index in order[:count]]
    policy.rows_at_once = rows
    found = list(policy.sample(asked))
    assert sorted(request.key for request, _ in found) == sorted(request.key for request in asked)
    for request, trajectory in found:
        assert trajectory.sampling == request.sampling
        same(trajectory, wanted[request.key])


class Listener:
    def __init__(self, told):
        self.told = told

    def event(self, kind, message):
        self.told.append((kind, message))


def test_out_of_memory_fewer_are_drawn_at_once_and_what_had_ended_is_kept(
    policy, alone, monkeypatch
):
    honest, wanted = policy.draw, {request.key: trajectory for request, trajectory in alone}
    asked, told, largest = [], [], []
    tell = Listener(told)

    def full(requests):
        asked.append([request.key for request in requests])
        for count, pair in enumerate(honest(requests)):
            if policy.rows_at_once > 3 and count == 2:
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
            yield pair

    monkeypatch.setattr(policy, "draw", full)
    monkeypatch.setattr(policy, "say", tell.event)
    assert copy.deepcopy(policy).say.__self__ is tell, (
        "a copy, which samples for it, tells the same run"
    )
    policy.rows_at_once = 8
    honest_chunks = policy.chunks

    def seen(*given):
        for chunk in honest_chunks(*given):
            largest.append((policy.rows_at_once, len(chunk.requests)))
            yield chunk

    monkeypatch.setattr(policy, "chunks", seen)
    found = list(policy.sample([request for request, _ in alone]))
    assert [len(keys) for keys in asked] == [20, 18, 16]
    assert sorted(request.key for request, _ in found) == sorted(wanted)
    for request, trajectory in found:
        same(trajectory, wanted[request.key])
    assert policy.rows_at_once == 2
    assert all(count <= rows for rows, count in largest), "copies of one prompt, too"
    assert [kind for kind, _ in told] == ["out_of_memory"] * 2
    assert "Set model.rows_at_once: 2 " in told[-1][1]


@pytest.mark.skipif(
    not memory.STATM.is_file(), reason="this system does not say what a process holds"
)
def test_where_memory_is_scarce_kept_pages_are_given_back_between_chunks(
    policy, alone, monkeypatch
):
    asked, trims = [request for request, _ in alone], []
    monkeypatch.setattr(memory, "_trim", lambda: trims.append(None))
    policy.rows_at_once = 5
    list(policy.sample(asked))
    assert not trims
    monkeypatch.setattr(memory, "KEPT", 0)
    list(policy.sample(asked))
    assert len(trims) >= len(asked) / 5


def test_an_answer_that_does_not_fit_alone_is_an_error(policy, alone, monkeypatch):
    def full(requests):
        raise torch.OutOfMemoryError("CUDA out of memory.")
        yield

    monkeypatch.setattr(policy, "draw", full)
    with pytest.raises(torch.OutOfMemoryError):
        list(policy.sample([request for request, _ in alone]))


def test_copies_are_draws_of_their_own_and_keys_may_not_repeat(policy, alone):
    answers = {
        tuple(token for step in trajectory.transitions for token in step.tokens.tolist())
        for request, trajectory in alone
        if request.key[2] == "chat-2"
    }
    assert len(answers) > 4
    request = alone[0][0]
    with pytest.raises(ValueError, match="keys"):
        list(policy.sample([request, request]))


def test_a_trajectory_says_which_weights_drew_it(policy, alone):
    assert {trajectory.version for _, trajectory in alone} == {0}
    policy.publish(3)
    assert [trajectory.version for _, trajectory in policy.sample([alone[0][0]])] == [3]
    policy.publish(0)


def test_completions_come_when_they_end(tiny_policy, monkeypatch):
    order = []
    original = sampler.draw
    monkeypatch.setattr(sampler, "draw", lambda *given: order.append("token") or original(*given))
    monkeypatch.setattr(tiny_policy, "rows_at_once", 8)
    # Every token of the upper half of the vocabulary ends a completion, so that lengths differ.
    monkeypatch.setattr(tiny_policy.chat, "stop_ids", tuple(range(200, 300)))
    requests = [
        Request((chat, copy), CHATS[chat], Sampling(max_tokens=12))
        for chat in range(3)
        for copy in range(4)
    ]
    lengths = []
    for _, trajectory in tiny_policy.sample(requests):
        lengths.append(trajectory.num_tokens)
        order.append("text")
    assert len(lengths) == 12
    assert len(set(lengths)) > 2, lengths
    last_token = len(order) - 1 - order[::-1].index("token")
    assert order.index("text") < last_token - 2, "all came at the end"


class TestPrefill:
    """What prompts have in common is read once."""

    SYSTEM = "o produto chegou atrasado e com defeito " * 6

    def asked(self, copies=2):
        chats = [[{"role": "system", "content": self.SYSTEM}, *chat] for chat in CHATS]
        return [
            Request((c, copy), chats[c], Sampling(max_tokens=6))
            for c in range(4)
            for copy in range(copies)
        ]

    @pytest.fixture
    def read(self, tiny_policy, monkeypatch):
        """Tokens of each prompt pass."""
        found = []
        original = tiny_policy.model.model.forward

        def forward(ids, *given, **named):
            found.append(tuple(ids.shape))
            return original(ids, *given, **named)

        monkeypatch.setattr(tiny_policy.model.model, "forward", forward)
        return found

    def test_a_common_beginning_once_a_call_and_a_prompt_once_for_its_copies(
        self, tiny_policy, read, monkeypatch
    ):
        monkeypatch.setattr(tiny_policy, "rows_at_once", 4)  # two prompts a chunk
        together = {
            request.key: trajectory for request, trajectory in tiny_policy.sample(self.asked())
        }
        (rows, shared), *rest = read
        assert rows == 1
        assert shared > 60
        assert [rows for rows, _ in rest] == [2, 2]
        assert max(width for _, width in rest) < 40
        read.clear()
        for request in self.asked():
            ((_, trajectory),) = tiny_policy.sample([request])
            same(trajectory, together[request.key])
        assert all(width > shared for _, width in read), "alone there is nothing to share"

    def test_a_short_one_is_not_worth_a_pass(self, tiny_policy, read):
        sample_trajectories(tiny_policy, CHATS, 2, Sampling(max_tokens=2), seed=0)
        assert [rows for rows, _ in read] == [4]

    def test_another_beginning_would_be_noticed(self, tiny_policy, monkeypatch):
        """The control: rows that see another beginning than their own record something else."""
        honest = LeanDecoder._cache_shared
        wanted = {
            request.key: trajectory for request, trajectory in tiny_policy.sample(self.asked())
        }
        monkeypatch.setattr(
            LeanDecoder,
            "_cache_shared",
            lambda self, shared, rows: honest(self, [9] * len(shared), rows),
        )
        for request, trajectory in tiny_policy.sample(self.asked()):
            assert abs(trajectory.logprobs[0] - wanted[request.key].logprobs[0]) > 1e-4


def test_nothing_is_drawn_from_the_global_generator(policy, alone):
    state = torch.random.get_rng_state()
    list(policy.sample([request for request, _ in alone]))
    assert torch.equal(state, torch.random.get_rng_state())
