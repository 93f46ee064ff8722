"""The commands that look at runs and say what to do next: `plumbline runs`, `compare`, `decide` and
`route`."""

import shlex
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option, Typer

from plumbline.cli import options as take
from plumbline.cli.output import print_json, print_tables, print_text
from plumbline.errors import RecipeError

if TYPE_CHECKING:
    from plumbline.evaluation.compared_runs import Lineage
    from plumbline.reports.evaluation_output import Outputs

runs_app = Typer(cls=take.CommandGroup)
RUNS = "A run's folder; more of the same recipe are its seeds, those of another the run before."
TREE = "Ask the questions of this recipe; by default those of the run's own."


@runs_app.command(
    rich_help_panel=take.EVALUATE,
    epilog="Examples: `plumbline runs` · `plumbline runs runs/my-sweep --mode sampled` · "
    "`plumbline runs runs/v1 runs/v2 runs/v3 --report history.html` · `plumbline runs --split test "
    "--table latex`",
)
def runs(
    folders: Annotated[
        list[str] | None,
        Argument(
            metavar="[FOLDER ...]",
            help="Runs, or folders or addresses that hold runs or sweeps; by default runs.",
        ),
    ] = None,
    split: Annotated[
        str | None, Option(help="Only the results on this split; by default on all.")
    ] = None,
    mode: Annotated[
        str, Option(help="How answers were drawn: greedy, sampled, or all.")
    ] = "greedy",
    table: take.TableFormat = None,
    report: take.Page = None,
    as_json: take.OutputJson = False,
) -> None:
    """List runs by lineage: what each began from, how far it came, what it changed, and whether
    that did anything.

    Each run is compared with its predecessor on the same examples. p-values are adjusted for all
    comparisons that are shown (Holm), so --split and --mode also decide how strict that is.
    """
    from plumbline.evaluation.compared_runs import EvaluationFilter, read_lineage
    from plumbline.reports.evaluation_output import Outputs
    from plumbline.runs.remote import local_runs

    outputs = take.pick_arguments(Outputs, locals())
    _show(
        read_lineage(
            local_runs(folders or ["runs"]),
            EvaluationFilter(split, None if mode == "all" else mode),
        ),
        outputs,
    )


@runs_app.command(
    rich_help_panel=take.EVALUATE,
    epilog="Examples: `plumbline compare runs/a runs/b` · `plumbline compare runs/v1 runs/v2 "
    "runs/v3 "
    "--table md` · "
    "`plumbline compare runs/a/evaluations/sft.test.greedy.json "
    "runs/a/evaluations/rl.test.greedy.json`",
)
def compare(
    first: Annotated[
        str, Argument(help="A run directory or address, or an evaluation's JSON file.")
    ],
    others: Annotated[
        list[str], Argument(metavar="RUN ...", help="What is compared with it, each.")
    ],
    table: take.TableFormat = None,
    report: take.Page = None,
    as_json: take.OutputJson = False,
) -> None:
    """Compare runs or evaluations of the same examples with the first, pair by pair.

    p-values are adjusted for all comparisons that are shown (Holm).
    """
    from plumbline.evaluation.compared_runs import compare_paths
    from plumbline.reports.evaluation_output import Outputs
    from plumbline.runs.remote import local_run

    outputs = take.pick_arguments(Outputs, locals())
    _show(compare_paths(*map(local_run, [first, *others])), outputs)


def _show(found: "Lineage", outputs: "Outputs") -> None:
    """Write the page, and print the rest in the form that is asked for."""
    from plumbline.evaluation.compared_runs import comparisons_to_dict, history_to_dict
    from plumbline.reports.evaluation_output import render_tables
    from plumbline.reports.run_comparison import history_page, history_tables, history_terminal
    from plumbline.storage import write_text

    if outputs.report is not None:
        write_text(outputs.report, history_page(found, shlex.join(["plumbline", *sys.argv[1:]])))
    if outputs.as_json:
        print_json(history_to_dict(found) if found.lineage else comparisons_to_dict(found))
    elif outputs.table is not None:
        print_text(render_tables(history_tables(found), outputs.table), wrap=False)
    else:
        print_tables(history_terminal(found))


@runs_app.command(
    rich_help_panel=take.EVALUATE,
    epilog="Examples: `plumbline decide runs/mine runs/before --out next.yaml` · "
    "`plumbline decide runs/mine --tree tree.yaml --json`",
)
def decide(
    runs: Annotated[list[str], Argument(metavar="RUN...", help=RUNS)],
    tree: Annotated[str | None, Option(metavar="RECIPE", help=TREE)] = None,
    out: Annotated[
        Path | None, Option(metavar="FILE.yaml", help="Write the next recipe there.")
    ] = None,
    as_json: take.Json = False,
) -> None:
    """Answer a recipe's questions from the records of its run, walk its tree, and write the next
    recipe.

    Where the evidence does not decide, it says what would, and writes no recipe (status 0). Of a
    recipe without a tree it says what as much training again would gain, by each way.
    """
    from plumbline.checks.diagnosis.decide import decide as decide_on
    from plumbline.checks.diagnosis.decide import (
        find_decision_tree,
        gather_evidence,
        render_decision,
        write_next_recipe,
    )
    from plumbline.checks.diagnosis.watch import replay_rules
    from plumbline.recipe import difference_lines
    from plumbline.runs.remote import local_run

    evidence = gather_evidence([*map(local_run, runs)])
    run = evidence.runs[0].run
    if tree is None and out is None and run.recipe.decide is None:
        from plumbline.checks.gain import foretell, foretold_lines, offer_of_run

        if len(runs) > 1:
            raise RecipeError("without questions one run is asked about", f"give {runs[0]} alone")
        offer, seconds = offer_of_run(run)
        found = foretell(offer, seconds)
        if as_json:
            print_json({"seconds": seconds, "foretold": [asdict(one) for one in found]})
        else:
            print_text("\n".join([*foretold_lines(found, seconds), ""]))
        return
    decision = decide_on(evidence, find_decision_tree(evidence, tree))
    watched = replay_rules(run)
    changed = write_next_recipe(decision, run, out) if out is not None and decision.decided else []
    if as_json:
        written = (
            {"recipe": str(out), "differences": [list(row) for row in changed]} if changed else {}
        )
        print_json({**decision.to_json(), "watch": [asdict(one) for one in watched], **written})
        return
    text = render_decision(decision, watched)
    if changed:
        text += f"\n{out}\n{''.join(difference_lines(changed))}"
    elif out is not None:
        text += f"\nnothing is decided, so {out} was not written\n"
    print_text(text)


@runs_app.command(
    rich_help_panel=take.EVALUATE,
    epilog="Example: `plumbline route runs/small runs/large --out routes.yaml`",
)
def route(
    runs: Annotated[
        list[str],
        Argument(
            metavar="RUN...", help="Runs whose last models are compared; the cheaper model first."
        ),
    ],
    out: Annotated[
        Path | None, Option(metavar="FILE.yaml", help="Write the routing table there.")
    ] = None,
    as_json: take.Json = False,
) -> None:
    """Say which of some models does each job best, on the same examples, and write the table."""
    from plumbline.checks.diagnosis.decide import render_routes
    from plumbline.checks.diagnosis.routing_table import choose_routes as find_routes
    from plumbline.checks.diagnosis.routing_table import routes_to_json, write_routes
    from plumbline.runs.remote import local_run

    table = find_routes([*map(local_run, runs)])
    if out is not None:
        write_routes(out, table)
    print_json(routes_to_json(table)) if as_json else print_text(render_routes(table))
