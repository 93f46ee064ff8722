"""Ratios of tokens, steps and sequences: the same gradient where they are 1, and a clip that bites
at each level."""

import itertools

import numpy as np
import pytest
import torch

from plumbline.algorithms.objective import clipped_surrogate, group_units
from tests.algorithms.batches import batch_of

OWNER = torch.tensor([0, 0, 0, 0, 0, 1, 1, 1])
STEP = torch.tensor([0, 0, 1, 1, 1, 2, 2, 3])
ADVANTAGE = torch.tensor([0.7, -1.3], dtype=torch.float64)[OWNER]
WEIGHT = torch.tensor([0.1, 0.2], dtype=torch.float64)[OWNER]
ONES = torch.ones(8, dtype=torch.float64)


def loss_and_gradient(level, new, old, term_weight=ONES, length=None, **options):
    new = new.clone().requires_grad_()
    grouping = None if level is None else group_units(level, OWNER, STEP, term_weight, length)
    losses = clipped_surrogate(batch_of(new, old, ADVANTAGE, WEIGHT, **options), 0.2, 0.2, grouping)
    losses.value.backward()
    return losses, new.grad


@pytest.mark.parametrize("level", ["token", "step", "sequence"])
def test_where_ratios_are_one_every_level_has_the_policy_gradient(level):
    old = torch.randn(8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    _, gradient = loss_and_gradient(level, old, old)
    torch.testing.assert_close(gradient, -(ADVANTAGE * WEIGHT))


@pytest.mark.parametrize("level", ["token", "step"])
def test_a_steps_weight_multiplies_its_terms(level):
    weight = torch.tensor([2.0, 3.0, 1.0, 0.5], dtype=torch.float64)[STEP]
    _, gradient = loss_and_gradient(level, ONES, ONES, weight)
    torch.testing.assert_close(gradient, -(ADVANTAGE * WEIGHT * weight))


def test_a_sequences_ratio_holds_the_weights_inside():
    """As an ELBO needs it: the estimate of the whole, over the answer's length."""
    new = torch.linspace(-0.3, 0.3, 8, dtype=torch.float64)
    weight = torch.tensor([2.0, 3.0, 1.0, 0.5], dtype=torch.float64)[STEP]
    length = torch.tensor([10.0, 4.0])
    losses, _ = loss_and_gradient("sequence", new, 0 * new, weight, length, reference=None)
    exponent = np.array([(new * weight)[:5].sum() / 10, (new * weight)[5:].sum() / 4])
    wanted = 0.0
    for rollout, (advantage, share, size) in enumerate([(0.7, 0.1, 10), (-1.3, 0.2, 4)]):
        ratio = np.exp(exponent[rollout])
        wanted += -share * size * min(ratio * advantage, np.clip(ratio, 0.8, 1.2) * advantage)
    assert losses.value.item() == pytest.approx(wanted)


@pytest.mark.parametrize("level", [None, "token", "step", "sequence"])
@pytest.mark.parametrize("beta", [0.0, 0.3])
def test_the_gradient_is_that_of_finite_differences(level, beta):
    generator = torch.Generator().manual_seed(1)
    new, old, reference = (
        torch.randn(8, dtype=torch.float64, generator=generator) * 0.4 for _ in range(3)
    )
    options = {"reference": reference, "beta": beta} if beta else {}
    _, gradient = loss_and_gradient(level, new, old, **options)
    for index in range(8):
        step = torch.zeros(8, dtype=torch.float64)
        step[index] = 1e-6
        up, down = (
            loss_and_gradient(level, new + sign * step, old, **options)[0].value for sign in (1, -1)
        )
        assert gradient[index].item() == pytest.approx((up - down).item() / 2e-6, abs=1e-6)


@pytest.mark.parametrize(("level", "count"), [("token", 8), ("step", 4), ("sequence", 2)])
def test_clipped_units_have_no_gradient_and_are_counted(level, count):
    old = torch.zeros(8, dtype=torch.float64)
    # ratios 1.65 and 0.61, each on the side that the clip cuts off
    new = torch.where(ADVANTAGE > 0, 0.5, -0.5)
    losses, gradient = loss_and_gradient(level, new, old)
    assert losses.units == count
    assert int(losses.clipped) == count
    assert gradient.abs().max() == 0


def test_only_what_the_clip_takes_the_gradient_of_counts_as_clipped():
    """Ratios below, inside and above 0.5 to 1.5, for good, bad and neutral rollouts; at the edge
    the gradient flows."""
    ratios, advantage = (
        torch.tensor([0.2, 0.5, 1.0, 1.5, 1.9], dtype=torch.float64).repeat(3),
        torch.tensor([1, -1, 0]),
    )
    new = ratios.log().requires_grad_()
    assert (new.detach().exp()[[1, 3]] == ratios[[1, 3]]).all(), "the edges are exact"
    terms = batch_of(new, 0 * ratios, advantage.double().repeat_interleave(5), torch.ones(15))
    losses = clipped_surrogate(terms, 0.5, 0.5)
    losses.value.backward()
    gone = torch.isclose(new.grad, torch.zeros(1).double()).view(3, 5)
    assert gone.tolist() == [[False] * 4 + [True], [True] + [False] * 4, [True] * 5]
    assert int(losses.clipped) == 2, "a rollout without an advantage had no gradient to lose"


def test_a_reference_without_a_beta_is_measured_and_does_not_pull():
    new, reference = torch.linspace(-0.3, 0.3, 8, dtype=torch.float64), ONES
    alone, gradient = loss_and_gradient("token", new, 0 * new)
    measured, same = loss_and_gradient("token", new, 0 * new, reference=reference)
    torch.testing.assert_close((measured.value, same), (alone.value, gradient))
    assert alone.kl is None
    assert measured.kl > 0


def test_units_are_the_same_whatever_the_numbering_of_steps():
    new = torch.linspace(-0.3, 0.3, 8, dtype=torch.float64)
    plain = loss_and_gradient("step", new, 0 * new)[0].value
    grouping = group_units("step", OWNER, STEP * 5 + 3, ONES)
    other = clipped_surrogate(batch_of(new, 0 * new, ADVANTAGE, WEIGHT), 0.2, 0.2, grouping).value
    torch.testing.assert_close(plain, other)


@pytest.mark.parametrize(
    ("level", "of"), [("token", [0, 1, 2]), ("step", [0, 1, 1]), ("sequence", [0, 0, 0])]
)
def test_the_logged_kl_is_that_of_the_whole_answer_at_every_level(level, of):
    """Enumerated: all 27 answers of three independent tokens, under two policies 0.05 nats apart.

    k2 is exact to second order only, so 3 % are allowed; a unit's size in the wrong power is off by
    half and more.
    """
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(3, 3))
    new, reference = (
        torch.tensor(each).log_softmax(1)
        for each in (logits, logits + 0.05 * rng.normal(size=(3, 3)))
    )
    exact = float((new.exp() * (new - reference)).sum())
    expected = 0.0
    step = torch.tensor(of)
    for answer in itertools.product(range(3), repeat=3):
        terms, others = (each[torch.arange(3), torch.tensor(answer)] for each in (new, reference))
        ones, owner = torch.ones(3, dtype=torch.float64), torch.zeros(3, dtype=torch.long)
        grouping = (
            None if level == "token" else group_units(level, owner, step, ones, torch.tensor([3]))
        )
        compared = batch_of(terms, terms, ones, ones, reference=others, beta=0.1)
        losses = clipped_surrogate(compared, 0.2, 0.2, grouping)
        expected += float(terms.sum().exp() * losses.kl)
    assert expected == pytest.approx(exact, rel=0.03)
