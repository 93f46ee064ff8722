"""What each section of a run's page shows: the texts, facts and figures that its template is given."""

import base64
import json
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from plumbline.checks.check import missing_data
from plumbline.evaluation.evaluate import ORACLE
from plumbline.evaluation.replays import RULE as REPLAYED
from plumbline.evaluation.statistics import Interval, skill
from plumbline.evaluation.summary import EARNED
from plumbline.policies.options import PretrainedModel
from plumbline.records import Evaluation, Judged
from plumbline.reports import build_tables, charts, comparisons, numbers
from plumbline.reports.charts import DotRow, Layer, Mark, Values
from plumbline.reports.comparisons import LENIENT, STRICT, Comparison, rescued
from plumbline.reports.findings import counted, remedies
from plumbline.reports.page import Figure, Section, clip, minus, render, section
from plumbline.reports.tables import Column, Table
from plumbline.reports.verdict import Verdict, rise_sentences
from plumbline.reports.view import View, name_of
from plumbline.runs.evaluations import REFERENCE, EvaluationKey, Replay
from plumbline.runs.lineage import RATES
from plumbline.storage import dumps

Facts = list[tuple[str, str]]
"""Names and values."""
Rows = Sequence[dict[str, Any]]
LONGEST = 400
"""Characters of a message."""

# -- the top -----------------------------------------------------------------------------------------------------

MOST_WARNINGS = 6
CONTROL = (
    "This run is a negative control: RL deals its advantages at random within the batch "
    "(controls.shuffle_advantages), so the reward should not rise. It shows what a rise without any teaching would "
    "look like."
)
Card = tuple[str, str, str]
"""Name, value, and what stands under it."""


def top(view: View, said: Verdict) -> Section:
    """What the run is, the verdict, what the reader must know before believing it, and the key figures."""
    return section(
        "top",
        "",
        view=view,
        said=said,
        progress=progress(view),
        cards=list(_cards(view)),
        tasks=build_tables.tasks(view) if view.tasks else None,
        control=CONTROL,
        alarms=alarms(view),
        warnings=warning_lines(view),
    )


def progress(view: View) -> str:
    """How far an unfinished run is; empty for a finished one."""
    if view.finished:
        return ""
    last = view.last_step()
    if last is None:
        return "This run is not finished: no step has been recorded yet."
    stage, step, total = last
    of = f" of {numbers.count(total)}" if total else ""
    return f"This run is not finished: its last recorded step is {name_of(stage)} {numbers.count(step)}{of}."


def warning_lines(view: View) -> list[str]:
    """The first warnings, clipped, and how many more there are."""
    lines = [
        f"{event.get('kind', 'warning')}: {str(event.get('message', ''))[:LONGEST]}"
        for event in view.warnings[:MOST_WARNINGS]
    ]
    left = len(view.warnings) - MOST_WARNINGS
    return [*lines, f"and {left} more, below under Events"] if left > 0 else lines


def _cards(view: View) -> Iterator[Card]:
    """Three to five key figures; none before the first evaluation."""
    if view.headline is None:
        return
    split, mode = view.headline
    after = EvaluationKey(view.evaluated(split, mode)[-1], split, mode)
    compared = view.headline_comparison()
    if compared is not None:
        yield _mean_card(f"{name_of(compared.before)}, {mode}, {split}", compared.reward.before)
    reward = view.reward(view.evaluations[after])
    yield _mean_card(f"{name_of(after.stage)}, {mode}, {split}", reward)
    if compared is not None:
        yield _difference_card("Difference", compared)
        whole = view.first_to_last(split, mode)
        if isinstance(whole, Comparison) and whole.before != compared.before:
            yield _difference_card(f"First to last, from {name_of(whole.before)}", whole)
    summary = view.summary(after)
    if numbers.known(summary.get("skill")):
        # Skill is linear in the reward, so its interval is that of the reward, rescaled.
        floor, ceiling = summary["floor"], summary["ceiling"]
        low, high = (numbers.fixed(skill(bound, floor, ceiling), 2) for bound in (reward.low, reward.high))
        ends = f"0 is the best control ({numbers.fixed(floor)}), 1 the oracle ({numbers.fixed(ceiling)})"
        yield "Skill", numbers.fixed(summary["skill"], 2), f"[{low}, {high}]; {ends}"
    evaluations = [evaluation for _, evaluation in view.headline_evaluations]
    if evaluations and all(map(comparisons.has_both, evaluations)):
        counts = [rescued(evaluation.rows, evaluation.form) for evaluation in evaluations]
        under = f"of {numbers.count(counts[-1].n)} answers earn something leniently and 0 strictly"
        right = [numbers.count(one.right) for one in counts if one.right is not None]
        if len(right) == len(counts):
            under += f"; right ones among them: {' → '.join(right)}"
        yield "Lost by strict parsing", " → ".join(numbers.count(one.earning) for one in counts), under


def _mean_card(name: str, reward: Interval) -> Card:
    return name, numbers.fixed(reward.mean), f"{numbers.bounds(reward)}, n = {numbers.count(reward.n)}"


def _difference_card(name: str, compared: Comparison) -> Card:
    found = compared.reward.paired
    sure = f"{numbers.bounds(found.difference)}, {numbers.p_text(found.p_value)}"
    better, worse, equal = map(numbers.count, (found.wins, found.losses, found.ties))
    return name, numbers.signed(found.difference.mean), f"{sure}; {better} better, {worse} worse, {equal} equal"


# -- before and after --------------------------------------------------------------------------------------------


def results(view: View) -> Section:
    """Every stage on every split, between the floor and the ceiling, and the paired differences."""
    splits = view.splits or sorted({key.split for key in view.evaluations if key.stage == REFERENCE})
    causes = Counter(row.failure for evaluation in view.evaluations.values() for row in evaluation.unjudged)
    said = "; ".join(f"{count} because of {clip(cause, 200)[0]}" for cause, count in causes.most_common(3))
    return section(
        "results",
        "Before and after",
        view=view,
        figures=[_rewards(view, split) for split in view.splits],
        tables=[(split, build_tables.results(view, [split])) for split in splits],
        unjudged=f"Not judged, over all evaluations: {causes.total()} answers. {said}." if causes else "",
        differences=build_tables.differences(view, view.splits),
    )


def _rewards(view: View, split: str) -> Figure:
    """The reward by stage and mode; beside it what another reading pays, and the best control and the oracle."""
    keys = view.final_keys(split)
    evaluations = [view.evaluations[key] for key in keys]
    named = comparisons.reward_reading(evaluations)
    second = next((n for n in (STRICT, LENIENT) if n in comparisons.reading_names(evaluations) and n != named), None)
    rows, said = [], []
    for key, evaluation in zip(keys, evaluations, strict=True):
        label, reward = f"{name_of(key.stage)}, {key.mode}", view.reward(evaluation)
        marks = [Mark(reward, f"{named} reading (the reward)" if named else "reward", "c1")]
        readings = view.summary(key)["readings"]
        if second is not None and second in readings:
            marks.append(Mark(Interval(**readings[second]), f"{second} reading", "c2", "hollow"))
        rows.append(DotRow(label, tuple(marks), numbers.fixed(reward.mean)))
        said.append(f"{label} {numbers.interval_text(reward)}")
    references = {key.mode: view.reward(view.evaluations[key]) for key in view.reference_keys(split)}
    best = [(f"best control ({mode[:24]})", reward) for mode, reward in references.items() if mode != ORACLE][-1:]
    lines = [*best, *((mode, reward) for mode, reward in references.items() if mode == ORACLE)]
    counts = sorted({len(evaluation.rows) for evaluation in evaluations})
    keyed = [("c1", "circle", f"{named} reading, the reward" if named else "reward")]
    return Figure(
        title=f"Reward on {split}",
        chart=charts.dot_chart(
            rows,
            label=f"Mean reward on {split} by stage: {'; '.join(said)}",
            references=[charts.Reference(reward, name) for name, reward in lines],
        ),
        about=f"n = {', '.join(map(numbers.count, counts))}; bars are 95 % intervals.",
        keys=(*keyed, *([("c2", "hollow", f"{second} reading")] if second else [])),
    )


# -- curves over steps -------------------------------------------------------------------------------------------

MOST_PARTS = 15
SMALL_POINTS = 140
EVALUATED = {"greedy": ("c2", "diamond"), "sampled": ("c3", "circle")}


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric, what its curve says, and its range where that is fixed."""

    key: str
    title: str
    about: str
    y_range: tuple[float, float] | None = None


LOSS = Metric("train/loss", "Loss", "its size says little; jumps do")
GRADIENT = Metric("train/grad_norm", "Gradient norm", "before clipping")
RATE = Metric("train/learning_rate", "Learning rate", "as applied")
HEALTH = (
    Metric("train/frac_reward_zero_std", "No signal", "share of groups whose rewards are all equal", charts.UNIT),
    Metric("train/completion_length", "Completion length", "tokens, mean of the step's rollouts"),
    Metric("train/frac_truncated", "Truncated", "share cut off by the limit", charts.UNIT),
    Metric("train/frac_failed", "Not judged", "share that the verifier broke on", charts.UNIT),
    Metric("train/entropy", "Entropy", "nats a token, from the sampled tokens"),
    LOSS,
    GRADIENT,
    Metric("train/clip_fraction", "Clip fraction", "share of terms that the ratio clip held back"),
    Metric("train/sampler_scorer_gap", "Sampler gap", "to the scorer, nats; 0 up to rounding"),
    Metric("train/kl", "KL to the start", "nats a token"),
    RATE,
)
SUPERVISED = (replace(LOSS, about="nats a target token"), GRADIENT, RATE)
Group = tuple[str, str, list[Figure], str]
"""Heading, what its figures are, the figures, and what is said below them."""


def curves(view: View) -> Section:
    """The reward in training and on held-out examples, its parts, and the health of the run; RL first."""
    rows = _trained(view.metrics.get("rl", []))
    groups: list[Group] = []
    has_rl = bool(rows or view.inside())
    if has_rl:
        groups += [*([] if view.tasks else _parts_in_training(rows)), *_health(view, rows)]
    for stage, recorded in view.metrics.items():
        if stage != "rl" and (drawn := _small_figures(_trained(recorded), SUPERVISED)):
            groups.append((name_of(stage), _ends_note(_trained(recorded)), drawn, ""))
    return section(
        "curves",
        "Curves",
        reward=_reward(view, rows) if has_rl else None,
        lacks_rl=not has_rl and bool(view.run.recipe.rl and view.metrics),
        groups=groups,
    )


def _trained(rows: Rows) -> Rows:
    """The rows of training steps; the one before the first step holds an evaluation only."""
    return [row for row in rows if any(key.startswith("train/") for key in row)]


def _series(rows: Rows, key: str) -> tuple[Values, Values]:
    return charts.numbers_of(row["step"] for row in rows), charts.numbers_of(row.get(key) for row in rows)


def _reward(view: View, rows: Rows) -> Figure:
    steps, values = _series(rows, "train/reward")
    inside = view.inside()
    layers: list[Layer] = []
    for points in list(inside.values())[:1]:  # floor and ceiling on the examples that are evaluated during training
        bounds = view.bounds(points[-1][1])
        if bounds.oracle is not None:
            layers.append(charts.Level(bounds.oracle.mean, f"oracle {numbers.fixed(bounds.oracle.mean)}"))
        if bounds.floor is not None:
            layers.append(charts.Level(bounds.floor[1].mean, f"best control {numbers.fixed(bounds.floor[1].mean)}"))
    layers += charts.smoothed(steps, values, "c1", "train", band=True) if len(steps) else ()
    notes = [_train_note(view, values)]
    for (split, mode), points in inside.items():
        style, shape = EVALUATED.get(mode, ("c4", "hollow"))
        intervals = [view.reward(evaluation) for _, evaluation in points]
        name = f"{split} {mode}" if len({other for other, _ in inside}) > 1 else mode
        layers.append(charts.Points([step for step, _ in points], intervals, style, name, shape))
        sizes = sorted({interval.n for interval in intervals})
        notes.append(f"{mode} answers to {', '.join(map(str, sizes))} examples of {split} with 95 % intervals")
    label = f"Reward in training and on held-out examples; in training {_ending(values) or 'not recorded'}"
    about = "; ".join(note for note in notes if note)
    chart, narrow = charts.wide_chart(layers, label)
    return Figure(title="Reward", about=f"{about[:1].upper() + about[1:]}.", chart=chart, narrow=narrow)


def _train_note(view: View, values: Values) -> str:
    if not np.isfinite(values).any():
        return ""
    rl = view.run.recipe.rl
    of = f" ({rl.prompts_per_step * rl.group_size} rollouts each)" if rl and view.whole is None else ""
    of += " (the mean of the tasks' means)" if view.tasks else ""
    if np.isfinite(values).sum() < charts.SHORT:
        return f"train: means of single steps{of}"
    window = charts.smoothing_window(len(values))
    return f"dots: means of single training steps{of}; line: mean of {window} steps with its 95 % band"


def _parts_in_training(rows: Rows) -> list[Group]:
    prefix = "train/reward/"
    keys = list(dict.fromkeys(key for row in rows for key in row if key.startswith(prefix)))
    metrics = [Metric(key, key.removeprefix(prefix), "", charts.UNIT) for key in keys]
    drawn = _small_figures(rows, metrics[:MOST_PARTS], band=True)
    left = len(keys) - MOST_PARTS
    about = _ends_note(rows) + (" Bands are 95 % intervals of the moving means." if len(rows) >= charts.SHORT else "")
    more = f"{left} more parts are in metrics.jsonl." if left > 0 else ""
    return [("Parts of the reward in training", about, drawn, more)] if drawn else []


def _health(view: View, rows: Rows) -> list[Group]:
    failed = any(row.get("train/frac_failed") for row in rows)  # the usual case is 0, and no news
    shown = [metric for metric in HEALTH if failed or metric.key != "train/frac_failed"]
    drawn = _small_figures(rows, shown)
    titles = {figure.title for figure in drawn}
    missing = [metric.title for metric in shown if metric.title not in titles and metric.key != "train/kl"]
    rl = view.run.recipe.rl
    notes = []
    if not any(row.get("train/kl") is not None for row in rows):
        asked = rl is not None and rl.beta > 0
        no_kl = f"No KL is recorded, although rl.beta is {rl.beta:g}." if rl is not None and asked else ""
        notes.append(no_kl or "rl.beta is 0, so no KL to the start was computed and none is shown.")
    if missing and rows:
        notes.append(f"Not computed: {', '.join(missing)}.")
    if rl is not None and rl.inner_epochs == 1:
        notes.append("One update is made on each batch, so a ratio differs from 1 by the gap alone.")
    return [("Health of RL", _ends_note(rows), drawn, " ".join(notes))] if drawn else []


def _small_figures(rows: Rows, metrics: Sequence[Metric], *, band: bool = False) -> list[Figure]:
    """Small figures of the metrics that were computed at all."""
    figures = []
    for metric in metrics:
        steps, values = _series(rows, metric.key)
        if not np.isfinite(values).any():
            continue
        layers: tuple[Layer, ...] = (charts.Line(steps, values, most=SMALL_POINTS),)
        if metric is not RATE:
            layers = charts.smoothed(steps, values, band=band, most=SMALL_POINTS)
        ending = _ending(values)
        chart = charts.line_chart(layers, label=f"{metric.title}: {ending}", size=charts.SMALL, y_range=metric.y_range)
        figures.append(Figure(title=metric.title, about=metric.about, chart=chart, ending=ending))
    return figures


def _few(n: int) -> int:
    """How many values at either end stand for the beginning and the end."""
    return max(3, n // 15) if n >= charts.SHORT else 1


def _ends_note(rows: Rows) -> str:
    few = _few(len(rows))
    ends = f"the mean of its first {few} and of its last {few} values" if few > 1 else "its first and its last value"
    drawn = "lines are moving means" if few > 1 else "lines join them"
    dots = "single steps" if len(rows) <= SMALL_POINTS else f"{SMALL_POINTS} of the steps, evenly spread"
    return f"Beside each name: {ends}. Dots are {dots}, {drawn}; n = {numbers.count(len(rows))} steps."


def _ending(values: Values) -> str:
    """From what to what: means at either end, because a single step is as noisy as its batch."""
    finite = values[np.isfinite(values)]
    if not len(finite):
        return ""
    few = min(_few(len(values)), len(finite))
    return f"{numbers.short(float(finite[:few].mean()))} → {numbers.short(float(finite[-few:].mean()))}"


# -- strict against lenient --------------------------------------------------------------------------------------


def strict(view: View) -> Section:
    """How the answers had to be read, and what a strict parser would have taken from them."""
    rows = view.metrics.get("rl", [])
    layers: list[Layer] = []
    for name, style in ((STRICT, "c2"), (LENIENT, "c1")):
        steps, values = _series(rows, f"train/reading/{name}")
        if not np.isnan(values).all():
            layers += charts.smoothed(steps, values, style, name, band=True)
    chart, narrow = charts.wide_chart(layers, "Strict and lenient reward in training", height=250, right=64)
    figure = Figure(
        title="Both readings in training",
        about="mean over each step's rollouts; lines are moving means with their 95 % band.",
        keys=(("c1", "circle", LENIENT), ("c2", "circle", STRICT)),
        chart=chart,
        narrow=narrow,
    )
    return section(
        "strict",
        "Strict against lenient",
        sentences=[reading_sentence(stage, evaluation) for stage, evaluation in view.headline_evaluations],
        modes=build_tables.parse_modes(view),
        training=figure if layers else None,
    )


def reading_sentence(stage: str, evaluation: Evaluation) -> str:
    """How many answers strict parsing scores as zero although they earn something."""
    if not comparisons.has_both(evaluation):
        return f"{name_of(stage)}: this task does not record a strict and a lenient reading."
    found = rescued(evaluation.rows, evaluation.form)
    n = numbers.count(found.n)
    if not found.earning:
        return f"{name_of(stage)}: strict parsing scores none of {n} answers as 0 that earns something."
    right = f"; {numbers.count(found.right)} of them are right" if found.right is not None else ""
    return (
        f"{name_of(stage)}: strict parsing scores {numbers.count(found.earning)} of {n} answers as 0 although they "
        f"earn something read leniently{right}."
    )


# -- parts, strata and kinds -------------------------------------------------------------------------------------

MOST_CHANGES = 16
"""Parts and strata that are drawn."""


def parts(view: View) -> Section:
    """What changed, and where: a chart and a table each, and how much comes with a change of form."""
    compared = view.headline_comparison()
    tables = [] if compared is None else [compared]
    return section(
        "parts",
        "Parts and strata",
        compared=compared,
        name_of=name_of,
        sentence=form_sentence(compared),
        figures=[
            _changes(one, changes[:MOST_CHANGES], f"Reward by {what}", left=len(changes))
            for one in tables
            for what, changes in (("part", one.parts), ("stratum", one.strata))
        ],
        parts=build_tables.parts(tables, split=False),
        strata=build_tables.strata(tables, split=False),
    )


def form_sentence(compared: Comparison | None) -> str:
    """Where the mean difference comes from; empty where no part pays for form."""
    share = None if compared is None else compared.form_share
    if compared is None or share is None:
        return ""
    total, rest = compared.reward.paired.difference, len(compared.pairs) - share.changed
    return (
        f"Of the mean difference of {numbers.signed(total.mean)}, {numbers.signed(share.from_changed)} comes from the "
        f"{numbers.count(share.changed)} answers whose format parts changed and {numbers.signed(share.from_rest)} from "
        f"the {numbers.count(rest)} whose format stayed as it was."
    )


def breakdown(view: View) -> list[Section]:
    """The first stage against the last on each split, by stratum and by kind.

    None for tasks that say nothing of what their evaluations put first (`records.Headline`) and have no splits of
    their own.
    """
    if not view.has_breakdown:
        return []
    headline = view.task_headline
    # The split that is evaluated inside training is the seen one once more; it is in the tables.
    inside = view.run.recipe.evaluation.split
    shown = [one for one in view.rises if one.split != inside] or view.rises
    by = headline.stratum if headline else "stratum"
    figures = [_changes(one, one.strata, f"Reward by {by} on {one.split}", "reward") for one in shown]
    if headline is not None:
        title, prefix = f"Accuracy by {headline.breakdown}", headline.prefix
        figures += [
            _changes(one, one.kinds(prefix), f"{title} on {one.split}", "accuracy", prefix=prefix) for one in shown
        ]
    return [
        section(
            "breakdown",
            "Seen and held out",
            view=view,
            sentences=rise_sentences(view),
            note=headline.note if headline else "",
            rise=build_tables.rise(view),
            figures=figures,
            breakdown=build_tables.breakdown(view, shown),
        )
    ]


def _changes(
    compared: Comparison,
    changes: Sequence[comparisons.Change],
    title: str,
    x_title: str = "mean",
    *,
    prefix: str = "",
    left: int = 0,
) -> Figure | None:
    """Before and after as dots. `prefix` is taken from the names; `left` is how many there are where not all are."""
    if not changes:
        return None
    before, after = name_of(compared.before), name_of(compared.after)
    rows, said = [], []
    for change in changes:
        name = change.name.removeprefix(prefix) or "(none)"
        marks = (Mark(change.before, before, "c2", "hollow"), Mark(change.after, after, "c1"))
        rows.append(DotRow(name, marks, minus(numbers.signed(change.paired.difference.mean))))
        said.append(f"{name} {numbers.fixed(change.before.mean)} to {numbers.fixed(change.after.mean)}")
    return Figure(
        title=title,
        chart=charts.dot_chart(rows, label=f"{title}, before and after: {'; '.join(said)}", x_title=x_title),
        about="95 % intervals; the difference at the right.",
        keys=(("c2", "hollow", before), ("c1", "circle", after)),
        more=f"The first {len(changes)} of {left}." if left > len(changes) else "",
    )


# -- samples and replays -----------------------------------------------------------------------------------------

MOST_VALUES, MOST_MISTAKES = 14, 30


def samples(view: View) -> Section:
    """Eight held-out examples before and after; before there are two evaluations, the latest rollouts of training."""
    compared = view.headline_comparison()
    if compared is None:
        step = view.samples[-1].get("step") if view.samples else None
        latest = [row for row in view.samples if row.get("step") == step and row.get("reward") is not None]
        ranked = sorted(latest, key=lambda row: (-row["reward"], str(row.get("id", ""))))
        ends = ranked if len(ranked) <= 4 else [*ranked[:2], *ranked[-2:]]
        rollouts = [_rollout(row) for row in ends] if view.samples else None
        return section("samples", "Samples", compared=None, step=step, rollouts=rollouts)
    shown = side_by_side(view, compared)
    rule = comparisons.RULE
    return section("samples", "Samples side by side", compared=compared, samples=shown, rule=rule, name_of=name_of)


def side_by_side(view: View, compared: Comparison) -> list[tuple[comparisons.Picked, str, str | None, Table | None]]:
    """The examples that are shown, each with its prompt and its gold answer, as far as known, and its values.

    The gold answer is that of the example where it is given, else what the oracle answered.
    """
    oracle = view.evaluations.get(EvaluationKey(REFERENCE, compared.split, ORACLE))
    golds = {row.id: row.completion for row in oracle.rows} if oracle else {}
    golds |= {name: one.gold for name, one in view.examples.items() if one.gold is not None}
    before, after = name_of(compared.before), name_of(compared.after)
    shown = []
    for picked in comparisons.select(compared):
        name = picked.after.id
        messages = view.examples[name].messages if name in view.examples else ()
        prompt = next((m["content"] for m in reversed(messages) if m["role"] == "user"), "")
        gold = golds.get(name)
        shown.append((picked, prompt, gold, values_read(gold, {before: picked.before, after: picked.after})))
    return shown


def _rollout(row: Mapping[str, Any]) -> Judged:
    return Judged(
        id=str(row.get("id", "")),
        stratum="",
        completion=str(row.get("text", "")),
        reward=row["reward"],
        parts=row.get("parts", {}),
        readings={},
        how=str(row.get("how", "")),
        truncated=row.get("finish") == "length",
        turns=tuple(row.get("turns", ())),
        asked=tuple(row.get("asked", ())),
    )


def values_read(gold: str | None, answers: Mapping[str, Judged]) -> Table | None:
    """Where the gold answer is a JSON object: each of its values beside the answered ones, with what a part earned."""
    wanted = _object(gold)
    said = {name: _object(row.completion) for name, row in answers.items()}
    rows = []
    for key, value in list(wanted.items())[:MOST_VALUES]:
        cells = [clip(key, 120)[0], _value(value)]
        for name, row in answers.items():
            earned = row.parts.get(key)
            mark = "" if earned is None else "✓ " if earned == 1 else "✗ " if earned == 0 else f"{earned:.2f} "
            # Read leniently, a text that is no JSON may have said it all the same; it stands below.
            absent = "(not said)" if said[name] else "(no plain JSON)"
            cells.append(mark + (_value(said[name][key]) if key in said[name] else absent))
        rows.append(cells)
    columns = (Column("key", "What is asked"), Column("gold", "Gold"), *(Column(name, name) for name in answers))
    return Table.of("read", "What was read, ✓ right, ✗ wrong", columns, rows) if rows else None


def _object(text: str | None) -> dict[str, Any]:
    """The JSON object that a text is; empty where it is none as it stands."""
    try:
        value = json.loads(text or "")
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _value(value: object) -> str:
    return clip(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False), 300)[0]


def replays(view: View) -> list[Section]:
    """Replayed episodes of each evaluation; none where nothing was replayed."""
    shown = {
        f"{name_of(key.stage)} on {key.split}, {key.mode} answers. {REPLAYED}": found
        for key, found in view.replays.items()
    }
    return [replayed(shown)] if shown else []


def replayed(shown: Mapping[str, Sequence[Replay]]) -> Section:
    """Episodes by what is said of them: what each got wrong, and its pictures side by side, inside the file."""
    columns = (Column("what", "What"), Column("expected", "Expected"), Column("received", "Received"))

    def episode(replay: Replay) -> tuple[Replay, Table, int, list[tuple[str, str]]]:
        wrong = [[clip(cell, 300)[0] for cell in (m.what, m.expected, m.received)] for m in replay.mistakes]
        pictures = [(base64.b64encode(one.image).decode(), clip(one.caption, 300)[0]) for one in replay.frames]
        left = len(wrong) - MOST_MISTAKES
        return replay, Table.of("mistakes", "What is wrong", columns, wrong[:MOST_MISTAKES]), left, pictures

    episodes = [(said, list(map(episode, found))) for said, found in shown.items()]
    return section("replays", "Episodes, replayed", shown=episodes, earned=EARNED)


# -- what the checks and the recipe say --------------------------------------------------------------------------

CHECKED, NEXT = "What the checks say", "What to do next"


def checked(view: View) -> list[Section]:
    """The findings, the worst first, and what was not looked at; none before the first recorded step."""
    return [section("checked", CHECKED, "facts", pairs=said)] if (said := check_facts(view)) else []


def check_facts(view: View) -> Facts:
    """Stage by stage: each finding with causes and remedy, then how many checks are clear and which were not done."""
    said = []
    for one in view.examined:
        stage = name_of(one.context.name)
        said += [
            (f"{stage}, {each.level}", " · ".join([f"{each.what} ({each.check})", *remedies(each, ours=True)]))
            for each in one.findings
        ]
        said.append((stage, counted(one.findings, one.clear, one.not_run) + "."))
        if one.not_run:
            said.append((f"{stage}, not done", f"for want of {missing_data(one.not_run)}"))
    return said


def alarms(view: View) -> list[str]:
    """The fatal findings and the warnings, for the top of the page."""
    return [f"{each.level}: {each.what}" for one in view.examined for each in one.findings if each.level != "note"]


def handoff(view: View) -> list[Section]:
    """A section for the watch rules and one for what to do next, where the recipe has them."""
    found = [Section("watch", "Watch rules", build_tables.watch(view).to_html())] if view.watched else []
    return [*found, *([section("next", NEXT, "facts", pairs=said)] if (said := next_facts(view)) else [])]


def next_facts(view: View) -> Facts:
    """Each question with its answer, the scenario, and the changes of the next recipe; nothing without a tree."""
    decision = view.decision
    if decision is None:
        return []
    asked = [
        (one.ask, ". ".join([one.answer, *filter(None, [one.means.rstrip(".")]), *one.verdict.said]) + ".")
        for one in decision.answers
    ]
    said = {"Because": decision.because, "Inside the noise": decision.noise, "What would decide it": decision.needs}
    changes = [(f"Next: {key}", f"{dumps(one.to)}, because {one.because}") for key, one in decision.changes.items()]
    return [
        *asked,
        ("Scenario", f"{decision.scenario}. {decision.says}"),
        *((name, "; ".join(lines)) for name, lines in said.items() if lines),
        *changes,
    ]


# -- what the run cost and what it was ---------------------------------------------------------------------------

MOST_EVENTS, RECIPE = 40, 16_000
COMMANDS = (
    "# RUN is the run's directory\n"
    "plumbline run RUN/recipe.yaml --out runs/again     # the same recipe, from the start\n"
    "plumbline compare RUN runs/again                   # pair by pair, example by example\n"
    "plumbline report RUN                               # this report and its tables, from the records"
)


def cost(view: View) -> Section:
    """Where the seconds went, and how many tokens they bought."""
    total = sum(view.seconds.values())
    shares = [
        charts.Share(
            f"{name_of(stage)}, {work}",
            seconds,
            numbers.duration(seconds) + (f" · {seconds / total * 100:.0f} %" if total else ""),
        )
        for (stage, work), seconds in view.seconds.items()
    ]
    label = "Seconds by kind of work: " + "; ".join(f"{share.label} {share.note}" for share in shares)
    about = "recorded seconds of training steps; loading models and the evaluations after each stage are not in them."
    figure = Figure(title="Time", about=about, chart=charts.share_chart(shares, label=label)) if shares else None
    return section("cost", "Time and tokens", time=figure, tokens=tokens(view))


def tokens(view: View) -> Facts:
    """Counts of what was generated and trained on, and the speed where both are known."""
    found = [("Training, recorded", numbers.duration(sum(view.seconds.values())))]
    drawn = [int(row["tokens"]) for row in view.samples if isinstance(row.get("tokens"), int)]
    if drawn:
        found.append(("RL rollouts", f"{numbers.count(len(drawn))} with {numbers.count(sum(drawn))} tokens"))
        found.append(("Mean length", f"{numbers.fixed(sum(drawn) / len(drawn), 1)} tokens"))
        seconds = view.seconds.get(("rl", "rollouts"), 0.0)
        if seconds > 0:
            found.append(("Sampling speed", f"{numbers.count(round(sum(drawn) / seconds))} tokens a second"))
    peaks: dict[str, float] = {}
    for row in view.timings:
        if (gigabytes := row.get("memory/peak_gb")) is not None:
            peaks[row["stage"]] = max(gigabytes, peaks.get(row["stage"], 0.0))
    found += [(f"{name_of(stage)}, peak memory", f"{numbers.fixed(peak, 2)} GB") for stage, peak in peaks.items()]
    for stage, rows in view.metrics.items():
        shown = [row["train/tokens"] for row in rows if row.get("train/tokens") is not None]
        if shown:
            found.append((f"{name_of(stage)} tokens", f"{numbers.count(int(sum(shown)))} in {len(shown)} steps"))
    return found


def record(view: View) -> Section:
    """Everything that is needed to make the run again, or to doubt it."""
    recipe, left = clip(view.run.recipe.to_yaml(), RECIPE)
    return section(
        "record",
        "Recipe, environment, events",
        view=view,
        identity=identity(view),
        recipe=recipe + (f"\n… {left:,} more characters in recipe.yaml" if left else ""),
        environment=[(key, clip(value, 1200)[0]) for key, value in environment(view)],
        events=events(view),
        events_left=len(view.events) - MOST_EVENTS,
        commands=COMMANDS,
    )


def identity(view: View) -> Facts:
    """What the run is, in a few lines."""
    recipe = view.run.recipe
    lora = recipe.model.lora if isinstance(recipe.model, PretrainedModel) else None
    model = recipe.model.name or "made on the spot (model.tiny)"
    found = [
        ("Recipe", f"{recipe.name} ({recipe.identity()})"),
        ("Seed", str(recipe.seed)),
        ("Task", ", ".join(f"{name}: {one.name}" if name else one.name for name, one in recipe.each_task.items())),
        ("Model", without_folder(view, model)),
        ("Weights trained", f"LoRA of rank {lora.rank}" if lora else "all"),
    ]
    if isinstance(likelihood := view.environment.get("likelihood"), dict):
        exact = "exact: every choice that was sampled" if likelihood.get("exact") else "not exact"
        found.append(("Log-probability", f"{likelihood.get('kind')}, {exact}"))
    if recipe.sft is not None:
        length = f"{recipe.sft.steps} steps" if recipe.sft.steps else f"{recipe.sft.epochs:g} epochs"
        length += _budget(recipe.sft.seconds)
        rate = _rate(view, "sft", recipe.sft.optimiser.learning_rate)
        found.append(("SFT", f"{length} of {recipe.sft.batch_size}, {rate}"))
    if recipe.rl is not None:
        rl = recipe.rl
        length = f"{rl.algorithm.name}, {rl.steps} steps{_budget(rl.seconds)}"
        length += f" of {rl.prompts_per_step} prompts × {rl.group_size} answers"
        found.append(("GRPO", f"{length}, {_rate(view, 'rl', rl.optimiser.learning_rate)}, beta {rl.beta:g}"))
    return found


def _budget(seconds: float | None) -> str:
    return "" if seconds is None else f" or {numbers.duration(seconds)} of processor time"


def _rate(view: View, stage: str, rate: float) -> str:
    """A stage's learning rate, and what it was before a resume changed it."""
    changed = [event for event in view.events if event.get("kind") == "changed" and event.get("key") == RATES[stage]]
    past = ", ".join(f"{event.get('old')} before step {event.get('step')}" for event in changed)
    return f"lr {rate:g}" + (f" ({clip(past, LONGEST)[0]})" if past else "")


def without_folder(view: View, text: str) -> str:
    """A text in which this run's directory is called RUN: a report says nothing about the machine's folders."""
    for folder in sorted({str(view.run.folder), str(view.run.folder.resolve())}, key=len, reverse=True):
        if len(folder) > 2:
            text = text.replace(folder, "RUN")
    return text


def environment(view: View) -> Facts:
    """Versions and machine, nested keys joined."""
    return [(key, without_folder(view, value)) for key, value in _flat(view.environment)][:60]


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for key, value in values.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict) and value and not any(isinstance(v, (dict, list)) for v in value.values()):
            yield name, ", ".join(f"{k} {v}" for k, v in value.items())
        elif isinstance(value, dict) and value and len(prefix) < 60:
            yield from _flat(value, f"{name}.")
        elif key == "command" and isinstance(value, list):
            yield name, shlex.join(map(str, value))
        else:
            yield name, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def events(view: View) -> Facts:
    """When, and what; the first ones, clipped."""
    return [
        (
            clip(str(event.get("time", "")), 120)[0],
            clip(f"{event.get('kind', '')}: {without_folder(view, str(event.get('message', '')))}", LONGEST * 2)[0],
        )
        for event in view.events[:MOST_EVENTS]
    ]


# -- Markdown ----------------------------------------------------------------------------------------------------


def markdown_report(view: View, said: Verdict) -> str:
    """The report to paste into an issue or a model card: the verdict, the tables, the samples."""
    tasks = []
    for one in (view, *view.tasks):
        compared = one.headline_comparison()
        texts = {
            "parse-modes": [reading_sentence(stage, evaluation) for stage, evaluation in one.headline_evaluations],
            "parts": [form_sentence(compared)],
            "rise": rise_sentences(one),
        }
        tasks.append((one, build_tables.all_tables(one), texts, side_by_side(one, compared) if compared else []))
    text = render(
        "report.md",
        view=view,
        said=said,
        tasks=tasks,
        rule=comparisons.RULE,
        name_of=name_of,
        progress=progress(view),
        control=CONTROL,
        alarms=alarms(view),
        warnings=warning_lines(view),
        checks=check_facts(view),
        next=next_facts(view),
        tokens=tokens(view),
        identity=identity(view),
        environment=environment(view),
        events=events(view),
        commands=COMMANDS,
    )
    return text.rstrip() + "\n"
