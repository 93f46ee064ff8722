"""Whether a condition holds, by the records: yes, no, or not decided, with the figures and what
would decide it.

A figure is a metric at a step with its interval, pooled over seeds. Metrics of training
(`train/...`) are numbers a step of the last stage, RL or else SFT; those of evaluations
(`eval/...`) have a value for each example. A run that was not evaluated inside RL has two points:
at step 0 the last stage before after which all tasks were evaluated, and at its last step the end
of the last stage, both on the last final split.

A bound holds where the whole 95 % interval is on its side, and does not where the whole interval is
on the other. In between the difference is inside the noise, and nothing is decided. Numbers of a
single step are exact.
"""

import math
import operator
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from plumbline.errors import IncomparableError
from plumbline.evaluation.comparison import check_same
from plumbline.evaluation.statistics import (
    Clusters,
    Interval,
    Scatter,
    count_units,
    least_distance,
    pooled_interval,
    scatter_of,
)
from plumbline.recipe.decision_rules import Condition
from plumbline.records import Evaluation, Judged, Rows
from plumbline.runs.evaluations import EvaluationKey
from plumbline.runs.record import STAGES, RunRecord

MEAN, SAMPLED, READING = "mean_reward", "sampled_mean_reward", "reading/"
EXACT = Scatter(1, 1, 1, 0.0)
Measured = tuple[Mapping[str, float], ...]
"""The values of a metric by example, a mapping for each task."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A figure with its interval, and how it scatters over examples and over seeds."""

    interval: Interval
    scatter: Scatter
    """Over examples or steps, with these seeds taken for all."""
    over_seeds: Scatter
    seeds: int
    unit: str
    """What n counts: examples, or steps; empty of a single number, which is exact."""

    def __format__(self, form: str) -> str:
        """The figure with its interval, n and the number of seeds; a number that is exact,
        alone."""
        one, seeds = self.interval, f", {self.seeds} seeds" if self.seeds > 1 else ""
        return (
            f"{one:{form}}, n = {one.n:,} {self.unit}{seeds}"
            if self.unit
            else f"{one.mean:{form or '.3f'}}{seeds}"
        )


class RunFigures:
    """The figures of one run, by metric and step.

    Args:
        run: whose they are.
        trained: the metrics rows of its last stage, RL or else SFT; None reads them.

    Raises:
        DataError: a record cannot be read, or is not what it should be.
    """

    def __init__(self, run: RunRecord, trained: Rows | None = None) -> None:
        self.run, self.stage = run, "sft" if run.recipe.rl is None else "rl"
        self.trained = run.rows(self.stage) if trained is None else trained
        self.keys = [key for key in run.evaluation_paths if key.stage in STAGES]
        # Rules are judged at every step: what they ask at each is found once.
        self._columns: dict[str, tuple[list[int], list[float]]] = {}
        self._steps: dict[str, Sequence[int]] = {}
        self._keys: dict[str, dict[int, list[EvaluationKey]]] = {}

    def steps(self, metric: str) -> Sequence[int]:
        """The steps that have a value of it, ascending; a slice of them is no copy."""
        if metric not in self._steps:
            steps = self._column(metric)[0] if metric.startswith("train/") else self._points(metric)
            self._steps[metric] = memoryview(array("q", sorted(set(steps))))
        return self._steps[metric]

    def recent_numbers(self, metric: str, step: int, window: int) -> list[float]:
        """The last `window` values up to a step."""
        steps, values = self._column(metric)
        end = bisect_right(steps, step)
        return values[max(0, end - window) : end]

    def _column(self, metric: str) -> tuple[list[int], list[float]]:
        """The steps and the values of a metric of training, in the order of the steps."""
        if metric not in self._columns:
            rows = [
                (row["step"], float(row[metric]))
                for row in self.trained
                if row.get(metric) is not None
            ]
            rows.sort(key=operator.itemgetter(0))
            self._columns[metric] = [step for step, _ in rows], [value for _, value in rows]
        return self._columns[metric]

    def example_values(self, metric: str, step: int) -> Measured:
        """The values of the examples at a step that `steps` has; what could not be judged has
        none."""
        value = _value_getter(self._resolve_metric(metric)[1])
        return tuple(
            {row.id: number for row in evaluation.rows if (number := value(row)) is not None}
            for evaluation in self.evaluations(metric, step)
        )

    def clusters(self, metric: str, step: int) -> tuple[Mapping[str, str], ...]:
        """The cluster of each example at a step, a mapping for each task; empty where each is its
        own."""
        found = self.evaluations(metric, step)
        return tuple(
            dict(zip((row.id for row in one.rows), one.clusters() or (), strict=False))
            for one in found
        )

    def evaluations(self, metric: str, step: int) -> list[Evaluation]:
        """The evaluations that a metric is of, at a step that `steps` has.

        Raises:
            DataError: a file cannot be read.
        """
        return [self.run.read_evaluation(key) for key in self._points(metric)[step]]

    def describe_step(self, metric: str, step: int) -> str:
        """Where in the run a step that `steps` has is: a step of RL, or the end of a stage."""
        key = self._points(metric)[step][0] if metric.startswith("eval/") else None
        return (
            f"at step {step}"
            if key is None or key.step is not None
            else f"after {key.stage} on {key.split}"
        )

    @cached_property
    def metric_names(self) -> list[str]:
        """The metrics that could be meant."""
        trained = {key for row in self.trained for key in row if key.startswith("train/")}
        evaluated = [
            f"eval/{name}" for name in (MEAN, *filter(None, self.run.recipe.each_task)) if self.keys
        ]
        return [*evaluated, *sorted(trained)]

    def _resolve_metric(self, metric: str) -> tuple[list[str], str]:
        """The tasks that a metric of evaluations is of, and what of them; no task where there is no
        such metric."""
        tasks = list(self.run.recipe.each_task)
        first, _, rest = metric.removeprefix("eval/").partition("/")
        if first in tasks:
            return [first], rest or MEAN
        what = "/".join(filter(None, (first, rest)))
        return (tasks, what) if tasks == [""] or what in {MEAN, SAMPLED} else ([], what)

    def _points(self, metric: str) -> dict[int, list[EvaluationKey]]:
        """The evaluations of a metric's tasks by step, where all of them have what is asked for;
        ascending."""
        if metric not in self._keys:
            tasks, what = self._resolve_metric(metric)
            points = [self._points_of(task, what) for task in tasks]
            steps = sorted(set.intersection(*map(set, points))) if points else []
            self._keys[metric] = {step: [keys[step] for keys in points] for step in steps}
        return self._keys[metric]

    @cached_property
    def last_step(self) -> int:
        """The last step of its last stage: as recorded, else as planned."""
        section = self.run.recipe.rl or self.run.recipe.sft
        planned = (section and section.steps) or 0
        return max((row["step"] for row in self.trained), default=planned)

    def _points_of(self, task: str, what: str) -> dict[int, EvaluationKey]:
        recipe, section = self.run.recipe, self.run.recipe.evaluation
        mode = "sampled" if what == SAMPLED else "greedy"
        points = {
            key.step: key
            for key in self.keys
            if key.step is not None
            and (key.task, key.mode, key.split) == (task, mode, section.split)
        }
        if not points and section.final:
            for stage in STAGES:
                ends = {
                    name: EvaluationKey(stage, section.final[-1], mode, None, name)
                    for name in recipe.each_task
                }
                if {*ends.values()} <= {*self.keys}:
                    points[self.last_step if stage == self.stage else 0] = ends[task]
        if what in {MEAN, SAMPLED}:
            return points
        value = _value_getter(what)
        return {
            step: key
            for step, key in points.items()
            if any(value(row) is not None for row in self.run.read_evaluation(key).rows)
        }


def _value_getter(what: str) -> Callable[[Judged], float | None]:
    """What of an answer a metric is the mean of: its reward, another reading of it, or that of a
    stratum's answers."""
    if what in {MEAN, SAMPLED}:
        return lambda row: row.reward
    if what.startswith(READING):
        return lambda row: row.readings.get(what.removeprefix(READING))
    return lambda row: row.reward if row.stratum == what else None


@dataclass(frozen=True)
class Evidence:
    """The records of the runs of one recipe, and of the previous one's where they are given."""

    runs: tuple[RunFigures, ...]
    previous: tuple[RunFigures, ...] = ()
    until: int | None = None
    """Nothing after this step is looked at."""

    @property
    def stopped(self) -> bool:
        """Whether checks or watch rules stopped all runs, so that nothing comes after their last
        steps."""
        return all(records.run.read_stop() is not None for records in self.runs)

    def steps(self, metric: str) -> list[int]:
        """The steps at which all runs have it, ascending."""
        return list(self.view_steps(metric))

    def view_steps(self, metric: str) -> Sequence[int]:
        """The same without a copy, for what is asked at every step."""
        shared = self.runs[0].steps(metric)
        for other in self.runs[1:]:
            shared = sorted(set(shared) & set(other.steps(metric)))
        return shared if self.until is None else shared[: bisect_right(shared, self.until)]

    def estimate(self, condition: Condition, step: int, base: int | None = None) -> Estimate:
        """A condition's figure at a step.

        Args:
            condition: of a metric.
            step: one of `steps`.
            base: the step that a change is since.

        Raises:
            IncomparableError: a difference of other examples or other rubrics.
        """
        metric = str(condition.metric)
        if metric.startswith("train/"):
            return self._estimate_training(metric, step, base, condition)
        for other in self.runs[1:]:
            _check_comparable(self.runs[0].evaluations(metric, step), other, metric, step)
        now, clusters = [], self.runs[0].clusters(metric, step)
        for run in self.runs:
            values = run.example_values(metric, step)
            if base is not None:
                for before, after in zip(
                    run.evaluations(metric, base), run.evaluations(metric, step), strict=True
                ):
                    check_same(before, after)
                values = _subtract_pairs(values, run.example_values(metric, base))
            if condition.minus is not None:
                values = _subtract_pairs(values, run.example_values(condition.minus, step))
            now.append(values)
        if condition.against is None or not self.previous:
            levels = base is None and condition.minus is None
            return _less_baseline(_estimate_examples(now, clusters, levels=levels), condition)
        then = []
        for other in self.previous:
            at = step if condition.at is not None else max(other.steps(metric), default=0)
            rubric = not condition.across_rubrics
            _check_comparable(
                self.runs[0].evaluations(metric, step), other, metric, at, rubric=rubric
            )
            then.append(other.example_values(metric, at))
        return _estimate_examples(now, clusters, then)

    def last(self, metric: str) -> tuple[int, Estimate] | None:
        """The last step that has a metric, and what it is there; None where there is none.

        Raises:
            IncomparableError: the seeds were evaluated on other examples.
        """
        steps = self.steps(metric)
        return (
            (steps[-1], self.estimate(Condition(metric=metric, above=0), steps[-1]))
            if steps
            else None
        )

    def _estimate_training(
        self, metric: str, step: int, base: int | None, condition: Condition
    ) -> Estimate:
        """Of a metric of training: the mean of a window of steps, which are taken for
        independent."""
        now = [run.recent_numbers(metric, step, condition.window) for run in self.runs]
        if condition.window == 1:
            value = float(np.mean([values[0] for values in now]))
            return Estimate(Interval(value, value, value, 1), EXACT, EXACT, len(now), "")
        others = self.runs if base is not None else self.previous if condition.against else ()
        at = step if base is None else base
        then = [run.recent_numbers(metric, at, condition.window) for run in others]
        first, *second = (
            _pool_estimate(found, [[float(np.mean(values)) for values in found]], "steps")
            for found in (now, then)
            if found
        )
        return subtract_estimates(first, *second) if second else _less_baseline(first, condition)


def _less_baseline(figure: Estimate, condition: Condition) -> Estimate:
    """The difference to what stands for a previous run; without `against` the figure as it is."""
    one, by = figure.interval, condition.baseline or 0.0
    return replace(figure, interval=Interval(one.mean - by, one.low - by, one.high - by, one.n))


def subtract_estimates(first: Estimate, second: Estimate) -> Estimate:
    """The difference of two estimates of different things, which no pair of values ties
    together."""
    one, other = first.interval, second.interval
    middle = one.mean - other.mean
    low = middle - math.hypot(one.mean - one.low, other.high - other.mean)
    high = middle + math.hypot(one.high - one.mean, other.mean - other.low)
    interval = Interval(middle, low, high, one.n + other.n)
    scatter, over_seeds = (
        _add_scatters(first.scatter, second.scatter),
        _add_scatters(first.over_seeds, second.over_seeds),
    )
    return replace(first, interval=interval, scatter=scatter, over_seeds=over_seeds)


def _add_scatters(one: Scatter, other: Scatter) -> Scatter:
    """Of a difference of two means that are independent."""
    return Scatter(
        units=one.units + other.units,
        n=one.n + other.n,
        freedom=one.freedom + other.freedom,
        error=math.hypot(one.error, other.error),
        inside=math.hypot(one.inside, other.inside),
        called=one.called,
    )


def _check_comparable(
    first: Sequence[Evaluation], other: RunFigures, metric: str, step: int, *, rubric: bool = True
) -> None:
    if step not in other.steps(metric):
        raise IncomparableError(
            f"{other.run.folder} has no {metric} at step {step}",
            "evaluate both runs at the same steps",
        )
    others = other.evaluations(metric, step)
    if len(others) != len(first):
        raise IncomparableError(
            f"{other.run.folder} has {metric} of {len(others)} tasks, not of {len(first)}",
            "compare task by task",
        )
    for one, another in zip(first, others, strict=True):
        check_same(another, one, rubric=rubric)


def _subtract_pairs(after: Measured, before: Measured) -> Measured:
    """Pair by pair; an example that one of them has no value of is left out."""
    if len(after) != len(before):
        raise IncomparableError(
            f"the figures are of {len(after)} and of {len(before)} tasks",
            "compare what is of the same tasks",
        )
    return tuple(
        {key: value - then[key] for key, value in now.items() if key in then}
        for now, then in zip(after, before, strict=True)
    )


def _mean_over_seeds(seeds: Sequence[Measured]) -> Measured:
    """The mean over the seeds of each example that all of them judged."""
    return tuple(
        {
            key: float(np.mean([one[key] for one in task]))
            for key in task[0]
            if all(key in one for one in task)
        }
        for task in zip(*seeds, strict=True)
    )


def _mean_over_tasks(measured: Measured) -> float:
    means = [float(np.mean(list(task.values()))) for task in measured if task]
    return sum(means) / max(1, len(means))


def _estimate_examples(
    now: Sequence[Measured],
    clusters: Sequence[Mapping[str, str]],
    then: Sequence[Measured] = (),
    *,
    levels: bool = False,
) -> Estimate:
    """Of the values of each seed, or of their difference to those of the seeds of another run; see
    `pooled_interval`."""
    values = (
        _subtract_pairs(_mean_over_seeds(now), _mean_over_seeds(then))
        if then
        else _mean_over_seeds(now)
    )
    seeds = [list(map(_mean_over_tasks, group)) for group in (now, then) if group]
    shared = [
        [of[key] for key in task] if of else None for task, of in zip(values, clusters, strict=True)
    ]
    strata = [list(task.values()) for task in values]
    return _pool_estimate(strata, seeds, "examples", shared, levels=levels)


def _pool_estimate(
    strata: Sequence[Sequence[float]],
    seeds: Sequence[Sequence[float]],
    unit: str,
    clusters: Sequence[Clusters] = (),
    *,
    levels: bool = False,
) -> Estimate:
    if not strata or not all(strata):
        raise IncomparableError(
            "no example was judged in all of the evaluations", "look at why they were not judged"
        )
    groups = [group for group in seeds if len(group) > 1]
    count = max(map(len, seeds))
    error = math.hypot(*(float(np.std(group, ddof=1)) / math.sqrt(len(group)) for group in groups))
    over_seeds = Scatter(count, count, max(1, count - 1), error, called="seeds")
    scatter = replace(scatter_of(strata, clusters), called=unit)
    interval = pooled_interval(strata, seeds, clusters, levels=levels)
    return Estimate(interval, scatter, over_seeds, count, unit)


@dataclass(frozen=True, slots=True)
class VerdictFigure:
    """A figure that a verdict rests on."""

    metric: str
    step: int
    kind: str
    """value; since STEP, against previous, minus METRIC of a difference."""
    mean: float
    low: float
    high: float
    n: int
    seeds: int

    @classmethod
    def of(cls, metric: str, step: int, estimate: Estimate, kind: str = "value") -> "VerdictFigure":
        """An estimate of a metric at a step."""
        one = estimate.interval
        return cls(metric, step, kind, one.mean, one.low, one.high, one.n, estimate.seeds)


@dataclass(frozen=True, slots=True)
class ConditionVerdict:
    """What the evidence says of a condition."""

    holds: bool | None
    """None: not decided."""
    leans: bool | None
    """What the figures say with their intervals left out; None where there are none."""
    reasons: tuple[str, ...]
    needs: tuple[str, ...] = ()
    """What would decide it."""
    noise: bool = False
    """Not decided because a difference is inside the noise."""
    figures: tuple[VerdictFigure, ...] = ()


def judge_condition(
    condition: Condition | str, evidence: Evidence, named: Mapping[str, Condition]
) -> ConditionVerdict:
    """Evaluate a condition.

    Args:
        condition: or the name of one.
        evidence: the records.
        named: the conditions that names refer to.

    Raises:
        DataError: a record cannot be read.
    """
    if isinstance(condition, str):
        return judge_condition(named[condition], evidence, named)
    if not condition.parts:
        return _judge_metric(condition, evidence)
    verdict = _combine_verdicts(
        [judge_condition(part, evidence, named) for part in condition.parts],
        decides=condition.all is None,
    )
    if condition.none is None:
        return verdict
    opposite = {True: False, False: True, None: None}
    return replace(verdict, holds=opposite[verdict.holds], leans=opposite[verdict.leans])


def _combine_verdicts(verdicts: Sequence[ConditionVerdict], *, decides: bool) -> ConditionVerdict:
    """Of all (one False decides) or any (one True decides); what decides is all that is said."""

    def combined(values: Sequence[bool | None]) -> bool | None:
        return decides if decides in values else None if None in values else not decides

    holds = combined([verdict.holds for verdict in verdicts])
    shown = (
        [verdict for verdict in verdicts if verdict.holds is decides]
        if holds is decides
        else verdicts
    )
    undecided = [verdict for verdict in verdicts if verdict.holds is None] if holds is None else []
    return ConditionVerdict(
        holds=holds,
        leans=combined([verdict.leans for verdict in verdicts]),
        reasons=tuple(dict.fromkeys(line for verdict in shown for line in verdict.reasons)),
        needs=tuple(dict.fromkeys(line for verdict in undecided for line in verdict.needs)),
        noise=bool(undecided) and all(verdict.noise for verdict in undecided),
        figures=tuple(dict.fromkeys(figure for verdict in shown for figure in verdict.figures)),
    )


def _undecided_verdict(reason: str, need: str) -> ConditionVerdict:
    return ConditionVerdict(None, None, (reason,), (need,) if need else ())


def _judge_metric(condition: Condition, evidence: Evidence) -> ConditionVerdict:
    """Of one metric: the points to look at, or why there are none, and what they are beside the
    bounds."""
    metric = str(condition.metric)
    steps = evidence.view_steps(metric)
    if condition.minus is not None and steps:
        metric, both = condition.minus, set(evidence.steps(condition.minus))
        steps = [step for step in steps if step in both]
    if not steps:
        return _report_missing_metric(metric, evidence)
    if condition.against is not None and condition.baseline is None and not evidence.previous:
        return _undecided_verdict(
            f"{metric}: no previous run was given to compare with",
            "give the previous run's folder, too",
        )
    if len(steps) < condition.window:
        return _undecided_verdict(
            f"{metric} has {len(steps)} steps, and the mean of {condition.window} is asked for",
            "more steps",
        )
    last, after, since = steps[-1], condition.after or 0, condition.since
    first = max(condition.at or 0, last if after > last and evidence.stopped else after)
    before = 0 if since is None else bisect_right(steps, since)
    ready = steps[max(before, bisect_left(steps, first)) :]
    base = steps[before - 1] if before else None
    if since is not None and base is None:
        return _undecided_verdict(
            f"{metric} has no point up to step {since}", "an evaluation.every that gives it one"
        )
    if not ready:
        asked = max(first, since + 1 if since is not None else 0)
        return _undecided_verdict(
            f"{metric} was last recorded at step {last}, and this asks for step {asked} or later",
            f"{evidence.runs[0].stage} that trains up to step {asked}",
        )
    count = condition.sustained if condition.at is None else 1
    if len(ready) < count:
        return _undecided_verdict(
            f"{metric} has {len(ready)} points, and {count} in a row are asked for", "more steps"
        )
    chosen = ready[-count:] if condition.at is None else ready[:1]
    try:
        estimates = [evidence.estimate(condition, step, base) for step in chosen]
    except IncomparableError as error:
        return _undecided_verdict(f"{condition.metric}: {error.cause}", error.fix)
    verdicts = [
        _compare_with_bounds(condition, step, estimate, base, evidence)
        for step, estimate in zip(chosen, estimates, strict=True)
    ]
    if count == 1:
        return verdicts[0]
    held = sum(verdict.leans is True for verdict in verdicts)
    reasons = [
        f"{line}, and so it was at {held} of the last {count} points"
        for line in verdicts[-1].reasons
    ]
    return replace(
        _combine_verdicts(verdicts, decides=False),
        reasons=tuple(reasons),
        figures=verdicts[-1].figures,
    )


def _report_missing_metric(metric: str, evidence: Evidence) -> ConditionVerdict:
    known = evidence.runs[0].metric_names
    names = [name for name in known if name.startswith(metric[:5])]
    if metric.startswith("eval/") and not names:
        return _undecided_verdict(
            f"there is no evaluation yet, so no {metric}",
            "let the run be evaluated (evaluation.every)",
        )
    if not known:
        return _undecided_verdict(f"there is no {metric} yet", "let the run train")
    return _undecided_verdict(
        f"there is no {metric}", f"a metric that the run has: {', '.join(names[:8])}"
    )


def _compare_with_bounds(
    condition: Condition, step: int, estimate: Estimate, base: int | None, evidence: Evidence
) -> ConditionVerdict:
    one, place = estimate.interval, evidence.runs[0].describe_step(str(condition.metric), step)
    if math.isnan(one.mean):  # which is on no side of any bound
        return _undecided_verdict(
            f"{condition.metric} {place} is no number", "look at why: `plumbline check` of the run"
        )
    answers = {
        name: _is_on_side(name, bound, one.low, one.high)
        for name, bound in condition.bounds.items()
    }
    values = answers.values()
    holds = False if False in values else None if None in values else True
    kind, subject = _describe_subject(condition, base, evidence)
    bounds = " and ".join(
        f"{name.replace('_', ' ')} {bound:g}" for name, bound in condition.bounds.items()
    )
    outcome = {
        True: f": {bounds}",
        False: f": not {bounds}",
        None: f": whether {bounds} is inside the noise",
    }[holds]
    undecided = (
        [condition.bounds[name] for name, answer in answers.items() if answer is None]
        if holds is None
        else []
    )
    return ConditionVerdict(
        holds=holds,
        leans=all(
            _is_on_side(name, bound, one.mean, one.mean) for name, bound in condition.bounds.items()
        ),
        reasons=(
            (
                f"{condition.metric}{subject} {place} is "
                f"{estimate:{'' if kind == 'value' else '+.3f'}}{outcome}"
            ),
        ),
        needs=tuple(
            f"for {condition.metric}{subject}: {_describe_need(estimate, bound)}"
            for bound in undecided
        ),
        noise=holds is None,
        figures=(VerdictFigure.of(str(condition.metric), step, estimate, kind),),
    )


_SIDES = {
    "above": operator.gt,
    "at_least": operator.ge,
    "below": operator.lt,
    "at_most": operator.le,
}


def _is_on_side(name: str, bound: float, low: float, high: float) -> bool | None:
    """Whether an interval is on a bound's side: wholly, not at all, or None for in part."""
    ends = [_SIDES[name](end, bound) for end in (low, high)]
    return True if all(ends) else None if any(ends) else False


def _describe_subject(
    condition: Condition, base: int | None, evidence: Evidence
) -> tuple[str, str]:
    window = f", mean of {condition.window} steps," if condition.window > 1 else ""
    if base is not None:
        return f"since {base}", f"{window}: the change since step {base}"
    if condition.minus is not None:
        return f"minus {condition.minus}", f" less {condition.minus}"
    if condition.against is None:
        return "value", window
    if not evidence.previous:
        return (
            f"against {condition.baseline}",
            f"{window}: the difference to {condition.baseline:g}",
        )
    rubrics = ", whose rubric may be another," if condition.across_rubrics else ""
    return "against previous", f"{window}: the difference to the previous run{rubrics}"


def _describe_need(estimate: Estimate, bound: float) -> str:
    """What shows, four times in five, on which side of a bound a mean is, if it and its scatter
    stay as they are.

    The seeds alone, where these examples are enough; else the examples, and the seeds, too, where
    there are several.
    """
    distance, scatter = abs(estimate.interval.mean - bound), estimate.scatter
    if (left := distance**2 - least_distance(scatter, scatter.units) ** 2) > 0:
        seeds = count_units(estimate.over_seeds, math.sqrt(left))
        if seeds.number is not None:
            return f"{seeds}, where there are {estimate.seeds}, show it four times in five"
    if estimate.seeds > 1:
        distance /= math.sqrt(2)
    wanted = count_units(scatter, distance)
    if wanted.number is None:
        return f"it is as good as equal to {bound:g}; {wanted} decides that"
    where = "evaluation.limit, or a larger split" if estimate.unit == "examples" else "window"
    if scatter.units < scatter.n:
        where = "a split with more clusters" + (
            "; more examples of the same cannot" if wanted.needs_other_clusters else ""
        )
    more = " and more seeds" if estimate.seeds > 1 else ""
    return (
        f"{wanted}{more}, where there are {scatter.units:,}, show it four times in five ({where})"
    )
