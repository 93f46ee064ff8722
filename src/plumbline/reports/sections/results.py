"""Before and after: every stage on every split, between the floor and the ceiling."""

from collections import Counter

from plumbline.evaluation.evaluate import ORACLE
from plumbline.evaluation.statistics import Interval
from plumbline.reports import build_tables, numbers
from plumbline.reports.dot_charts import DotRow, Mark, Reference, dot_chart
from plumbline.reports.escaping import clip
from plumbline.reports.page import Section, figure, key, paragraph
from plumbline.reports.readings import LENIENT, STRICT, reading_names, reward_reading
from plumbline.reports.view import View, name_of
from plumbline.runs.evaluations import EvaluationKey

ABOUT = (
    "The mean over held-out examples with its 95 % interval (bootstrap over examples). The controls answer without the "
    "knowledge that the task asks for, and the best of them is the floor; the oracle gives the gold answers and is the "
    "ceiling. Skill is 0 at the floor and 1 at the ceiling. A failure is an answer that the verifier could not judge; "
    "it is left out of every figure."
)


def results(view: View) -> Section:
    """A table and a chart for each split, and the paired differences."""
    if not view.splits:
        said = "No stage has been evaluated on a held-out split yet; this section fills in when one is."
        return Section("results", "Before and after", paragraph(said) + _references_only(view))
    charts = "".join(_chart(view, split) for split in view.splits)
    tables = "".join(
        f"{build_tables.results(view, [split]).to_html()}{_missing_references(view, split)}" for split in view.splits
    )
    tables += _unjudged(view)
    compared = build_tables.differences(view, view.splits)
    paired = compared.to_html() + paragraph(
        "Each row compares the same examples before and after. p is that of a two-sided sign-flip test; the reward "
        "counts as changed only where the interval excludes 0 and p < 0.05.",
        "note",
    )
    none = paragraph("Only one stage has been evaluated, so there is no difference to show yet.")
    body = f'{paragraph(ABOUT)}<div class="grid2">{charts}</div>{tables}<h3>Differences</h3>'
    return Section("results", "Before and after", body + (paired if compared.rows else none))


def _unjudged(view: View) -> str:
    """Why answers could not be judged, the most frequent cause first."""
    causes = Counter(row.failure for evaluation in view.evaluations.values() for row in evaluation.unjudged)
    if not causes:
        return ""
    said = "; ".join(f"{count} because of {clip(cause, 200)[0]}" for cause, count in causes.most_common(3))
    return paragraph(f"Not judged, over all evaluations: {causes.total()} answers. {said}.", "note")


def _references_only(view: View) -> str:
    splits = sorted({k.split for k in view.evaluations if k.stage == "reference"})
    return "".join(build_tables.results(view, [split]).to_html() for split in splits)


def _missing_references(view: View, split: str) -> str:
    if view.reference_keys(split):
        return ""
    return paragraph(f"No control and no oracle was evaluated on {split}, so floor and ceiling are unknown.", "note")


def _chart(view: View, split: str) -> str:
    keys = [
        EvaluationKey(stage, split, mode)
        for stage in view.stages
        for mode in view.modes(split)
        if view.final(stage, split, mode) is not None
    ]
    evaluations = [view.evaluations[k] for k in keys]
    named = reward_reading(evaluations)
    second = next((n for n in (STRICT, LENIENT) if n in reading_names(evaluations) and n != named), None)
    rows = [DotRow(_label(k), _marks(view, k, named, second), numbers.fixed(_reward(view, k).mean)) for k in keys]
    chart = dot_chart(
        rows,
        label=f"Mean reward on {split} by stage: "
        + "; ".join(f"{_label(k)} {numbers.interval_text(_reward(view, k))}" for k in keys),
        references=_references(view, split),
    )
    counts = sorted({len(evaluation.rows) for evaluation in evaluations})
    reward_name = f"{named} reading, the reward" if named else "reward"
    about = f"n = {', '.join(map(numbers.count, counts))}; bars are 95 % intervals. {key('c1', 'circle', reward_name)}"
    if second is not None:
        about += f" {key('c2', 'hollow', f'{second} reading')}"
    return figure(f"Reward on {split}", about, chart)


def _label(key_: EvaluationKey) -> str:
    return f"{name_of(key_.stage)}, {key_.mode}"


def _reward(view: View, key_: EvaluationKey) -> Interval:
    return view.reward(view.evaluations[key_])


def _marks(view: View, key_: EvaluationKey, named: str | None, second: str | None) -> tuple[Mark, ...]:
    marks = [Mark(_reward(view, key_), f"{named} reading (the reward)" if named else "reward", "c1")]
    if second is not None and second in view.summary(key_)["readings"]:
        marks.append(Mark(Interval(**view.summary(key_)["readings"][second]), f"{second} reading", "c2", "hollow"))
    return tuple(marks)


def _references(view: View, split: str) -> list[Reference]:
    """The best control and the oracle, as lines."""
    keys = view.reference_keys(split)
    best = [Reference(_reward(view, key_), f"best control ({key_.mode[:24]})") for key_ in keys if key_.mode != ORACLE]
    return [*best[-1:], *(Reference(_reward(view, key_), ORACLE) for key_ in keys if key_.mode == ORACLE)]
