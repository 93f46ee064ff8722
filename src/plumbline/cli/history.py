"""The commands that look at several runs: `plumbline runs`, `plumbline compare`."""

import shlex
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from plumbline.cli import options as take
from plumbline.cli.output import print_json, print_tables

if TYPE_CHECKING:
    from plumbline.evaluation.history import Lineage
    from plumbline.reports.evaluation_output import Outputs

history_app = typer.Typer(cls=take.Group)


@history_app.command(
    epilog="Examples: `plumbline runs` · `plumbline runs runs/my-sweep --mode sampled` · "
    "`plumbline runs runs/v1 runs/v2 runs/v3 --report history.html` · `plumbline runs --split test --table latex`"
)
def runs(
    folders: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[FOLDER ...]", help="Runs, or folders or addresses that hold runs or sweeps; by default runs."
        ),
    ] = None,
    split: Annotated[str | None, typer.Option(help="Only the results on this split; by default on all.")] = None,
    mode: Annotated[str, typer.Option(help="How answers were drawn: greedy, sampled, vote8, or all.")] = "greedy",
    table: take.TableFormat = None,
    report: take.Page = None,
    as_json: take.OutputJson = False,
) -> None:
    """List runs by lineage: what each began from, how far it came, what it changed, and whether that did anything.

    Each run is compared with its predecessor on the same examples. p-values are adjusted for all comparisons that are
    shown (Holm), so --split and --mode also decide how strict that is.
    """
    from plumbline.evaluation.history import Asked, history
    from plumbline.reports.evaluation_output import Outputs
    from plumbline.runs.remote import local_runs

    outputs = Outputs(table=table, report=report, as_json=as_json)
    _show(history(local_runs(folders or ["runs"]), Asked(split, None if mode == "all" else mode)), outputs)


@history_app.command(
    epilog="Examples: `plumbline compare runs/a runs/b` · `plumbline compare runs/v1 runs/v2 runs/v3 --table md` · "
    "`plumbline compare runs/a/evaluations/sft.test.greedy.json runs/a/evaluations/rl.test.greedy.json`"
)
def compare(
    first: Annotated[str, typer.Argument(help="A run directory or address, or an evaluation's JSON file.")],
    others: Annotated[list[str], typer.Argument(metavar="RUN ...", help="What is compared with it, each.")],
    table: take.TableFormat = None,
    report: take.Page = None,
    as_json: take.OutputJson = False,
) -> None:
    """Compare runs or evaluations of the same examples with the first, pair by pair.

    p-values are adjusted for all comparisons that are shown (Holm).
    """
    from plumbline.evaluation.history import compare_paths
    from plumbline.reports.evaluation_output import Outputs
    from plumbline.runs.remote import local_run

    outputs = Outputs(table=table, report=report, as_json=as_json)
    _show(compare_paths(*map(local_run, [first, *others])), outputs)


def _show(found: "Lineage", outputs: "Outputs") -> None:
    """Write the page, and print the rest in the form that is asked for."""
    from plumbline.evaluation.history import plain_comparisons, plain_history
    from plumbline.reports.evaluation_output import render
    from plumbline.reports.several import history_page, history_tables, history_terminal
    from plumbline.storage import write_text

    if outputs.report is not None:
        write_text(outputs.report, history_page(found, shlex.join(["plumbline", *sys.argv[1:]])))
    if outputs.as_json:
        print_json(plain_history(found) if found.lineage else plain_comparisons(found))
    elif outputs.table is not None:
        print(render(history_tables(found), outputs.table), end="")
    else:
        print_tables(history_terminal(found))
