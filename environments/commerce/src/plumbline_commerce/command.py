"""`plumbline data commerce`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from plumbline.cli import options as take
from plumbline.cli.output import print_result, show_progress

app = typer.Typer()
ShopFolder = Annotated[
    Path, typer.Option("--out", help="Folder for commerce.db and train, val and test.jsonl.")
]
Olist = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="A folder with the CSV files of the Olist data set, to build the shop from.",
    ),
]


@app.command(
    "commerce", epilog="Example: `plumbline data commerce --seed 7 --orders 5000 --out data/seven`"
)
def data_commerce(
    out: ShopFolder = Path("data/commerce"),
    seed: Annotated[
        int, typer.Option(help="Same seed, same bytes; another seed, another shop.")
    ] = 42,
    orders: Annotated[
        int, typer.Option(min=1, help="Orders in the database; all of Olist's with --olist.")
    ] = 20_000,
    extraction: Annotated[
        int | None, typer.Option(min=3, help="Extraction prompts over the three splits.")
    ] = None,
    sql_qa: Annotated[int | None, typer.Option(min=3, help="Questions that SQL answers.")] = None,
    insights: Annotated[int | None, typer.Option(min=3, help="Tables to analyse.")] = None,
    push: Annotated[int | None, typer.Option(min=3, help="Push messages to write.")] = None,
    olist: Olist = None,
    overrides: take.TaskOptions = None,
    as_json: take.Json = False,
) -> None:
    """Build a synthetic Brazilian shop, or that of the Olist data set, and the prompts on its
    records.

    Writes `commerce.db` (SQLite, the Olist schema and `orders_enriched`) and `train.jsonl`,
    `val.jsonl` and `test.jsonl`: chat messages in Portuguese. With no number given they have 590
    extractions, 594 questions, 148 tables and 148 messages; else only the jobs whose numbers are
    given. `--set` gives what else decides the records: keys, instructions, titles, insights_from.
    """
    from plumbline.config.overrides import task_options
    from plumbline.errors import RecipeError
    from plumbline_commerce.build import count_prompts, make_commerce
    from plumbline_commerce.olist.build import describe_import
    from plumbline_commerce.options import read_options

    asked = task_options(overrides or ())
    given: dict[str, Any] = {
        "extraction": extraction,
        "sql_qa": sql_qa,
        "insights": insights,
        "push": push,
    }
    given |= {"olist": olist and str(olist), **asked}
    counts = count_prompts(given)
    options = read_options(
        {"seed": seed, "orders": orders, **given, "job": next(iter(counts)), **counts}
    )
    if unused := sorted(asked.keys() - options.records().keys()):
        raise RecipeError(
            f"task.options.{unused[0]} decides nothing of the records",
            "give it to what uses them: run, eval or score",
        )
    with show_progress() as view:
        built = make_commerce(options, out, view.working)
    each = "".join(f"\n  {job}: {_counts(splits)}" for job, splits in built["jobs"].items())
    print_result(
        built,
        f"{out}: {_counts(built['splits'])}{each}{describe_import(built.get('olist'), out)}",
        as_json,
    )


def _counts(splits: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in splits.items())
