"""Curves over steps: the reward in training and on held-out examples, its parts, and the health of the run."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from plumbline.reports import numbers
from plumbline.reports.charts import (
    NARROW,
    SHORT,
    SMALL,
    UNIT,
    WIDE,
    Layer,
    Level,
    Line,
    Points,
    line_chart,
    smoothed,
)
from plumbline.reports.escaping import html
from plumbline.reports.page import Section, figure, paragraph
from plumbline.reports.scales import Values, numbers_of, smoothing_window
from plumbline.reports.view import View, name_of

Rows = Sequence[dict[str, Any]]
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


HEALTH = (
    Metric("train/frac_reward_zero_std", "No signal", "share of groups whose rewards are all equal", UNIT),
    Metric("train/completion_length", "Completion length", "tokens, mean of the step's rollouts"),
    Metric("train/frac_truncated", "Truncated", "share cut off by the limit", UNIT),
    Metric("train/frac_failed", "Not judged", "share that the verifier broke on", UNIT),
    Metric("train/entropy", "Entropy", "nats a token, from the sampled tokens"),
    Metric("train/loss", "Loss", "its size says little; jumps do"),
    Metric("train/grad_norm", "Gradient norm", "before clipping"),
    Metric("train/clip_fraction", "Clip fraction", "share of terms that the ratio clip held back"),
    Metric("train/sampler_scorer_gap", "Sampler gap", "to the scorer, nats; 0 up to rounding"),
    Metric("train/kl", "KL to the start", "nats a token"),
    Metric("train/learning_rate", "Learning rate", "as applied"),
)
SUPERVISED = (
    Metric("train/loss", "Loss", "nats a target token"),
    Metric("train/grad_norm", "Gradient norm", "before clipping"),
    Metric("train/learning_rate", "Learning rate", "as applied"),
)


def curves(view: View) -> Section:
    """RL first, then the supervised stages."""
    body = _rl(view)
    for stage in (stage for stage in view.metrics if stage != "rl"):
        body += _supervised(stage, _trained(view.metrics[stage]))
    return Section("curves", "Curves", body or paragraph("No training step has been recorded yet."))


# -- RL ----------------------------------------------------------------------------------------------------------


def _rl(view: View) -> str:
    rows = _trained(view.metrics.get("rl", []))
    if not rows and not view.inside():
        return paragraph("No RL step has been recorded.") if view.run.recipe.rl and view.metrics else ""
    return _reward(view, rows) + ("" if view.tasks else _parts(rows)) + _health(view, rows)


def _reward(view: View, rows: Rows) -> str:
    steps, values = _series(rows, "train/reward")
    layers: list[Layer] = list(_levels(view))
    layers += smoothed(steps, values, "c1", "train", band=True) if len(steps) else ()
    notes = [_train_note(view, values)]
    for (split, mode), points in view.inside().items():
        style, shape = EVALUATED.get(mode, ("c4", "hollow"))
        intervals = [view.reward(evaluation) for _, evaluation in points]
        several = len({s for s, _ in view.inside()}) > 1
        name = f"{split} {mode}" if several else mode
        layers.append(Points([step for step, _ in points], intervals, style, name, shape))
        sizes = sorted({interval.n for interval in intervals})
        notes.append(f"{mode} answers to {', '.join(map(str, sizes))} examples of {split} with 95 % intervals")
    label = f"Reward in training and on held-out examples; in training {_ending(values) or 'not recorded'}"
    about = "; ".join(note for note in notes if note)
    chart, narrow = (line_chart(layers, label=label, size=size, y_range=UNIT) for size in (WIDE, NARROW))
    return figure("Reward", f"{html(about[:1].upper() + about[1:])}.", chart, narrow)


def _levels(view: View) -> list[Level]:
    """Floor and ceiling on the examples that are evaluated during training."""
    for points in view.inside().values():
        bounds = view.bounds(points[-1][1])
        levels = []
        if bounds.oracle is not None:
            levels.append(Level(bounds.oracle.mean, f"oracle {numbers.fixed(bounds.oracle.mean)}"))
        if bounds.floor is not None:
            levels.append(Level(bounds.floor[1].mean, f"best control {numbers.fixed(bounds.floor[1].mean)}"))
        return levels
    return []


def _train_note(view: View, values: Values) -> str:
    if not np.isfinite(values).any():
        return ""
    rl = view.run.recipe.rl
    of = f" ({rl.prompts_per_step * rl.group_size} rollouts each)" if rl and view.whole is None else ""
    of += " (the mean of the tasks' means)" if view.tasks else ""
    if np.isfinite(values).sum() < SHORT:
        return f"train: means of single steps{of}"
    window = smoothing_window(len(values))
    return f"dots: means of single training steps{of}; line: mean of {window} steps with its 95 % band"


def _parts(rows: Rows) -> str:
    prefix = "train/reward/"
    keys = list(dict.fromkeys(key for row in rows for key in row if key.startswith(prefix)))
    figures = [_small(rows, Metric(key, key.removeprefix(prefix), "", UNIT), band=True) for key in keys[:MOST_PARTS]]
    drawn = [figure_ for figure_ in figures if figure_]
    if not drawn:
        return ""
    left = len(keys) - MOST_PARTS
    more = paragraph(f"{left} more parts are in metrics.jsonl.", "note") if left > 0 else ""
    bands = " Bands are 95 % intervals of the moving means." if len(rows) >= SHORT else ""
    about = paragraph(_ends_note(rows) + bands, "note")
    return f'<h3>Parts of the reward in training</h3>{about}<div class="grid3">{"".join(drawn)}</div>{more}'


def _health(view: View, rows: Rows) -> str:
    figures, missing = [], []
    for metric in HEALTH:
        drawn = _small(rows, metric)
        if metric.key == "train/frac_failed" and not any(row.get(metric.key) for row in rows):
            continue  # the usual case, and no news
        if drawn:
            figures.append(drawn)
        elif metric.key != "train/kl":
            missing.append(metric.title)
    notes = []
    if not any(row.get("train/kl") is not None for row in rows):
        notes.append(_no_kl(view))
    if missing and rows:
        notes.append(f"Not computed: {', '.join(missing)}.")
    rl = view.run.recipe.rl
    if rl is not None and rl.inner_epochs == 1:
        notes.append("One update is made on each batch, so a ratio differs from 1 by the gap alone.")
    if not figures:
        return ""
    intro, outro = paragraph(_ends_note(rows), "note"), paragraph(" ".join(notes), "note")
    return f'<h3>Health of RL</h3>{intro}<div class="grid3">{"".join(figures)}</div>{outro}'


def _no_kl(view: View) -> str:
    rl = view.run.recipe.rl
    if rl is not None and rl.beta > 0:
        return f"No KL is recorded, although rl.beta is {rl.beta:g}."
    return "rl.beta is 0, so no KL to the start was computed and none is shown."


# -- supervised stages -------------------------------------------------------------------------------------------


def _supervised(stage: str, rows: Rows) -> str:
    drawn = "".join(_small(rows, metric) for metric in SUPERVISED)
    return (
        f'<h3>{html(name_of(stage))}</h3>{paragraph(_ends_note(rows), "note")}<div class="grid3">{drawn}</div>'
        if drawn
        else ""
    )


def _trained(rows: Rows) -> Rows:
    """The rows of training steps; the one before the first step holds an evaluation only."""
    return [row for row in rows if any(key.startswith("train/") for key in row)]


# -- one small curve ---------------------------------------------------------------------------------------------


def _series(rows: Rows, key: str) -> tuple[Values, Values]:
    return numbers_of(row["step"] for row in rows), numbers_of(row.get(key) for row in rows)


def _small(rows: Rows, metric: Metric, *, band: bool = False) -> str:
    """A small figure; empty where the metric was never computed."""
    steps, values = _series(rows, metric.key)
    if not np.isfinite(values).any():
        return ""
    title = metric.title
    layers: tuple[Layer, ...]
    if metric.key == "train/learning_rate":
        layers = (Line(steps, values, most=SMALL_POINTS),)
    else:
        layers = smoothed(steps, values, band=band, most=SMALL_POINTS)
    ending = _ending(values)
    chart = line_chart(layers, label=f"{title}: {ending}", size=SMALL, y_range=metric.y_range)
    return figure(title, html(metric.about), chart, ending=ending)


def _few(n: int) -> int:
    """How many values at either end stand for the beginning and the end."""
    return max(3, n // 15) if n >= SHORT else 1


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
