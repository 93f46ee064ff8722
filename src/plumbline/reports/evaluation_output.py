"""One evaluation to read and to publish: its tables, a page of its own, and where a command writes
them.

The figures beside the baselines and the oracle, by stratum, and by kind. What they are made from is
`evaluation.summary.summarise_with_references`, so that the tables and the JSON cannot differ.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from plumbline.errors import RecipeError
from plumbline.evaluation.command import EvaluationResult
from plumbline.evaluation.evaluate import ORACLE
from plumbline.evaluation.inspect_log import check_log, write_log
from plumbline.evaluation.replays import RULE
from plumbline.evaluation.statistics import Interval
from plumbline.evaluation.summary import ACCURACY, REWARD, RIGHT, summarise_with_references
from plumbline.reports import page_sections
from plumbline.reports.table_formats import Cell, Column, Row, Table, read_interval
from plumbline.reports.templating import PageSection, is_page, render_page, render_section
from plumbline.reports.view import oracle_interval
from plumbline.runs import output_guard
from plumbline.runs.evaluations import Replay, is_evaluation, write_evaluation
from plumbline.storage import dumps, write_text

FORMATS: Mapping[str, tuple[str, Callable[[Table], str]]] = {
    "md": ("md", Table.to_markdown),
    "csv": ("csv", Table.to_csv),
    "latex": ("tex", Table.to_latex),
}
"""What tables can be written as: the ending of a file, and the writer."""
WIDE = 0.75
"""Of an interval of a share, which then says nothing."""
Summary = Mapping[str, Any]
"""What `summarise_with_references` makes of an evaluation, or a part of it."""
TABLES = "tables"
"""What the mark in a folder of tables says (see `plumbline.runs.output_guard`)."""


def evaluation_tables(summary: Summary) -> list[Table]:
    """The tables of an evaluation: always its figures, and a breakdown for each thing that it is
    broken down by.

    Args:
        summary: what `evaluation.summary.summarise_with_references` gives.
    """
    return [_figures(summary), *(_breakdown_table(summary, what) for what in summary["by"])]


def check_format(form: str) -> None:
    """Refuse a format that there is not.

    Raises:
        RecipeError: it is none of `FORMATS`.
    """
    if form not in FORMATS:
        raise RecipeError(f"there is no table format {form!r}", f"there are {', '.join(FORMATS)}")


def render_tables(tables: Sequence[Table], form: str) -> str:
    """The tables as one text.

    Raises:
        RecipeError: there is no such format.
    """
    check_format(form)
    _, write = FORMATS[form]
    return "\n".join(map(write, tables))


def write_tables(folder: Path, tables: Sequence[Table]) -> None:
    """Write every table as `<name>.md`, `.csv` and `.tex`."""
    for table in tables:
        for ending, write in FORMATS.values():
            write_text(folder / f"{table.name}.{ending}", write(table))


def _describe_evaluation(summary: Summary) -> str:
    note = f". {summary['note']}" if summary["note"] else ""
    return f"{summary['task']}, {summary['split']}, rubric {summary['rubric']} [each 95 %]{note}"


def _figures(summary: Summary) -> Table:
    """The evaluation, then the oracle and the baselines from the best to the worst, on the same
    examples; each once."""
    titles, limits, source = summary["titles"], summary["limits"], summary["source"]
    columns: list[str | Column] = ["source", "n"]
    columns += [Column(key, title, "interval") for key, title in titles.items()]
    columns += [Column("limit", "Limit", "number", 2), "holds"] if limits else []
    references = {
        name: figures for name, figures in summary["references"].items() if name != source
    }
    order = sorted(
        references,
        key=lambda name: (name != ORACLE, -references[name]["mean_reward"]["mean"], name),
    )
    rows = []
    for name in (source, *order):
        figures: Summary = references.get(name) or summary["figures"]
        shown = {ORACLE: "Oracle", source: source}.get(name, f"Baseline: {name}")
        cells: list[Cell] = [
            shown,
            figures["mean_reward"]["n"],
            *(read_interval(figures[key]) for key in titles),
        ]
        if name == ORACLE:
            cells = [oracle_interval(one) if isinstance(one, Interval) else one for one in cells]
        if limits:
            limit = limits.get(name)
            cells += [limit["limit"], "yes" if limit["holds"] else "no"] if limit else [None, None]
        own = name == source
        rows.append(Row((*cells, summary["failures"] if own else None), "" if own else "reference"))
    columns.append("failures")
    return Table.of("figures", f"Figures, {_describe_evaluation(summary)}", columns, rows)


def _breakdown_table(summary: Summary, what: str) -> Table:
    values: Mapping[str, Summary] = summary["by"][what]
    keys = list(next(iter(values.values())))
    titles = {ACCURACY: "Accuracy", RIGHT: "All right", **summary["titles"]}
    floors: Mapping[str, float] = (
        summary["floors"] if values.keys() <= summary["floors"].keys() else {}
    )
    columns: list[str | Column] = [Column(what, what.capitalize()), "n"]
    columns += [Column(key, titles[key], "interval") for key in keys]
    columns += [Column("floor", "Best baseline", "number")] if floors else []
    rows = [
        (
            name,
            found[keys[0]]["n"],
            *(read_interval(found[key]) for key in keys),
            *([floors[name]] if floors else []),
        )
        for name, found in values.items()
    ]
    return Table.of(
        f"by-{what}",
        f"By {what}: {summary['source']}, {_describe_evaluation(summary)}",
        columns,
        rows,
    )


# -- for a terminal --------------------------------------------------------------------------------


def _interval(values: Summary) -> str:
    return f"{Interval(**values):.3f}" if values["n"] else "-"


def detail_tables(summary: Summary) -> RenderableType:
    """An evaluation's summary, and tables of what it is broken down by. What has one part, or was
    read in one way, says that no second time.

    Args:
        summary: what `evaluation.summary.summarise_with_references` gives.
    """
    apart = summary["prefix"]  # the parts below it have a table of their own
    parts = [
        (name, _interval(one))
        for name, one in summary["parts"].items()
        if not (apart and name.startswith(apart))
    ]
    modes = [
        (name, f"{count} ({count / summary['n']:.1%})")
        for name, count in list(summary["how"].items())[:12]
    ]
    title = f"{summary['source']} on {summary['task']} {summary['split']}, n = {summary['n']}"
    tables = [_listing(title, _head(summary))]
    tables += [_listing("parts", parts)] if len(parts) > 1 else []
    tables += [_listing("read as", modes, "answers")] if len(modes) > 1 else []
    note = [Text(f"{summary['note']}\n", style="bold yellow")] if summary["note"] else []
    further = [_broken_down(what, summary) for what in summary["by"]]
    return Group(
        *note,
        *tables,
        *further,
        *([Text("\nall intervals: --json, --table md")] if further else []),
    )


def _head(summary: Summary) -> Iterator[tuple[str, ...]]:
    """Name, value and maybe the style of each row: reward under each reading, floor and ceiling,
    what is amiss."""
    yield "reward", _interval(summary["reward"]), "bold"
    if len(summary["readings"]) > 1:
        for name, values in summary["readings"].items():
            yield f"  {name} reading", _interval(values)
    yield from (
        (key.replace("_", " "), _interval(one))
        for key, one in summary["figures"].items()
        if key != REWARD
    )
    for name, value in sorted(summary["baselines"].items(), key=lambda item: -item[1]):
        limit = summary["limits"].get(name)
        over = limit is not None and not limit["holds"]
        said = f" ({'OVER ITS LIMIT' if over else 'limit'} {limit['limit']:.2f})" if limit else ""
        yield f"  baseline: {name}", f"{value:.3f}{said}", "red" if over else ""
    ceiling, skill = summary["ceiling"], summary["skill"]
    yield "ceiling (oracle)", "no gold answers: no ceiling" if ceiling is None else f"{ceiling:.3f}"
    yield "skill (0 = best baseline, 1 = oracle)", "-" if skill is None else f"{skill:.3f}"
    # how much of the splits a file of answers covers
    if (covered := summary.get("coverage")) is not None:
        for split, count in covered["splits"].items():
            yield f"answered of {split}", f"{count['answered']} of {count['of']}"
        if covered["missing"]:
            yield (
                f"mean with the {covered['missing']} missing as 0",
                f"{covered['mean_missing_as_0']:.3f}",
                "bold",
            )
        if covered["train_rows"]:
            yield "answers to training rows", str(covered["train_rows"]), "red"
    if summary["truncated"] is not None:
        yield "truncated", f"{summary['truncated']:.1%}"
    if summary["mean_tokens"] is not None:
        yield "mean tokens", f"{summary['mean_tokens']:.1f}"
    if summary["failures"]:
        yield "could not be judged", str(summary["failures"]), "red"


def _listing(
    title: str, rows: Iterable[tuple[str, ...]], values: str = "mean [each 95 %]"
) -> RenderableType:
    made = [Row((name, value), "".join(style)) for name, value, *style in rows]
    return Table.of(title, title, (Column("name", ""), Column("value", values)), made).to_rich()


def tasks_tables(summaries: Mapping[str, Summary]) -> RenderableType:
    """`detail_tables` of each task, and below them all tasks' rewards beside their floors and
    ceilings."""
    first = next(iter(summaries.values()))
    rows = (
        (name, one["n"], read_interval(one["reward"]), one["floor"], one["ceiling"])
        for name, one in summaries.items()
    )
    caption = f"{first['source']} on {first['split']} [each 95 %]"
    table = Table.of("tasks", caption, ("task", "n", "reward", "floor", "ceiling"), rows)
    return Group(*map(detail_tables, summaries.values()), table.to_rich())


def _broken_down(what: str, summary: Summary) -> RenderableType:
    """One figure with its interval, where that is no more than `WIDE`; the others as plain means,
    which is what 80 columns hold."""
    table = _breakdown_table(summary, what)
    intervals = [column.key for column in table.columns if column.is_interval]
    whole = REWARD if REWARD in intervals else intervals[0]
    rows = [
        Row(
            tuple(
                cell.mean
                if isinstance(cell, Interval)
                and (column.key != whole or cell.high - cell.low > WIDE)
                else cell
                for column, cell in zip(table.columns, row.cells, strict=True)
            )
        )
        for row in table.rows
    ]
    columns = [replace(one, title=one.title.replace(" ", "\n")) for one in table.columns]
    return Table.of(table.name, f"by {what}", columns, rows).to_rich()


# -- what a command writes -------------------------------------------------------------------------


def evaluation_page(summary: Summary, replays: Sequence[Replay] = ()) -> str:
    """The HTML file.

    Args:
        summary: what `evaluation.summary.summarise_with_references` gives.
        replays: failed episodes (`evaluation.replays`).
    """
    tables = evaluation_tables(summary)
    title = f"{summary['source']} on {summary['task']} {summary['split']}"
    sections = [PageSection("figures", title, tables[0].to_html())]
    sections += [
        PageSection(table.name, table.name.replace("by-", "By "), table.to_html(limit=200))
        for table in tables[1:]
    ]
    if replays:
        sections.append(
            render_section(
                "replays", "Episodes, replayed", replays={RULE: replays}, sections=page_sections
            )
        )
    return render_page(f"{title} · Plumbline", sections)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outputs:
    """What is wanted of an evaluation; refused before anything is evaluated if it cannot be had."""

    evaluation: Path | None = None
    """A JSON file with every answer."""
    table: str | None = None
    """Print the tables in this format (md, csv, latex) instead of a summary."""
    tables: Path | None = None
    """A folder for the tables in all formats."""
    report: Path | None = None
    """An HTML file, with the replays."""
    inspect: Path | None = None
    """A log of Inspect, for `inspect view`."""
    replays: int = 0
    as_json: bool = False
    """Print one JSON object."""

    def __post_init__(self) -> None:
        """Refuse what contradicts itself.

        Raises:
            RecipeError: two things to print, a format that there is not, or replays that would be
                shown nowhere.
            ModelError: a package is not installed.
            StorageError: a place holds what is not ours.
        """
        if self.table is not None:
            check_format(self.table)
            if self.as_json:
                raise RecipeError(
                    "--json and --table both decide what is printed", "give one, or --tables FOLDER"
                )
        if self.replays and self.report is None:
            raise RecipeError(
                "replays are shown in a page, and none is asked for", "add --report FILE.html"
            )
        if self.evaluation is not None:
            output_guard.check_file(self.evaluation, "evaluation", is_evaluation)
        if self.tables is not None:
            output_guard.check_folder(self.tables, TABLES)
        if self.report is not None:
            output_guard.check_file(self.report, "page", is_page)
        if self.inspect is not None:
            check_log(self.inspect)

    def check(self, tasks: Collection[str]) -> None:
        """Refuse files of several tasks in one: each evaluation is one task's.

        Raises:
            RecipeError: a file is asked for, and several tasks are evaluated.
        """
        if len(tasks) > 1 and (self.evaluation or self.tables or self.report or self.inspect):
            raise RecipeError(
                f"--out, --tables, --report and --inspect are of one task, and {', '.join(tasks)} "
                "would be evaluated",
                "name one: --set task.options.job=NAME, or of a model that was trained on several "
                "--task NAME",
            )


def write_outputs(
    outputs: Outputs, evaluated: Mapping[str, EvaluationResult]
) -> str | RenderableType:
    """Write the files, and give what is printed: text as it is, or tables for a terminal.

    Args:
        outputs: what is asked for; files of one task only (see `Outputs.check`).
        evaluated: by task; a single one has the name "".
    """
    outputs.check(evaluated)
    summaries = {
        name: summarise_with_references(one.evaluation, one.references)
        for name, one in evaluated.items()
    }
    tables = {name: evaluation_tables(summary) for name, summary in summaries.items()}
    for name, one in evaluated.items():
        if outputs.evaluation is not None:
            write_evaluation(outputs.evaluation, one.evaluation)
        if outputs.tables is not None:
            output_guard.claim_folder(outputs.tables, TABLES)
            write_tables(outputs.tables, tables[name])
        if outputs.report is not None:
            write_text(outputs.report, evaluation_page(summaries[name], one.replays))
        if outputs.inspect is not None:
            write_log(outputs.inspect, one.evaluation, one.examples)
    single = set(evaluated) == {""}
    if outputs.as_json:
        return dumps(summaries[""] if single else {"tasks": summaries}) + "\n"
    if outputs.table is not None:
        return "\n".join(render_tables(of_one, outputs.table) for of_one in tables.values())
    return detail_tables(summaries[""]) if single else tasks_tables(summaries)
