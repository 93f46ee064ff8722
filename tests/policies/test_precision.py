"""Rounding, for every family: the same plan scores bit for bit the same, another grouping within a budget."""

import pytest
import torch

from conftest import WORDS
from plumbline.api import sampled
from plumbline.policies import open_policy
from plumbline.policies.flow.options import FlowSampling
from plumbline.policies.masked.options import MaskedSampling
from plumbline.policies.pretrained.tiny import make_tiny
from plumbline.policies.slots.options import SlotSampling
from plumbline.recipe import TinySection, parse
from plumbline.records import Sampling

CHATS = [[{"role": "user", "content": text}] for text in ("nota?", "o produto chegou atrasado?")]
LAWS = {
    "autoregressive": Sampling(max_tokens=8),
    "masked": MaskedSampling(max_tokens=8, steps=4, selector="plackett_luce"),
    "slots": SlotSampling(max_tokens=8, steps=2, selector="plackett_luce"),
    "flow": FlowSampling(max_tokens=8, steps=4, kernel="marginal"),
}
BUDGET = {"float32": 1e-4, "bfloat16": 0.1}
"""Nats a term: what another grouping of a batch may change (bfloat16 weights, log-probabilities in float32)."""


@pytest.fixture(scope="module", params=sorted(LAWS))
def folder(request, tmp_path_factory):
    made = tmp_path_factory.mktemp("precision") / request.param
    tiny = TinySection(hidden=32, layers=2, heads=2, vocabulary=300, context=128)
    attention = "full" if request.param in {"autoregressive", "slots"} else "prefix"
    make_tiny(made, tiny, WORDS * 10, seed=0, family=request.param, attention=attention)
    return request.param, attention, made


def opened(family, attention, source, **options):
    own = {} if family == "autoregressive" else {"canvas": 8, "attention": attention}
    model = {"name": str(source), "family": family, **own, **options}
    return open_policy(parse({"name": "x", "model": model}).model, str(source))


@pytest.mark.parametrize("dtype", sorted(BUDGET))
def test_grouping_moves_log_probabilities_within_a_budget(folder, dtype):
    family, attention, source = folder
    policy = opened(family, attention, source, dtype=dtype)
    trajectories = [t for group in sampled(policy, CHATS, 3, LAWS[family], seed=0) for t in group]
    together = policy.score(trajectories)
    assert together.logprobs.dtype == torch.float32
    assert torch.equal(policy.score(trajectories).logprobs, together.logprobs), "the same plan is the same to the bit"
    alone = torch.cat([policy.score([t]).logprobs for t in trajectories])
    assert (alone - together.logprobs).abs().max() < BUDGET[dtype]
    assert (together.recorded - together.logprobs).abs().max() < BUDGET[dtype]


def test_gradient_checkpointing_changes_no_gradient(folder):
    family, attention, source = folder
    gradients = []
    for checkpointing in (False, True, "auto"):
        policy = opened(family, attention, source, gradient_checkpointing=checkpointing)
        assert policy.recompute() is (checkpointing == "auto"), "where it is left to the memory, once"
        assert policy.recompute() is False
        trajectories = [t for group in sampled(policy, CHATS, 2, LAWS[family], seed=0) for t in group]
        policy.score(trajectories).logprobs.sum().backward()
        gradients.append({name: weight.grad for name, weight in policy.trainable().items()})
    for name, gradient in gradients[0].items():
        for other in gradients[1:]:
            torch.testing.assert_close(other[name], gradient, atol=1e-5, rtol=1e-4)
