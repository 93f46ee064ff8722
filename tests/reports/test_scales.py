import math

import numpy as np
import pytest

from plumbline.reports import format_numbers as numbers
from plumbline.reports.charts import (
    Scale,
    axis_range,
    even_indices,
    smooth,
    spread_labels,
    thin_points,
    tick_labels,
    ticks,
    whole_ticks,
)

NAN = math.nan


@pytest.mark.parametrize(
    ("low", "high", "labels"),
    [
        (0, 1, ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]),
        (0, 60, ["0", "20", "40", "60"]),
        (0, 12_500, ["0", "5,000", "10,000"]),
        (-0.05, 0.05, ["−0.04", "−0.02", "0.00", "0.02", "0.04"]),
        (0, 6e-6, ["0", "2e−6", "4e−6", "6e−6"]),
        (0, 1.1e-4, ["0", "0.5e−4", "1.0e−4"]),
    ],
)
def test_ticks_are_round_and_their_labels_alike(low, high, labels):
    assert tick_labels(ticks(low, high, 6 if high == 1 else 5)) == labels


@pytest.mark.parametrize("low", [0.0, -3.0, 1e-9, 123.456])
@pytest.mark.parametrize("span", [1e-8, 0.03, 1.0, 17.0, 9e5])
def test_ticks_lie_inside_and_are_few(low, span):
    found = ticks(low, low + span, 5)
    assert 1 <= len(found) <= 5
    assert all(low - span * 1e-6 <= tick <= low + span * (1 + 1e-6) for tick in found)
    assert len(set(tick_labels(found))) == len(found)


def test_step_axes_have_whole_numbers_only():
    assert whole_ticks(0, 3, 8) == [0, 1, 2, 3]
    assert whole_ticks(4, 4.4, 5) == [4]


def test_domains_are_never_empty_and_start_at_zero_where_that_does_not_flatten():
    assert axis_range([NAN]) == (0.0, 1.0)
    assert axis_range([0.0, 0.0]) == (0.0, 1.0)
    assert axis_range([2.0, 2.0]) == (0.0, 2.5)
    assert axis_range([-2.0]) == (-2.5, 0.0)
    assert axis_range([0.1, 1.0])[0] == 0.0
    assert axis_range([0.9, 1.0])[0] > 0.8


def test_a_scale_holds_what_lies_outside_at_its_edge():
    scale = Scale(0, 10, 100, 0)
    assert [scale(value) for value in (0, 5, 10, 99, -5)] == [100, 50, 0, 0, 100]


def test_smoothing_leaves_gaps_and_takes_only_what_is_there():
    mean, width = smooth(np.array([1.0, NAN, 3.0, 5.0, 7.0]), 3)
    np.testing.assert_allclose(mean, [1.0, NAN, 4.0, 5.0, 6.0])
    assert np.isnan(width[1])
    assert width[3] == pytest.approx(1.96 * np.std([3, 5, 7], ddof=1) / math.sqrt(3))


def test_thinning_keeps_ends_and_spikes_and_gaps():
    values = np.zeros(5000)
    values[1234], values[4321] = 9.0, -9.0
    values[2000:2400] = NAN
    kept = thin_points(values, 200)
    assert len(kept) <= 202
    assert {0, 1234, 4321, 4999} <= set(kept.tolist())
    assert np.isnan(values[kept]).any()
    assert list(thin_points(values[:50], 200)) == list(range(50))


def test_even_indices_hold_both_ends():
    assert even_indices(5, 10) == [0, 1, 2, 3, 4]
    chosen = even_indices(1000, 80)
    assert len(chosen) == 80
    assert (chosen[0], chosen[-1]) == (0, 999)


def test_labels_are_moved_apart_within_their_room():
    moved = spread_labels([50, 50, 50, 100], 15, 0, 100)
    assert min(b - a for a, b in zip(sorted(moved), sorted(moved)[1:], strict=False)) >= 15
    assert min(moved) >= 0
    assert max(moved) <= 100


def test_numbers_are_written_for_people():
    assert list(map(numbers.format_fixed, (None, NAN, math.inf, -0.0001, -0.0006, 0.6124))) == [
        *("–", "–", "–", "0.000", "-0.001", "0.612")
    ]
    assert list(map(numbers.format_p_equation, (0.0002, 0.001, 0.0312, 0.049, 0.2834, 1.0))) == [
        *("p < 0.001", "p = 0.001", "p = 0.031", "p = 0.049", "p = 0.28", "p = 1.00")
    ]
    assert list(map(numbers.format_duration, (0.42, 59.4, 59.6, 186, 3599.6, 12_000))) == [
        *("0.4 s", "59 s", "1 min 00 s", "3 min 06 s", "1 h 00 min", "3 h 20 min")
    ]
    assert list(
        map(numbers.format_metric, (0.0, 5e-6, 0.0412, 0.613, 2.34, 54.06, 1534.2, 3e7))
    ) == [*("0", "5.0e-06", "0.0412", "0.613", "2.34", "54.1", "1,534", "3.0e+07")]
