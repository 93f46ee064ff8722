"""What the run cost and what it was: time and tokens, recipe, environment, events, and how to make it again."""

import json
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from plumbline.policies.options import PretrainedModel
from plumbline.reports import numbers
from plumbline.reports.dot_charts import Share, share_chart
from plumbline.reports.escaping import clip, html
from plumbline.reports.page import Section, facts, figure, folded, paragraph
from plumbline.reports.view import View, name_of
from plumbline.runs.lineage import RATES

MOST_EVENTS, LONGEST, RECIPE = 40, 400, 16_000


def cost(view: View) -> Section:
    """Where the seconds went, and how many tokens they bought."""
    if not view.seconds:
        return Section("cost", "Time and tokens", paragraph("No timings have been recorded yet."))
    total = sum(view.seconds.values())
    shares = [
        Share(
            f"{name_of(stage)}, {work}",
            seconds,
            f"{numbers.duration(seconds)} · {seconds / total * 100:.0f} %" if total else numbers.duration(seconds),
        )
        for (stage, work), seconds in view.seconds.items()
    ]
    label = "Seconds by kind of work: " + "; ".join(f"{share.label} {share.note}" for share in shares)
    about = "recorded seconds of training steps; loading models and the evaluations after each stage are not in them."
    body = f'<div class="grid2">{figure("Time", html(about), share_chart(shares, label=label))}<div>'
    body += f"{facts(tokens(view))}</div></div>"
    return Section("cost", "Time and tokens", body)


def tokens(view: View) -> list[tuple[str, str]]:
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
    for stage, gigabytes in peaks.items():
        found.append((f"{name_of(stage)}, peak memory", f"{numbers.fixed(gigabytes, 2)} GB"))
    for stage, rows in view.metrics.items():
        shown = [row["train/tokens"] for row in rows if row.get("train/tokens") is not None]
        if shown:
            found.append((f"{name_of(stage)} tokens", f"{numbers.count(int(sum(shown)))} in {len(shown)} steps"))
    return found


def record(view: View) -> Section:
    """Everything that is needed to make the run again, or to doubt it."""
    body = (
        f"<h3>Recipe</h3>{facts(identity(view))}{_recipe(view)}<h3>Environment</h3>{_environment(view)}"
        f"<h3>Events</h3>{_events(view)}<h3>Make it again</h3>{_again(view)}"
    )
    return Section("record", "Recipe, environment, events", body)


def identity(view: View) -> list[tuple[str, str]]:
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
    events = [event for event in view.events if event.get("kind") == "changed" and event.get("key") == RATES[stage]]
    past = ", ".join(f"{event.get('old')} before step {event.get('step')}" for event in events)
    return f"lr {rate:g}" + (f" ({clip(past, LONGEST)[0]})" if past else "")


def without_folder(view: View, text: str) -> str:
    """A text in which this run's directory is called RUN: a report says nothing about the machine's folders."""
    folders = sorted({str(view.run.folder), str(view.run.folder.resolve())}, key=len, reverse=True)
    for folder in folders:
        if len(folder) > 2:
            text = text.replace(folder, "RUN")
    return text


def _recipe(view: View) -> str:
    shown, left = clip(view.run.recipe.to_yaml(), RECIPE)
    more = f"\n… {left:,} more characters in recipe.yaml" if left else ""
    return folded("The whole recipe", shown + more)


def _environment(view: View) -> str:
    if not view.environment:
        return paragraph("No environment has been recorded.")
    return facts([(key, clip(value, 1200)[0]) for key, value in environment(view)])


def environment(view: View) -> list[tuple[str, str]]:
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


def _events(view: View) -> str:
    if not view.events:
        return paragraph("None.")
    items = "".join(f"<dt>{html(when)}</dt><dd>{html(what)}</dd>" for when, what in events(view))
    left = len(view.events) - MOST_EVENTS
    more = paragraph(f"{left} more are in events.jsonl.", "note") if left > 0 else ""
    return f'<dl class="facts">{items}</dl>{more}'


def events(view: View) -> list[tuple[str, str]]:
    """When, and what; the first ones, clipped."""
    return [
        (
            clip(str(event.get("time", "")), 120)[0],
            clip(f"{event.get('kind', '')}: {without_folder(view, str(event.get('message', '')))}", LONGEST * 2)[0],
        )
        for event in view.events[:MOST_EVENTS]
    ]


COMMANDS = (
    "# RUN is the run's directory\n"
    "plumbline run RUN/recipe.yaml --out runs/again     # the same recipe, from the start\n"
    "plumbline compare RUN runs/again                   # pair by pair, example by example\n"
    "plumbline report RUN                               # this report and its tables, from the records"
)
NEXT = (
    "To read next: in RUN, tables/ holds every table as CSV and LaTeX, evaluations/ every answer with its parts, "
    "samples.jsonl every rollout of training. In Plumbline's documentation, docs/reports.md says how each figure is "
    "made and docs/metrics.md what each metric means."
)


def _again(view: View) -> str:
    resume = "" if view.finished else "\nplumbline run RUN/recipe.yaml --out RUN --resume       # go on with this run"
    return f"<pre>{html(COMMANDS + resume)}</pre>{paragraph(NEXT)}"
