"""What an evaluation says, as plain numbers: means with intervals, breakdowns, parse modes, floor
and ceiling."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from plumbline.evaluation.evaluate import ORACLE
from plumbline.evaluation.statistics import (
    TIE,
    Interval,
    is_surely_over,
    mean,
    mean_interval,
    skill,
)
from plumbline.records import Evaluation, Figure, Headline, Judged, Values, clusters_of

NONZERO, REWARD = "nonzero_rate", "mean_reward"
# -- figures ---------------------------------------------------------------------------------------
#
# The figures of an evaluation: nonzero rate, mean reward and what the task puts first; whole, and
# by what it names.
#
# Every figure is a mean over examples. What is only ever 0 or 1 has Wilson's interval, all else
# Student's.

TITLES = {NONZERO: "Nonzero rate", REWARD: "Mean reward"}
ACCURACY, RIGHT = "accuracy", "all_right_rate"
EARNED = 0.999
"""A reward from here on is everything that can be earned."""


def titles(headline: Headline | None) -> dict[str, str]:
    """The figures' keys and their names for people, in the order of the tables."""
    return {
        **TITLES,
        **{figure.key: figure.title for figure in (headline.figures if headline else ())},
    }


def figures(rows: Sequence[Judged], headline: Headline | None) -> dict[str, Interval]:
    """The figures of some rows, in the order of `titles`.

    An answer that could not be judged is no row, and no figure counts it. A row without a part is
    left out of the means of that part, and their n says so.
    """
    found = {
        NONZERO: mean_interval([row.reward > 0 for row in rows], clusters_of(rows)),
        REWARD: mean_interval([row.reward for row in rows], clusters_of(rows)),
    }
    return found | {
        figure.key: _figure(rows, figure) for figure in (headline.figures if headline else ())
    }


def reward_interval(evaluation: Evaluation) -> Interval:
    """The mean reward of an evaluation with its interval."""
    return mean_interval(evaluation.rewards(), evaluation.clusters())


def by_stratum(evaluation: Evaluation) -> dict[str, dict[str, Interval]]:
    """The figures of every stratum; empty where there is only one."""
    names = sorted({row.stratum for row in evaluation.rows})
    if len(names) < 2:
        return {}
    return {
        name: figures([row for row in evaluation.rows if row.stratum == name], evaluation.headline)
        for name in names
    }


def by_prefix(evaluation: Evaluation) -> dict[str, dict[str, Interval]]:
    """For each part under the headline's prefix: its mean, and how often it is 1, over the examples
    that have it."""
    headline = evaluation.headline
    if headline is None or not headline.prefix:
        return {}
    names = {
        name for row in evaluation.rows for name in row.parts if name.startswith(headline.prefix)
    }
    found = {name: _of_part(evaluation.rows, name) for name in sorted(names)}
    return {
        name.removeprefix(headline.prefix): {
            ACCURACY: mean_interval(values, clusters),
            RIGHT: mean_interval([value >= 1 - TIE for value in values], clusters),
        }
        for name, (values, clusters) in found.items()
        if values
    }


def _of_part(rows: Sequence[Judged], part: str) -> tuple[list[float], list[str] | None]:
    """The values of a part of the rows that have it, and their clusters."""
    having = [(row, value) for row in rows if (value := row.parts.get(part)) is not None]
    return [value for _, value in having], clusters_of([row for row, _ in having])


def _figure(rows: Sequence[Judged], figure: Figure) -> Interval:
    values, clusters = _of_part(rows, figure.part)
    assert not figure.rate or {*values} <= {0.0, 1.0}, (
        f"{figure.part} is declared a rate, and is not 0 or 1"
    )
    return mean_interval(values, clusters)


def summarise(evaluation: Evaluation, references: Mapping[str, Evaluation] | None = None) -> Values:
    """Everything that is reported of one evaluation.

    Args:
        evaluation: what to summarise.
        references: the oracle and the baselines on the same examples (`evaluate.evaluate_references`), for
            floor and ceiling.
    """
    rows = evaluation.rows
    summary: Values = {
        "source": evaluation.source,
        "task": evaluation.task,
        "split": evaluation.split,
        "rubric": evaluation.rubric,
        "sampling": dict(evaluation.sampling),
        "seed": evaluation.seed,
        "n": len(rows),
        "clusters": len(set(evaluation.clusters() or ())) or len(rows),
        "reward": asdict(reward_interval(evaluation)),
        "figures": _intervals_to_dict(figures(rows, evaluation.headline)),
        "readings": {
            name: asdict(mean_interval([row.readings[name] for row in having], clusters_of(having)))
            for name in _names(row.readings for row in rows)
            if (having := [row for row in rows if name in row.readings])
        },
        "parts": {name: asdict(part) for name, part in part_means(rows).items()},
        "strata": {
            stratum: asdict(mean_interval([row.reward for row in those], clusters_of(those)))
            for stratum in sorted({row.stratum for row in rows} - {""})
            if (those := [row for row in rows if row.stratum == stratum])
        },
        "how": dict(Counter(row.how for row in rows).most_common()),
        "nonzero_rate": mean([row.reward > 0 for row in rows]),
        "truncated": mean([row.truncated for row in rows if row.truncated is not None]),
        "mean_tokens": mean([row.tokens for row in rows if row.tokens is not None]),
        "failures": len(evaluation.unjudged),
    }
    if references is not None:
        summary |= floor_and_ceiling(evaluation, references)
    return summary


def summarise_with_references(
    evaluation: Evaluation, references: Mapping[str, Evaluation]
) -> Values:
    """`summarise`, and with it every reference's figures, the baselines' limits, and the figures by
    stratum and kind.

    Args:
        evaluation: what to summarise.
        references: the oracle and the baselines on the same examples.

    Returns:
        The summary with `titles` (figures' names for people), `by` (what is broken down by: its
        values: their figures), `floors` (for each stratum the mean reward of the baseline that earns
            most there), `references`,
        `limits` (what a baseline may earn, what it earns, whether that holds, which it does unless
        the 95 % interval of what it earns lies above), `note` and `prefix` (of the parts that `by`
        has without it).
    """
    headline = evaluation.headline
    by = {headline.stratum if headline else "stratum": by_stratum(evaluation)}
    if headline is not None and headline.breakdown:
        by[headline.breakdown] = by_prefix(evaluation)
    limits = headline.limits if headline else {}
    return summarise(evaluation, references) | {
        "titles": titles(headline),
        "by": {
            what: {name: _intervals_to_dict(found) for name, found in values.items()}
            for what, values in by.items()
            if values
        },
        "floors": _floors(evaluation, references),
        "references": {
            name: _intervals_to_dict(figures(one.rows, headline))
            for name, one in references.items()
        },
        "limits": {
            name: {
                "limit": limit,
                "mean": references[name].mean_reward,
                "holds": not is_surely_over(
                    references[name].rewards(), limit, references[name].clusters()
                ),
            }
            for name, limit in limits.items()
            if name in references
        },
        "note": headline.note if headline else "",
        "prefix": headline.prefix if headline else "",
    }


def _floors(evaluation: Evaluation, references: Mapping[str, Evaluation]) -> dict[str, float]:
    """What the best baseline earns on each stratum, where there are several."""
    if len({row.stratum for row in evaluation.rows}) < 2:
        return {}
    baselines = [one.rows for name, one in references.items() if name != ORACLE]
    strata = sorted({row.stratum for rows in baselines for row in rows})
    earned = {
        name: [mean([row.reward for row in rows if row.stratum == name]) for rows in baselines]
        for name in strata
    }
    return {
        name: max(value for value in means if value is not None) for name, means in earned.items()
    }


def _intervals_to_dict(intervals: Mapping[str, Interval]) -> dict[str, Values]:
    """Intervals as JSON values: what was not computed is null, because NaN is no JSON."""
    return {
        key: {name: None if value != value else value for name, value in asdict(interval).items()}
        for key, interval in intervals.items()
    }


def floor_and_ceiling(evaluation: Evaluation, references: Mapping[str, Evaluation]) -> Values:
    """Floor (the best baseline), ceiling (the oracle), and the skill between them; None where there
    is no oracle.

    Args:
        evaluation: of a model.
        references: the oracle and the baselines on the same examples.
    """
    baselines = {
        name: reference.mean_reward for name, reference in references.items() if name != ORACLE
    }
    floor = max(baselines.values(), default=0.0)
    ceiling = references[ORACLE].mean_reward if ORACLE in references else None
    return {
        "baselines": baselines,
        "floor": floor,
        "ceiling": ceiling,
        "skill": None if ceiling is None else skill(evaluation.mean_reward, floor, ceiling),
    }


def _names(scores: Iterable[Mapping[str, Any]]) -> list[str]:
    """The names in all of the mappings, in the order in which they come."""
    return list(dict.fromkeys(name for named in scores for name in named))


def part_means(rows: Sequence[Judged]) -> dict[str, Interval]:
    """The mean of each part over the rows that have it; parts that none has are left out."""
    found = {name: _of_part(rows, name) for name in _names(row.parts for row in rows)}
    return {
        name: mean_interval(values, clusters)
        for name, (values, clusters) in found.items()
        if values
    }


# -- strict and lenient readings -------------------------------------------------------------------

STRICT, LENIENT, EXACT = "strict", "lenient", "exact"


@dataclass(frozen=True, slots=True)
class RescuedAnswers:
    """Answers that strict parsing scores as 0 although they earn something, and those whose content
    is right."""

    n: int
    earning: int
    right: int | None
    """None where the parts are those of the strict reading, which say nothing about these
    answers."""


def reading_names(evaluations: Iterable[Evaluation]) -> list[str]:
    """Every reading, strict first, lenient second."""
    names = {name for evaluation in evaluations for row in evaluation.rows for name in row.readings}
    return [*(n for n in (STRICT, LENIENT) if n in names), *sorted(names - {STRICT, LENIENT})]


def reward_reading(evaluations: Iterable[Evaluation]) -> str | None:
    """The reading that the reward is, on every judged answer; None where it is none of them."""
    rows = [row for evaluation in evaluations for row in evaluation.rows if row.readings]
    names = {name for row in rows for name in row.readings}
    same = [
        n for n in names if all(abs(row.readings.get(n, -1.0) - row.reward) < TIE for row in rows)
    ]
    return next((n for n in (LENIENT, STRICT, *sorted(names)) if n in same), None)


def has_both(evaluation: Evaluation) -> bool:
    """Whether answers were read both ways."""
    return any(STRICT in row.readings and LENIENT in row.readings for row in evaluation.rows)


def count_rescued(rows: Iterable[Judged], form: Sequence[str]) -> RescuedAnswers:
    """Count the answers that only the lenient reading pays; `form` names the parts that are not
    content."""
    both = [row for row in rows if STRICT in row.readings and LENIENT in row.readings]
    paid = [row for row in both if row.readings[STRICT] <= TIE < row.readings[LENIENT]]
    is_known = all(abs(row.reward - row.readings[LENIENT]) < TIE for row in paid)
    return RescuedAnswers(
        len(both), len(paid), sum(is_right(row, form) for row in paid) if is_known else None
    )


def is_right(row: Judged, form: Sequence[str]) -> bool:
    """Whether an answer's content is right; what it loses by its form (a code fence, say) does not
    matter.

    A part named `exact` decides, where there is one: it may allow a number to be a little off.
    """
    content = {
        name: value for name, value in row.parts.items() if value is not None and name not in form
    }
    if EXACT in content:
        return content[EXACT] >= EARNED
    return (
        min(content.values()) >= EARNED
        if content
        else row.readings.get(LENIENT, row.reward) >= EARNED
    )
