"""The command `plumbline audit`."""

from pathlib import Path
from typing import Annotated

import typer

from plumbline.cli import options as take
from plumbline.cli.output import print_json, print_tables, progress
from plumbline.runs import claims

audit_app = typer.Typer(cls=take.Group)


@audit_app.command(
    epilog="Examples: `plumbline audit NAME` · `plumbline audit my_task:open_it --split train --limit 200` · "
    "`plumbline audit tickets.yaml --trust-code` · `plumbline audit my_rewards:accuracy --rows rows.jsonl "
    "--set task.options.gold=answer`"
)
def audit(
    task: Annotated[
        str,
        typer.Argument(
            metavar="TASK",
            help="An installed task, module:opener, a recipe; with --rows, reward functions module:function[,...].",
        ),
    ],
    rows: Annotated[
        Path | None, typer.Option(metavar="FILE", help="JSON lines, for a reward function (see the task jsonl).")
    ] = None,
    overrides: take.TaskOptions = None,
    data: take.Data = None,
    split: Annotated[str | None, typer.Option(help="Only this split; by default all of them.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Of each split only the first so many examples.")] = None,
    seed: Annotated[int, typer.Option(help="Of the examples that are damaged, and of the search for cheats.")] = 0,
    out: Annotated[Path | None, typer.Option(help="Write all figures and findings as a JSON file.")] = None,
    trust_code: take.TrustCode = False,  # noqa: ARG001
    as_json: take.Json = False,
) -> None:
    """Audit a reward without a model: gold answers, controls, parts, hostile texts, other ways to write, cheats.

    The exit status is 1 where a fatal finding stands.
    """
    from plumbline.checks.audit.audit import audit as audit_task
    from plumbline.checks.audit.audit import audit_tables, is_audit, targets
    from plumbline.config.overrides import task_options
    from plumbline.storage import write_json

    if out is not None:
        claims.check_file(out, "audit", is_audit)
    found = {}
    with progress() as view:
        for name, target in targets(task, task_options(overrides or ()), rows, data).items():
            opened = target(view.working)
            splits = (split,) if split is not None else ()
            found[name] = audit_task(opened, splits, limit=limit, seed=seed, progress=view.working)
    plain = {"audits": {name or each.context.task.name: each.plain() for name, each in found.items()}}
    if out is not None:
        write_json(out, plain)
    if as_json:
        print_json(plain)
    else:
        print_tables(*(audit_tables(name, each) for name, each in found.items()), wrap=False)
    raise typer.Exit(1 if any(each.fatal for each in found.values()) else 0)
