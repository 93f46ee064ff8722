"""The distribution of the slot policy by full enumeration: nothing is left out, nothing counted
twice, gradients are true."""

import itertools
from collections import Counter
from dataclasses import replace
from typing import get_args

import numpy as np
import pytest
import torch

from plumbline.api import _chi_square_p_value, _key, check_policy, sample_trajectories
from plumbline.errors import RecipeError
from plumbline.policies import plackett_luce
from plumbline.policies.slots.options import SlotSampling
from tests.policies.families import selections
from tests.policies.slots.models import PROMPT, A
from tests.policies.slots.oracle import everything

DRAWS = 1500
SAMPLING = SlotSampling(
    max_tokens=4, steps=2, selector="plackett_luce", temperature=0.7, position_temperature=0.5
)
SAMPLINGS = {
    "two rounds": (SAMPLING, [1, 1]),
    "one round": (replace(SAMPLING, steps=1, temperature=1.3), [2]),
    "evenly": (replace(SAMPLING, selector="random"), [1, 1]),
    "filters": (replace(SAMPLING, top_k=2, temperature=1.0), [1, 1]),
    "nucleus": (replace(SAMPLING, top_p=0.8, temperature=1.5), [1, 1]),
    "sure of places": (replace(SAMPLING, position_temperature=0.05), [1, 1]),
    "three slots": (replace(SAMPLING, max_tokens=6), [1, 2]),
    "three slots evenly": (replace(SAMPLING, max_tokens=6, selector="random"), [1, 2]),
}


def listed(policy, sampling, counts):
    prompt = policy.chat.prompt(PROMPT)
    with torch.no_grad():
        pairs = everything(policy.model, prompt, sampling, policy.width, counts)
    return [trajectory for trajectory, _ in pairs], torch.stack([total for _, total in pairs])


def totals(policy, trajectories):
    terms = policy.score(trajectories)
    return terms.logprobs.new_zeros(len(trajectories)).index_add(0, terms.owner, terms.logprobs)


@pytest.mark.parametrize("name", SAMPLINGS)
def test_the_scorer_is_the_oracle_and_sums_to_one(exact, name):
    sampling, counts = SAMPLINGS[name]
    trajectories, wanted = listed(exact, sampling, counts)
    with torch.no_grad():
        found = totals(exact, trajectories)
    torch.testing.assert_close(found, wanted, atol=1e-10, rtol=0)
    # The filters' support is found in either code by its own comparison of rounded numbers.
    assert found.exp().sum().item() == pytest.approx(1, abs=1e-12 if sampling.top_p == 1 else 1e-9)


def test_tokens_alone_do_not_sum_to_one(exact):
    """The control: without the choice of slots the probabilities are of no distribution."""
    trajectories, _ = listed(exact, *SAMPLINGS["two rounds"])
    terms = exact.score(trajectories)
    tokens = terms.logprobs.masked_fill(selections(trajectories), 0.0).detach()
    sums = tokens.new_zeros(len(trajectories)).index_add(0, terms.owner, tokens)
    assert sums.exp().sum().item() > 1.5


@pytest.mark.parametrize("name", SAMPLINGS)
def test_the_sampler_draws_the_oracles_distribution(policy, name):
    sampling, counts = SAMPLINGS[name]
    trajectories, wanted = listed(policy, sampling, counts)
    chances = dict(
        zip((_key([one]) for one in trajectories), wanted.double().exp().tolist(), strict=True)
    )
    (drawn,) = sample_trajectories(policy, [PROMPT], DRAWS, sampling, seed=3)
    counted = Counter(_key([one]) for one in drawn)
    assert set(counted) <= set(chances)
    scored = policy.score(list({_key([one]): one for one in drawn}.values()))
    assert (scored.logprobs - scored.recorded).abs().max() < 1e-5
    observed = np.array([counted[key] for key in chances], dtype=float)
    assert _chi_square_p_value(observed, DRAWS * np.array(list(chances.values())), DRAWS) > 1e-3


@pytest.mark.parametrize("selector", get_args(SlotSampling.__annotations__["selector"]))
def test_both_laws_hold_under_every_selector_or_it_says_that_it_has_none(policy, selector):
    sampling = replace(SAMPLING, selector=selector)
    if not policy.exact(sampling):
        with pytest.raises(RecipeError):
            check_policy(policy, PROMPT, sampling, draws=10)
        return
    laws = check_policy(policy, PROMPT, sampling, draws=DRAWS)
    assert laws.gap < 1e-5
    assert laws.chi_square_p > 1e-3
    assert laws.mass == pytest.approx(1, abs=0.01)


def test_an_even_choice_moves_no_weight(exact):
    """Its term is a number: loss and gradient are those of the tokens alone, and its divergence is
    none."""
    exact.keep_reference()
    (drawn,) = sample_trajectories(exact, [PROMPT], 6, SAMPLINGS["three slots evenly"][0], seed=0)
    bare = [
        replace(each, transitions=tuple(replace(step, selection=None) for step in each.transitions))
        for each in drawn
    ]
    with torch.no_grad():
        for weight in exact.trainable().values():
            weight.mul_(1.1)
    whole, tokens = (exact.score(each, divergence=True) for each in (drawn, bare))
    chosen = selections(drawn)
    assert int(chosen.sum()) == len(drawn)
    torch.testing.assert_close(whole.logprobs[~chosen], tokens.logprobs)
    torch.testing.assert_close(whole.divergence, tokens.divergence)
    found, wanted = (
        torch.autograd.grad(terms.logprobs.sum(), list(exact.trainable().values()))
        for terms in (whole, tokens)
    )
    assert all(
        torch.allclose(one, other, atol=1e-9) for one, other in zip(found, wanted, strict=True)
    )


def test_a_sampler_of_other_slots_fails_law_2(policy, monkeypatch):
    honest = plackett_luce.choose
    monkeypatch.setattr(
        plackett_luce, "choose", lambda scores, uniforms, count: honest(scores * 3, uniforms, count)
    )
    laws = check_policy(policy, PROMPT, SAMPLING, draws=DRAWS, seed=0)
    assert laws.gap < 1e-5
    assert laws.chi_square_p < 1e-6


def test_a_scorer_of_other_slots_fails_law_1(policy):
    (drawn,) = sample_trajectories(policy, [PROMPT], 20, SAMPLING, seed=0)
    scored = policy.score(
        [replace(each, sampling=replace(SAMPLING, position_temperature=2.0)) for each in drawn]
    )
    assert (scored.logprobs - scored.recorded).abs().max() > 0.05


def test_the_policy_gradient_is_the_gradient_of_the_expected_reward(exact):
    """The oracle's gradient is of sum p R by brute force; the scorer's is of sum p R log p. A
    baseline changes none."""
    prompt = exact.chat.prompt(PROMPT)
    pairs = everything(exact.model, prompt, SAMPLING, exact.width, [1, 1])
    rewards = torch.tensor(
        [float((trajectory.answer == A).sum()) for trajectory, _ in pairs], dtype=torch.float64
    )
    weights = exact.trainable()
    chances = torch.stack([total for _, total in pairs]).exp()
    wanted = torch.autograd.grad((chances * rewards).sum(), list(weights.values()))
    for baseline in (0.0, 1.7):
        surrogate = (
            chances.detach() * (rewards - baseline) * totals(exact, [t for t, _ in pairs])
        ).sum()
        found = torch.autograd.grad(surrogate, list(weights.values()))
        for name, one, other in zip(weights, found, wanted, strict=True):
            # The shared head sums its own gradient in single precision.
            torch.testing.assert_close(
                one, other, atol=1e-6 if "lm_head" in name else 1e-10, rtol=0
            )


def test_the_closed_form_divergence_is_the_enumerated_one(exact):
    """Chain rule: the mean of the rounds' sums is the KL of whole trajectories."""
    exact.keep_reference()
    with torch.no_grad():
        for index, weight in enumerate(exact.trainable().values()):
            noise = torch.Generator().manual_seed(index)
            weight.add_(0.1 * torch.randn(weight.shape, generator=noise, dtype=weight.dtype))
    for sampling, counts in (SAMPLINGS["two rounds"], SAMPLINGS["one round"]):
        trajectories, mine = listed(exact, sampling, counts)
        with torch.no_grad():
            terms = exact.score(trajectories, divergence=True)
            reference = exact.score(trajectories, reference=True)
        theirs = mine.new_zeros(len(mine)).index_add(0, reference.owner, reference.logprobs)
        wanted = (mine.exp() * (mine - theirs)).sum()
        steps = torch.tensor(
            [index for index, each in enumerate(trajectories) for _ in each.transitions]
        )
        each = mine.new_zeros(len(mine)).index_add(0, steps, terms.divergence)
        assert wanted > 0.05
        assert bool((terms.divergence >= -1e-6).all())
        torch.testing.assert_close((mine.exp() * each).sum(), wanted, atol=1e-6, rtol=0)


def test_the_divergence_has_the_gradient_of_its_finite_difference(exact):
    exact.keep_reference()
    weight = exact.model.get_decoder().layers[0].mlp.down_proj.weight
    with torch.no_grad():
        weight.mul_(1.5)
    (drawn,) = sample_trajectories(
        exact, [PROMPT], 3, replace(SAMPLING, max_tokens=8, steps=2), seed=0
    )
    exact.score(drawn, divergence=True).divergence.sum().backward()
    sums = []
    for change in (1e-5, -2e-5):
        with torch.no_grad():
            weight[3, 5] += change
            sums.append(exact.score(drawn, divergence=True).divergence.sum())
    assert weight.grad[3, 5].item() == pytest.approx(
        (sums[0] - sums[1]).item() / 2e-5, rel=2e-3, abs=1e-5
    )


def test_reinforce_on_enumerated_trajectories_reaches_the_optimum(exact):
    """Reward: places that hold the first token. The expected reward only rises, and ends near 4 of
    4."""
    trajectories, _ = listed(exact, SAMPLING, [1, 1])
    rewards = torch.tensor(
        [float((t.answer == A).sum()) for t in trajectories], dtype=torch.float64
    )
    optimiser = torch.optim.SGD(list(exact.trainable().values()), lr=0.05)
    expected = []
    for step in range(30):
        logs = totals(exact, trajectories)
        chances = logs.detach().exp()
        expected.append((chances * rewards).sum().item())
        optimiser.param_groups[0]["lr"] = 0.02 if step < 10 else 1.0
        optimiser.zero_grad()
        (-(chances * (rewards - expected[-1]) * logs).sum()).backward()
        optimiser.step()
    assert all(after > before for before, after in itertools.pairwise(expected[:11]))
    assert expected[-1] > 3.8


class TestPlackettLuce:
    @pytest.mark.parametrize("spread", [0.1, 1.0, 30.0])
    def test_ordered_choices_sum_to_one(self, spread):
        scores = spread * torch.randn(
            5, generator=torch.Generator().manual_seed(0), dtype=torch.float64
        )
        for count in (1, 2, 5):
            orders = torch.tensor(list(itertools.permutations(range(5), count)))
            logs = plackett_luce.log_prob(scores.expand(len(orders), -1), orders)
            assert logs.exp().sum().item() == pytest.approx(1, abs=1e-12)

    def test_padding_changes_nothing(self):
        scores = torch.randn(
            (1, 3), generator=torch.Generator().manual_seed(0), dtype=torch.float64
        ).requires_grad_()
        other = scores.detach().flip(1)
        alone = plackett_luce.log_prob(scores, torch.tensor([[2, 0]]))
        wide, wide_other = (
            torch.cat([s, torch.full((1, 1), float("-inf"))], 1).double() for s in (scores, other)
        )
        chosen = torch.tensor([[2, 0, -1]])
        padded = plackett_luce.log_prob(wide, chosen)
        torch.testing.assert_close(padded, alone)
        torch.testing.assert_close(
            plackett_luce.divergence(wide, wide_other, chosen),
            plackett_luce.divergence(scores, other, torch.tensor([[2, 0]])),
        )
        (gradient,) = torch.autograd.grad(padded.sum(), scores)
        assert bool(gradient.isfinite().all())

    def test_without_numbers_the_best_come_first(self):
        scores = torch.tensor([[0.1, 3.0, 3.0, -1.0]])
        assert plackett_luce.choose(scores, None, 3).tolist() == [[1, 2, 0]]
