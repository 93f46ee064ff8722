"""Intervals and tests against scipy, against coverage, and against exact enumeration."""

import numpy as np
import pytest
from scipy import stats

from plumbline.evaluation.statistics import mean_interval, paired, skill


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


def test_p_values_of_no_difference_are_uniform():
    """The test's own false-alarm rate: about 5 % of comparisons of equals fall below 0.05."""
    rng = np.random.default_rng(3)
    low = sum(paired(rng.random(30), rng.random(30), seed=i).p_value < 0.05 for i in range(200))
    assert low < 22


def test_wins_losses_and_ties():
    result = paired([0.1, 0.5, 0.9, 0.3], [0.2, 0.5, 0.1, 0.4])
    assert (result.wins, result.losses, result.ties) == (2, 1, 1)


def test_nothing_and_one():
    assert mean_interval([]).n == 0
    assert np.isnan(mean_interval([]).mean)
    one = mean_interval([0.25])
    assert (one.low, one.mean, one.high) == (0.25, 0.25, 0.25)
    with pytest.raises(ValueError, match="cannot be paired"):
        paired([0.1], [0.1, 0.2])


def test_skill_is_nought_at_the_floor_and_one_at_the_ceiling():
    assert skill(0.3, 0.3, 1.0) == 0
    assert skill(1.0, 0.3, 1.0) == 1
    assert skill(0.1, 0.3, 1.0) < 0
    assert skill(0.5, 1.0, 1.0) is None
