"""Whether a condition holds, by the records: yes, no, or not decided, with the figures and what would decide it.

A bound holds where the whole 95 % interval is on its side, and does not where the whole interval is on the other. In
between the difference is inside the noise, and nothing is decided. Numbers of a single step are exact.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from plumbline.checks.diagnosis.evidence import Estimate, Evidence
from plumbline.errors import IncomparableError
from plumbline.recipe.handoff import Condition

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

    def plain(self) -> dict[str, Any]:
        """JSON values."""
        return {**asdict(self), "said": list(self.said), "needs": list(self.needs)}


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
