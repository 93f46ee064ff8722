import math
import re
from itertools import pairwise
from xml.etree import ElementTree

import numpy as np
import pytest

from plumbline.evaluation.statistics import Interval
from plumbline.reports.charts import (
    LINE,
    SMALL,
    UNIT,
    Level,
    Line,
    Mark,
    Points,
    dot_chart,
    line_chart,
    smoothed_lines,
)

NAN = math.nan
NUMBER = re.compile(r"-?\d+\.?\d*")
HOSTILE = '"><script>alert(1)</script>&\x00\u202e'


def parsed(svg: str) -> ElementTree.Element:
    """The drawing as XML; every coordinate in it is a finite number."""
    root = ElementTree.fromstring(svg)
    assert root.tag == "svg"
    assert root.get("role") == "img"
    assert root.get("aria-label")
    assert "nan" not in svg.lower().replace(root.get("aria-label", "").lower(), "")
    assert "inf" not in re.sub(r"aria-label=\"[^\"]*\"", "", svg)
    return root


def array(*values: float) -> np.ndarray:
    return np.array(values, dtype=np.float64)


def steps(n: int) -> np.ndarray:
    return np.arange(1, n + 1, dtype=np.float64)


@pytest.mark.parametrize(
    "values",
    [
        *(
            array(),
            array(NAN),
            array(NAN, NAN, NAN),
            array(0.5),
            array(0.0, 0.0, 0.0),
            array(3.0, 3.0),
        ),
        *(
            array(-2.0, -2.0),
            array(NAN, 0.1, NAN, 0.3, NAN),
            array(0.1, NAN, NAN, 0.2, 0.3),
            array(1e-300, 2e-300),
        ),
        *(array(1e12, 2e12, -1e12), array(5e-6, 5e-6, 5e-6)),
    ],
)
@pytest.mark.parametrize("y_range", [None, UNIT])
def test_any_series_makes_a_well_formed_chart(values, y_range):
    n = len(values)
    layers = [
        Line(steps(n), values, joined=False),
        Line(steps(n), values, label="a", band=values * 0.1),
        *smoothed_lines(steps(n), values),
    ]
    root = parsed(line_chart(layers, label="any series", y_range=y_range))
    drawn = [path for path in root.iter("path") if "line" in path.get("class", "")]
    assert bool(drawn) == bool(np.isfinite(values).any())


def test_a_chart_without_values_says_so():
    root = parsed(line_chart([Line(steps(2), array(NAN, NAN))], label="KL"))
    assert [text.text for text in root.iter("text")] == ["no values recorded"]


def drawn(values, label, **how):
    """A line alone: the chart, and the path's data."""
    layers = [Line(steps(len(values)), values)]
    root = parsed(line_chart(layers, label=label, y_range=UNIT, **how))
    (path,) = [path for path in root.iter("path") if path.get("class") == "line c1"]
    return root, path.get("d", "")


def test_a_gap_breaks_the_line_and_is_not_drawn_as_zero():
    _, path = drawn(array(0.5, 0.5, NAN, 0.5, 0.5), "gap", size=SMALL)
    assert path.count("M") == 2
    ys = {pair.split(",")[1] for pair in re.split("[ML]", path) if pair}
    assert len(ys) == 1  # all four points at the height of 0.5, none at that of 0


def test_a_single_point_between_gaps_is_still_visible():
    assert drawn(array(NAN, 0.5, NAN), "point")[1].endswith("h0")


def test_points_lie_where_their_values_say():
    root, path = drawn(array(0.0, 1.0), "up", size=SMALL)
    (_, low), (_, high) = ((float(a), float(b)) for a, b in re.findall(r"([\d.]+),([\d.]+)", path))
    grid = sorted(
        float(line.get("y1", 0)) for line in root.iter("line") if line.get("class") == "grid"
    )
    assert (low, high) == (grid[-1], grid[0])


def test_evaluations_show_their_intervals_and_say_their_n():
    intervals = [
        Interval(0.5, 0.4, 0.6, 24),
        Interval(NAN, NAN, NAN, 0),
        Interval(0.9, 0.85, 0.95, 24),
    ]
    layers = [
        Points([0, 10, 20], intervals, label="greedy", shape="diamond"),
        Level(1.0, "oracle 1.000"),
    ]
    root = parsed(line_chart(layers, label="evaluations", y_range=UNIT))
    titles = [title.text for title in root.iter("title")]
    assert titles == [
        "step 0, greedy: 0.500 [0.400, 0.600], n = 24",
        "step 20, greedy: 0.900 [0.850, 0.950], n = 24",
    ]
    assert (
        len([line for line in root.iter("line") if (line.get("class") or "").startswith("bar")])
        == 2
    )
    assert "oracle 1.000" in [text.text for text in root.iter("text")]


def test_labels_at_the_end_of_lines_do_not_overlap():
    layers = [Line(steps(2), array(0.5, 0.5 + i / 1000), label=f"line {i}") for i in range(5)]
    root = parsed(line_chart(layers, label="close", y_range=UNIT))
    ys = sorted(
        float(text.get("y", 0))
        for text in root.iter("text")
        if "label" in (text.get("class") or "")
    )
    assert min(b - a for a, b in pairwise(ys)) >= 12


def test_ten_thousand_steps_stay_small_and_keep_their_spike():
    values = np.sin(np.arange(10_000) / 300) * 0.1
    values[7_123] = 50.0
    chart = line_chart(
        [Line(steps(10_000), values, joined=False), Line(steps(10_000), values)], label="long"
    )
    assert len(chart) < 12_000
    root = parsed(chart)
    top = min(float(line.get("y1", 0)) for line in root.iter("line") if line.get("class") == "grid")
    (path,) = [path for path in root.iter("path") if path.get("class") == "line c1"]
    heights = [float(y) for _, y in re.findall(r"([\d.]+),([\d.]+)", path.get("d", ""))]
    assert min(heights) <= top
    (dots,) = [path for path in root.iter("path") if path.get("class") == "raw c1"]
    assert dots.get("d", "").count("M") <= LINE + 2


def test_hostile_names_are_text_in_every_chart():
    interval = Interval(0.5, 0.4, 0.6, 9)
    charts = [
        line_chart(
            [Line(steps(2), array(0, 1), label=HOSTILE), Level(0.5, HOSTILE)], label=HOSTILE
        ),
        dot_chart(
            [(HOSTILE, (Mark(interval, HOSTILE),), HOSTILE)],
            label=HOSTILE,
            references=[(HOSTILE, interval)],
        ),
    ]
    for chart in charts:
        root = parsed(chart)
        assert not list(root.iter("script"))
        assert "<script" not in chart


def test_dot_chart_marks_lie_within_the_axis():
    rows = [
        ("out of range", (Mark(Interval(1.4, -0.5, 2.0, 3), "x"),), ""),
        ("none", (Mark(Interval(NAN, NAN, NAN, 0), "x"),), ""),
    ]
    root = parsed(dot_chart(rows, label="range"))
    (mark,) = root.iter("circle")
    axis = next(line for line in root.iter("line") if line.get("class") == "axis")
    assert float(mark.get("cx", 0)) == float(axis.get("x2", 0))


def test_names_of_one_sweep_stand_whole_above_their_marks():
    names = [f"strict-json-grpo-360-{seed}-qwen2.5-coder-0.5b" for seed in ("seed0", "seed1")]
    rows = [(name, (Mark(Interval(0.5, 0.4, 0.6, 9), "x"),), "") for name in names]
    root = parsed(dot_chart(rows, label="sweep"))
    labels = [one for one in root.iter("text") if one.get("class") == "label"]
    heights = [float(one.get("cy", 0)) for one in root.iter("circle")]
    assert [one.text for one in labels] == names
    for label, mark in zip(labels, heights, strict=True):
        assert mark - 20 < float(label.get("y", 0)) < mark - 5


def test_a_dot_chart_has_the_range_that_is_asked_for():
    rows = [("below", (Mark(Interval(-0.5, -0.6, -0.4, 3), "x"),), "")]
    root = parsed(dot_chart(rows, label="range", x_range=(-1.0, 0.0)))
    (mark,) = root.iter("circle")
    axis = next(line for line in root.iter("line") if line.get("class") == "axis")
    middle = (float(axis.get("x1", 0)) + float(axis.get("x2", 0))) / 2
    assert float(mark.get("cx", 0)) == pytest.approx(middle, abs=0.2)


def test_a_dot_chart_of_nothing_is_well_formed():
    parsed(dot_chart([], label="nothing"))


def test_a_mean_without_an_interval_is_a_mark_without_a_bar():
    rows = [("one", (Mark(Interval(0.5, NAN, NAN, 9), "x"),), "")]
    root = parsed(dot_chart(rows, label="bare", references=[("oracle", Interval(1, 1, 1, 9))]))
    assert len(list(root.iter("circle"))) == 1
    assert not [one for one in root.iter("line") if "bar" in (one.get("class") or "")]
    assert not list(root.iter("rect")), "an exact line has no band"


def test_all_drawings_of_a_report_are_well_formed(html):
    drawings = re.findall(r"<svg viewBox.*?</svg>", html)
    assert len(drawings) > 20
    for drawing in drawings:
        ElementTree.fromstring(drawing)
    figures = [drawing for drawing in drawings if "role=" in drawing]
    for figure in figures:
        parsed(figure)
    assert all(NUMBER.search(figure) for figure in figures)
