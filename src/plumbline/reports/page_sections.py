"""What a run's page shows: the sentences, facts and figures that its templates call by their
names."""

import json
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from plumbline.checks.diagnosis.outcome import measure_outcome
from plumbline.checks.findings_output import list_remedies, summarise_counts
from plumbline.config.overrides import as_mapping
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
    EARNED,
    LENIENT,
    STRICT,
    count_rescued,
    has_both,
    reading_names,
    reward_reading,
)
from plumbline.records import FloatArray, Judged
from plumbline.reports import charts
from plumbline.reports.build_tables import known_interval
from plumbline.reports.charts import Layer, Mark
from plumbline.reports.format_numbers import (
    format_count,
    format_duration,
    format_fixed,
    format_metric,
    format_signed,
)
from plumbline.reports.table_formats import Column, Table
from plumbline.reports.templating import ChartFigure, clip_html, typeset_minus
from plumbline.reports.view import RunView, stage_name
from plumbline.runs.evaluations import EvaluationKey, Replay
from plumbline.runs.lineage import RATES
from plumbline.runs.record import STAGES
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
    stage, rows = list(view.metrics.items())[-1]
    planned = view.run.planned.get(stage)
    of = f" of {format_count(planned)}" if planned else ""
    step = format_count(max(row["step"] for row in rows))
    return f"This run is not finished: its last recorded step is {stage_name(stage)} {step}{of}."


def headline_text(view: RunView) -> str:
    """Model, task and way in one line, with the steps that each stage made."""
    recipe, engine = view.run.recipe, as_mapping(view.run.environment.get("engine"))
    model = hide_folder(view, recipe.model.name or "a tiny model of the run's own")
    kind = ", ".join(_value(engine[key]) for key in ("model_type", "trains") if engine.get(key))
    tasks = {one.task: "" for one in view.evaluations.values()} or [
        one.name for one in recipe.each_task.values()
    ]
    ways = [
        ", ".join([stage_name(one), *_steps_made(view, one)])
        for one in STAGES
        if one in view.metrics or getattr(recipe, one, None)
    ]
    return " · ".join([f"{model} ({kind})".removesuffix(" ()"), ", ".join(tasks), *ways])


def _steps_made(view: RunView, stage: str) -> list[str]:
    """How many steps a stage made, and of how many epochs, as far as recorded."""
    last = max(view.metrics.get(stage, []), key=lambda row: row["step"], default={})
    step, epochs = last.get("step"), last.get("train/epoch")
    made = [f"{format_count(step)} step{'' if step == 1 else 's'}"] if step else []
    return made + ([] if epochs is None else [f"{format_fixed(epochs, 2)} epochs"])


def warning_lines(view: RunView) -> list[str]:
    """The first warnings that no check repeats (`alarms`), clipped, and how many more there
    are."""
    again = {each.check for one in view.examinations for each in one.findings}
    known = [event for event in view.warnings if event.get("check") not in again]
    lines = [f"{event['kind']}: {event['message'][:LONGEST]}" for event in known[:MOST_WARNINGS]]
    left = len(known) - MOST_WARNINGS
    return lines + [f"and {left} more, below under Events"] * (left > 0)


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
        f"{count} because of {clip_html(cause, 200)}" for cause, count in causes.most_common(3)
    )
    return f"Not judged, over all evaluations: {causes.total()} answers. {said}." if causes else ""


def count_examples(view: RunView, key: EvaluationKey) -> str:
    """How many examples an evaluation is of, and in how many clusters where they are fewer."""
    n, clusters = (view.summary(key)[name] for name in ("n", "clusters"))
    return format_count(n) + (f" in {clusters} clusters" if clusters < n else "")


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
    what = f"{named} reading, the reward" if named else "reward"
    rows = []
    for key, evaluation in zip(keys, evaluations, strict=True):
        label, reward = stage_name(key.stage), view.reward(evaluation)
        label += f", {key.mode}" if len(view.modes(split)) > 1 else ""
        marks = [Mark(reward, what, "c1")]
        readings = view.summary(key)["readings"]
        if second is not None and second in readings:
            marks.append(Mark(Interval(**readings[second]), f"{second} reading", "c2", "hollow"))
        rows.append((label, marks, format_fixed(reward.mean)))
    bounds = view.bounds(evaluations[-1])
    lines = [(f"best baseline ({bounds.floor[0][:24]})", bounds.floor[1])] if bounds.floor else []
    lines += [(ORACLE, bounds.oracle)] if bounds.oracle else []
    counts = sorted({count_examples(view, key) for key in keys})
    return ChartFigure(
        title=f"Reward on {split}",
        chart=charts.dot_chart(rows, label=f"Mean reward on {split} by stage", references=lines),
        about=f"n = {', '.join(counts)}.",
        keys=(("c1", "circle", what), ("c2", "hollow", f"{second} reading"))[: 2 if second else 1],
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
KL = ("train/kl", "train/kl_teacher")
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
    shown = (view.headline or ("",))[0]
    other = f" ({split})" if (split := next(iter(inside), (shown,))[0]) != shown else ""
    for name, one in view.levels.items():
        of = other if name == "floor" else ""
        layers.append(charts.Level(one.mean, f"{name}{of} {format_fixed(one.mean)}"))
    layers += charts.smoothed_lines(steps, values, "c1", "train", band=True) if len(steps) else ()
    read = {name: _series(rows, f"train/reading/{name}")[1] for name in (STRICT, LENIENT)}
    if all(np.isfinite(one).any() for one in read.values()):
        layers += charts.smoothed_lines(steps, read[STRICT], "c4", "train, strict")
    rl = view.run.recipe.rl
    drawn = f" of {rl.prompts_per_step * rl.group_size} rollouts" if rl and not view.whole else ""
    window = charts.smoothing_window(len(values))
    line = f"; line: means of {window}" if np.isfinite(values).sum() >= charts.SHORT else ""
    notes = [f"train: single steps{drawn}{line}"] if np.isfinite(values).any() else []
    for (split, mode), points in inside.items():
        style, shape = EVALUATED.get(mode, ("c4", "hollow"))
        intervals = [view.reward(evaluation) for _, evaluation in points]
        name = f"{split} {mode}" if len({other for other, _ in inside}) > 1 else mode
        layers.append(charts.Points([step for step, _ in points], intervals, style, name, shape))
        sizes = sorted({interval.n for interval in intervals})
        notes.append(f"{mode}: {', '.join(map(str, sizes))} examples of {split}")
    label = f"Reward in training and on held-out examples; in training {_describe_ends(values)}"
    chart, narrow = charts.wide_chart(layers, label)
    return ChartFigure(title="Reward", about=f"{'; '.join(notes)}.", chart=chart, narrow=narrow)


def _parts_in_training(rows: Rows) -> Group:
    prefix = "train/reward/"
    keys = list(dict.fromkeys(key for row in rows for key in row if key.startswith(prefix)))
    metrics: Metrics = {
        key: (key.removeprefix(prefix), "", charts.UNIT) for key in keys[:MOST_PARTS]
    }
    drawn = _small_figures(rows, metrics, band=True)
    left = len(keys) - MOST_PARTS
    more = f"{left} more parts are in metrics.jsonl." if left > 0 else ""
    return "Parts of the reward in training", _ends_note(rows), drawn, more


def _health(view: RunView, rows: Rows) -> Group:
    failed = any(row.get("train/frac_failed") for row in rows)  # the usual case is 0, and no news
    shown = {key: one for key, one in HEALTH.items() if failed or key != "train/frac_failed"}
    drawn = _small_figures(rows, shown)
    rl = view.run.recipe.rl
    has_kl = any(row.get(key) is not None for row in rows for key in KL)
    note = "" if has_kl else f"rl.beta is {rl.beta if rl else 0:g}, and no KL was computed."
    return "Health of RL", _ends_note(rows), drawn, note


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
    few, n = _end_length(len(rows)), format_count(len(rows))
    ends = f"means of the first {few} and the last {few}" if few > 1 else "the first and the last"
    return f"Beside each name: {ends} of n = {n} steps."


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
    return " → ".join(format_count(one.earning) for one in counts), under


# -- parts, strata and kinds -----------------------------------------------------------------------


def changes_figure(
    compared: Comparison,
    changed: Sequence[QuantityChange],
    title: str,
    x_title: str = "mean",
    *,
    prefix: str = "",
) -> ChartFigure:
    """Before and after as dots; `prefix` is taken from the names."""
    before, after = stage_name(compared.before), stage_name(compared.after)
    rows = []
    for change in changed:
        name = change.name.removeprefix(prefix) or "(none)"
        units = change.paired.scatter.units
        first, last = (known_interval(one, units) for one in (change.before, change.after))
        marks = (Mark(first, before, "c2", "hollow"), Mark(last, after, "c1"))
        rows.append((name, marks, typeset_minus(format_signed(change.paired.difference.mean))))
    return ChartFigure(
        title=title,
        chart=charts.dot_chart(rows, label=title, x_title=x_title),
        about="At the right: the difference.",
        keys=(("c2", "hollow", before), ("c1", "circle", after)),
    )


# -- samples and replays ---------------------------------------------------------------------------

MOST_VALUES, MOST_MISTAKES = 14, 30
MARKS = {1.0: "✓ ", 0.0: "✗ "}


def side_by_side_answers(
    view: RunView, compared: Comparison
) -> list[tuple[PickedExample, str, str | None, Table | None]]:
    """The examples that are shown, each with its prompt and its gold answer, as far as known, and
    its values."""
    several = accepts_several(view, compared)
    before, after = stage_name(compared.before), stage_name(compared.after)
    shown = []
    for picked in select_examples(compared):
        prompt, gold = view.texts.get(picked.after.id, ("", None))
        read = values_read(gold, {before: picked.before, after: picked.after}, several=several)
        shown.append((picked, prompt, gold, read))
    return shown


def accepts_several(view: RunView, compared: Comparison) -> bool:
    """Whether an answer that is not the gold one earned everything: then that is one of many."""
    return any(
        row.reward >= EARNED and _content(row.completion) != _content(gold)
        for pair in compared.pairs
        for row in pair
        if (gold := view.texts.get(row.id, ("", None))[1]) is not None
    )


def name_gold(view: RunView) -> str:
    """What the gold answer is called."""
    compared = view.headline_comparison()
    several = compared is not None and accepts_several(view, compared)
    return "Gold answer" + ", one of many" * several


def values_read(
    gold: str | None, answers: Mapping[str, Judged], *, several: bool = False
) -> Table | None:
    """Where the gold answer is a JSON object: each of its values beside the answered ones, which
    are right or wrong by their part, the reward, or where there are not `several` the gold one."""
    wanted = _object(gold)
    said = {name: _object(row.completion) for name, row in answers.items()}
    rows = []
    for key, value in list(wanted.items())[:MOST_VALUES]:
        cells = [clip_html(key, 120), _value(value)]
        for name, row in answers.items():
            there = key in said[name]
            earned = row.parts.get(key)
            if earned is None and (row.reward >= EARNED or (there and said[name][key] == value)):
                earned = 1.0
            elif earned is None and not several:
                earned = 0.0
            # Read leniently, a text that is no JSON may have said it all the same; it stands below.
            absent = "(not said)" if said[name] else "(no plain object)"
            mark = "" if earned is None else MARKS.get(earned, f"{earned:.2f} ")
            cells.append(mark + (_value(said[name][key]) if there else absent))
        rows.append(cells)
    columns = (
        Column("key", "What is asked"),
        Column("gold", "Gold, one of many" if several else "Gold"),
        *(Column(name, name) for name in answers),
    )
    return Table.of("read", "What was read, ✓ right, ✗ wrong", columns, rows) if rows else None


def _content(text: str) -> object:
    return _object(text) or text.strip()


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
    )


def replays(view: RunView) -> dict[str, Sequence[Replay]]:
    """Replayed episodes by what is said of them."""
    return {
        f"{stage_name(key.stage)} on {key.split}, {key.mode} answers. {REPLAYED}": episodes
        for key, episodes in view.replays.items()
    }


def mistakes_table(replay: Replay) -> Table:
    """What a replayed episode got wrong."""
    wrong = [
        tuple(clip_html(cell, 300) for cell in (one.what, one.expected, one.received))
        for one in replay.mistakes[:MOST_MISTAKES]
    ]
    return Table.of("mistakes", "What is wrong", ("what", "expected", "received"), wrong)


# -- what the checks and the recipe say ------------------------------------------------------------


def count_facts(view: RunView) -> Facts:
    """Of each stage what came of it, how many findings there are and how many checks are clear."""
    return [
        (
            stage_name(one.context.name),
            (f"{came.summary}; " if (came := measure_outcome(one.context)) else "")
            + summarise_counts(one.findings, one.clear, one.not_run),
        )
        for one in view.examinations
    ]


def check_facts(view: RunView) -> Facts:
    """Each finding with causes and remedy, then the counts of each stage."""
    return [
        (
            f"{stage_name(one.context.name)}, {each.level}",
            " · ".join([f"{each.what} ({each.check})", *list_remedies(each, ours=True)]),
        )
        for one in view.examinations
        for each in one.findings
    ] + count_facts(view)


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
    changes = [
        (f"Next: {key}", f"{dumps(one.to)}, because {one.because}")
        for key, one in decision.changes.items()
    ]
    return [
        *asked,
        ("Scenario", f"{decision.scenario}. {decision.says}"),
        *([("What would decide it", "; ".join(decision.needs))] if decision.needs else []),
        *changes,
    ]


# -- what the run cost and what it was -------------------------------------------------------------

MOST_EVENTS = 40
COMMANDS = (
    "# RUN is the run's directory\n"
    "plumbline run RUN/recipe.yaml --out runs/again     # from the start; add --trust-code for code of yours\n"
    "plumbline compare RUN runs/again                   # pair by pair, example by example\n"
    "plumbline report RUN                               # this report and its tables, from the "
    "records"
)


def token_facts(view: RunView) -> Facts:
    """Counts of what was generated and trained on, and the speed where both are known."""
    found = [("Training, recorded", format_duration(sum(view.seconds.values())))]
    drawn = [int(row["tokens"]) for row in view.samples if isinstance(row.get("tokens"), int)]
    if drawn:
        told = f"{format_count(len(drawn))} with {format_count(sum(drawn))} tokens"
        found.append(("RL rollouts", f"{told}, {format_fixed(sum(drawn) / len(drawn), 1)} each"))
        if seconds := view.seconds.get(("rl", "rollouts")):
            speed = format_count(round(sum(drawn) / seconds))
            found.append(("Sampling speed", f"{speed} tokens a second"))
    for stage, timed in view.run.timings.items():
        used = [row["memory/peak_gb"] for row in timed if row.get("memory/peak_gb") is not None]
        if used:
            found.append((f"{stage_name(stage)}, peak memory", f"{format_fixed(max(used), 2)} GB"))
    for stage, rows in view.metrics.items():
        shown = [row["train/tokens"] for row in rows if row.get("train/tokens") is not None]
        if shown:
            told = f"{format_count(int(sum(shown)))} in {len(shown)} steps"
            found.append((f"{stage_name(stage)} tokens", told))
    return found


def identity_facts(view: RunView) -> Facts:
    """What the run is beside what its first line says, in a few lines."""
    recipe = view.run.recipe
    found = [("Recipe", f"{recipe.name} ({recipe.identity()})"), ("Seed", str(recipe.seed))]
    if isinstance(likelihood := view.run.environment.get("likelihood"), dict):
        exact = "exact: every choice that was sampled" if likelihood.get("exact") else "not exact"
        found.append(("Log-probability", f"{likelihood.get('kind')}, {exact}"))
    for stage, section in (("sft", recipe.sft), ("rl", recipe.rl)):
        if section is not None:
            rate = section.optimiser.learning_rate
            found.append((stage_name(stage), f"lr {rate:g}{_earlier_rates(view, stage)}"))
    return found


def _earlier_rates(view: RunView, stage: str) -> str:
    """What a stage's learning rate was before a resume changed it."""
    past = ", ".join(
        f"{event.get('old')} before step {event.get('step')}"
        for event in view.run.events
        if (event["kind"], event.get("key")) == ("changed", RATES[stage])
    )
    return clip_html(f" ({past})", LONGEST) if past else ""


def hide_folder(view: RunView, text: str) -> str:
    """A text in which this run's directory is called RUN: a report says nothing about the machine's
    folders."""
    for folder in map(str, (view.run.folder.resolve(), view.run.folder)):
        if len(folder) > 2:
            text = text.replace(folder, "RUN")
    return text


def environment_facts(view: RunView) -> Facts:
    """Versions and machine; how engines set themselves up is in environment.json alone."""
    shown = {k: v for k, v in view.run.environment.items() if k not in {"engine", "likelihood"}}
    return [(key, hide_folder(view, _join_values(value))) for key, value in shown.items()][:60]


def _join_values(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {_value(one)}" for key, one in value.items() if one != "")
    return shlex.join(map(str, value)) if isinstance(value, list) else _value(value)


def event_facts(view: RunView) -> Facts:
    """When, and what; the first ones, clipped."""
    return [
        (
            clip_html(str(event.get("time", "")), 120),
            clip_html(f"{event['kind']}: {hide_folder(view, event['message'])}", LONGEST * 2),
        )
        for event in view.run.events[:MOST_EVENTS]
    ]
