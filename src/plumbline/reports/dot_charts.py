"""Charts of rows: dots with their intervals beside named lines (floor, ceiling), and bars for shares of a whole."""

from collections.abc import Sequence
from dataclasses import dataclass

from plumbline.evaluation.statistics import Interval
from plumbline.reports import numbers, svg
from plumbline.reports.scales import Scale, tick_labels, ticks

WIDTH = 420
ROW = 30


@dataclass(frozen=True, slots=True)
class Mark:
    """A dot with its interval; `name` is what its tooltip calls it."""

    interval: Interval
    name: str
    style: str = "c1"
    shape: str = "circle"


@dataclass(frozen=True, slots=True)
class DotRow:
    """A row of marks; `note` stands at the right. A row without marks is a heading."""

    label: str
    marks: tuple[Mark, ...] = ()
    note: str = ""


@dataclass(frozen=True, slots=True)
class Reference:
    """A vertical line with a name, and its interval as a band."""

    interval: Interval
    label: str


def dot_chart(
    rows: Sequence[DotRow],
    *,
    label: str,
    references: Sequence[Reference] = (),
    x_range: tuple[float, float] = (0.0, 1.0),
    x_title: str = "reward",
) -> str:
    """Rows from top to bottom over one axis; values outside of it are held at its edge.

    Args:
        rows: headings and rows of marks.
        label: what the figure shows, for those who do not see it.
        references: vertical lines; each has its name in a line of its own at the top, so that names never meet.
        x_range: of the axis.
        x_title: under the axis.
    """
    references = [reference for reference in references if numbers.known(reference.interval.mean)]
    left = 14 + 6.6 * max((len(row.label[:22]) for row in rows), default=4)
    right = WIDTH - 12 - 6.8 * max((len(row.note) for row in rows), default=0)
    top = 8.0 + 16 * len(references)
    bottom = top + ROW * max(len(rows), 1)
    x = Scale(*x_range, left, right)
    parts = [_axis(x, top, bottom, x_title)]
    parts += [_reference(reference, x, 16.0 * index + 14, bottom) for index, reference in enumerate(references)]
    for index, row in enumerate(rows):
        parts.append(_row(row, x, top + ROW * index + ROW / 2))
    return svg.drawing(WIDTH, round(bottom + 36), label, *parts)


def _axis(x: Scale, top: float, bottom: float, name: str) -> str:
    values = ticks(x.low, x.high, 6)
    parts = [svg.line(x.start, bottom, x.end, bottom, "axis")]
    for value, label in zip(values, tick_labels(values), strict=True):
        parts.append(svg.line(x(value), top, x(value), bottom, "grid"))
        parts.append(svg.text(x(value), bottom + 15, label, class_="tick", text_anchor="middle"))
    parts.append(svg.text((x.start + x.end) / 2, bottom + 30, name, class_="tick", text_anchor="middle"))
    return "".join(parts)


def _reference(reference: Reference, x: Scale, y: float, bottom: float) -> str:
    interval = reference.interval
    at = x(interval.mean)
    near_right = at > (x.start + x.end) / 2
    name = f"{reference.label} {numbers.fixed(interval.mean)}"
    low, high = x(interval.low), x(interval.high)
    return "".join(
        [
            svg.element("rect", x=low, y=y, width=max(high - low, 0.1), height=bottom - y, class_="band muted"),
            svg.line(at, y - 8, at, bottom, "level muted"),
            svg.text(
                at - 5 if near_right else at + 5,
                y - 1,
                name,
                class_="label muted",
                text_anchor="end" if near_right else "start",
            ),
        ]
    )


def _row(row: DotRow, x: Scale, y: float) -> str:
    if not row.marks:
        return svg.text(4, y + 5, row.label, class_="label strong")
    shown = row.label if len(row.label) <= 22 else f"{row.label[:21]}…"
    parts = [svg.text(x.start - 8, y + 4, shown, class_="label", text_anchor="end")]
    several = len(row.marks) > 1
    for index, mark in enumerate(row.marks):
        if not numbers.known(mark.interval.mean):
            continue
        at = y + (index - (len(row.marks) - 1) / 2) * 9 if several else y
        low, high = x(mark.interval.low), x(mark.interval.high)
        parts.append(svg.line(low, at, high, at, f"bar {mark.style}"))
        tooltip = f"{row.label}, {mark.name}: {numbers.interval_text(mark.interval)}, n = {mark.interval.n}"
        parts.append(svg.marker(x(mark.interval.mean), at, mark.shape, mark.style, tooltip))
    if row.note:
        parts.append(svg.text(WIDTH - 4, y + 4, row.note, class_="label num", text_anchor="end"))
    return "".join(parts)


@dataclass(frozen=True, slots=True)
class Share:
    """A part of a whole."""

    label: str
    value: float
    note: str


def share_chart(shares: Sequence[Share], *, label: str) -> str:
    """Bars from the left, the longest as long as there is space."""
    longest = max((share.value for share in shares), default=0.0)
    left = 14 + 6.6 * max((len(share.label) for share in shares), default=4)
    right = WIDTH - 12 - 6.8 * max((len(share.note) for share in shares), default=0)
    parts = []
    for index, share in enumerate(shares):
        y = 4.0 + 26 * index
        part = share.value / longest if longest > 0 else 0.0
        parts.append(svg.text(left - 8, y + 15, share.label, class_="label", text_anchor="end"))
        parts.append(
            svg.element(
                "rect",
                svg.title(f"{share.label}: {share.note}"),
                x=left,
                y=y + 2,
                width=max(part * (right - left), 0.5),
                height=18.0,
                class_="fill c1",
            )
        )
        parts.append(svg.text(WIDTH - 4, y + 15, share.note, class_="label num", text_anchor="end"))
    return svg.drawing(WIDTH, 26 * len(shares) + 8, label, *parts)
