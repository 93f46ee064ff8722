"""Whether a condition holds, by the records: yes, no, or not decided, with the figures and what would decide it.

A figure is a metric at a step with its interval, pooled over seeds. Metrics of training (`train/...`) are numbers a
step, those of evaluations (`eval/...`) have a value for each example. A run that was not evaluated inside RL has two
points: at step 0 the last stage before RL after which all tasks were evaluated, and at its last step RL's end, both on
the last final split.

A bound holds where the whole 95 % interval is on its side, and does not where the whole interval is on the other. In
between the difference is inside the noise, and nothing is decided. Numbers of a single step are exact.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from plumbline.errors import IncomparableError
from plumbline.evaluation.comparison import check_same
from plumbline.evaluation.statistics import Interval, pooled_interval
from plumbline.recipe.handoff import Condition
from plumbline.records import Evaluation, Judged
from plumbline.runs.evaluations import EvaluationKey, read_evaluation
from plumbline.runs.record import STAGES
from plumbline.runs.run import Run

MEAN, SAMPLED, READING = "mean_reward", "sampled_mean_reward", "reading/"
Measured = tuple[Mapping[str, float], ...]
"""The values of a metric by example, a mapping for each task."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A figure with its interval, and what of it comes from the examples alone."""

    interval: Interval
    alone: float
    """Half of the width that the interval has with these seeds taken for all."""
    seeds: int
    unit: str
    """What n counts: examples, or steps; empty of a single number, which is exact."""


@dataclass
class Records:
    """The records of one run, each read once.

    Args:
        run: where they are.
        trained: the rows of RL's metrics.
        found: the files of evaluations.
    """

    run: Run
    trained: Sequence[Mapping[str, Any]]
    found: Mapping[EvaluationKey, Path]
    read: dict[EvaluationKey, Evaluation] = field(default_factory=dict)

    @classmethod
    def of(cls, run: Run, trained: Sequence[Mapping[str, Any]] | None = None) -> "Records":
        """The records of a run as they are now.

        Raises:
            DataError: a file among them cannot be read, or is not what it should be.
        """
        return cls(run, run.rows("rl") if trained is None else trained, run.evaluation_files())

    def steps(self, metric: str) -> list[int]:
        """The steps that have a value of it, ascending."""
        if metric.startswith("train/"):
            return [row["step"] for row in self.trained if row.get(metric) is not None]
        tasks, what = self._named(metric)
        found = [set(self._points(task, what)) for task in tasks]
        return sorted(set.intersection(*found)) if found else []

    def numbers(self, metric: str, step: int, window: int) -> list[float]:
        """The last `window` values up to a step."""
        values = [row[metric] for row in self.trained if row.get(metric) is not None and row["step"] <= step]
        return [float(value) for value in values[-window:]]

    def measured(self, metric: str, step: int) -> Measured:
        """The values of the examples at a step that `steps` has; what could not be judged has none."""
        tasks, what = self._named(metric)
        value = _value_of(what)
        rows = [self.evaluation(self._points(task, what)[step]).rows for task in tasks]
        return tuple({row.id: found for row in one if (found := value(row)) is not None} for one in rows)

    def evaluations(self, metric: str, step: int) -> list[Evaluation]:
        """The evaluations that a metric is of, at a step that `steps` has."""
        tasks, what = self._named(metric)
        return [self.evaluation(self._points(task, what)[step]) for task in tasks]

    def where(self, metric: str, step: int) -> str:
        """Where in the run a step that `steps` has is: a step of RL, or the end of a stage."""
        tasks, what = self._named(metric) if metric.startswith("eval/") else ([], "")
        key = self._points(tasks[0], what)[step] if tasks else None
        return f"at step {step}" if key is None or key.step is not None else f"after {key.stage} on {key.split}"

    def known(self) -> list[str]:
        """The metrics that could be meant."""
        trained = {key for row in self.trained for key in row if key.startswith("train/")}
        names = [name for name in self.run.recipe.each_task if name]
        return [*([f"eval/{one}" for one in [MEAN, *names]] if self._all() else []), *sorted(trained)]

    def evaluation(self, key: EvaluationKey) -> Evaluation:
        """One evaluation.

        Raises:
            DataError: its file cannot be read.
        """
        if key not in self.read:
            self.read[key] = read_evaluation(self.found[key])
        return self.read[key]

    def _named(self, metric: str) -> tuple[list[str], str]:
        """The tasks that a metric of evaluations is of, and what of them; no task where there is no such metric."""
        tasks = list(self.run.recipe.each_task)
        first, _, rest = metric.removeprefix("eval/").partition("/")
        if first in tasks:
            return [first], rest or MEAN
        what = "/".join(filter(None, (first, rest)))
        return (tasks, what) if tasks == [""] or what in {MEAN, SAMPLED} else ([], what)

    def _all(self) -> frozenset[EvaluationKey]:
        return frozenset(key for key in self.found if key.stage in STAGES)

    def _points(self, task: str, what: str) -> dict[int, EvaluationKey]:
        """The evaluations of a task by step, where they have what is asked for."""
        recipe = self.run.recipe
        mode = "sampled" if what == SAMPLED else "greedy"
        section = recipe.evaluation
        inside = {
            key.step: key
            for key in self._all()
            if key.step is not None and (key.task, key.mode, key.split) == (task, mode, section.split)
        }
        if not inside and section.final:
            last = {
                (stage, name): EvaluationKey(stage, section.final[-1], mode, None, name)
                for stage in STAGES
                for name in recipe.each_task
            }
            whole = [stage for stage in STAGES if all(last[stage, name] in self.found for name in recipe.each_task)]
            ends = {stage: last[stage, task] for stage in whole}
            before = [ends[stage] for stage in whole if stage != "rl"]
            inside = {0: before[-1]} if before else {}
            if "rl" in ends and recipe.rl is not None:
                inside[recipe.rl.steps] = ends["rl"]
        if what in {MEAN, SAMPLED}:
            return inside
        value = _value_of(what)
        return {
            step: key
            for step, key in inside.items()
            if any(value(row) is not None for row in self.evaluation(key).rows)
        }


def _value_of(what: str) -> Callable[[Judged], float | None]:
    """What of an answer a metric is the mean of: its reward, another reading of it, or that of a stratum's answers."""
    if what in {MEAN, SAMPLED}:
        return lambda row: row.reward
    if what.startswith(READING):
        return lambda row: row.readings.get(what.removeprefix(READING))
    return lambda row: row.reward if row.stratum == what else None


@dataclass(frozen=True)
class Evidence:
    """The records of the runs of one recipe, and of the previous one's where they are given."""

    runs: tuple[Records, ...]
    previous: tuple[Records, ...] = ()
    until: int | None = None
    """Nothing after this step is looked at."""

    @property
    def stopped(self) -> bool:
        """Whether checks or watch rules stopped all runs, so that nothing comes after their last steps."""
        return all(one.run.stopped() is not None for one in self.runs)

    def steps(self, metric: str) -> list[int]:
        """The steps at which all runs have it, ascending."""
        shared = set.intersection(*(set(run.steps(metric)) for run in self.runs))
        return sorted(step for step in shared if self.until is None or step <= self.until)

    def estimate(self, condition: Condition, step: int, base: int | None) -> Estimate:
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
            return self._trained(metric, step, base, condition)
        now = [run.measured(metric, step) for run in self.runs]
        for other in self.runs[1:]:
            _check(self.runs[0].evaluations(metric, step), other, metric, step)
        if base is not None:
            for run in self.runs:
                for before, after in zip(run.evaluations(metric, base), run.evaluations(metric, step), strict=True):
                    check_same(before, after)
            now = [_minus(one, run.measured(metric, base)) for one, run in zip(now, self.runs, strict=True)]
        if condition.minus is not None:
            now = [_minus(one, run.measured(condition.minus, step)) for one, run in zip(now, self.runs, strict=True)]
        if condition.against is None:
            found = _pooled(_mean_of(now), [list(map(_overall, now))], "examples")
            if base is not None or condition.minus is not None:
                return found
            one = found.interval  # a reward lies between 0 and 1, and so does its interval
            return replace(found, interval=Interval(one.mean, max(0.0, one.low), min(1.0, one.high), one.n))
        if not self.previous:
            assert condition.baseline is not None, "the caller asks first"
            shifted = [tuple({k: v - condition.baseline for k, v in task.items()} for task in one) for one in now]
            return _pooled(_mean_of(shifted), [list(map(_overall, shifted))], "examples")
        steps = [step if condition.at is not None else max(run.steps(metric), default=0) for run in self.previous]
        for other, there in zip(self.previous, steps, strict=True):
            rubric = not condition.across_rubrics
            _check(self.runs[0].evaluations(metric, step), other, metric, there, rubric=rubric)
        then = [run.measured(metric, there) for run, there in zip(self.previous, steps, strict=True)]
        seeds = [list(map(_overall, now)), list(map(_overall, then))]
        return _pooled(_minus(_mean_of(now), _mean_of(then)), seeds, "examples")

    def last(self, metric: str) -> tuple[int, Estimate] | None:
        """The last step that has a metric, and what it is there; None where there is none.

        Raises:
            IncomparableError: the seeds were evaluated on other examples.
        """
        steps = self.steps(metric)
        return (steps[-1], self.estimate(Condition(metric=metric, above=0), steps[-1], None)) if steps else None

    def _trained(self, metric: str, step: int, base: int | None, condition: Condition) -> Estimate:
        """Of a metric of training: the mean of a window of steps, which are taken for independent."""
        now = [run.numbers(metric, step, condition.window) for run in self.runs]
        if condition.window == 1:
            value = float(np.mean([one[0] for one in now]))
            return Estimate(Interval(value, value, value, 1), 0.0, len(now), "")
        then = [run.numbers(metric, base, condition.window) for run in self.runs] if base is not None else []
        then += [run.numbers(metric, step, condition.window) for run in self.previous] if condition.against else []
        seeds = [[float(np.mean(one)) for one in group] for group in (now, then) if group]
        first = _pooled(tuple({str(i): v for i, v in enumerate(one)} for one in now), seeds[:1], "steps")
        if not then:
            if condition.against is None:
                return first
            assert condition.baseline is not None, "the caller asks first"
            one, by = first.interval, condition.baseline
            return Estimate(Interval(one.mean - by, one.low - by, one.high - by, one.n), first.alone, 1, first.unit)
        second = _pooled(tuple({str(i): v for i, v in enumerate(one)} for one in then), seeds[1:], "steps")
        return apart(first, second)


def apart(first: Estimate, second: Estimate) -> Estimate:
    """The difference of two estimates of different things, which no pair of values ties together."""
    one, other = first.interval, second.interval
    middle = one.mean - other.mean
    low = middle - math.hypot(one.mean - one.low, other.high - other.mean)
    high = middle + math.hypot(one.high - one.mean, other.mean - other.low)
    return Estimate(
        Interval(middle, low, high, one.n + other.n), math.hypot(first.alone, second.alone), first.seeds, first.unit
    )


def _check(first: Sequence[Evaluation], other: Records, metric: str, step: int, *, rubric: bool = True) -> None:
    if step not in other.steps(metric):
        raise IncomparableError(
            f"{other.run.folder} has no {metric} at step {step}", "evaluate both runs at the same steps"
        )
    found = other.evaluations(metric, step)
    if len(found) != len(first):
        raise IncomparableError(
            f"{other.run.folder} has {metric} of {len(found)} tasks, not of {len(first)}", "compare task by task"
        )
    for one, another in zip(first, found, strict=True):
        check_same(another, one, rubric=rubric)


def _minus(after: Measured, before: Measured) -> Measured:
    """Pair by pair; an example that one of them has no value of is left out."""
    if len(after) != len(before):
        raise IncomparableError(
            f"the figures are of {len(after)} and of {len(before)} tasks", "compare what is of the same tasks"
        )
    return tuple(
        {key: value - then[key] for key, value in now.items() if key in then}
        for now, then in zip(after, before, strict=True)
    )


def _mean_of(seeds: Sequence[Measured]) -> Measured:
    """The mean over the seeds of each example that all of them judged."""
    return tuple(
        {key: float(np.mean([one[key] for one in task])) for key in task[0] if all(key in one for one in task)}
        for task in zip(*seeds, strict=True)
    )


def _overall(measured: Measured) -> float:
    means = [float(np.mean(list(task.values()))) for task in measured if task]
    return sum(means) / max(1, len(means))


def _pooled(measured: Measured, seeds: list[list[float]], unit: str) -> Estimate:
    if not measured or not all(measured):
        raise IncomparableError("no example was judged in all of the evaluations", "look at why they were not judged")
    strata = [list(task.values()) for task in measured]
    examples = pooled_interval(strata)
    whole = pooled_interval(strata, seeds)
    return Estimate(whole, examples.high - examples.mean, max(map(len, seeds)), unit)


WORDS = {"above": "above", "at_least": "at least", "below": "below", "at_most": "at most"}
MOST = 100_000
"""More examples than this are not advised: what differs by so little is the same for all purposes."""


@dataclass(frozen=True, slots=True)
class Figure:
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


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the evidence says of a condition."""

    holds: bool | None
    """None: not decided."""
    leans: bool | None
    """What the figures say with their intervals left out; None where there are none."""
    said: tuple[str, ...]
    needs: tuple[str, ...] = ()
    """What would decide it."""
    noise: bool = False
    """Not decided because a difference is inside the noise."""
    figures: tuple[Figure, ...] = ()


def judge(condition: Condition | str, evidence: Evidence, named: Mapping[str, Condition]) -> Verdict:
    """Evaluate a condition.

    Args:
        condition: or the name of one.
        evidence: the records.
        named: the conditions that names refer to.

    Raises:
        DataError: a record cannot be read.
    """
    if isinstance(condition, str):
        return judge(named[condition], evidence, named)
    if not condition.parts:
        return _figure(condition, evidence)
    verdicts = [judge(part, evidence, named) for part in condition.parts]
    if condition.all is not None:
        return _together(verdicts, decides=False)
    any_ = _together(verdicts, decides=True)
    if condition.any is not None:
        return any_
    return replace(any_, holds=_not(any_.holds), leans=_not(any_.leans))


def _together(verdicts: Sequence[Verdict], *, decides: bool) -> Verdict:
    """Of all (one False decides) or any (one True decides); what decides is all that is said."""
    values = [verdict.holds for verdict in verdicts]
    holds = decides if decides in values else None if None in values else not decides
    leans = [verdict.leans for verdict in verdicts]
    leaning = decides if decides in leans else None if None in leans else not decides
    shown = [each for each in verdicts if each.holds is decides] if holds is decides else verdicts
    open_ = [each for each in verdicts if each.holds is None] if holds is None else []
    return Verdict(
        holds=holds,
        leans=leaning,
        said=tuple(dict.fromkeys(line for each in shown for line in each.said)),
        needs=tuple(dict.fromkeys(line for each in open_ for line in each.needs)),
        noise=bool(open_) and all(each.noise for each in open_),
        figures=tuple(dict.fromkeys(one for each in shown for one in each.figures)),
    )


def _not(value: bool | None) -> bool | None:
    return None if value is None else not value


def _figure(condition: Condition, evidence: Evidence) -> Verdict:
    metric = str(condition.metric)
    found = _steps(condition, evidence)
    if isinstance(found, Verdict):
        return found
    steps, base = found
    try:
        estimates = [evidence.estimate(condition, step, base) for step in steps]
    except IncomparableError as error:
        return _unknown(f"{metric}: {error.cause}", error.fix)
    verdicts = [
        _beside_bounds(condition, step, one, base, evidence) for step, one in zip(steps, estimates, strict=True)
    ]
    return verdicts[0] if len(verdicts) == 1 else _in_a_row(verdicts)


def _in_a_row(verdicts: Sequence[Verdict]) -> Verdict:
    """Points in a row, of which the last is said."""
    whole = _together(verdicts, decides=False)
    last = verdicts[-1]
    held = sum(each.leans is True for each in verdicts)
    said = tuple(f"{line}, and so it was at {held} of the last {len(verdicts)} points" for line in last.said)
    return replace(whole, said=said, figures=last.figures)


def _steps(condition: Condition, evidence: Evidence) -> tuple[list[int], int | None] | Verdict:
    """The steps to look at and the one that a change is since; or why there is nothing to look at."""
    metric = str(condition.metric)
    steps = evidence.steps(metric)
    if condition.minus is not None and steps:
        metric, both = condition.minus, set(evidence.steps(condition.minus))
        steps = [step for step in steps if step in both]
    if not steps:
        return _no_metric(metric, evidence)
    if condition.against is not None and condition.baseline is None and not evidence.previous:
        return _unknown(f"{metric}: no previous run was given to compare with", "give the previous run's folder, too")
    if len(steps) < condition.window:
        return _unknown(
            f"{metric} has {len(steps)} steps, and the mean of {condition.window} is asked for", "more steps"
        )
    last = steps[-1]
    after = condition.after or 0
    first = max(condition.at or 0, last if after > last and evidence.stopped else after)
    ready = [step for step in steps if step >= first]
    base = None
    if condition.since is not None:
        earlier = [step for step in steps if step <= condition.since]
        base = earlier[-1] if earlier else None
        ready = [step for step in ready if step > condition.since]
        if base is None:
            return _unknown(
                f"{metric} has no point up to step {condition.since}", "an evaluation.every that gives it one"
            )
    if not ready:
        asked = max(first, condition.since + 1 if condition.since is not None else 0)
        said = f"{metric} was last recorded at step {last}, and this asks for step {asked} or later"
        rl = evidence.runs[0].run.recipe.rl
        planned = rl is not None and rl.steps >= asked
        return _unknown(said, f"let the run reach step {asked}" if planned else f"rl.steps of at least {asked}")
    if condition.at is not None:
        return [ready[0]], base
    if len(ready) < condition.sustained:
        return _unknown(
            f"{metric} has {len(ready)} points, and {condition.sustained} in a row are asked for", "more steps"
        )
    return ready[-condition.sustained :], base


def _no_metric(metric: str, evidence: Evidence) -> Verdict:
    first = evidence.runs[0]
    known = first.known()
    if metric.startswith("eval/") and not any(name.startswith("eval/") for name in known):
        return _unknown(f"there is no evaluation yet, so no {metric}", "let the run be evaluated (evaluation.every)")
    if not known:
        return _unknown(f"there is no {metric} yet", "let the run train")
    kind = metric.partition("/")[0]
    names = [name for name in known if name.startswith(kind)]
    return _unknown(f"there is no {metric}", f"a metric that the run has: {', '.join(names[:8])}")


def _unknown(said: str, need: str) -> Verdict:
    return Verdict(None, None, (said,), (need,) if need else ())


def _beside_bounds(
    condition: Condition, step: int, estimate: Estimate, base: int | None, evidence: Evidence
) -> Verdict:
    one = estimate.interval
    if math.isnan(one.mean):  # which is on no side of any bound
        place = evidence.runs[0].where(str(condition.metric), step)
        return _unknown(f"{condition.metric} {place} is no number", "look at why: `plumbline check` of the run")
    answers = {name: _beside(name, bound, one.low, one.high) for name, bound in condition.bounds.items()}
    leans = all(_beside(name, bound, one.mean, one.mean) for name, bound in condition.bounds.items())
    values = list(answers.values())
    holds = False if False in values else None if None in values else True
    kind, subject = _subject(condition, base, evidence)
    place = evidence.runs[0].where(str(condition.metric), step)
    figure = shown(estimate, ".3f" if kind == "value" else "+.3f")
    bounds = " and ".join(f"{WORDS[name]} {bound:g}" for name, bound in condition.bounds.items())
    outcome = {True: f": {bounds}", False: f": not {bounds}", None: f": whether {bounds} is inside the noise"}[holds]
    open_ = [condition.bounds[name] for name, answer in answers.items() if answer is None] if holds is None else []
    return Verdict(
        holds=holds,
        leans=leans,
        said=(f"{condition.metric}{subject} {place} is {figure}{outcome}",),
        needs=tuple(f"for {condition.metric}{subject}: {_needed(estimate, bound)}" for bound in open_),
        noise=holds is None,
        figures=(Figure(str(condition.metric), step, kind, one.mean, one.low, one.high, one.n, estimate.seeds),),
    )


def shown(estimate: Estimate, form: str = ".3f") -> str:
    """A figure with its interval, n and the number of seeds; a number that is exact, alone."""
    one = estimate.interval
    seeds = f", {estimate.seeds} seeds" if estimate.seeds > 1 else ""
    return f"{one:{form}}, n = {one.n:,} {estimate.unit}{seeds}" if estimate.unit else f"{one.mean:{form}}{seeds}"


def _beside(name: str, bound: float, low: float, high: float) -> bool | None:
    """Whether an interval is on a bound's side: wholly, not at all, or None for in part."""
    if name in {"below", "at_most"}:
        opposite = _beside("at_least" if name == "below" else "above", bound, low, high)
        return _not(opposite)
    over = (lambda value: value > bound) if name == "above" else (lambda value: value >= bound)
    return True if over(low) else None if over(high) else False


def _subject(condition: Condition, base: int | None, evidence: Evidence) -> tuple[str, str]:
    window = f", mean of {condition.window} steps," if condition.window > 1 else ""
    if base is not None:
        return f"since {base}", f"{window}: the change since step {base}"
    if condition.minus is not None:
        return f"minus {condition.minus}", f" less {condition.minus}"
    if condition.against is None:
        return "value", window
    if not evidence.previous:
        return f"against {condition.baseline}", f"{window}: the difference to {condition.baseline:g}"
    rubrics = ", whose rubric may be another," if condition.across_rubrics else ""
    return "against previous", f"{window}: the difference to the previous run{rubrics}"


def _needed(estimate: Estimate, bound: float) -> str:
    """What decides a bound if the mean and the spread stay as they are: the width falls with the root of n."""
    one = estimate.interval
    distance = abs(one.mean - bound)
    half = (one.high - one.low) / 2
    if distance == 0 or one.n * (half / distance) ** 2 > MOST:
        return f"it is as good as equal to {bound:g}; no evaluation of up to {MOST:,} {estimate.unit} decides that"
    if estimate.alone < distance:  # the examples are enough, and the seeds disagree
        return f"about {math.ceil(estimate.seeds * (half / distance) ** 2)} seeds, where there are {estimate.seeds}"
    wanted = math.ceil(one.n * (estimate.alone / distance) ** 2)
    where = "evaluation.limit, or a larger split" if estimate.unit == "examples" else "window"
    more = " and more seeds" if estimate.seeds > 1 else ""
    return f"about {wanted:,} {estimate.unit}{more}, where there are {one.n:,} ({where})"
