"""One honest sentence about a run, and at most one of reason.

It says that the reward rose or fell only where the 95 % interval of the paired difference excludes
0 and the paired test gives p < 0.05, and that it did not change where two one-sided tests rule out
a difference larger than the recipe's margin. Otherwise nothing is claimed, and it says how many
examples, or clusters, would tell. On few examples it says that this is a trial.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from plumbline.errors import IncomparableError
from plumbline.evaluation.comparison import Comparison, QuantityChange, describe_trial
from plumbline.evaluation.statistics import count_units_within
from plumbline.reports.format_numbers import (
    format_count,
    format_fixed,
    format_interval,
    format_p_equation,
    format_signed,
)
from plumbline.reports.view import Bounds, RunView, stage_name
from plumbline.runs.evaluations import EvaluationKey

Tone = Literal["rise", "fall", "same", "control", "none"]
VERBS = {"rise": "raised", "fall": "lowered", "same": "did not change"}
UNKNOWN = "cannot be shown to have changed"
MARGIN = 0.02
"""See `evaluation.margin` of a recipe."""
MOVED = {"fall": "fell", "rise": "rose", "same": "did not change"}


@dataclass(frozen=True, slots=True)
class Verdict:
    """The sentence, the reason (may be empty), and what kind of result it is."""

    sentence: str
    reason: str
    tone: Tone

    def __str__(self) -> str:
        return f"{self.sentence} {self.reason}".strip()


def stage_verdict(
    comparison: Comparison,
    bounds: Bounds | None = None,
    *,
    other: Comparison | None = None,
    negative_control: bool = False,
    finished: bool = True,
    whole: Comparison | None = None,
    margin: float = MARGIN,
) -> Verdict:
    """What a stage did to the reward: raised it, lowered it, did not change it by more than a
    margin, or unknown.

    Where that is unknown of the last stage, and all stages together surely changed it, they come
    first.

    Args:
        comparison: the last stage against the one before.
        bounds: what the baselines and the oracle earn on the same examples.
        other: the same stages decoded in the other way (sampled beside greedy).
        negative_control: the stage was trained on advantages dealt at random.
        finished: whether the run is.
        whole: the last stage against the first, where there is one in between.
        margin: a difference that does not matter.
    """
    reward = comparison.reward
    subject = stage_name(comparison.after)
    if negative_control:
        subject = (
            "Negative control (advantages dealt at random, so the reward should not rise): "
            f"{subject}"
        )
    if not finished:
        subject = f"So far, {subject}"
    same = reward.paired.within <= margin
    verb = VERBS[reward.direction] if reward.direction != "same" or same else UNKNOWN
    sentence = f"{subject} {verb} {_claim(comparison, margin)}{_bounds(bounds)}."
    clauses = list(filter(None, [describe_trial(reward.paired.difference.n)]))
    if negative_control and reward.direction == "rise":
        clauses.append(
            "it rose all the same, so a rise with real advantages is no proof that they taught "
            "anything"
        )
    elif negative_control and reward.direction == "same":
        clauses.append("that is what a negative control should show")
    if reward.direction == "same" and reward.paired.difference.excludes_zero != (
        reward.paired.p < 0.05
    ):
        clauses.append("the interval and the test disagree, so this is not called a change")
    if other is not None and other.reward.direction != reward.direction:
        moved = MOVED[other.reward.direction]
        clauses.append(
            f"{other.mode} answers disagree: their reward {moved} ({_describe_certainty(other.reward)})"
        )
    if reward.direction != "same" and any(change.is_form for change in comparison.parts):
        clauses.append(_change_origin(comparison))
    floor = bounds.floor if bounds else None
    if floor is not None and reward.after.mean <= floor[1].mean:
        clauses.append(
            f"the reward after is no better than the baseline {floor[0][:40]}, which knows nothing"
        )
    stages = whole if whole is not None and whole.before != comparison.before else None
    tone: Tone = "control" if negative_control else reward.direction
    if (
        stages is not None
        and verb == UNKNOWN
        and not negative_control
        and stages.reward.direction != "same"
        and stages.reward.paired.difference.n == reward.paired.difference.n
    ):
        clauses.insert(0, f"its last stage alone: {subject} {verb} {_claim(comparison, margin)}")
        subject = "The whole training" if finished else "So far, the whole training"
        tone = stages.reward.direction
        sentence = f"{subject} {VERBS[tone]} {_claim(stages, margin)}{_bounds(bounds)}."
    elif stages is not None:
        clauses.append(_first_to_last(comparison, stages))
    if comparison.unjudged:
        clauses.append(
            f"{_examples(comparison.unjudged)} left out because an answer could not be judged"
        )
    reason = "; ".join(clauses)
    return Verdict(sentence, f"{reason[0].upper()}{reason[1:]}." if reason else "", tone)


def run_verdict(view: RunView) -> Verdict:
    """The verdict on a run: on the last two stages that were evaluated on its headline split, or
    what is missing."""
    if view.tasks:
        return _of_tasks(view)
    control = (
        "This run is a negative control: its RL deals advantages at random and should not raise "
        "the reward. "
    )
    prefix = control if view.negative_control else ""
    missing: Tone = "control" if view.negative_control else "none"
    if view.headline is None:
        what = "No stage has been evaluated yet" if not view.finished else "No stage was evaluated"
        return Verdict(f"{prefix}{what}, so nothing can be said about the reward.", "", missing)
    split, mode = view.headline
    found = view.compare_last(split, mode)
    if found is None:
        (stage,) = view.evaluated_stages(split, mode)
        evaluation = view.evaluations[EvaluationKey(stage, split, mode)]
        reward = view.reward(evaluation)
        sentence = (
            f"{prefix}Only {stage_name(stage)} has been evaluated on {split}: it earns a {mode} "
            "reward of "
            f"{format_interval(reward)} on "
            f"{_examples(reward.n)}{_bounds(view.bounds(evaluation))}."
        )
        return Verdict(
            sentence, "Without a second stage there is nothing to compare it with.", missing
        )
    if isinstance(found, IncomparableError):
        sentence = f"{prefix}The last two stages cannot be compared on {split}: {found.cause}."
        return Verdict(sentence, f"To fix it, {found.fix}." if found.fix else "", missing)
    other = next(
        (m for m in view.modes(split) if m != mode and len(view.evaluated_stages(split, m)) > 1),
        None,
    )
    beside = view.compare(split, other, found.before, found.after) if other else None
    evaluation = view.evaluations[EvaluationKey(found.after, split, mode)]
    whole = view.compare_last(split, mode, first=0)
    is_control = view.negative_control and found.after == "rl"
    result = stage_verdict(
        found,
        view.bounds(evaluation),
        other=beside if isinstance(beside, Comparison) else None,
        negative_control=is_control,
        finished=view.finished,
        whole=whole if isinstance(whole, Comparison) else None,
        margin=view.run.recipe.evaluation.margin,
    )
    if view.negative_control and not is_control:
        return Verdict(f"{prefix}{result.sentence}", result.reason, "control")
    return result


def _of_tasks(view: RunView) -> Verdict:
    """What happened to each task, those that fell first named; their rewards are of different
    rubrics."""
    said = {one.task: run_verdict(one) for one in view.tasks}
    directions: dict[str, list[str]] = {}
    for one in view.tasks:
        compared = one.headline_comparison()
        directions.setdefault(compared.reward.direction if compared else "none", []).append(
            one.task
        )
    counts = [
        f"{' and '.join(directions[key])} {word}"
        for key, word in (MOVED | {"none": "cannot be compared"}).items()
        if key in directions
    ]
    tones: tuple[Tone, ...] = ("fall", "rise", "none")
    tone: Tone = next((one for one in tones if one in directions), "same")
    sentence = f"Of {len(said)} tasks {', '.join(counts)}. "
    return Verdict(
        sentence + " ".join(f"{task}: {one.sentence}" for task, one in said.items()),
        " ".join(f"{task}: {one.reason}" for task, one in said.items() if one.reason),
        "control" if view.negative_control else tone,
    )


def rise_sentences(view: RunView) -> list[str]:
    """By how much the reward rose on each split, from the first stage to the last."""
    return [
        f"On {one.split} ({format_count(len(one.pairs))} examples) the {one.mode} reward "
        f"{MOVED[one.reward.direction]}: {format_fixed(one.reward.before.mean)} "
        f"{stage_name(one.before)}, "
        f"{format_fixed(one.reward.after.mean)} {stage_name(one.after)}, difference "
        f"{format_interval(one.reward.paired.difference, sign=True)}."
        for one in view.rises
    ]


def _examples(n: int, split: str = "") -> str:
    held_out = split if split.startswith("held-out") else f"held-out {split}".strip()
    return f"{format_count(n)} {held_out} example{'' if n == 1 else 's'}"


def _claim(comparison: Comparison, margin: float) -> str:
    """What changed, from where to where, and how sure that is."""
    reward, difference = comparison.reward, comparison.reward.paired.difference
    what = f"the {comparison.mode} reward on {_examples(difference.n, comparison.split)}"
    sure = _describe_certainty(reward)
    if reward.direction != "same":
        return (
            f"{what} from {format_fixed(reward.before.mean)} to "
            f"{format_fixed(reward.after.mean)}: {sure}"
        )
    if reward.paired.ties == difference.n:
        return (
            f"{what}: every example earned the same before and after "
            f"({format_fixed(reward.after.mean)} on average)"
        )
    found = (
        f"{what} ({format_fixed(reward.before.mean)} to {format_fixed(reward.after.mean)}: {sure})"
    )
    if reward.paired.within <= margin:
        return f"{found}: there is no difference larger than {margin:g}"
    wanted, scatter = count_units_within(reward.paired, margin), reward.paired.scatter
    there = f"; there are {scatter.units}" if scatter.units < scatter.n else ""
    others = ", and more examples of these do not help" if wanted.needs_other_clusters else ""
    return (
        f"{found}: {wanted} would rule out a difference of {margin:g} (power 80 %){there}{others}"
    )


def _describe_certainty(change: QuantityChange) -> str:
    paired = change.paired
    difference = format_interval(paired.difference, sign=True)
    return f"{difference}, {format_p_equation(paired.p)}"


def _bounds(bounds: Bounds | None) -> str:
    if bounds is None or (bounds.floor is None and bounds.oracle is None):
        return "; no baseline and no oracle stand beside it"
    parts = []
    if bounds.floor is not None:
        parts.append(f"the best baseline earns {format_fixed(bounds.floor[1].mean)}")
    if bounds.oracle is not None:
        oracle = format_fixed(bounds.oracle.mean)
        parts.append(f"the oracle {oracle}" if parts else f"the oracle earns {oracle}")
    else:
        parts.append("there is no oracle, so the ceiling is unknown")
    return f"; {' and '.join(parts)}"


def _first_to_last(comparison: Comparison, whole: Comparison) -> str:
    """What all of the training did: the last stage alone may take back what an earlier one gave."""
    reward = whole.reward
    moved = {"rise": "higher than", "fall": "lower than", "same": "not shown to differ from"}[
        reward.direction
    ]
    change = f"{format_fixed(reward.before.mean)} to {format_fixed(reward.after.mean)}"
    shared = reward.paired.difference.n
    on = (
        ""
        if shared == comparison.reward.paired.difference.n
        else f" on the {shared} examples of both"
    )
    return (
        f"first to last, the reward is {moved} that of {stage_name(whole.before)}{on} ({change}: "
        f"{_describe_certainty(reward)})"
    )


def _change_origin(comparison: Comparison) -> str:
    """Whether the change is in the form of the answers or in their content, by the parts that moved
    with it."""
    direction = comparison.reward.direction
    moved = [change for change in comparison.parts if change.direction == direction]
    form = [change for change in moved if change.is_form]
    content = [change for change in moved if not change.is_form]
    noun = "gain" if direction == "rise" else "loss"
    if not moved:
        return f"no single part {MOVED[direction]} significantly"
    if not content:
        return (
            f"the {noun} is in format ({_largest_changes(form)}), not in content: no other part "
            f"{MOVED[direction]}"
        )
    if not form:
        return f"the {noun} is in content ({_largest_changes(content)}), not in format"
    share = comparison.form_share
    assert share is not None
    both = f"format ({_largest_changes(form)}) and content ({_largest_changes(content)}) both {MOVED[direction]}"
    gained = f"{format_signed(share.from_changed)} of the difference comes from the"
    said = f"{both}; {gained} {format_count(share.changed)} answers whose format changed"
    if share.rest is None or share.rest.direction == direction:
        return said
    rest = share.rest.paired.difference
    others = f"the change of the other {format_count(rest.n)}"
    unclear = (
        "cannot be told from 0" if share.rest.direction == "same" else "is the other way round"
    )
    return f"{said}, and {others} {unclear} ({format_interval(rest, sign=True)})"


def _largest_changes(changes: Sequence[QuantityChange], most: int = 3) -> str:
    """The largest changes by name: `parse +0.370, alone +0.210`."""
    largest = sorted(changes, key=lambda change: -abs(change.paired.difference.mean))
    named = [
        f"{change.name} {format_signed(change.paired.difference.mean)}" for change in largest[:most]
    ]
    more = len(largest) - most
    return ", ".join(named) + (f" and {more} more" if more > 0 else "")
