"""Both laws of the masked policy, against enumeration, for every way of choosing places."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from plumbline.api import check_policy, sampled
from plumbline.policies import plackett_luce
from plumbline.policies.masked.options import MaskedSampling
from tests.policies.masked.conftest import opened
from tests.policies.masked.oracle import ways

CHAT = [{"role": "user", "content": "nota?"}]
SMALL = MaskedSampling(max_tokens=3, steps=2, top_k=2)
KINDS = ("random", "leftmost", "plackett_luce", "plackett_luce_set", "threshold", "low_confidence")


def law(selector, **options):
    extra = {"threshold": 0.6, "position_temperature": 0.3} if selector == "threshold" else {}
    return replace(SMALL, selector=selector, **{**extra, **options})


def key_of(trajectory):
    return tuple((tuple(s.positions.tolist()), tuple(s.tokens.tolist())) for s in trajectory.steps)


@pytest.mark.parametrize("selector", [*KINDS, "ancestral"])
def test_both_laws_hold(policy, selector):
    laws = check_policy(policy, CHAT, law(selector), draws=2000)
    assert laws.gap < 2e-5
    assert laws.chi_square_p > 1e-3
    assert 0.97 < laws.mass < 1 + 1e-5


@pytest.mark.parametrize(
    "options",
    [
        {"temperature": 0.6, "selector": "plackett_luce", "position_temperature": 0.5},
        {"top_k": 0, "top_p": 0.3, "temperature": 0.4},
        {"blocks": 2, "steps": 3, "max_tokens": 4, "selector": "plackett_luce"},
    ],
)
def test_temperatures_filters_and_blocks_are_part_of_the_law(policy, options):
    laws = check_policy(policy, CHAT, replace(SMALL, **options), draws=2000, seed=3)
    assert laws.gap < 2e-5
    assert laws.chi_square_p > 1e-3


def test_a_scorer_at_another_temperature_breaks_both_laws(policy, monkeypatch):
    honest = policy.score

    def elsewhere(trajectories):
        return honest([replace(t, sampling=replace(t.sampling, temperature=0.5)) for t in trajectories])

    monkeypatch.setattr(policy, "score", elsewhere)
    laws = check_policy(policy, CHAT, law("plackett_luce"), draws=8000)
    assert laws.gap > 0.01
    assert laws.chi_square_p < 1e-6


@pytest.mark.parametrize("attention", ["prefix", "full"])
@pytest.mark.parametrize("selector", KINDS)
def test_every_trajectory_has_its_enumerated_probability(masked_folder, selector, attention):
    policy = opened(masked_folder, attention=attention)
    asked = law(selector)
    prompt = policy.chat.prompt(CHAT)
    with torch.no_grad():
        wanted = {key: float(log_p) for key, log_p, _ in ways(policy, prompt, asked)}
    assert sum(map(np.exp, wanted.values())) == pytest.approx(1, abs=1e-9)
    (drawn,) = sampled(policy, [CHAT], 200, asked, seed=1)
    distinct = {key_of(t): t for t in drawn}
    scored = policy.score(list(distinct.values()))
    totals = np.bincount(scored.owner.numpy(), weights=scored.logprobs.detach().double().numpy())
    for key, total in zip(distinct, totals, strict=True):
        assert total == pytest.approx(wanted[key], abs=2e-5)


def test_tokens_alone_are_not_the_log_probability_of_the_native_sampler(policy):
    """The negative control: what token-only methods call the probability sums to far more than 1."""
    (drawn,) = sampled(policy, [CHAT], 1000, law("low_confidence"), seed=2)
    distinct = list({key_of(t): t for t in drawn}.values())
    scored = policy.score(distinct)
    tokens = scored.logprobs.detach().double() * ~scored.selection
    masses = torch.zeros(len(distinct), dtype=torch.float64).index_add(0, scored.owner, tokens).exp()
    assert masses.sum() > 1.2


@pytest.mark.parametrize("selector", ["plackett_luce", "plackett_luce_set", "threshold", "random"])
def test_the_policy_gradient_is_that_of_the_enumerated_reward(masked_folder, selector):
    """grad of J = sum_ways P R by the oracle, against sum_ways P R grad log P by the scorer."""
    policy = opened(masked_folder)
    asked = law(selector, max_tokens=2, steps=2)
    prompt = policy.chat.prompt(CHAT)
    found = list(ways(policy, prompt, asked))
    rewards = torch.rand(len(found), dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    expected = sum(log_p.exp() * reward for (_, log_p, _), reward in zip(found, rewards, strict=True))
    policy.model.zero_grad()
    expected.backward()
    wanted = {name: weight.grad.clone() for name, weight in policy.trainable().items()}
    (drawn,) = sampled(policy, [CHAT], 600, asked, seed=1)
    distinct = {key_of(t): t for t in drawn}
    assert set(distinct) == {key for key, _, _ in found}
    policy.model.zero_grad()
    weights = torch.stack([log_p.detach().exp() * r for (_, log_p, _), r in zip(found, rewards, strict=True)])
    terms = policy.score([distinct[key] for key, _, _ in found])
    (terms.logprobs * weights[terms.owner].float()).sum().backward()
    for name, weight in policy.trainable().items():
        torch.testing.assert_close(weight.grad, wanted[name].float(), atol=2e-5, rtol=2e-3)


class TestSelectors:
    scores = torch.tensor([[0.3, -1.0, 2.0, 0.1], [-30.0, 30.0, 0.0, 0.0]], dtype=torch.float64)

    def test_orders_sum_to_sets_and_sets_to_one(self):
        import itertools

        for count in (1, 2, 3, 4):
            total = torch.zeros(2, dtype=torch.float64)
            for places in itertools.combinations(range(4), count):
                orders = [
                    plackett_luce.log_prob(self.scores, torch.tensor([order, order]))
                    for order in itertools.permutations(places)
                ]
                summed = torch.stack(orders).exp().sum(0)
                chosen = torch.zeros((2, 4), dtype=torch.bool)
                chosen[:, places] = True
                torch.testing.assert_close(
                    plackett_luce.set_log_prob(self.scores, chosen).exp(), summed, atol=1e-9, rtol=1e-6
                )
                total += summed
            torch.testing.assert_close(total, torch.ones(2, dtype=torch.float64))

    def test_gradients_are_finite_at_extreme_scores(self):
        scores = torch.tensor([[30.0, -30.0, 0.0, float("-inf")]], dtype=torch.float64, requires_grad=True)
        chosen = torch.tensor([[True, False, True, False]])
        loss = plackett_luce.log_prob(scores, torch.tensor([[0, 2]])).sum()
        (loss + plackett_luce.set_log_prob(scores, chosen).sum()).backward()
        assert scores.grad.isfinite().all()


def test_the_learnt_temperature_is_inside_the_law(masked_folder):
    policy = opened(masked_folder, explore=True)
    with torch.no_grad():
        policy.exploration.log_temperature.copy_(torch.linspace(-0.8, 0.8, 16))
    asked = law("plackett_luce")
    laws = check_policy(policy, CHAT, asked, draws=2000)
    assert laws.gap < 2e-5
    assert laws.chi_square_p > 1e-3
    (drawn,) = sampled(policy, [CHAT], 4, asked, seed=0)
    theta = policy.trainable()["exploration.log_temperature"]
    policy.score(drawn).logprobs.sum().backward()
    assert theta.grad.abs().sum() > 0
    for index in theta.grad.nonzero().flatten().tolist():
        values = []
        for sign in (1, -1):
            with torch.no_grad():
                theta[index] += sign * 1e-2
                values.append(policy.score(drawn).logprobs.sum().item())
                theta[index] -= sign * 1e-2
        assert theta.grad[index].item() == pytest.approx((values[0] - values[1]) / 2e-2, rel=2e-2, abs=2e-2)
