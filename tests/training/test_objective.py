"""Advantages and the clipped objective, against hand-computed numbers and against what must not
matter."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from plumbline.algorithms.algorithm import centre_rewards, has_signal
from plumbline.algorithms.grpo import Grpo
from plumbline.algorithms.objective import clipped_surrogate, group_units, weights
from tests.algorithms.batches import batch_of

REWARDS = st.lists(st.floats(0, 1), min_size=2, max_size=16).map(np.array)


@given(REWARDS)
def test_advantages_sum_to_zero_and_ignore_a_constant(rewards):
    given_ = centre_rewards(rewards)
    assert abs(given_.sum()) < 1e-9
    np.testing.assert_allclose(centre_rewards(rewards / 2 + 0.25), given_ / 2, atol=1e-6)


@given(REWARDS, st.randoms())
def test_advantages_follow_their_rollouts(rewards, random):
    order = list(range(len(rewards)))
    random.shuffle(order)
    np.testing.assert_allclose(
        centre_rewards(rewards)[order], centre_rewards(rewards[order]), atol=1e-12
    )


def test_equal_float32_rewards_have_no_signal():
    """Their standard deviation is 1e-8, not 0, so a comparison with 0 would divide by it."""
    rewards = np.full(8, np.float32(0.1), dtype=np.float32) + np.float32(1e-8) * np.arange(
        8, dtype=np.float32
    )
    assert rewards.std() > 0
    assert not has_signal(rewards.astype(np.float64))
    assert (centre_rewards(rewards.astype(np.float64), "group") == 0).all()
    assert has_signal(np.array([0.5, 0.5, 0.5001]))


def test_dividing_by_the_groups_deviation_is_what_trl_does():
    """With Bessel's correction and 1e-4 added; here the deviation is small enough for the 1e-4 to
    show."""
    rewards = np.array([0.5, 0.502, 0.501, np.nan])
    got = centre_rewards(rewards, "group")
    np.testing.assert_allclose(
        got, np.array([-0.001, 0.001, 0.0, 0.0]) / (0.001 + 1e-4), atol=1e-12
    )


def test_an_unjudged_rollout_gets_no_credit_and_gives_none():
    got = centre_rewards(np.array([1.0, 0.0, np.nan]))
    np.testing.assert_allclose(got, [0.5, -0.5, 0.0])
    assert (centre_rewards(np.array([1.0, np.nan, np.nan])) == 0).all()


def test_shuffled_advantages_are_the_same_numbers_elsewhere():
    groups = [np.array([1.0, -1.0]), np.array([0.25, -0.75, 0.5]), np.array([2.0])]
    dealt = Grpo().shuffle(groups, np.random.default_rng(0))
    assert [len(group) for group in dealt] == [2, 3, 1]
    assert sorted(np.concatenate(dealt)) == sorted(np.concatenate(groups))


def test_three_tokens_by_hand():
    """new - old of log 1.5, 0, log 0.5; advantages +1, +1, -1; clip 0.2: min(1.5, 1.2), 1,
    -max(0.5, 0.8)."""
    new = torch.tensor([np.log(1.5), 0.0, np.log(0.5)], dtype=torch.float64, requires_grad=True)
    advantage = torch.tensor([1.0, 1.0, -1.0], dtype=torch.float64)
    losses = clipped_surrogate(
        batch_of(new, torch.zeros_like(new), advantage, torch.full_like(new, 0.1)), 0.2, 0.2
    )
    assert losses.value.item() == pytest.approx(-0.1 * (1.2 + 1.0 - 0.8))
    assert losses.clipped.item() == 2
    losses.value.backward()
    assert new.grad.tolist() == pytest.approx([0.0, -0.1, 0.0])


def test_gradients_are_finite_differences_away_from_the_kinks():
    generator = torch.Generator().manual_seed(0)
    old, new, reference = (
        torch.randn(12, generator=generator, dtype=torch.float64) * 0.05 for _ in range(3)
    )
    signs = torch.randn(12, generator=generator, dtype=torch.float64)
    weight = torch.rand(12, generator=generator, dtype=torch.float64)

    def loss(values):
        return clipped_surrogate(
            batch_of(values, old, signs, weight, reference=reference, beta=0.1), 0.3, 0.3
        ).value

    assert torch.autograd.gradcheck(loss, (new.requires_grad_(),))


def test_the_kl_term_is_the_kl():
    """Enumerated: the expectation of ratio * k3 under the old policy is KL(new || reference)."""
    generator = torch.Generator().manual_seed(3)
    new, old, reference = (
        torch.randn(9, generator=generator, dtype=torch.float64).log_softmax(-1) for _ in range(3)
    )
    terms = batch_of(
        new, old, torch.zeros(9, dtype=torch.float64), old.exp(), reference=reference, beta=1.0
    )
    losses = clipped_surrogate(terms, 0.2, 0.2)
    assert losses.value.item() == pytest.approx((new.exp() * (new - reference)).sum().item())


@pytest.mark.parametrize("level", ["token", "sequence"])
def test_weights_between_sampler_and_scorer_make_it_the_learners_expectation(level):
    """Enumerated, with draws from a third distribution: the KL and the gradient are those of draws
    from the learner."""
    generator = torch.Generator().manual_seed(5)
    old, sampled, reference, advantage = (
        torch.randn(9, generator=generator, dtype=torch.float64) for _ in range(4)
    )
    old, sampled, reference = (logits.log_softmax(-1) for logits in (old, sampled, reference))
    new = old.clone().requires_grad_(True)
    each = torch.arange(9)
    grouping = (
        None
        if level == "token"
        else group_units("sequence", each, each, torch.ones(9, dtype=torch.float64))
    )
    terms = batch_of(new, old, advantage, sampled.exp(), sampled=sampled, cap=math.inf)
    losses = clipped_surrogate(terms, 0.2, 0.2, grouping)
    losses.value.backward()
    torch.testing.assert_close(new.grad, -old.exp() * advantage)
    assert int(losses.capped) == 0
    if level == "token":
        terms = replace(terms, advantage=torch.zeros(9), reference=reference, beta=1.0)
        kl = clipped_surrogate(terms, 0.2, 0.2).value.item()
        assert kl == pytest.approx((old.exp() * (old - reference)).sum().item())


def test_a_cap_on_weights_by_hand():
    """Two answers of two terms: by term weights 2, 1/2, 1 and 4, by answer their geometric means 1
    and 2."""
    new = torch.zeros(4, requires_grad=True)
    sampled = -torch.tensor([2.0, 0.5, 1.0, 4.0]).log()
    terms = batch_of(new, torch.zeros(4), torch.ones(4), torch.ones(4), sampled=sampled, cap=1.5)
    owner = torch.tensor([0, 0, 1, 1])
    losses = clipped_surrogate(terms, 0.2, 0.2)
    assert (losses.value.item(), int(losses.capped)) == (pytest.approx(-(1.5 + 0.5 + 1 + 1.5)), 2)
    losses = clipped_surrogate(
        terms, 0.2, 0.2, group_units("sequence", owner, owner, torch.ones(4))
    )
    assert (losses.value.item(), int(losses.capped)) == (pytest.approx(-2 * (1 + 1.5)), 1)
    assert clipped_surrogate(replace(terms, cap=None), 0.2, 0.2).capped is None


@pytest.mark.parametrize(
    ("normaliser", "wanted"),
    [("dr_grpo", [1 / 40, 1 / 40]), ("grpo", [1 / 10, 1 / 6]), ("dapo", [1 / 8, 1 / 8])],
)
def test_denominators(normaliser, wanted):
    np.testing.assert_allclose(weights([5, 3], normaliser, 20), wanted)


@pytest.mark.parametrize("normaliser", ["dr_grpo", "grpo", "dapo"])
def test_empty_answers_divide_by_nothing(normaliser):
    assert np.isfinite(weights([0, 0], normaliser, 20)).all()
