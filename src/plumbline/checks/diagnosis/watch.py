"""Watch rules: conditions of the recipe, judged at every step of RL that has their figures, live
and afterwards.

A rule fires where its condition holds, so where the whole interval is on that side. Where only the
mean is, it says so once and goes on: a run is not stopped by noise. It is quiet until it has
stopped holding in between.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from plumbline.checks.diagnosis.conditions import Evidence, RunFigures, judge_condition
from plumbline.checks.diagnosis.live import TrainingStage
from plumbline.recipe import Recipe
from plumbline.recipe.decision_rules import Condition, WatchRule
from plumbline.records import Row
from plumbline.runs.record import RunRecord
from plumbline.runs.run import Run

Action = Literal["stop", "warn", "noise"]
"""stop: the run stops after a checkpoint. warn: it is said. noise: it would be, if the interval
were narrower."""
EVENT = "watch"
"""The kind of a rule's events, and the key of what a stage remembers of them."""


@dataclass(frozen=True, slots=True)
class RuleFinding:
    """What a rule found at a step."""

    rule: str
    action: Action
    step: int
    reason: str
    expected: str
    advice: str

    @property
    def message(self) -> str:
        """In one sentence, for an event."""
        noise = " The interval is too wide to act on it." if self.action == "noise" else ""
        return (
            f"{self.rule}: {self.reason}; expected: {self.expected}.{noise} {self.advice}".strip()
        )

    def to_json(self) -> dict[str, Any]:
        """What the result of a run says that it stopped."""
        return {"rule": self.rule, "reason": self.reason, "expected": self.expected}


@dataclass(frozen=True, slots=True)
class RuleHistory:
    """What became of a rule in a run, for the report."""

    rule: str
    expected: str
    stop_if: str
    warn_if: str
    fired: tuple[RuleFinding, ...]
    now: str
    """What its figures were at the end."""


class Watcher:
    """Judges the rules of a run while it trains.

    Args:
        run: whose recipe has the rules.
        stage: whose memory a resumed run takes up again.
    """

    def __init__(self, run: Run, stage: TrainingStage) -> None:
        self.run, self.rules, self.stage = run, active_rules(run.recipe), stage
        self._rows: list[Row] | None = None

    def look(self, row: Row) -> RuleFinding | None:
        """Judge the rules after a step's metrics were recorded; each that fires leaves an event.

        Args:
            row: the step's metrics, with its number.

        Returns:
            The first that asks to stop.
        """
        if not self.rules:
            return None
        if self._rows is None:
            self._rows = [one for one in self.run.rows("rl") if one["step"] < row["step"]]
        self._rows.append(row)
        evidence = Evidence((RunFigures(self.run.record(), self._rows),))
        stop, state = None, self.stage.memory.setdefault(EVENT, {})
        for fired in judge_rules(self.rules, evidence, row, state):
            self.run.event(
                EVENT,
                fired.message,
                rule=fired.rule,
                action=fired.action,
                stage="rl",
                step=fired.step,
            )
            stop = stop or (fired if fired.action == "stop" else None)
        if stop is not None:  # so that a run that is resumed with this rule stops once more
            del state[stop.rule]
        return stop


def active_rules(recipe: Recipe) -> dict[str, WatchRule]:
    """The rules that are in force."""
    return {name: rule for name, rule in recipe.watch.items() if rule is not None}


def judge_rules(
    rules: Mapping[str, WatchRule],
    evidence: Evidence,
    row: Row,
    state: dict[str, Action],
) -> Iterator[RuleFinding]:
    """Yield what each rule found at the step of a row that has one of its metrics, unless it found
    that before, too.

    Args:
        rules: by name.
        evidence: the records up to that step.
        row: the step's metrics.
        state: what each rule found last; it is changed.
    """
    for name, rule in rules.items():
        conditions = [one for one in (rule.stop_if, rule.warn_if) if one is not None]
        figures = [
            leaf
            for one in conditions
            for leaf in one.figures_and_names()
            if isinstance(leaf, Condition)
        ]
        if not any(row.get(str(figure.metric)) is not None for figure in figures):
            continue
        found = _judge_rule(rule, evidence)
        before = state.pop(name, None)
        if found is not None:
            action, reason = found
            state[name] = action
            if action != before:
                yield RuleFinding(name, action, row["step"], reason, rule.expected, rule.advice)


def _judge_rule(rule: WatchRule, evidence: Evidence) -> tuple[Action, str] | None:
    noise: tuple[Action, str] | None = None
    asked: tuple[tuple[Action, Condition | None], ...] = (
        ("stop", rule.stop_if),
        ("warn", rule.warn_if),
    )
    for action, condition in asked:
        if condition is None:
            continue
        verdict = judge_condition(condition, evidence, {})
        if verdict.holds:
            return action, "; ".join(verdict.reasons)
        if verdict.noise and verdict.leans:
            noise = noise or ("noise", "; ".join(verdict.reasons))
    return noise


def replay_rules(run: RunRecord) -> list[RuleHistory]:
    """What each rule of a run finds in its records, step by step, whether or not it was there while
    the run trained.

    Raises:
        DataError: a record cannot be read.
    """
    rules = active_rules(run.recipe)
    if not rules:
        return []
    records = RunFigures(run, run.rows("rl"))
    state: dict[str, Action] = {}
    fired = [
        one
        for row in records.trained
        for one in judge_rules(rules, Evidence((records,), until=row["step"]), row, state)
    ]
    whole = Evidence((records,))
    return [
        RuleHistory(
            rule=name,
            expected=rule.expected,
            stop_if=describe_condition(rule.stop_if),
            warn_if=describe_condition(rule.warn_if),
            fired=tuple(one for one in fired if one.rule == name),
            now="; ".join(
                line
                for one in (rule.stop_if or rule.warn_if,)
                if one
                for line in judge_condition(one, whole, {}).reasons
            ),
        )
        for name, rule in rules.items()
    ]


def describe_condition(condition: Condition | None) -> str:
    """A condition in words; empty for none."""
    if condition is None:
        return ""
    if condition.parts:
        word = {"all": " and ", "any": " or ", "none": " or "}
        kind = next(key for key in word if getattr(condition, key))
        joined = word[kind].join(
            part if isinstance(part, str) else describe_condition(part) for part in condition.parts
        )
        return f"neither {joined}" if kind == "none" else joined
    when = [f"from step {step} on" for step in (condition.at, condition.after) if step is not None]
    change = f", the change since step {condition.since}" if condition.since is not None else ""
    bounds = " and ".join(
        f"{name.replace('_', ' ')} {bound:g}" for name, bound in condition.bounds.items()
    )
    window = f", mean of {condition.window} steps" if condition.window > 1 else ""
    row = [f"{condition.sustained} times in a row"] if condition.sustained > 1 else []
    return ", ".join([f"{condition.metric}{window}{change} {bounds}", *when, *row])
