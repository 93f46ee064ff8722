"""SVG by hand: elements, paths, and the frame with axes that charts are drawn in.

Colours are classes (`c1`, `muted`), so that one style sheet decides them for light and dark. Coordinates have one
decimal: a tenth of a pixel is less than anybody sees, and a thousand steps stay small.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from plumbline.reports import escaping
from plumbline.reports.scales import Scale, Values, tick_labels, ticks, whole_ticks

CHARACTER = 6.4
"""Rough width of a character of an axis label; labels are placed with it, never cut."""


def element(name: str, content: str = "", **attributes: object) -> str:
    """An element; `class_` and `text_anchor` become `class` and `text-anchor`, numbers get one decimal."""
    written = "".join(
        f' {key.strip("_").replace("_", "-")}="{_value(value)}"'
        for key, value in attributes.items()
        if value is not None and value != ""
    )
    return f"<{name}{written}>{content}</{name}>" if content else f"<{name}{written}/>"


def _value(value: object) -> str:
    return coordinate(value) if isinstance(value, float) else escaping.html(value)


def coordinate(value: float) -> str:
    """One decimal, and none where it is 0."""
    return f"{value:.1f}".removesuffix(".0")


def text(x: float, y: float, content: str, **attributes: object) -> str:
    """A line of text, escaped; y is its baseline."""
    return element("text", escaping.html(content), x=float(x), y=float(y), **attributes)


def title(content: str) -> str:
    """What a pointer that rests on the element is told."""
    return f"<title>{escaping.html(content)}</title>" if content else ""


def line(x1: float, y1: float, x2: float, y2: float, class_: str) -> str:
    """A straight line."""
    return element("line", x1=float(x1), y1=float(y1), x2=float(x2), y2=float(y2), class_=class_)


def path(xs: Sequence[float], ys: Values, y: Scale) -> str:
    """Path data through the finite points; a gap breaks the line, and a lone point is a dot of the line's width."""
    commands, alone = [], False
    drawing = False
    for x, value in zip(xs, ys, strict=True):
        if value != value:  # NaN: not computed
            commands += ["h0"] if alone else []
            drawing = alone = False
            continue
        commands.append(f"{'L' if drawing else 'M'}{coordinate(x)},{coordinate(y(float(value)))}")
        alone, drawing = not drawing, True
    return "".join([*commands, "h0"] if alone else commands)


def dots(xs: Sequence[float], ys: Values, y: Scale) -> str:
    """Path data of dots: moves without a line, drawn by the round caps of the stroke."""
    return "".join(
        f"M{coordinate(x)},{coordinate(y(float(value)))}h0"
        for x, value in zip(xs, ys, strict=True)
        if value == value  # not NaN
    )


def marker(x: float, y: float, shape: str, class_: str, tooltip: str = "") -> str:
    """A mark that differs in shape as well as in colour: a filled circle, a hollow one, a small one or a diamond."""
    if shape == "diamond":
        outline = f"M{coordinate(x)},{coordinate(y - 5.2)}l5.2,5.2l-5.2,5.2l-5.2,-5.2z"
        return element("path", title(tooltip), d=outline, class_=f"mark {class_}")
    radius = 1.9 if shape == "small" else 4.2
    return element("circle", title(tooltip), cx=float(x), cy=float(y), r=radius, class_=f"{_mark(shape)} {class_}")


def _mark(shape: str) -> str:
    return "mark hollow" if shape == "hollow" else "mark"


def drawing(width: int, height: int, label: str, *content: str) -> str:
    """A whole figure: it scales with its box, and says in words what it shows."""
    return (
        f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{escaping.html(label)}">{"".join(content)}</svg>'
    )


@dataclass(frozen=True, slots=True)
class Frame:
    """The inside of a chart: its edges and its two scales."""

    left: float
    right: float
    top: float
    bottom: float
    x: Scale
    y: Scale

    @classmethod
    def fit(
        cls, width: int, height: int, x: tuple[float, float], y: tuple[float, float], *, right: float, inset: float = 0
    ) -> "Frame":
        """A frame whose left margin is as wide as the labels of the y axis; the lower one holds the x axis.

        `inset` keeps the first and the last point off the edges, so that their marks have space.
        """
        labels = tick_labels(ticks(*y, _most(height)))
        left = max(36.0, 10 + CHARACTER * max((len(label) for label in labels), default=1))
        ends = (left, width - right, 10.0, height - 34.0)
        return cls(*ends, x=Scale(*x, ends[0] + inset, ends[1] - inset), y=Scale(*y, ends[3], ends[2]))

    def axes(self, x_title: str = "step") -> str:
        """Quiet horizontal lines at round values, a base line, and the labels."""
        values = ticks(self.y.low, self.y.high, _most(self.bottom - self.top + 44))
        parts = []
        for value, label in zip(values, tick_labels(values), strict=True):
            y = self.y(value)
            parts.append(line(self.left, y, self.right, y, "grid"))
            parts.append(text(self.left - 6, y + 4, label, class_="tick", text_anchor="end"))
        parts.append(line(self.left, self.bottom, self.right, self.bottom, "axis"))
        steps = whole_ticks(self.x.low, self.x.high, max(2, min(8, int((self.right - self.left) / 54))))
        for value, label in zip(steps, tick_labels(steps), strict=True):
            x = self.x(value)
            parts.append(line(x, self.bottom, x, self.bottom + 4, "axis"))
            parts.append(text(x, self.bottom + 16, label, class_="tick", text_anchor="middle"))
        parts.append(text((self.left + self.right) / 2, self.bottom + 30, x_title, class_="tick", text_anchor="middle"))
        return "".join(parts)


def _most(height: float) -> int:
    return max(3, min(6, int(height / 40)))
