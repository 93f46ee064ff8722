"""What the commands take: arguments and options as types, so that one that several commands have is said once.

Help is Markdown, in which angle brackets would be taken for HTML and eaten: placeholders are written in capitals.
"""

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from plumbline.config.imports import plugins, trust, typed

ANSWERS, TASK, MODEL, OUTPUT = "How it is decoded", "The task", "How the model is opened", "What is written and printed"
"""Headings in the help of commands that have many options."""


class Group(TyperGroup):
    """Commands whose flags show no type in the help: `--json <bool>` looks as if a word had to follow.

    What is typed after them is noted (see `plumbline.config.imports`).
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """The group's own words; all of them are the user's."""
        typed(args)
        return super().parse_args(ctx, args)

    def get_params(self, ctx: Any) -> list[Any]:
        """The group's own options."""
        return _plain_flags(super().get_params(ctx))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """A command of the group, its own `--help` among its options."""
        command = super().get_command(ctx, cmd_name)
        if command is not None:
            _plain_flags(command.get_params(ctx))
        return command


def _plain_flags(params: list[Any]) -> list[Any]:
    for param in params:
        if getattr(param, "is_flag", False):
            param.metavar = ""
    return params


# -- several commands ------------------------------------------------------------------------------------------------

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else on standard output.")]
Overrides = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override a value of the recipe; repeatable.")
]
TrustCode = Annotated[
    bool,
    typer.Option(
        "--trust-code",
        callback=lambda value: trust() if value else None,
        help="Run code that a recipe, a model or a run names and that you did not type: yours, or read by you.",
    ),
]
"""Its callback does all."""
Recipe = Annotated[str, typer.Argument(metavar="RECIPE", help="A path, or a name that `plumbline recipe` lists.")]
Checked = Annotated[
    str,
    typer.Argument(metavar="RECIPE|RUN", help="A recipe's file or name; a run's folder; or another trainer's records."),
]
_TASKS = ", ".join(sorted({"jsonl", *plugins("plumbline.tasks")}))
TaskName = Annotated[
    str,
    typer.Option(
        "--task",
        rich_help_panel=TASK,
        help=f"{_TASKS}, module:name of yours, or a recipe. Of a model of several tasks: the name of one.",
    ),
]
Data = Annotated[
    Path | None,
    typer.Option(
        rich_help_panel=TASK,
        help="A folder that is there, with the task's records; built in it if it is empty. By default data/TASK.",
    ),
]
TaskOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="task.options.KEY=VALUE", rich_help_panel=TASK, help="An option of the task; repeatable."
    ),
]
EvaluationFile = Annotated[
    Path | None,
    typer.Option(
        "--out", rich_help_panel=OUTPUT, help="Write the evaluation with every answer, for `plumbline compare`."
    ),
]
OutputJson = Annotated[
    bool,
    typer.Option("--json", rich_help_panel=OUTPUT, help="Print one JSON object and nothing else on standard output."),
]

# -- single commands -------------------------------------------------------------------------------------------------

DryRun = Annotated[
    bool,
    typer.Option(
        "--dry-run",
        help="Train nothing and write nothing: print what would be done, what is missing, the prompts, and what "
        "is wrong (then the exit status is 1).",
    ),
]
Vary = Annotated[
    list[str] | None, typer.Option(metavar="KEY=V1,V2,...", help="Values to try; several: all combinations.")
]
Seeds = Annotated[
    str | None,
    typer.Option(metavar="S1,S2,...", help="Run each with these seeds: means and intervals over them, and a report."),
]
RunPlace = Annotated[
    str | None,
    typer.Option(
        "--out",
        metavar="PATH",
        help="The run directory, or an address such as s3://BUCKET/FOLDER; by default runs/NAME, after the recipe.",
    ),
]
SweepFolder = Annotated[
    str | None, typer.Option("--out", help="Where the runs go; by default runs/NAME-sweep, after the recipe.")
]
AtOnce = Annotated[
    int, typer.Option("--at-once", metavar="N", min=1, help="Runs side by side, as Ray tasks here or on a cluster.")
]
RayAddress = Annotated[
    str | None,
    typer.Option(
        "--address", metavar="HOST:PORT", help="Of a Ray cluster, or auto; by default RAY_ADDRESS, else here."
    ),
]
AnySplit = Annotated[
    str | None,
    typer.Option("--split", rich_help_panel=TASK, help="Where the ids are from; by default any split."),
]

# -- eval ------------------------------------------------------------------------------------------------------------

Model = Annotated[
    str,
    typer.Argument(metavar="MODEL", help="A model directory, GGUF file, address or hub name; `oracle`; or a control."),
]
Split = Annotated[str, typer.Option(rich_help_panel=TASK, help="train, val, test, or another one of the task.")]
Limit = Annotated[
    int | None, typer.Option("--limit", "--n", min=1, rich_help_panel=TASK, help="Only the first so many examples.")
]
Executor = Annotated[str | None, typer.Option(rich_help_panel=TASK, help="Short for --set task.options.executor=...")]
Suite = Annotated[str | None, typer.Option(rich_help_panel=TASK, help="Short for --set task.options.suite=...")]
Checkout = Annotated[
    Path | None, typer.Option("--path", rich_help_panel=TASK, help="Short for --set task.options.path=...")
]
AllowOverlap = Annotated[
    bool,
    typer.Option(
        "--allow-overlap", rich_help_panel=TASK, help="Evaluate even on prompts that the model was trained on."
    ),
]
Greedy = Annotated[
    bool,
    typer.Option("--greedy", rich_help_panel=ANSWERS, help="The most probable answer, which is the default."),
]
Temperature = Annotated[
    float | None,
    typer.Option(min=0, rich_help_panel=ANSWERS, help="0 is greedy, the default."),
]
MaxTokens = Annotated[
    int | None,
    typer.Option(
        min=1, rich_help_panel=ANSWERS, help="Longest answer; by default as in the model's own run, else 256."
    ),
]
Steps = Annotated[
    int | None,
    typer.Option(min=1, rich_help_panel=ANSWERS, help="Denoising steps; by default as in the model's own run."),
]
Seed = Annotated[int, typer.Option(rich_help_panel=ANSWERS, help="Of sampled answers.")]
Family = Annotated[
    str | None,
    typer.Option(
        rich_help_panel=MODEL, help="autoregressive, masked, slots, flow or module:Class; by default as saved."
    ),
]
Device = Annotated[str, typer.Option(rich_help_panel=MODEL, help="auto, cpu, mps, cuda or cuda:NUMBER.")]
Dtype = Annotated[
    str | None,
    typer.Option(rich_help_panel=MODEL, help="auto, float32, bfloat16; by default as in its own run."),
]
Engine = Annotated[
    str | None,
    typer.Option(
        metavar="vllm|URL",
        rich_help_panel=MODEL,
        help="vllm draws through a server that is started for it (PLUMBLINE_VLLM_PYTHON names its interpreter); an "
        "address asks an OpenAI-compatible endpoint for MODEL.",
    ),
]
RowsAtOnce = Annotated[
    int | None,
    typer.Option(min=1, rich_help_panel=MODEL, help="Answers drawn side by side; fewer need less memory."),
]
ChatTemplate = Annotated[
    str | None, typer.Option(rich_help_panel=MODEL, help="chatml or a file, for a tokenizer without one.")
]
TableFormat = Annotated[
    str | None,
    typer.Option("--table", rich_help_panel=OUTPUT, help="Print tables to publish instead: md, csv or latex."),
]
TablesFolder = Annotated[
    Path | None,
    typer.Option("--tables", rich_help_panel=OUTPUT, help="Folder for the tables as Markdown, CSV and LaTeX."),
]
Page = Annotated[Path | None, typer.Option("--report", rich_help_panel=OUTPUT, help="Write an HTML page of it.")]
Replays = Annotated[
    int,
    typer.Option(
        min=0, max=4, rich_help_panel=OUTPUT, help="Episodes to replay in --report: failed ones, and a right one."
    ),
]
