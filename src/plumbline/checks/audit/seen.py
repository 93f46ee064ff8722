"""What was judged in an audit, by what it was tried for, and the figures that checks and tables have in common."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from plumbline.checks.audit.bench import Verdict
from plumbline.checks.audit.cheats import Cheat
from plumbline.checks.audit.elsewhere import Elsewhere
from plumbline.records import Score
from plumbline.tasks.precheck import Label


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What was judged, by what it was tried for."""

    golds: Sequence[Verdict] = ()
    controls: Mapping[str, Mapping[str, Sequence[Verdict]]] = field(default_factory=dict)
    """By control and split."""
    damaged: Sequence[Verdict] = ()
    hostile: Sequence[Verdict] = ()
    writings: Mapping[str, Sequence[Verdict]] = field(default_factory=dict)
    """Gold answers of `golds` written otherwise, by the way."""
    every: Sequence[Verdict] = ()
    """All of them."""
    again: Sequence[tuple[Verdict, Score | None]] = ()
    """Those that came out otherwise the second time, with what they got."""
    repeated: int = 0
    """How many were judged twice."""
    elsewhere: Sequence[Elsewhere] = ()
    """Verdicts that came out otherwise under other conditions."""
    label: Label | None = None
    """What is wrong with gold answers that are labels."""
    misread: tuple[str, str] | None = None
    """What is wrong, and what to do, where a function takes completions in another form than it gets."""
    column: str = ""
    """Of the gold answers."""
    ranges: str = ""
    """The line that declares the ranges that the reward was seen to have, where they are taken from that."""
    printed: tuple[int, str] = (0, "")
    """Lines that the verifier printed, and the first."""
    cheat: Cheat | None = None
    limits: Mapping[str, float] = field(default_factory=dict)
    """Of controls, where the task has them."""
    form: Sequence[str] = ()
    """Parts that judge form: in a rubric they take away, and pay nothing."""
    idle: Sequence[str] = ()
    """Parts of weight 0."""
    commas: bool = False
    """Whether the prompts' language writes decimal commas."""

    @property
    def scored(self) -> list[tuple[Verdict, Score]]:
        """Those that have a score."""
        return [(verdict, verdict.score) for verdict in self.every if verdict.score is not None]

    @property
    def ceiling(self) -> float:
        """What gold answers earn; 1 where there are none."""
        return mean(self.golds) if self.golds else 1.0

    @property
    def floor(self) -> float:
        """The least that any text earned."""
        return min((score.total for _, score in self.scored), default=0.0)

    def parts(self) -> dict[str, list[tuple[Verdict, float | None]]]:
        """The values of every part that pays; a score without parts has one, its total."""
        found: dict[str, list[tuple[Verdict, float | None]]] = defaultdict(list)
        for verdict, score in self.scored:
            for name, value in (score.parts or {"reward": score.total}).items():
                if name not in self.idle:
                    found[name].append((verdict, value))
        return found


def mean(verdicts: Sequence[Verdict]) -> float:
    """The mean reward of those that have one."""
    rewards = [one.score.total for one in verdicts if one.score is not None]
    return float(np.mean(rewards)) if rewards else 0.0


def ids(verdicts: Sequence[Verdict]) -> tuple[str, ...]:
    """The first few examples."""
    return tuple(dict.fromkeys(one.case.example.id for one in verdicts))[:5]


def shown(text: str, most: int = 60) -> str:
    """A text in one line, cut."""
    quoted = repr(text)
    return quoted if len(quoted) <= most else f"{quoted[: most - 4]}...{quoted[-1]}"


def written(seen: Seen) -> dict[str, dict[str, Any]]:
    """Of each way to write a gold answer: how many were tried, the mean share of its reward that is lost, and the mean
    total under each reading, where the task has readings."""
    whole = {one.case.example.id: one.score.total for one in seen.golds if one.score is not None and one.score.total}
    found = {}
    for way, verdicts in seen.writings.items():
        scores = [(whole.get(one.case.example.id), one.score) for one in verdicts if one.score is not None]
        shares = [1 - score.total / gold for gold, score in scores if gold is not None]
        if shares:
            names = scores[0][1].readings
            totals = {name: float(np.mean([score.readings[name] for _, score in scores])) for name in names}
            found[way] = {"n": len(shares), "loss": float(np.mean(shares)), "readings": totals}
    return found
