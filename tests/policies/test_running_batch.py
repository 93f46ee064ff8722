"""A running batch gives every request what `policy.sample` draws for it, whatever joins and leaves beside it."""

import random
from pathlib import Path

import numpy as np
import pytest
import torch

from plumbline.errors import ModelError
from plumbline.policies import open_policy
from plumbline.policies.autoregressive.continuous import Row, RunningBatch, why_not
from plumbline.policies.autoregressive.decoders import running
from plumbline.policies.autoregressive.decoders.running import RunningDecoder
from plumbline.policies.autoregressive.options import AutoregressiveModel
from plumbline.recipe import ModelSection
from plumbline.records import Request, Sampling

SMOLLM = Path("models/smollm2-135m")
LAWS = (
    Sampling(max_tokens=24),
    Sampling(max_tokens=40, temperature=0.7),
    Sampling(max_tokens=9, top_k=5),
    Sampling(max_tokens=17, top_p=0.8, temperature=1.3),
    Sampling(max_tokens=12, temperature=0.0),
    Sampling(max_tokens=1),
)
WORDS = ["o", "produto", "chegou", "atrasado", "com", "defeito", "e", "a", "caixa", "estava", "aberta"]


def asked(count, seed=0, words=60, laws=LAWS):
    """Requests of several lengths and laws; some have equal chats."""
    rng = random.Random(seed)
    chats = [" ".join(rng.choices(WORDS, k=rng.randint(1, words))) for _ in range(count)]
    chats[1::5] = chats[0::5][: len(chats[1::5])]
    return [
        Request((seed, index), [{"role": "user", "content": chat}], rng.choice(laws))
        for index, chat in enumerate(chats)
    ]


def run(policy, batch, requests, seed=0, often=0.4, leaves=()):
    """Let requests join at random times; what each was told, by key. Those that leave do so some steps later."""
    rng = random.Random(seed)
    todo, rows, got = list(requests), {}, {}
    gone = {}
    while todo or len(batch):
        while todo and rng.random() < often:
            request = todo.pop(0)
            rows[request.key] = row = Row.of(request, policy.chat.prompt(request.messages))
            batch.join(row)
            if request.key in leaves:
                gone[request.key] = rng.randint(0, 6)
        for key in list(gone):
            gone[key] -= 1
            if gone[key] < 0:
                batch.leave(rows[key])
                del gone[key]
        keys = {row: key for key, row in rows.items()}
        for told in batch.step():
            got.setdefault(keys[told.row], []).append(told)
    return got


def check(policy, requests, got, tolerance):
    for request, wanted in policy.sample(requests):
        told = got[request.key]
        assert [each.token for each in told] == wanted.tokens.tolist()
        np.testing.assert_allclose([each.logprob for each in told], wanted.logprobs, atol=tolerance)
        assert [each.finish for each in told] == [None] * (len(told) - 1) + [wanted.finish]


@pytest.fixture
def policy(tiny_folder):
    policy = open_policy(ModelSection(name=str(tiny_folder)), str(tiny_folder))
    policy.chat.stop_ids = tuple(range(20))  # so that completions have several lengths
    return policy


@pytest.mark.parametrize("seed", range(3))
def test_a_request_gets_what_it_is_drawn_alone(policy, seed, monkeypatch):
    monkeypatch.setattr(running, "GROWTH", 16)  # blocks grow and shrink many times
    batch = RunningBatch(policy, 6)
    batch.read_at_once = 64  # longer prompts are read in pieces, short ones together
    requests = asked(24, seed)
    check(policy, requests, run(policy, batch, requests, seed), 1e-5)
    assert len(batch) == 0
    assert not batch.decoder.lengths


def test_a_planted_error_a_row_that_reads_behind_its_end_is_seen(policy, monkeypatch):
    """The negative control: without the mask a short row sees what stands in its block behind its end."""
    monkeypatch.setattr(torch.Tensor, "masked_fill_", lambda tensor, *_: tensor)
    requests = asked(12)
    got = run(policy, RunningBatch(policy, 6), requests)
    monkeypatch.undo()
    with pytest.raises(AssertionError):
        check(policy, requests, got, 1e-5)


def test_who_leaves_changes_nothing_for_others(policy):
    requests = asked(20, seed=4)
    leaves = {request.key for request in requests[::3]}
    got = run(policy, RunningBatch(policy, 5), requests, seed=4, leaves=leaves)
    check(policy, [request for request in requests if request.key not in leaves], got, 1e-5)
    alone = {request.key: trajectory for request, trajectory in policy.sample(requests)}
    short = [key for key in leaves if len(got.get(key, ())) < alone[key].num_tokens]
    assert short, "some left before their end"


def test_equal_prompts_are_read_once_and_reading_goes_in_pieces(policy, monkeypatch):
    read = []
    original = running.Reading.advance
    monkeypatch.setattr(running.Reading, "advance", lambda self: read.append(self.ids.shape) or original(self))
    batch = RunningBatch(policy, 8)
    batch.read_at_once = 64
    law = Sampling(max_tokens=30)
    long = [{"role": "user", "content": "o produto chegou " * 20}]
    requests = [Request((0, copy), long, law) for copy in range(4)]
    short = Request((1, 0), [{"role": "user", "content": "sim"}], law)
    check(policy, [short, *requests], run(policy, batch, [short, *requests], often=1.1), 1e-5)
    length = len(policy.chat.prompt(long))
    assert [shape[0] for shape in read] == [1] * len(read)
    assert len(read) == 1 + -(-length // 64), "the short one, and pieces of the long one, four answers from one reading"


def test_memory_that_is_short_lets_rows_wait_and_changes_no_answer(policy, monkeypatch):
    said = []
    policy.say = lambda kind, message: said.append((kind, message))
    original = RunningDecoder.step

    def step(self, tokens):
        if len(tokens) > 3:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory")
        return original(self, tokens)

    monkeypatch.setattr(RunningDecoder, "step", step)
    batch = RunningBatch(policy, 8)
    requests = asked(14, seed=2)
    check(policy, requests, run(policy, batch, requests, seed=2, often=0.9), 1e-5)
    assert batch.limit in {2, 3}
    assert said[0][0] == "out_of_memory"
    monkeypatch.setattr(RunningDecoder, "step", lambda self, tokens: step(self, torch.zeros(9)))
    batch.join(Row.of(requests[0], policy.chat.prompt(requests[0].messages)))
    with pytest.raises(RuntimeError, match="allocate"):
        run(policy, batch, [])


def test_blocks_are_given_back(policy, monkeypatch):
    monkeypatch.setattr(running, "GROWTH", 16)
    batch = RunningBatch(policy, 16)
    run(policy, batch, asked(16, laws=[Sampling(max_tokens=30)]), often=1.1)
    large = batch.decoder.keys.numel()
    run(policy, batch, asked(1, words=2, laws=[Sampling(max_tokens=4)]))
    assert batch.decoder.keys.numel() < large / 4


def test_what_does_not_fit_is_said(tiny_folder, policy):
    plain = open_policy(AutoregressiveModel(name=str(tiny_folder), decoder="transformers"), str(tiny_folder))
    assert why_not(policy) is None
    with pytest.raises(ModelError, match="running batch"):
        RunningBatch(plain)


@pytest.mark.skipif(not SMOLLM.is_dir(), reason="models/smollm2-135m is not here (plumbline get smollm2-135m)")
def test_a_real_model():
    policy = open_policy(AutoregressiveModel(name=str(SMOLLM), dtype="float32", device="cpu"), str(SMOLLM))
    requests = asked(4, words=12, laws=[Sampling(max_tokens=5), Sampling(max_tokens=8, temperature=0.5, top_p=0.9)])
    # Thirty layers of products that round otherwise with other rows beside them.
    check(policy, requests, run(policy, RunningBatch(policy, 4), requests), 5e-5)
