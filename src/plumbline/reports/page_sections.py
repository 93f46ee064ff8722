"""What a run's page shows: the sentences, facts and figures that its templates call by their
names."""

import json
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from plumbline.checks.check import describe_missing_data
from plumbline.checks.findings_output import list_remedies, summarise_counts
from plumbline.evaluation.comparison import (
    Comparison,
    PickedExample,
    QuantityChange,
    select_examples,
)
from plumbline.evaluation.evaluate import ORACLE
from plumbline.evaluation.replays import RULE as REPLAYED
from plumbline.evaluation.statistics import Interval
from plumbline.evaluation.summary import (
    LENIENT,
    STRICT,
    count_rescued,
    has_both,
    reading_names,
    reward_reading,
)
from plumbline.policies.options import PretrainedModel
from plumbline.records import Evaluation, FloatArray, Judged
from plumbline.reports import charts
from plumbline.reports.charts import Layer, Mark
from plumbline.reports.format_numbers import (
    format_count,
    format_duration,
    format_fixed,
    format_interval,
    format_metric,
    format_signed,
)
from plumbline.reports.table_formats import Column, Table
from plumbline.reports.templating import ChartFigure, clip_html, typeset_minus
from plumbline.reports.view import RunView, stage_name
from plumbline.runs.evaluations import REFERENCE, EvaluationKey, Replay
from plumbline.runs.lineage import RATES
from plumbline.storage import dumps

Facts = list[tuple[str, str]]
"""Names and values."""
Rows = Sequence[dict[str, Any]]
LONGEST = 400
"""Characters of a message."""

# -- the top ---------------------------------------------------------------------------------------

MOST_WARNINGS = 6
CONTROL = (
    "This run is a negative control: RL deals its advantages at random within the batch "
    "(controls.shuffle_advantages), so the reward should not rise. It shows what a rise without "
    "any teaching would "
    "look like."
)


def progress_text(view: RunView) -> str:
    """How far an unfinished run is; empty for a finished one."""
    if view.finished:
        return ""
    if not view.metrics:
        return "This run is not finished: no step has been recorded yet."
    recipe, (stage, rows) = view.run.recipe, list(view.metrics.items())[-1]
    trained = {"rl": recipe.rl, "sft": recipe.sft}.get(stage, recipe.model.tiny)
    of = f" of {format_count(trained.steps)}" if trained and trained.steps else ""
    step = format_count(max(row["step"] for row in rows))
    return f"This run is not finished: its last recorded step is {stage_name(stage)} {step}{of}."


def warning_lines(view: RunView) -> list[str]:
    """The first warnings, clipped, and how many more there are."""
    lines = [
        f"{event['kind']}: {event['message'][:LONGEST]}" for event in view.warnings[:MOST_WARNINGS]
    ]
    left = len(view.warnings) - MOST_WARNINGS
    return [*lines, f"and {left} more, below under Events"] if left > 0 else lines


def alarms(view: RunView) -> list[str]:
    """The fatal findings and the warnings, for the top of the page."""
    return [
        f"{each.level}: {each.what}"
        for one in view.examinations
        for each in one.findings
        if each.level != "note"
    ]


# -- before and after ------------------------------------------------------------------------------


def describe_unjudged(view: RunView) -> str:
    """How many answers could not be judged, and the most frequent causes; empty where there is
    none."""
    causes = Counter(
        row.failure for evaluation in view.evaluations.values() for row in evaluation.unjudged
    )
    said = "; ".join(
        f"{count} because of {clip_html(cause, 200)[0]}" for cause, count in causes.most_common(3)
    )
    return f"Not judged, over all evaluations: {causes.total()} answers. {said}." if causes else ""


def reward_rows(view: RunView, split: str) -> ChartFigure:
    """The reward by stage and mode; beside it what another reading pays, and the best baseline and
    the oracle."""
    keys = view.final_keys(split)
    evaluations = [view.evaluations[key] for key in keys]
    named = reward_reading(evaluations)
    second = next(
        (n for n in (STRICT, LENIENT) if n in reading_names(evaluations) and n != named),
        None,
    )
    rows, said = [], []
    for key, evaluation in zip(keys, evaluations, strict=True):
        label, reward = f"{stage_name(key.stage)}, {key.mode}", view.reward(evaluation)
        marks = [Mark(reward, f"{named} reading (the reward)" if named else "reward", "c1")]
        readings = view.summary(key)["readings"]
        if second is not None and second in readings:
            marks.append(Mark(Interval(**readings[second]), f"{second} reading", "c2", "hollow"))
        rows.append((label, marks, format_fixed(reward.mean)))
        said.append(f"{label} {format_interval(reward)}")
    references = {
        key.mode: view.reward(view.evaluations[key]) for key in view.reference_keys(split)
    }
    best = [
        (f"best baseline ({mode[:24]})", reward)
        for mode, reward in references.items()
        if mode != ORACLE
    ][-1:]
    lines = [*best, *((mode, reward) for mode, reward in references.items() if mode == ORACLE)]
    counts = sorted({len(evaluation.rows) for evaluation in evaluations})
    keyed = [("c1", "circle", f"{named} reading, the reward" if named else "reward")]
    label = f"Mean reward on {split} by stage: {'; '.join(said)}"
    return ChartFigure(
        title=f"Reward on {split}",
        chart=charts.dot_chart(rows, label=label, references=lines),
        about=f"n = {', '.join(map(format_count, counts))}; bars are intervals of 95 % each.",
        keys=(*keyed, *([("c2", "hollow", f"{second} reading")] if second else [])),
    )


# -- curves over steps -----------------------------------------------------------------------------

MOST_PARTS = 15
SMALL_POINTS = 140
EVALUATED = {"greedy": ("c2", "diamond"), "sampled": ("c3", "circle")}


Metrics = Mapping[str, tuple[str, str, tuple[float, float] | None]]
"""By key: the title of a metric's curve, what it says, and its range where that is fixed."""
HEALTH: Metrics = {
    "train/frac_reward_zero_std": (
        "No signal",
        "share of groups whose rewards are all equal",
        charts.UNIT,
    ),
    "train/completion_length": ("Completion length", "tokens, mean of the step's rollouts", None),
    "train/frac_truncated": ("Truncated", "share cut off by the limit", charts.UNIT),
    "train/frac_failed": ("Not judged", "share that the verifier broke on", charts.UNIT),
    "train/entropy": ("Entropy", "nats a token, from the sampled tokens", None),
    "train/loss": ("Loss", "its size says little; jumps do", None),
    "train/grad_norm": ("Gradient norm", "before clipping", None),
    "train/clip_fraction": ("Clip fraction", "share of terms that the ratio clip held back", None),
    "train/sampler_scorer_gap": ("Sampler gap", "to the scorer, nats; 0 up to rounding", None),
    "train/kl": ("KL to the start", "nats a token", None),
    "train/kl_teacher": ("KL to the teacher", "nats a token, or an answer in closed form", None),
    "train/learning_rate": ("Learning rate", "as applied", None),
}
SUPERVISED: Metrics = {
    "train/loss": ("Loss", "nats a target token", None),
    **{key: HEALTH[key] for key in ("train/grad_norm", "train/learning_rate")},
}
Group = tuple[str, str, list[ChartFigure], str]
"""Heading, what its figures are, the figures, and what is said below them."""


def build_curves(view: RunView) -> tuple[ChartFigure | None, list[Group]]:
    """The reward in training and on held-out examples; and its parts and the health of the run, RL
    first."""
    rows = _training_rows(view.metrics.get("rl", []))
    reward = _reward(view, rows) if rows or view.training_evaluations() else None
    return reward, [group for group in _groups(view, rows) if group[2]]


def first_curve(view: RunView) -> ChartFigure | None:
    """The curve of the reward for half of a screen; None where nothing was trained."""
    whole = build_curves(view)[0]
    return whole and replace(whole, chart=whole.narrow or whole.chart, narrow="")


def _groups(view: RunView, rows: Rows) -> Iterator[Group]:
    if not view.tasks:
        yield _parts_in_training(rows)
    yield _health(view, rows)
    for stage, recorded in view.metrics.items():
        if stage != "rl":
            yield (
                stage_name(stage),
                _ends_note(_training_rows(recorded)),
                _small_figures(_training_rows(recorded), SUPERVISED),
                "",
            )


def _training_rows(rows: Rows) -> Rows:
    """The rows of training steps; the one before the first step holds an evaluation only."""
    return [row for row in rows if any(key.startswith("train/") for key in row)]


def _series(rows: Rows, key: str) -> tuple[FloatArray, FloatArray]:
    return charts.numbers_of(row["step"] for row in rows), charts.numbers_of(
        row.get(key) for row in rows
    )


def _reward(view: RunView, rows: Rows) -> ChartFigure:
    steps, values = _series(rows, "train/reward")
    inside = view.training_evaluations()
    layers: list[Layer] = []
    # floor and ceiling on the examples that are evaluated during training
    for points in list(inside.values())[:1]:
        bounds = view.bounds(points[-1][1])
        if bounds.oracle is not None:
            layers.append(
                charts.Level(bounds.oracle.mean, f"oracle {format_fixed(bounds.oracle.mean)}")
            )
        if bounds.floor is not None:
            layers.append(
                charts.Level(
                    bounds.floor[1].mean,
                    f"best baseline {format_fixed(bounds.floor[1].mean)}",
                )
            )
    layers += charts.smoothed_lines(steps, values, "c1", "train", band=True) if len(steps) else ()
    notes = [_train_note(view, values)]
    for (split, mode), points in inside.items():
        style, shape = EVALUATED.get(mode, ("c4", "hollow"))
        intervals = [view.reward(evaluation) for _, evaluation in points]
        name = f"{split} {mode}" if len({other for other, _ in inside}) > 1 else mode
        layers.append(charts.Points([step for step, _ in points], intervals, style, name, shape))
        sizes = sorted({interval.n for interval in intervals})
        notes.append(
            f"{mode} answers to {', '.join(map(str, sizes))} examples of {split} with 95 % "
            "intervals"
        )
    label = (
        "Reward in training and on held-out examples; in training "
        f"{_describe_ends(values) or 'not recorded'}"
    )
    about = "; ".join(note for note in notes if note)
    chart, narrow = charts.wide_chart(layers, label)
    return ChartFigure(
        title="Reward", about=f"{about[:1].upper() + about[1:]}.", chart=chart, narrow=narrow
    )


def _train_note(view: RunView, values: FloatArray) -> str:
    if not np.isfinite(values).any():
        return ""
    rl = view.run.recipe.rl
    of = (
        f" ({rl.prompts_per_step * rl.group_size} rollouts each)"
        if rl and view.whole is None
        else ""
    )
    of += " (the mean of the tasks' means)" if view.tasks else ""
    if np.isfinite(values).sum() < charts.SHORT:
        return f"train: means of single steps{of}"
    window = charts.smoothing_window(len(values))
    return (
        f"dots: means of single training steps{of}; line: mean of {window} steps with its 95 % band"
    )


def _parts_in_training(rows: Rows) -> Group:
    prefix = "train/reward/"
    keys = list(dict.fromkeys(key for row in rows for key in row if key.startswith(prefix)))
    metrics: Metrics = {
        key: (key.removeprefix(prefix), "", charts.UNIT) for key in keys[:MOST_PARTS]
    }
    drawn = _small_figures(rows, metrics, band=True)
    left = len(keys) - MOST_PARTS
    about = _ends_note(rows) + (
        " Bands are 95 % intervals of the moving means." if len(rows) >= charts.SHORT else ""
    )
    more = f"{left} more parts are in metrics.jsonl." if left > 0 else ""
    return "Parts of the reward in training", about, drawn, more


def _health(view: RunView, rows: Rows) -> Group:
    failed = any(row.get("train/frac_failed") for row in rows)  # the usual case is 0, and no news
    shown = {key: one for key, one in HEALTH.items() if failed or key != "train/frac_failed"}
    drawn = _small_figures(rows, shown)
    titles = {figure.title for figure in drawn}
    missing = [
        title
        for key, (title, *_) in shown.items()
        if title not in titles and not key.startswith("train/kl")
    ]
    rl = view.run.recipe.rl
    notes = []
    if not any(
        row.get(key) is not None for row in rows for key in ("train/kl", "train/kl_teacher")
    ):
        beta = rl.beta if rl is not None else 0
        none = "rl.beta is 0, so no KL to the start was computed and none is shown."
        notes.append(f"No KL is recorded, although rl.beta is {beta:g}." if beta > 0 else none)
    if missing and rows:
        notes.append(f"Not computed: {', '.join(missing)}.")
    if rl is not None and rl.inner_epochs == 1:
        notes.append(
            "One update is made on each batch, so a ratio differs from 1 by the gap alone."
        )
    return "Health of RL", _ends_note(rows), drawn, " ".join(notes)


def _small_figures(rows: Rows, metrics: Metrics, *, band: bool = False) -> list[ChartFigure]:
    """Small figures of the metrics that were computed at all."""
    figures = []
    for key, (title, about, y_range) in metrics.items():
        steps, values = _series(rows, key)
        if not np.isfinite(values).any():
            continue
        layers: tuple[Layer, ...] = (charts.Line(steps, values, most=SMALL_POINTS),)
        if key != "train/learning_rate":
            layers = charts.smoothed_lines(steps, values, band=band, most=SMALL_POINTS)
        ending = _describe_ends(values)
        chart = charts.line_chart(
            layers, label=f"{title}: {ending}", size=charts.SMALL, y_range=y_range
        )
        figures.append(ChartFigure(title=title, about=about, chart=chart, ending=ending))
    return figures


def _end_length(n: int) -> int:
    """How many values at either end stand for the beginning and the end."""
    return max(3, n // 15) if n >= charts.SHORT else 1


def _ends_note(rows: Rows) -> str:
    few = _end_length(len(rows))
    ends = (
        f"the mean of its first {few} and of its last {few} values"
        if few > 1
        else "its first and its last value"
    )
    drawn = "lines are moving means" if few > 1 else "lines join them"
    dots = (
        "single steps"
        if len(rows) <= SMALL_POINTS
        else f"{SMALL_POINTS} of the steps, evenly spread"
    )
    return (
        f"Beside each name: {ends}. Dots are {dots}, {drawn}; n = {format_count(len(rows))} steps."
    )


def _describe_ends(values: FloatArray) -> str:
    """From what to what: means at either end, because a single step is as noisy as its batch."""
    finite = values[np.isfinite(values)]
    if not len(finite):
        return ""
    few = min(_end_length(len(values)), len(finite))
    return (
        f"{format_metric(float(finite[:few].mean()))} → "
        f"{format_metric(float(finite[-few:].mean()))}"
    )


# -- strict against lenient ------------------------------------------------------------------------


def readings_in_training(view: RunView) -> ChartFigure | None:
    """The strict and the lenient reward by step; None where neither was recorded."""
    rows = view.metrics.get("rl", [])
    layers: list[Layer] = []
    for name, style in ((STRICT, "c2"), (LENIENT, "c1")):
        steps, values = _series(rows, f"train/reading/{name}")
        if not np.isnan(values).all():
            layers += charts.smoothed_lines(steps, values, style, name, band=True)
    if not layers:
        return None
    chart, narrow = charts.wide_chart(
        layers, "Strict and lenient reward in training", height=250, right=64
    )
    return ChartFigure(
        title="Both readings in training",
        about="mean over each step's rollouts; lines are moving means with their 95 % band.",
        keys=(("c1", "circle", LENIENT), ("c2", "circle", STRICT)),
        chart=chart,
        narrow=narrow,
    )


def reading_sentences(view: RunView) -> list[str]:
    """Of the two stages that the verdict compares: how many answers only the lenient reading
    pays."""
    return [
        _reading_sentence(stage_name(key.stage), view.evaluations[key])
        for key in view.headline_keys
    ]


def _reading_sentence(stage: str, evaluation: Evaluation) -> str:
    if not has_both(evaluation):
        return f"{stage}: this task does not record a strict and a lenient reading."
    lost = count_rescued(evaluation.rows, evaluation.form)
    n = format_count(lost.n)
    if not lost.earning:
        return f"{stage}: strict parsing scores none of {n} answers as 0 that earns something."
    right = f"; {format_count(lost.right)} of them are right" if lost.right is not None else ""
    return (
        f"{stage}: strict parsing scores {format_count(lost.earning)} of {n} answers as 0 "
        "although they "
        f"earn something read leniently{right}."
    )


def lost_by_strict_parsing(view: RunView) -> tuple[str, str] | None:
    """How many answers only the lenient reading pays, before and after, and of how many; None where
    there is none."""
    evaluations = [view.evaluations[key] for key in view.headline_keys]
    if not all(map(has_both, evaluations)):
        return None
    counts = [count_rescued(evaluation.rows, evaluation.form) for evaluation in evaluations]
    if not any(one.earning for one in counts):
        return None
    under = f"of {format_count(counts[-1].n)} answers earn something leniently and 0 strictly"
    right = [format_count(one.right) for one in counts if one.right is not None]
    if len(right) == len(counts):
        under += f"; right ones among them: {' → '.join(right)}"
    return " → ".join(format_count(one.earning) for one in counts), under


# -- parts, strata and kinds -----------------------------------------------------------------------


def form_sentence(compared: Comparison | None) -> str:
    """Where the mean difference comes from; empty where no part pays for form."""
    share = None if compared is None else compared.form_share
    if compared is None or share is None:
        return ""
    total, rest = compared.reward.paired.difference, len(compared.pairs) - share.changed
    return (
        f"Of the mean difference of {format_signed(total.mean)}, "
        f"{format_signed(share.from_changed)} comes from the "
        f"{format_count(share.changed)} answers whose format parts changed and "
        f"{format_signed(share.from_rest)} from "
        f"the {format_count(rest)} whose format stayed as it was."
    )


def changes_figure(
    compared: Comparison,
    changed: Sequence[QuantityChange],
    title: str,
    x_title: str = "mean",
    *,
    prefix: str = "",
    left: int = 0,
) -> ChartFigure:
    """Before and after as dots. `prefix` is taken from the names; `left` is how many there are
    where not all are."""
    before, after = stage_name(compared.before), stage_name(compared.after)
    rows, said = [], []
    for change in changed:
        name = change.name.removeprefix(prefix) or "(none)"
        marks = (Mark(change.before, before, "c2", "hollow"), Mark(change.after, after, "c1"))
        rows.append((name, marks, typeset_minus(format_signed(change.paired.difference.mean))))
        said.append(
            f"{name} {format_fixed(change.before.mean)} to {format_fixed(change.after.mean)}"
        )
    return ChartFigure(
        title=title,
        chart=charts.dot_chart(
            rows, label=f"{title}, before and after: {'; '.join(said)}", x_title=x_title
        ),
        about="Intervals of 95 % each; the difference at the right.",
        keys=(("c2", "hollow", before), ("c1", "circle", after)),
        more=f"The first {len(changed)} of {left}." if left > len(changed) else "",
    )


# -- samples and replays ---------------------------------------------------------------------------

MOST_VALUES, MOST_MISTAKES = 14, 30


def best_and_worst_rollouts(view: RunView) -> list[Judged]:
    """The two best and the two worst rollouts of the last recorded step of training."""
    latest = [
        row
        for row in view.samples
        if row["step"] == view.samples[-1]["step"] and row["reward"] is not None
    ]
    ranked = sorted(latest, key=lambda row: (-row["reward"], row["id"]))
    return [
        Judged(
            id=row["id"],
            stratum="",
            completion=row["text"],
            reward=row["reward"],
            parts=row["parts"],
            readings={},
            how=row["how"],
            truncated=row.get("finish") == "length",
            turns=tuple(row.get("turns", ())),
            asked=tuple(row.get("asked", ())),
        )
        for row in (ranked if len(ranked) <= 4 else [*ranked[:2], *ranked[-2:]])
    ]


def side_by_side_answers(
    view: RunView, compared: Comparison
) -> list[tuple[PickedExample, str, str | None, Table | None]]:
    """The examples that are shown, each with its prompt and its gold answer, as far as known, and
    its values.

    The gold answer is that of the example where it is given, else what the oracle answered.
    """
    oracle = view.evaluations.get(EvaluationKey(REFERENCE, compared.split, ORACLE))
    golds = {row.id: row.completion for row in oracle.rows} if oracle else {}
    golds |= {name: one.gold for name, one in view.examples.items() if one.gold is not None}
    before, after = stage_name(compared.before), stage_name(compared.after)
    shown = []
    for picked in select_examples(compared):
        name = picked.after.id
        messages = view.examples[name].messages if name in view.examples else ()
        prompt = next((m["content"] for m in reversed(messages) if m["role"] == "user"), "")
        gold = golds.get(name)
        shown.append(
            (picked, prompt, gold, values_read(gold, {before: picked.before, after: picked.after}))
        )
    return shown


def values_read(gold: str | None, answers: Mapping[str, Judged]) -> Table | None:
    """Where the gold answer is a JSON object: each of its values beside the answered ones, with
    what a part earned."""
    wanted = _object(gold)
    said = {name: _object(row.completion) for name, row in answers.items()}
    rows = []
    for key, value in list(wanted.items())[:MOST_VALUES]:
        cells = [clip_html(key, 120)[0], _value(value)]
        for name, row in answers.items():
            earned = row.parts.get(key)
            mark = (
                ""
                if earned is None
                else "✓ "
                if earned == 1
                else "✗ "
                if earned == 0
                else f"{earned:.2f} "
            )
            # Read leniently, a text that is no JSON may have said it all the same; it stands below.
            absent = "(not said)" if said[name] else "(no plain JSON)"
            cells.append(mark + (_value(said[name][key]) if key in said[name] else absent))
        rows.append(cells)
    columns = (
        Column("key", "What is asked"),
        Column("gold", "Gold"),
        *(Column(name, name) for name in answers),
    )
    return Table.of("read", "What was read, ✓ right, ✗ wrong", columns, rows) if rows else None


def _object(text: str | None) -> dict[str, Any]:
    """The JSON object that a text is; empty where it is none as it stands."""
    try:
        value = json.loads(text or "")
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _value(value: object) -> str:
    return clip_html(
        value if isinstance(value, str) else json.dumps(value, ensure_ascii=False), 300
    )[0]


def replays(view: RunView) -> dict[str, Sequence[Replay]]:
    """Replayed episodes by what is said of them."""
    return {
        f"{stage_name(key.stage)} on {key.split}, {key.mode} answers. {REPLAYED}": episodes
        for key, episodes in view.replays.items()
    }


def mistakes_table(replay: Replay) -> Table:
    """What a replayed episode got wrong."""
    wrong = (
        [clip_html(cell, 300)[0] for cell in (m.what, m.expected, m.received)]
        for m in replay.mistakes
    )
    return Table.of(
        "mistakes", "What is wrong", ("what", "expected", "received"), list(wrong)[:MOST_MISTAKES]
    )


# -- what the checks and the recipe say ------------------------------------------------------------


def check_facts(view: RunView) -> Facts:
    """Stage by stage: each finding with causes and remedy, then how many checks are clear and which
    were not done."""
    said = []
    for one in view.examinations:
        stage = stage_name(one.context.name)
        said += [
            (
                f"{stage}, {each.level}",
                " · ".join([f"{each.what} ({each.check})", *list_remedies(each, ours=True)]),
            )
            for each in one.findings
        ]
        said.append((stage, summarise_counts(one.findings, one.clear, one.not_run) + "."))
        if one.not_run:
            said.append(
                (
                    f"{stage}, skipped",
                    f"by the data that is missing: {describe_missing_data(one.not_run)}",
                )
            )
    return said


def next_facts(view: RunView) -> Facts:
    """Each question with its answer, the scenario, and the changes of the next recipe; nothing
    without a tree."""
    decision = view.decision
    if decision is None:
        return []
    asked = [
        (
            one.ask,
            ". ".join([one.answer, *filter(None, [one.means.rstrip(".")]), *one.verdict.reasons])
            + ".",
        )
        for one in decision.answers
    ]
    said = {
        "Because": decision.because,
        "Inside the noise": decision.noise,
        "What would decide it": decision.needs,
    }
    changes = [
        (f"Next: {key}", f"{dumps(one.to)}, because {one.because}")
        for key, one in decision.changes.items()
    ]
    return [
        *asked,
        ("Scenario", f"{decision.scenario}. {decision.says}"),
        *((name, "; ".join(lines)) for name, lines in said.items() if lines),
        *changes,
    ]


# -- what the run cost and what it was -------------------------------------------------------------

MOST_EVENTS = 40
COMMANDS = (
    "# RUN is the run's directory\n"
    "plumbline run RUN/recipe.yaml --out runs/again     # the same recipe, from the start\n"
    "plumbline compare RUN runs/again                   # pair by pair, example by example\n"
    "plumbline report RUN                               # this report and its tables, from the "
    "records"
)


def seconds_figure(view: RunView) -> ChartFigure:
    """Where the recorded seconds went."""
    total = sum(view.seconds.values())
    shares = [
        (
            f"{stage_name(stage)}, {work}",
            seconds,
            format_duration(seconds) + (f" · {seconds / total * 100:.0f} %" if total else ""),
        )
        for (stage, work), seconds in view.seconds.items()
    ]
    label = "Seconds by kind of work: " + "; ".join(f"{name} {note}" for name, _, note in shares)
    about = (
        "recorded seconds of training steps; loading models and the evaluations after each stage "
        "are not in them."
    )
    return ChartFigure(title="Time", about=about, chart=charts.share_chart(shares, label=label))


def token_facts(view: RunView) -> Facts:
    """Counts of what was generated and trained on, and the speed where both are known."""
    found = [("Training, recorded", format_duration(sum(view.seconds.values())))]
    drawn = [int(row["tokens"]) for row in view.samples if isinstance(row.get("tokens"), int)]
    if drawn:
        found.append(
            (
                "RL rollouts",
                f"{format_count(len(drawn))} with {format_count(sum(drawn))} tokens",
            )
        )
        found.append(("Mean length", f"{format_fixed(sum(drawn) / len(drawn), 1)} tokens"))
        seconds = view.seconds.get(("rl", "rollouts"), 0.0)
        if seconds > 0:
            found.append(
                (
                    "Sampling speed",
                    f"{format_count(round(sum(drawn) / seconds))} tokens a second",
                )
            )
    peaks: dict[str, float] = {}
    for stage, timed in view.run.timings.items():
        if used := [
            row["memory/peak_gb"] for row in timed if row.get("memory/peak_gb") is not None
        ]:
            peaks[stage] = max(used)
    found += [
        (f"{stage_name(stage)}, peak memory", f"{format_fixed(peak, 2)} GB")
        for stage, peak in peaks.items()
    ]
    for stage, rows in view.metrics.items():
        shown = [row["train/tokens"] for row in rows if row.get("train/tokens") is not None]
        if shown:
            found.append(
                (
                    f"{stage_name(stage)} tokens",
                    f"{format_count(int(sum(shown)))} in {len(shown)} steps",
                )
            )
    return found


def identity_facts(view: RunView) -> Facts:
    """What the run is, in a few lines."""
    recipe = view.run.recipe
    lora = recipe.model.lora if isinstance(recipe.model, PretrainedModel) else None
    model = recipe.model.name or "made on the spot (model.tiny)"
    found = [
        ("Recipe", f"{recipe.name} ({recipe.identity()})"),
        ("Seed", str(recipe.seed)),
        (
            "Task",
            ", ".join(
                f"{name}: {one.name}" if name else one.name
                for name, one in recipe.each_task.items()
            ),
        ),
        ("Model", hide_folder(view, model)),
        ("Weights trained", f"LoRA of rank {lora.rank}" if lora else "all"),
    ]
    if isinstance(likelihood := view.run.environment.get("likelihood"), dict):
        exact = "exact: every choice that was sampled" if likelihood.get("exact") else "not exact"
        found.append(("Log-probability", f"{likelihood.get('kind')}, {exact}"))
    if recipe.sft is not None:
        length = (
            f"{recipe.sft.steps} steps" if recipe.sft.steps else f"{recipe.sft.epochs:g} epochs"
        )
        length += _budget(recipe.sft.seconds)
        rate = _learning_rate(view, "sft", recipe.sft.optimiser.learning_rate)
        found.append(("SFT", f"{length} of {recipe.sft.batch_size}, {rate}"))
    if recipe.rl is not None:
        rl = recipe.rl
        length = f"{rl.algorithm.name}, {rl.steps} steps{_budget(rl.seconds)}"
        length += f" of {rl.prompts_per_step} prompts × {rl.group_size} answers"
        found.append(
            (
                stage_name("rl"),
                f"{length}, {_learning_rate(view, 'rl', rl.optimiser.learning_rate)}, beta {rl.beta:g}",
            )
        )
    return found


def _budget(seconds: float | None) -> str:
    return "" if seconds is None else f" or {format_duration(seconds)} of processor time"


def _learning_rate(view: RunView, stage: str, rate: float) -> str:
    """A stage's learning rate, and what it was before a resume changed it."""
    changed = [
        event
        for event in view.run.events
        if event.get("kind") == "changed" and event.get("key") == RATES[stage]
    ]
    past = ", ".join(f"{event.get('old')} before step {event.get('step')}" for event in changed)
    return f"lr {rate:g}" + (f" ({clip_html(past, LONGEST)[0]})" if past else "")


def hide_folder(view: RunView, text: str) -> str:
    """A text in which this run's directory is called RUN: a report says nothing about the machine's
    folders."""
    for folder in sorted(
        {str(view.run.folder), str(view.run.folder.resolve())}, key=len, reverse=True
    ):
        if len(folder) > 2:
            text = text.replace(folder, "RUN")
    return text


def environment_facts(view: RunView) -> Facts:
    """Versions and machine, nested keys joined."""
    return [(key, hide_folder(view, value)) for key, value in _flatten(view.run.environment)][:60]


def _flatten(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for key, value in values.items():
        name = f"{prefix}{key}"
        if (
            isinstance(value, dict)
            and value
            and not any(isinstance(v, (dict, list)) for v in value.values())
        ):
            yield name, ", ".join(f"{k} {v}" for k, v in value.items())
        elif isinstance(value, dict) and value and len(prefix) < 60:
            yield from _flatten(value, f"{name}.")
        elif key == "command" and isinstance(value, list):
            yield name, shlex.join(map(str, value))
        else:
            yield name, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def event_facts(view: RunView) -> Facts:
    """When, and what; the first ones, clipped."""
    return [
        (
            clip_html(str(event.get("time", "")), 120)[0],
            clip_html(f"{event['kind']}: {hide_folder(view, event['message'])}", LONGEST * 2)[0],
        )
        for event in view.run.events[:MOST_EVENTS]
    ]
