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
    is_surely_over,
    mean,
    mean_interval,
    paired_difference,
    pooled_interval,
    rate_interval,
    skill,
)


@pytest.mark.parametrize(("n", "alike"), [(20, 0.0), (20, 0.5), (60, 0.2), (240, 0.5)])
def test_the_interval_covers_the_truth_about_as_often_as_it_says(n, alike):
    """Clusters of one to six whose members share so much of their variance; the nominal 95 %, with
    four errors."""
    rng, hits, shares, tries = np.random.default_rng(n), 0, 0, 500
    for _ in range(tries):
        clusters = np.repeat(np.arange(n), rng.choice([1, 2, 3, 4, 6], size=n))[:n]
        drawn = alike**0.5 * rng.standard_normal(n)[clusters] + (
            1 - alike
        ) ** 0.5 * rng.standard_normal(n)
        found = mean_interval(drawn, clusters.astype(str))
        hits += found.low <= 0 <= found.high
        share = rate_interval(drawn > 0, clusters.astype(str))
        shares += share.low <= 0.5 <= share.high
    assert min(hits, shares) / tries > 0.91
    assert hits / tries < 0.99


def test_the_interval_is_students_and_that_of_clusters_is_of_their_means():
    sample = np.random.default_rng(1).random(80)
    theirs = stats.ttest_1samp(sample, 0).confidence_interval()
    assert (mean_interval(sample).low, mean_interval(sample).high) == pytest.approx(
        theirs, rel=1e-9
    )
    whole = sample.reshape(16, 5)
    theirs = stats.ttest_1samp(whole.mean(axis=1), 0).confidence_interval()
    ours = mean_interval(sample, [str(n // 5) for n in range(80)])
    assert (ours.low, ours.high, ours.n) == (
        pytest.approx(theirs.low),
        pytest.approx(theirs.high),
        80,
    )
    with pytest.raises(ValueError, match="80 values and 3 clusters"):
        mean_interval(sample, ["a", "b", "c"])


def test_copies_of_an_example_teach_nothing():
    rng = np.random.default_rng(2)
    before, after = rng.random(12), rng.random(12)
    once = paired_difference(before, after)
    often = paired_difference(
        np.repeat(before, 5), np.repeat(after, 5), [str(n // 5) for n in range(60)]
    )
    assert often.p_value == once.p_value
    assert (often.difference.low, often.difference.high) == pytest.approx(
        (once.difference.low, once.difference.high)
    )
    assert often.within == pytest.approx(once.within)
    rates = (
        rate_interval(before > 0.5),
        rate_interval(np.repeat(before > 0.5, 5), [str(n // 5) for n in range(60)]),
    )
    # Student's quantile in place of the normal one
    assert rates[1].high - rates[1].low > rates[0].high - rates[0].low


def test_no_difference_larger_than_a_margin_is_two_one_sided_tests():
    rng = np.random.default_rng(3)
    change = rng.normal(0.01, 0.1, 100)
    change = np.concatenate([change, 0.02 - change])  # not skewed
    within = paired_difference(np.zeros(200), change).within
    for margin, same in ((within * 1.001, True), (within * 0.999, False)):
        lower = stats.ttest_1samp(change, -margin, alternative="greater").pvalue
        upper = stats.ttest_1samp(change, margin, alternative="less").pvalue
        assert bool(max(lower, upper) < 0.05) is same
    # all the same is not certainty
    assert paired_difference(np.ones(240), np.ones(240)).within == pytest.approx(0.0133, abs=1e-4)
    assert paired_difference(np.ones(6), np.ones(6)).within > 0.3
    # nor is that all differ by the same
    assert paired_difference(np.zeros(60), np.full(60, 0.03)).within > 0.06


RATES = [
    (0, 1),
    (1, 1),
    (0, 20),
    (0, 27),
    (16, 16),
    (1, 20),
    (1, 29),
    (7, 20),
    (30, 59),
    (15, 148),
    (81, 263),
]
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
    [
        (0.1, 0.2, True),
        (-0.2, -0.1, True),
        (-0.1, 0.1, False),
        (0.0, 0.2, False),
        (-0.2, 0.0, False),
    ],
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
            (after - before,),
            np.mean,
            permutation_type="samples",
            n_resamples=20_000,
            rng=np.random.default_rng(0),
        ).pvalue
        assert paired_difference(before, after).p_value == pytest.approx(theirs, abs=0.015)


def test_few_differences_are_flipped_in_every_way():
    assert paired_difference([0.0] * 5, [0.1] * 5).p_value == pytest.approx(2 / 2**5)
    assert paired_difference([0.5, 0.5], [0.5, 0.5]).p_value == 1.0


@pytest.mark.parametrize("count", [3, 5, 12])
def test_sums_that_differ_in_the_last_digit_only_are_equal(count):
    """Tenths have no exact float: 0.1 + 0.2 + 0.3 depends on the order. The oracle flips whole
    numbers."""
    rng = np.random.default_rng(count)
    for _ in range(20):
        tenths = rng.choice([-3, -2, -1, 1, 2, 3], size=count)
        flipped = np.array(list(product((-1, 1), repeat=count))) @ tenths
        exact = np.mean(np.abs(flipped) >= abs(tenths.sum()))
        assert paired_difference(np.zeros(count), tenths / 10).p_value == exact


def test_sampled_flips_count_sums_that_differ_in_the_last_digit_only():
    """Of 21 equal differences, 12 up and 9 down: only flips that fall 11 to 10 are less extreme."""
    exact = 1 - 2 * comb(21, 10) / 2**21
    assert paired_difference(
        np.zeros(21), np.array([0.1] * 12 + [-0.1] * 9)
    ).p_value == pytest.approx(exact, abs=0.02)


def test_a_p_value_is_never_0_and_where_every_flip_is_as_extreme_exactly_1():
    """5,000 flips cannot show less than 1 in 5,001; 1,000 differences are flipped in chunks, none
    of them lost."""
    for n in (40, 1000):
        assert paired_difference(np.zeros(n), np.ones(n)).p_value == pytest.approx(
            1 / 5001, rel=1e-12
        )
        assert paired_difference(np.zeros(n), np.array([0.1, -0.1] * (n // 2))).p_value == 1.0


def test_what_differs_by_a_rounding_is_a_tie_and_is_not_flipped():
    rounding, small = np.full(10, 1e-10), np.array([1e-8, -1e-8, 1e-10])
    after = np.concatenate([np.full(5, 0.1), rounding])
    assert paired_difference(np.zeros(15), after).p_value == 2 / 2**5
    result = paired_difference(np.zeros(3), small)
    assert (result.wins, result.losses, result.ties) == (1, 1, 1)


def test_on_the_side_to_which_differences_are_skewed_more_is_possible(monkeypatch):
    """At its margin "did not change" may be said of 5 %: of few large wins the plain tests say it
    of 12 %."""
    monkeypatch.setattr(statistics, "RESAMPLES", 1)
    rng, plain, mended, tries = np.random.default_rng(4), 0, 0, 600
    for _ in range(tries):
        change = np.where(rng.random(60) < 0.1, 0.9, -0.1)
        found = paired_difference(np.zeros(60), change)
        plain += change.mean() + stats.t.ppf(0.95, 59) * stats.sem(change) < 0
        mended += paired_difference(np.zeros(60), change + 0.5).within < 0.5
    assert plain / tries > 0.1
    assert mended / tries < 0.05
    turned = paired_difference(np.zeros(60), -change)
    assert (turned.within, turned.scatter.skewness) == pytest.approx(
        (found.within, -found.scatter.skewness)
    )
    one = paired_difference(np.zeros(60), np.r_[np.full(59, 0.01), -0.9])
    assert one.scatter.skewness < -0.9
    # one cluster of 40 is not what skews the twenty others
    large = [str(min(n, 20)) for n in range(60)]
    assert abs(paired_difference(np.zeros(60), rng.normal(0, 1, 60), large).scatter.skewness) < 0.3


def differences(kind: str, clusters: int, each: int, rng: np.random.Generator) -> np.ndarray:
    shared = np.repeat(rng.standard_normal(clusters), each)
    z = shared if each == 1 else 0.3**0.5 * shared + 0.7**0.5 * rng.standard_normal(len(shared))
    if kind == "won or lost":
        return (z > 1.4051) * 1.0 - (z < -1.4051)  # 8 % each
    return {"normal": 0.3 * z, "few big losses": np.where(z > 1.8808, -0.97, 0.03)}[kind]


@pytest.mark.parametrize("kind", ["normal", "won or lost", "few big losses"])
@pytest.mark.parametrize(("clusters", "each"), [(240, 1), (60, 4)])
def test_as_many_as_are_advised_rule_a_margin_out_four_times_in_five(
    kind, clusters, each, monkeypatch
):
    monkeypatch.setattr(statistics, "RESAMPLES", 1)

    def changes(units: int, tries: int) -> list[statistics.PairedDifference]:
        names = [str(n // each) for n in range(units * each)] if each > 1 else None
        drawn = (differences(kind, units, each, rng) for _ in range(tries))
        return [paired_difference(np.zeros(units * each), one, names) for one in drawn]

    rng, margin = (
        np.random.default_rng(len(kind)),
        {"normal": 0.04, "won or lost": 0.05, "few big losses": 0.02}[kind],
    )
    advised = [statistics.count_units_within(one, margin) for one in changes(clusters, 41)]
    assert {one.unit for one in advised} == {"examples" if each == 1 else "clusters of 4 examples"}
    number = sorted(one.number for one in advised)[20]
    said = np.mean([one.within <= margin for one in changes(number, 400)])
    assert said == pytest.approx(0.8, abs=0.06), number


@pytest.mark.parametrize(("clusters", "each"), [(80, 1), (20, 4)])
def test_as_many_as_are_advised_show_a_mean_beside_a_bound_four_times_in_five(clusters, each):
    def values(units: int) -> tuple[np.ndarray, list[str]]:
        names = [str(n // each) for n in range(units * each)]
        return 0.05 + differences("normal", units, each, rng), names

    rng = np.random.default_rng(each)
    numbers = []
    for _ in range(61):
        drawn, names = values(clusters)
        numbers.append(statistics.count_units(statistics.scatter_of([drawn], [names]), 0.05).number)
    number, shown = sorted(numbers)[30], 0
    for _ in range(400):
        drawn, names = values(number)
        shown += pooled_interval([drawn], (), [names]).low > 0
    assert shown / 400 == pytest.approx(0.8, abs=0.06), number


def test_no_number_of_examples_of_the_same_clusters_is_advised():
    """The issue's case: 8 clusters of 8 examples, whose means scatter."""
    rng = np.random.default_rng(0)
    names = [str(n // 8) for n in range(64)]
    alike = paired_difference(
        np.zeros(64), np.repeat(rng.normal(0, 0.12, 8), 8) + rng.normal(0, 0.1, 64), names
    )
    wanted = statistics.count_units_within(alike, 0.02)
    assert (wanted.unit, wanted.needs_other_clusters) == ("clusters of 8 examples", True)
    assert wanted.number > 100
    assert str(wanted) == f"about {wanted.number:,} clusters of 8 examples"
    several = paired_difference(
        np.zeros(640),
        np.repeat(rng.normal(0, 0.001, 8), 80) + rng.normal(0, 0.1, 640),
        [*names * 10],
    )
    assert not statistics.count_units_within(several, 0.02).needs_other_clusters
    assert statistics.count_units_within(alike, 1e-5).number is None
    one = paired_difference(np.zeros(5), np.full(5, 0.1))  # which scatter no one knows
    assert statistics.count_units_within(one, 0.02).number > 1000


def test_p_values_of_no_difference_are_uniform():
    """The test's own false-alarm rate: about 5 % of comparisons of equals fall below 0.05."""
    rng = np.random.default_rng(3)
    low = sum(
        paired_difference(rng.random(30), rng.random(30), seed=i).p_value < 0.05 for i in range(200)
    )
    assert low < 22

    result = paired_difference([0.1, 0.5, 0.9, 0.3], [0.2, 0.5, 0.1, 0.4])
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
        paired_difference([0.1], [0.1, 0.2])


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
def test_what_differs_by_chance_alone_is_called_a_change_no_more_often_than_the_level_says(
    n, monkeypatch
):
    """An interval alone would say so of 48 % of single examples, and of 10 % of four."""
    monkeypatch.setattr(statistics, "RESAMPLES", 500)
    rng = np.random.default_rng(n)
    tries, falls, over = 400, 0, 0
    for seed in range(tries):
        found = paired_difference(np.zeros(n), rng.normal(0, 0.1, n), seed=seed)
        falls += direction(found.difference, found.p_value) == "fall"
        over += is_surely_over(rng.beta(2, 2, n), 0.5)
    assert max(falls, over) / tries < 0.05  # 0.025 and three standard errors


def test_a_baseline_of_six_and_more_can_be_surely_over_its_limit():
    assert [is_surely_over([0.9] * n, 0.5) for n in (0, 1, 5, 6, 40)] == [
        False,
        False,
        False,
        True,
        True,
    ]
    assert not is_surely_over([0.5] * 40, 0.5)
    assert not is_surely_over([0.4] * 40, 0.5)


def test_strata_have_clusters_of_their_own():
    rng = np.random.default_rng(5)
    values, clusters = rng.normal(2, 1, 60), [str(n // 3) for n in range(60)]
    both = pooled_interval([values, values[::3]], (), [clusters, None])
    assert both.high - both.mean > pooled_interval([values, values[::3]]).high - both.mean
