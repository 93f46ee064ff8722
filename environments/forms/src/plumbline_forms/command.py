"""`plumbline data forms`."""

from pathlib import Path
from typing import Annotated

import typer

from plumbline.cli import options as take
from plumbline.cli.output import print_result

app = typer.Typer()


@app.command(
    "forms",
    epilog="Example: `plumbline data forms --set task.options.surface=document --out data/letters`",
)
def data_forms(
    out: Annotated[Path, typer.Option(help="Folder for a file of each split.")] = Path(
        "data/forms"
    ),
    overrides: take.TaskOptions = None,
    as_json: take.Json = False,
) -> None:
    """Write the forms task's examples: `train`, `val`, `test` and `held-out-forms.jsonl`, with gold
    plans.

    For training elsewhere; recipes and evaluations need no files.
    """
    from plumbline.config.overrides import task_options
    from plumbline.tasks import open_task
    from plumbline.tasks.task import export

    counts = export(open_task("forms", task_options(overrides or ()), out), out)
    print_result(
        {"splits": counts},
        f"{out}: {', '.join(f'{name} {count}' for name, count in counts.items())}",
        as_json,
    )
