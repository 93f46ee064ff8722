"""Evaluations and comparisons as tables for a terminal."""

from collections.abc import Iterator, Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from plumbline.evaluation.figures import REWARD, TITLES
from plumbline.evaluation.statistics import Interval
from plumbline.reports.verdict import rise_sentences, run_verdict
from plumbline.reports.view import View
from plumbline.runs.run import Run


def _interval(values: Mapping[str, Any]) -> str:
    return f"{Interval(**values):.3f}" if values["n"] else "-"


def summary_tables(summary: Mapping[str, Any], *, whole: bool = True) -> RenderableType:
    """An evaluation's summary: reward under each reading, floor and ceiling, parts, parse modes.

    Args:
        summary: what `evaluation.summary.summarise` gives.
        whole: with the strata and the parts that a table of their own would repeat.
    """
    head = _listing(f"{summary['source']} on {summary['task']} {summary['split']}, n = {summary['n']}")
    head.add_row("reward", _interval(summary["reward"]), style="bold")
    for name, values in summary["readings"].items():
        head.add_row(f"  {name} reading", _interval(values))
    for name, values in summary["strata"].items() if whole else ():
        head.add_row(f"  {name}", _interval(values))
    for key, values in summary["figures"].items():
        if key != REWARD:
            head.add_row(key.replace("_", " "), _interval(values))
    for name, value, style in (*_bounds(summary), *_coverage(summary)):
        head.add_row(name, value, style=style)
    if summary["truncated"] is not None:
        head.add_row("truncated", f"{summary['truncated']:.1%}")
    if summary["mean_tokens"] is not None:
        head.add_row("mean tokens", f"{summary['mean_tokens']:.1f}")
    if summary["failures"]:
        head.add_row("could not be judged", str(summary["failures"]), style="red")
    parts = _listing("parts")
    for name, values in summary["parts"].items():
        if whole or not summary["prefix"] or not name.startswith(summary["prefix"]):
            parts.add_row(name, _interval(values))
    modes = _listing("how the answers were read", "answers")
    for name, count in list(summary["how"].items())[:12]:
        modes.add_row(name, f"{count} ({count / summary['n']:.1%})")
    return Group(head, parts, modes)


def _listing(title: str, values: str = "mean [95 % interval]") -> Table:
    table = Table(title=title, min_width=64)
    table.add_column("")
    table.add_column(values, justify="right")
    return table


def detail_tables(summary: Mapping[str, Any]) -> RenderableType:
    """`summary_tables`, and beside it what the evaluation is broken down by, if the task has figures of its own."""
    if set(summary["titles"]) == set(TITLES):
        return summary_tables(summary)
    shown = summary_tables(summary, whole=False)
    note = [Text(f"{summary['note']}\n", style="bold yellow")] if summary["note"] else []
    tables = [_broken_down(what, summary) for what in summary["by"]]
    return Group(*note, shown, *tables, *([Text("\nall intervals: --json, --table md")] if tables else []))


def tasks_tables(summaries: Mapping[str, Mapping[str, Any]]) -> RenderableType:
    """`detail_tables` of each task, and below them all tasks' rewards beside their floors and ceilings."""
    first = next(iter(summaries.values()))
    table = Table(title=f"{first['source']} on {first['split']}", min_width=64)
    table.add_column("task")
    for heading in ("n", "reward [95 % interval]", "best control", "oracle"):
        table.add_column(heading, justify="right")
    for name, summary in summaries.items():
        bounds = (summary["floor"], summary["ceiling"])
        shown = ["-" if bound is None else f"{bound:.3f}" for bound in bounds]
        table.add_row(name, str(summary["n"]), _interval(summary["reward"]), *shown)
    return Group(*map(detail_tables, summaries.values()), table)


def _broken_down(what: str, summary: Mapping[str, Any]) -> RenderableType:
    """One figure with its interval, the others as plain means, which is what 80 columns hold."""
    values = summary["by"][what]
    keys = list(next(iter(values.values())))
    interval = REWARD if REWARD in keys else keys[0]
    table = Table(title=f"by {what}", title_justify="left", box=None, padding=(0, 1, 0, 0))
    table.add_column(what, no_wrap=True)
    table.add_column("n", justify="right")
    for key in keys:
        words = key.removesuffix("_rate").split("_")
        widest = max(map(len, words))
        table.add_column(" ".join(words), justify="right", min_width=widest, no_wrap=key == interval)
    for name, found in values.items():
        cells = [_short(found[key], whole=key == interval) for key in keys]
        table.add_row(name, str(found[interval]["n"]), *cells)
    return table


def _short(values: Mapping[str, Any], *, whole: bool) -> str:
    if not values["n"]:
        return "-"
    return f"{Interval(**values) if whole else values['mean']:.2f}"


def _bounds(summary: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Name, value and style of the lines that say where floor and ceiling are."""
    if "floor" in summary:
        for name, value in sorted(summary["controls"].items(), key=lambda item: -item[1]):
            limit = summary.get("limits", {}).get(name)
            said = "" if limit is None else f" ({'limit' if limit['holds'] else 'OVER ITS LIMIT'} {limit['limit']:.2f})"
            yield f"  control: {name}", f"{value:.3f}{said}", "" if limit is None or limit["holds"] else "red"
        ceiling = summary["ceiling"]
        yield "ceiling (oracle)", "no gold answers: no ceiling" if ceiling is None else f"{ceiling:.3f}", ""
        yield "skill (0 = best control, 1 = oracle)", "-" if summary["skill"] is None else f"{summary['skill']:.3f}", ""


def _coverage(summary: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Name, value and style of the lines that say how much of the splits a file of answers covers."""
    covered = summary.get("coverage")
    if covered is None:
        return
    for split, count in covered["splits"].items():
        yield f"answered of {split}", f"{count['answered']} of {count['of']}", ""
    if covered["missing"]:
        yield f"mean with the {covered['missing']} missing as 0", f"{covered['mean_missing_as_0']:.3f}", "bold"
    if covered["train_rows"]:
        yield "answers to training rows", str(covered["train_rows"]), "red"


def run_summary(run: Run) -> RenderableType:
    """The end of a run: its verdict, where the report and the model are, and what to do next."""
    view = View(run)
    said = run_verdict(view)
    lines = [Text(said.sentence, style="bold")]
    if said.reason:
        lines.append(Text(said.reason))
    for one in view.tasks or [view]:
        if one.has_breakdown:
            lines += [Text(f"{one.task}: {sentence}" if one.task else sentence) for sentence in rise_sentences(one)]
    result = run.result() or {}
    lines.append(Text(f"\nreport  {run.folder / 'report.html'}\nmodel   {result.get('model', '-')}\n"))
    if run.recipe.model.name is None:
        lines.append(
            Text(
                "A tiny model can gain in format and style, not in knowledge. With a real one:\n"
                "  plumbline run RECIPE --set model.name=DIRECTORY_OR_HUB_NAME"
            )
        )
    lines.append(
        Text(
            "Look further:\n"
            f"  plumbline eval {result.get('model', 'MODEL')} --split test\n"
            f"  plumbline runs {run.folder.parent}"
        )
    )
    return Group(*lines)
