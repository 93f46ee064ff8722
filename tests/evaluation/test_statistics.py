"""Intervals and tests against scipy, against coverage, and against exact enumeration."""

from itertools import product
from math import comb

import numpy as np
import pytest
from scipy import stats

from plumbline.evaluation import statistics
from plumbline.evaluation.statistics import (
    Interval,
    direction,
    mean,
    mean_interval,
    paired,
    rate_interval,
    skill,
    surely_over,
)


def test_the_interval_covers_the_truth_about_as_often_as_it_says():
    rng = np.random.default_rng(0)
    hits = 0
    for trial in range(300):
        sample = rng.beta(2, 1, size=60)
        interval = mean_interval(sample, seed=trial)
        hits += interval.low <= 2 / 3 <= interval.high
    assert 0.90 < hits / 300 < 0.99


def test_the_interval_is_scipys():
    sample = np.random.default_rng(1).random(80)
    ours = mean_interval(sample)
    theirs = stats.bootstrap((sample,), np.mean, n_resamples=9999, method="percentile", rng=np.random.default_rng(0))
    assert ours.mean == pytest.approx(sample.mean())
    assert ours.low == pytest.approx(theirs.confidence_interval.low, abs=0.004)
    assert ours.high == pytest.approx(theirs.confidence_interval.high, abs=0.004)


def test_the_interval_of_many_is_that_of_5000_resamples_however_they_are_drawn():
    """1,000 examples are resampled in chunks, which must not lose, repeat or add a resample."""
    sample = np.random.default_rng(4).random(1000)
    means = sample[np.random.default_rng(7).integers(0, 1000, size=(5000, 1000))].mean(axis=1)
    ours = mean_interval(sample, seed=7)
    assert (ours.low, ours.high) == pytest.approx(tuple(np.quantile(means, [0.025, 0.975])), abs=1e-12)
    assert mean_interval(sample) == mean_interval(sample, seed=0)


RATES = [(0, 1), (1, 1), (0, 20), (0, 27), (16, 16), (1, 20), (1, 29), (7, 20), (30, 59), (15, 148), (81, 263)]
RATES += [(999, 1000), (9999, 9999), (0, 9999)]


@pytest.mark.parametrize(("hits", "n"), RATES)
def test_the_interval_of_a_rate_is_scipys(hits, n):
    ours = rate_interval([1] * hits + [0] * (n - hits))
    theirs = stats.binomtest(hits, n).proportion_ci(method="wilson")
    assert (ours.mean, ours.n) == (hits / n, n)
    assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high), abs=1e-12)
    assert 0 <= ours.low <= ours.mean <= ours.high <= 1
    assert (ours.low == 0, ours.high == 1) == (hits == 0, hits == n)


@pytest.mark.parametrize(
    ("low", "high", "excludes"),
    [(0.1, 0.2, True), (-0.2, -0.1, True), (-0.1, 0.1, False), (0.0, 0.2, False), (-0.2, 0.0, False)],
)
def test_an_interval_that_touches_zero_does_not_exclude_it(low, high, excludes):
    interval = Interval((low + high) / 2, low, high, 9)
    assert interval.excludes_zero is excludes


def test_the_p_value_is_scipys_sign_flip():
    rng = np.random.default_rng(2)
    for shift in (0.0, 0.03, 0.1):
        before = rng.random(40)
        after = before + rng.normal(shift, 0.15, 40)
        theirs = stats.permutation_test(
            (after - before,), np.mean, permutation_type="samples", n_resamples=20_000, rng=np.random.default_rng(0)
        ).pvalue
        assert paired(before, after).p_value == pytest.approx(theirs, abs=0.015)


def test_few_differences_are_flipped_in_every_way():
    assert paired([0.0] * 5, [0.1] * 5).p_value == pytest.approx(2 / 2**5)
    assert paired([0.5, 0.5], [0.5, 0.5]).p_value == 1.0


@pytest.mark.parametrize("count", [3, 5, 12])
def test_sums_that_differ_in_the_last_digit_only_are_equal(count):
    """Tenths have no exact float: 0.1 + 0.2 + 0.3 depends on the order. The oracle flips whole numbers."""
    rng = np.random.default_rng(count)
    for _ in range(20):
        tenths = rng.choice([-3, -2, -1, 1, 2, 3], size=count)
        flipped = np.array(list(product((-1, 1), repeat=count))) @ tenths
        exact = np.mean(np.abs(flipped) >= abs(tenths.sum()))
        assert paired(np.zeros(count), tenths / 10).p_value == exact


def test_sampled_flips_count_sums_that_differ_in_the_last_digit_only():
    """Of 21 equal differences, 12 up and 9 down: only flips that fall 11 to 10 are less extreme."""
    exact = 1 - 2 * comb(21, 10) / 2**21
    assert paired(np.zeros(21), np.array([0.1] * 12 + [-0.1] * 9)).p_value == pytest.approx(exact, abs=0.02)


def test_a_p_value_is_never_0_and_where_every_flip_is_as_extreme_exactly_1():
    """5,000 flips cannot show less than 1 in 5,001; 1,000 differences are flipped in chunks, none of them lost."""
    for n in (40, 1000):
        assert paired(np.zeros(n), np.ones(n)).p_value == pytest.approx(1 / 5001, rel=1e-12)
        assert paired(np.zeros(n), np.array([0.1, -0.1] * (n // 2))).p_value == 1.0


def test_what_differs_by_a_rounding_is_a_tie_and_is_not_flipped():
    rounding, small = np.full(10, 1e-10), np.array([1e-8, -1e-8, 1e-10])
    after = np.concatenate([np.full(5, 0.1), rounding])
    assert paired(np.zeros(15), after).p_value == 2 / 2**5
    result = paired(np.zeros(3), small)
    assert (result.wins, result.losses, result.ties) == (1, 1, 1)


def test_p_values_of_no_difference_are_uniform():
    """The test's own false-alarm rate: about 5 % of comparisons of equals fall below 0.05."""
    rng = np.random.default_rng(3)
    low = sum(paired(rng.random(30), rng.random(30), seed=i).p_value < 0.05 for i in range(200))
    assert low < 22

    result = paired([0.1, 0.5, 0.9, 0.3], [0.2, 0.5, 0.1, 0.4])
    assert (result.wins, result.losses, result.ties) == (2, 1, 1)
    assert (result.before, result.after) == (pytest.approx(0.45), pytest.approx(0.3))


def test_nothing_and_one():
    assert mean([]) is None
    assert mean([True, False, False, True]) == 0.5
    assert mean_interval([]).n == 0
    assert np.isnan(mean_interval([]).mean)
    assert rate_interval([]).n == 0
    assert np.isnan(rate_interval([]).mean)
    one = mean_interval([0.25])
    assert (one.low, one.mean, one.high) == (0.25, 0.25, 0.25)
    with pytest.raises(ValueError, match="cannot be paired"):
        paired([0.1], [0.1, 0.2])


def test_skill_is_nought_at_the_floor_and_one_at_the_ceiling():
    assert skill(0.3, 0.3, 1.0) == 0
    assert skill(1.0, 0.3, 1.0) == 1
    assert skill(0.1, 0.3, 1.0) < 0
    assert skill(0.5, 1.0, 1.0) is None


def test_an_interval_is_written_with_one_format_for_its_three_numbers():
    interval = Interval(0.0861, -0.0374, 0.1372, 200)
    assert f"{interval:+.3f}" == "+0.086 [-0.037, +0.137]"
    assert f"{interval}" == str(interval) == "0.086 [-0.037, 0.137]"


@pytest.mark.parametrize("n", [1, 2, 3, 4, 6, 8, 16])
def test_what_differs_by_chance_alone_is_called_a_change_no_more_often_than_the_level_says(n, monkeypatch):
    """An interval alone would say so of 48 % of single examples, and of 10 % of four."""
    monkeypatch.setattr(statistics, "RESAMPLES", 500)
    rng = np.random.default_rng(n)
    tries, falls, over = 400, 0, 0
    for seed in range(tries):
        found = paired(np.zeros(n), rng.normal(0, 0.1, n), seed)
        falls += direction(found.difference, found.p_value) == "fall"
        over += surely_over(rng.beta(2, 2, n), 0.5)
    assert max(falls, over) / tries < 0.05  # 0.025 and three standard errors


def test_a_control_of_six_and_more_can_be_surely_over_its_limit():
    assert [surely_over([0.9] * n, 0.5) for n in (0, 1, 5, 6, 40)] == [False, False, False, True, True]
    assert not surely_over([0.5] * 40, 0.5)
    assert not surely_over([0.4] * 40, 0.5)
