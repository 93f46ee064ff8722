"""Checks while a run goes on: what is found is said once, and some of what is fatal asks to stop.

A look costs little however long the run is: rows are read once, as they are recorded, and of the
completions those of the first and of the last steps are kept.
"""

import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np

from plumbline.checks.check import Finding, examine
from plumbline.checks.diagnosis.history import EMPTY, History, Sample, Series
from plumbline.checks.diagnosis.readers import own
from plumbline.checks.diagnosis.readers.rows import (
    as_number,
    collect_series,
    find_kind,
    find_series_name,
    list_columns,
)
from plumbline.checks.diagnosis.rules import CHECKS
from plumbline.errors import RecipeError
from plumbline.recipe import Recipe
from plumbline.recipe.decision_rules import ChecksSection
from plumbline.records import Row, Rows
from plumbline.runs.run import Run

LIVE = tuple(check for check in CHECKS if "during" in check.moments)
FIRST, LAST = 10, 30
"""Steps whose completions are kept: checks of how a run began read its first quarter, others its
last twenty steps."""
HALF = 500
"""Characters that are kept of both ends of a long completion: one that repeats itself does so at
its end."""


@dataclass(frozen=True, slots=True)
class Look:
    """What came of a look."""

    new: tuple[Finding, ...] = ()
    """What was not said before, or not at this level: what is certain, and what two looks in a row
    have had."""
    stop: Finding | None = None
    """The first that asks to stop."""
    not_run: Mapping[str, list[str]] = field(default_factory=dict)
    """Checks that could not be done, with what they lack."""


class Live:
    """The checks of a stage that is still training.

    Args:
        stage: whose it is, with its settings; of what was recorded nothing is read from it.
        section: how often to look, and what to ignore.
        memory: plain values of what was said, which a resumed run takes up again; they are changed.
        name_series: our name of a metric.

    Raises:
        RecipeError: a check that is to be ignored does not exist.
    """

    def __init__(
        self,
        stage: History,
        section: ChecksSection,
        memory: dict[str, Any],
        name_series: Callable[[str], str | None] = find_series_name,
    ) -> None:
        validate_check_names(section)
        self.stage, self.section, self.memory, self.name_series = (
            stage,
            section,
            memory,
            name_series,
        )
        self.series: dict[str, Series] = {}
        self._columns: set[str] = set()
        self._rows: list[Row] = []
        self._first: list[list[Sample]] = []
        self._last: deque[list[Sample]] = deque(maxlen=LAST)

    def add(self, row: Row) -> bool:
        """Take a row of metrics, which has its `step`; whether it is to be looked at now, for a
        number that is none."""
        self._rows.append(row)
        return any(
            (number := as_number(value)) is not None
            and not math.isfinite(number)
            and self.name_series(key)
            for key, value in row.items()
        )

    def add_samples(self, samples: Iterable[Sample]) -> None:
        """Take the completions of a step, or of the next ones in order."""
        for sample in samples:
            steps = self._last or self._first
            if not steps or steps[-1][0].step != sample.step:
                (self._first if len(self._first) < FIRST else self._last).append([])
                steps = self._last or self._first
            text = sample.text
            short = text if len(text) <= 2 * HALF else text[:HALF] + text[-HALF:]
            steps[-1].append(replace(sample, text=short))

    def current_history(self) -> History | None:
        """The history of the stage up to the last logged step; None before the first reward or loss."""
        for name, new in collect_series(self._rows, self.name_series).items():
            old = self.series.get(name, EMPTY)
            kept = old.steps < new.steps[0]  # a resumed trainer logs steps again
            self.series[name] = Series(
                np.concatenate([old.steps[kept], new.steps]),
                np.concatenate([old.values[kept], new.values]),
            )
        self._columns.update(list_columns(self._rows))
        self._rows.clear()
        kind = find_kind(self.series, self._columns)
        if kind is None:
            return None
        samples = [sample for step in (*self._first, *self._last) for sample in step]
        return replace(self.stage, kind=kind, series=self.series, samples=samples, finished=False)

    def look(self, *, last: bool = False) -> Look:
        """Examine what is known; the last look of a stage says what no other one has had, too."""
        history = self.current_history()
        if history is None:
            return Look()
        reported: dict[str, str] = self.memory.setdefault("reported", {})
        before: dict[str, dict[str, int]] = self.memory.get("standing", {})
        self.memory["standing"] = standing = {
            "fatal": dict[str, int](),
            "warning": dict[str, int](),
        }
        new, stop = list[Finding](), None
        examined = examine(history, LIVE)
        for finding in examined.findings:
            if finding.level == "note" or finding.check in self.section.ignore:
                continue
            key = f"{finding.check} {finding.about}".strip()
            since = before.get(finding.level, {}).get(key, history.last_step)
            standing[finding.level][key] = since
            certain = finding.level == "fatal" and _CHECK[finding.check].stops(history, since)
            if certain and stop is None:
                stop = finding
            if since == history.last_step and not certain and not last:
                continue  # so many looks see much that the next one does not
            # what is fatal, and may pass
            shown = finding if certain else replace(finding, level="warning")
            if reported.get(key) not in {"fatal", shown.level}:
                reported[key] = shown.level
                new.append(shown)
        return Look(tuple(new), None if self.section.stop is False else stop, examined.not_run)


_CHECK = {check.name: check for check in CHECKS}


def validate_check_names(section: ChecksSection) -> None:
    """Refuse to ignore checks that do not exist.

    Raises:
        RecipeError: names one, and those that do.
    """
    if strange := [name for name in section.ignore if name not in _CHECK]:
        raise RecipeError(
            f"checks.ignore: there is no check {strange[0]}", f"the checks are {', '.join(_CHECK)}"
        )


def format_message(finding: Finding) -> str:
    """A finding in a line, for an event or an alert."""
    return f"{finding.check}: {finding.what}" + (f"; do: {finding.fix}" if finding.fix else "")


class TrainingStage(Protocol):
    """A stage of a run that trains: its name, and plain values that a resumed run takes up
    again."""

    name: str
    memory: dict[str, Any]


class Checker:
    """The checks of a stage of one of our runs.

    Args:
        run: whose recipe says how often they look, and where findings are recorded as events
            `fatal` and `warning`.
        stage: whose memory a resumed run takes up again.
        total: steps of the stage; set again where a budget of seconds says how many there will be.
    """

    def __init__(self, run: Run, stage: TrainingStage, total: int) -> None:
        self.run, self.stage, self.total = run, stage, total
        self.section = checks_section(run.recipe)
        self._live: Live | None = None

    def look(self, row: Row, samples: Rows) -> Finding | None:
        """Take a step's metrics and rollouts after they were recorded, and look where it is time
        to.

        Args:
            row: the metrics, with the step's number.
            samples: rows of samples.jsonl.

        Returns:
            What asks to stop.
        """
        if not self.section.every:
            return None
        step = row["step"]
        if self._live is None:
            self._live = self._resume(step)
        self._live.stage = replace(
            self._live.stage, settings={**self._live.stage.settings, "steps": self.total}
        )
        urgent = self._live.add(row)
        self._live.add_samples(map(own.parse_sample, samples))
        if not step or (step % self.section.every and step != self.total and not urgent):
            return None
        found = self._live.look(last=step == self.total)
        for one in found.new:
            self.run.event(
                one.level,
                format_message(one),
                check=one.check,
                code=one.code,
                since=one.since,
                stage=self.stage.name,
                step=step,
            )
        return found.stop

    def _resume(self, step: int) -> Live:
        recipe, name = self.run.recipe.to_dict(), self.stage.name
        live = Live(
            own.start_history(recipe, name),
            self.section,
            self.stage.memory.setdefault("checks", {}),
            own.metric_namer(recipe),
        )
        for row in self.run.rows(name):
            if row["step"] < step:
                live.add(row)
        if name == "rl" and step > 1:
            live.add_samples(
                own.parse_sample(one)
                for one in self.run.files["samples"].rows()
                if one["step"] < step
            )
        return live


def checks_section(recipe: Recipe) -> ChecksSection:
    """The recipe's, where a run that is wrong on purpose is not stopped unless it says so."""
    section = recipe.checks
    wrong = recipe.controls != type(recipe.controls)()
    return section if section.stop is not None else section.model_copy(update={"stop": not wrong})
