"""The commands that say what to do next: `plumbline decide` and `plumbline route`."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from plumbline.cli import options as take
from plumbline.cli.output import print_json, print_text

Runs = Annotated[
    list[str],
    typer.Argument(
        metavar="RUN...", help="A run's folder; more of the same recipe are its seeds, those of another the run before."
    ),
]
Models = Annotated[
    list[str], typer.Argument(metavar="RUN...", help="Runs whose last models are compared; the cheaper model first.")
]
Tree = Annotated[
    str | None,
    typer.Option(metavar="RECIPE", help="Ask the questions of this recipe; by default those of the run's own."),
]
Next = Annotated[Path | None, typer.Option("--out", metavar="FILE.yaml", help="Write the next recipe there.")]
Table = Annotated[Path | None, typer.Option("--out", metavar="FILE.yaml", help="Write the routing table there.")]


def add(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    app.command(
        epilog="Examples: `plumbline decide runs/mine runs/before --out next.yaml` · "
        "`plumbline decide runs/mine --tree tree.yaml --json`"
    )(decide)
    app.command(epilog="Example: `plumbline route runs/small runs/large --out routes.yaml`")(route)


def decide(runs: Runs, tree: Tree = None, out: Next = None, as_json: take.Json = False) -> None:
    """Answer a recipe's questions from the records of its run, walk its tree, and write the next recipe.

    Where the evidence does not decide, it says what would, and writes no recipe (status 0).
    """
    from plumbline.checks.diagnosis.decide import decide as decide_on
    from plumbline.checks.diagnosis.decide import decision_text, gather, next_recipe, tree_of
    from plumbline.checks.diagnosis.watch import afterwards
    from plumbline.recipe import difference_lines
    from plumbline.runs.remote import local_run

    evidence = gather([*map(local_run, runs)])
    decision = decide_on(evidence, tree_of(evidence, tree))
    run = evidence.runs[0].run
    watched = afterwards(run)
    changed = next_recipe(decision, run, out) if out is not None and decision.decided else []
    if as_json:
        written = {"recipe": str(out), "differences": [list(row) for row in changed]} if changed else {}
        print_json({**decision.plain(), "watch": [asdict(one) for one in watched], **written})
        return
    text = decision_text(decision, watched)
    if changed:
        text += f"\n{out}\n{''.join(difference_lines(changed))}"
    elif out is not None:
        text += f"\nnothing is decided, so {out} was not written\n"
    print_text(text)


def route(runs: Models, out: Table = None, as_json: take.Json = False) -> None:
    """Say which of some models does each job best, on the same examples, and write the table that serving reads."""
    from plumbline.checks.diagnosis.decide import routes_text
    from plumbline.checks.diagnosis.routes import plain, write_routes
    from plumbline.checks.diagnosis.routes import route as find_routes
    from plumbline.runs.remote import local_run

    table = find_routes([*map(local_run, runs)])
    if out is not None:
        write_routes(out, table)
    print_json(plain(table)) if as_json else print_text(routes_text(table))
