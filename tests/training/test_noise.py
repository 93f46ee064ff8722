"""Signal and noise of the gradient, against draws with a known mean and covariance and against
formulas by hand."""

import json

import numpy as np
import pytest
import torch

from plumbline.api import sample_trajectories
from plumbline.recipe import OptimiserSection
from plumbline.records import Sampling
from plumbline.training.gradient_noise import (
    MEMORY,
    WATCHED,
    GradientParts,
    SignalNoise,
    estimate_signal_noise,
    group_independent_parts,
    smooth_ratio,
)
from plumbline.training.optimiser import Optimiser
from plumbline.training.update import update_policy
from tests.algorithms.batches import group_of, rollout_of
from tests.training.toy_runs import fresh_policy, toy_recipe

MEAN = np.array([0.5, -0.3, 0.2, 0.0])
SPREAD = np.array([1.0, 0.4, 0.7, 0.2])


def draws(count, groups, rng):
    """Gradients [count, groups, 4] with |mean|^2 = 0.38 and summed variance 1.69."""
    return MEAN + SPREAD * rng.standard_normal((count, groups, 4))


def measured(gradients, sizes, groups):
    """What comes out of one batch whose consecutive groups with a gradient make parts of
    `sizes`."""
    parts = np.split(gradients, np.cumsum(sizes)[:-1])
    squares = [float((part.sum(0) ** 2).sum()) for part in parts]
    return estimate_signal_noise(float((gradients.sum(0) ** 2).sum()), squares, sizes, groups)


def mean_of(found):
    """Averages, and the standard errors of them."""
    table = np.array(found)
    return table.mean(0), table.std(0) / len(table) ** 0.5


@pytest.mark.parametrize("sizes", [[1] * 6, [3, 3], [1, 5], [1, 2, 3]], ids=str)
def test_it_is_unbiased_for_parts_of_any_size(sizes):
    rng = np.random.default_rng(0)
    average, error = mean_of([measured(batch, sizes, 6) for batch in draws(8000, 6, rng)])
    wanted = np.array([36 * 0.38, 6 * 1.69])
    assert (np.abs(average - wanted) < 4 * error).all()
    assert (error < 0.05 * wanted).all()


@pytest.mark.parametrize("size", [1, 2, 3])
def test_it_is_unbiased_where_chance_decides_which_groups_have_a_gradient(size):
    """Each of 12 groups has one with probability 0.6; those that have share parts, the others stand
    in none."""
    rng, found = np.random.default_rng(1), []
    for batch in draws(8000, 12, rng):
        moving = batch[rng.random(12) < 0.6]
        sizes = [size] * (len(moving) // size) + [len(moving) % size] * (len(moving) % size > 0)
        if (one := measured(moving, sizes, 12) if sizes else SignalNoise(0.0, 0.0)) is not None:
            found.append(one)
    assert len(found) > 7800  # the rest had all of theirs in one part
    average, error = mean_of(found)
    squared_mean = 0.36 * 0.38
    variance = 0.6 * (0.38 + 1.69) - squared_mean
    wanted = np.array([144 * squared_mean, 12 * variance])
    assert (np.abs(average - wanted) < 4 * error + 0.01 * wanted).all()
    assert (error < 0.05 * wanted).all()


def test_two_groups_by_hand():
    """McCandlish et al., appendix A.1, on (3, 0) and (1, 2): batch sizes 1 and 2, |G|^2 of 7 and
    5."""
    small, big = (9 + 5) / 2, 4 + 1
    squared_mean, variance = (2 * big - 1 * small) / (2 - 1), (small - big) / (1 / 1 - 1 / 2)
    assert (squared_mean, variance) == (3, 4)
    found = estimate_signal_noise(16 + 4, [9, 5], [1, 1], 2)
    assert found == pytest.approx((4 * squared_mean, 2 * variance))
    # Of which one has no gradient: products of two groups are 0, and what is left of |g|^2 = 9 is
    # noise.
    assert estimate_signal_noise(9.0, [9.0], [1], 2) == pytest.approx((0.0, 9.0))


@pytest.mark.parametrize(("sizes", "groups"), [([1], 1), ([2], 2), ([3], 5)])
def test_there_is_nothing_to_compare_in_one_part(sizes, groups):
    assert estimate_signal_noise(4.0, [4.0], sizes, groups) is None


def test_micro_batches_that_share_a_group_are_one_part_and_a_late_one_joins_earlier_ones():
    assert group_independent_parts([[b"a"], [b"b", b"c"]]) == ([0, 1], {0: 1, 1: 2})
    part_of, sizes = group_independent_parts([[b"a"], [b"a", b"b"], [b"c"], [b"c"], [b"d"]])
    assert part_of[0] == part_of[1] != part_of[2] == part_of[3] != part_of[4] != part_of[0]
    assert {part: sizes[part] for part in part_of} == sizes
    assert [sizes[part] for part in part_of] == [2, 2, 1, 1, 1]
    part_of, sizes = group_independent_parts([[b"a"], [b"b"], [b"c"], [b"a", b"b"]])
    assert part_of[0] == part_of[1] == part_of[3] != part_of[2]
    assert sorted(sizes.values()) == [1, 2]


class TestGradientParts:
    def test_a_weight_without_a_gradient_counts_as_0(self):
        used, unused = torch.ones(3, requires_grad=True), torch.ones(5, requires_grad=True)
        parts = GradientParts({"used": used, "unused": unused})
        used.sum().backward()
        parts.add(0)
        unused.sum().backward()
        parts.add(1)
        assert parts.sums[0].tolist() == [1] * 3 + [0] * 5
        assert parts.sums[1].tolist() == [0] * 3 + [1] * 5

    def test_of_a_large_model_a_part_is_watched_in_every_column(self):
        weight = torch.zeros(WATCHED // 128, 512, requires_grad=True)
        parts = GradientParts({"weight": weight})
        weight.grad = torch.arange(512.0).expand_as(weight)
        parts.add(0)
        assert WATCHED / 2 < len(parts.sums[0]) <= WATCHED
        assert len(parts.sums[0].unique()) == 512

    def test_nothing_added_is_nothing_measured(self):
        assert GradientParts({"a": torch.ones(2)}).measure({}, 4) is None


def test_a_batch_cut_differently_measures_the_same(tiny_folder):
    """Groups of 4 whole in a micro-batch, or in halves, or each rollout by itself: the parts are
    the groups all the same."""
    chats = [[{"role": "user", "content": word}] for word in ("um", "dois", "três")]
    found = []
    for tokens_per_microbatch in (1, 60, 10_000):
        policy = fresh_policy(tiny_folder)
        drawn = sample_trajectories(policy, chats, 4, Sampling(max_tokens=8), seed=0)
        recipe = toy_recipe(steps=1, tokens_per_microbatch=tokens_per_microbatch)
        groups = [
            group_of(
                *(
                    rollout_of(turn, advantage=advantage * (number < 2), weight=0.01)
                    for turn, advantage in zip(turns, [1.0, -0.5, -0.25, -0.25], strict=True)
                )
            )
            for number, turns in enumerate(drawn)
        ]
        optimiser = Optimiser(policy.trainable(), OptimiserSection(), 1)
        microbatches = len(
            policy.batches([turn for turns in drawn for turn in turns], tokens_per_microbatch)
        )
        update = update_policy(policy, optimiser, groups, recipe, 0)
        found.append((microbatches, update.gradient))
    assert found[0][0] == 12
    assert found[2][0] < 12
    assert found[0][1].noise > 0
    for _, other in found[1:]:
        assert other == pytest.approx(found[0][1], rel=1e-3)
    assert found[0][1] == pytest.approx(by_group(tiny_folder, chats), rel=1e-3)


def by_group(folder, chats):
    """The same from one gradient a group, by the textbook: the third group has none."""
    policy = fresh_policy(folder, scoring="rows")
    gradients = []
    for group in sample_trajectories(policy, chats, 4, Sampling(max_tokens=8), seed=0)[:2]:
        terms = policy.score(group)
        advantage = torch.tensor([1.0, -0.5, -0.25, -0.25])[terms.owner]
        loss = -((terms.logprobs - terms.recorded).exp() * advantage * 0.01).sum()
        found = torch.autograd.grad(loss, list(policy.trainable().values()), allow_unused=True)
        gradients.append(torch.cat([each.flatten() for each in found if each is not None]))
    one, two = gradients
    squared_mean = 2 * float(one @ two) / 6
    squares = float(one @ one + two @ two)
    return SignalNoise(9 * squared_mean, squares - 3 * squared_mean)


class TestSmoothedRatio:
    def test_it_is_the_ratio_of_two_decaying_sums(self):
        memory = {}
        values = [SignalNoise(4.0, 2.0), SignalNoise(-1.0, 3.0), SignalNoise(2.0, 1.0)]
        got = [smooth_ratio(value, memory) for value in values]
        signal = 4 * MEMORY**2 - MEMORY + 2
        noise = 2 * MEMORY**2 + 3 * MEMORY + 1
        assert got[0] == pytest.approx(2)
        assert got[2] == pytest.approx(signal / noise)
        assert smooth_ratio(SignalNoise(1.0, -0.5), {}) is None, "to noise that is not there"

    def test_it_goes_on_from_its_memory(self):
        values = [SignalNoise(float(number), 2.0 + number) for number in range(6)]
        whole, halves = {}, {}
        for value in values[:3]:
            smooth_ratio(value, whole)
            smooth_ratio(value, halves)
        halves = json.loads(json.dumps(halves))
        for value in values[3:]:
            assert smooth_ratio(value, halves) == smooth_ratio(value, whole)

    def test_a_step_without_a_measure_changes_nothing(self):
        memory = {}
        assert smooth_ratio(None, memory) is None
        first = smooth_ratio(SignalNoise(1.0, 2.0), memory)
        assert smooth_ratio(None, memory) == first == 0.5
