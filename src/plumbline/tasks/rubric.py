"""Named, weighted, versioned parts of a reward.

A rubric turns part values in [0, 1] into a `Score`. There is no model as judge: every value comes
from a pure function. Two versions of a rubric are not comparable, and `identity` (name, version,
hash of the weights) is how that is noticed even where somebody changed a weight and forgot the
version.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

from plumbline.records import Score


@dataclass(frozen=True, slots=True)
class Part:
    """One named part: its weight and, for people, what it asks for."""

    name: str
    weight: float
    pays_for: str


@dataclass(frozen=True, slots=True)
class Rubric:
    """Weighted parts that pay (with the weight 0 nothing), and parts of form that take away a share
    of what was paid.

        total = (1 - sum over form of weight * (1 - value)) * (sum over parts of weight * value) / (sum of weight)

    Form alone earns nothing: an answer of the right shape and the wrong content stands where its
    content does.

    Example:
        rubric = Rubric("toy", 1, (Part("a", 1, "first"), Part("b", 3, "second")),
        form=(Part("clean", 0.2, "tidy"),)) rubric.score({"a": 1.0, "b": 0.0, "clean": 0.5}).total
        == (1 - 0.2 * 0.5) * 0.25
    """

    name: str
    version: int
    parts: tuple[Part, ...]
    form: tuple[Part, ...] = ()

    def __post_init__(self) -> None:
        names = [part.name for part in (*self.form, *self.parts)]
        if len(set(names)) != len(names):
            raise ValueError(f"rubric {self.name}: a part is named twice: {names}")
        if any(part.weight < 0 for part in (*self.parts, *self.form)) or not any(
            part.weight for part in self.parts
        ):
            raise ValueError(
                f"rubric {self.name}: no weight is negative, and one part needs a positive weight"
            )
        if sum(part.weight for part in self.form) > 1:
            raise ValueError(f"rubric {self.name}: form cannot take away more than everything")

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all parts, form first."""
        return tuple(part.name for part in (*self.form, *self.parts))

    @property
    def identity(self) -> str:
        """Name, version and a hash of the parts and weights, for example `words/1+9f2c41`."""
        content = ";".join(f"{part.name}={part.weight!r}" for part in (*self.form, *self.parts))
        return f"{self.name}/{self.version}+{hashlib.sha256(content.encode()).hexdigest()[:6]}"

    def total(self, values: Mapping[str, float | None]) -> float:
        """The total of part values in [0, 1]; a part that is None (could not be computed) is left
        out."""
        paid = weight = taken = 0.0
        for part in self.parts:
            value = values[part.name]
            if value is not None:
                paid += part.weight * value
                weight += part.weight
        for part in self.form:
            value = values[part.name]
            if value is not None:
                taken += part.weight * (1 - value)
        mean = paid / weight if weight else 0.0
        # Weights such as 0.1 do not add up exactly, and a total just above 1 is no score.
        return (1 - taken) * (1.0 if 1 < mean < 1 + 1e-9 else mean)

    def score(
        self, values: Mapping[str, float | None], readings: Mapping[str, float] | None = None
    ) -> Score:
        """Weigh the part values into a score.

        Args:
            values: one value in [0, 1] for each part, or None for a part that could not be
                computed.
            readings: totals under other ways to read the completion, kept beside.

        Raises:
            ValueError: a part is missing, unknown, out of range or not finite.
        """
        if values.keys() != set(self.names):
            unknown, missing = (
                sorted(values.keys() - set(self.names)),
                sorted(set(self.names) - values.keys()),
            )
            raise ValueError(
                f"rubric {self.name}: unknown parts {unknown}, missing parts {missing}"
            )
        return Score(
            total=self.total(values),
            parts=dict(values),
            rubric=self.identity,
            readings=dict(readings or {}),
        )
