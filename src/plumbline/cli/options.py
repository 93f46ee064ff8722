"""What the commands take: arguments and options as types, so that one that several commands have is
said once.

Help is Markdown, in which angle brackets would be taken for HTML and eaten: placeholders are
written in capitals.
"""

import re
from collections.abc import Mapping
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypeVar

from typer import Argument, Option
from typer.core import TyperGroup

from plumbline.config.imports import note_typed, plugins, trust

ANSWERS, TASK, MODEL, OUTPUT = (
    "How it is decoded",
    "The task",
    "How the model is opened",
    "What is written and printed",
)
"""Headings in the help of commands that have many options."""
FIND_OUT, TRAIN, EVALUATE, SHARE, CLUSTER = PANELS = (
    "Find out",
    "Train",
    "Evaluate",
    "Share",
    "Cluster",
)
"""Headings in the list of commands, in their order."""
T = TypeVar("T")
of_answers, of_task, of_model, of_output = (
    partial(Option, rich_help_panel=heading) for heading in (ANSWERS, TASK, MODEL, OUTPUT)
)


class CommandGroup(TyperGroup):
    """Commands whose flags show no type in the help: `--json <bool>` looks as if a word had to
    follow.

    What is typed after them is noted (see `plumbline.config.imports`).
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """The group's own words; all of them are the user's."""
        note_typed(args)
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: Any) -> list[str]:
        """Their names, panel by panel."""
        names = super().list_commands(ctx)
        panels = {name: getattr(self.commands.get(name), "rich_help_panel", None) for name in names}
        return sorted(
            names,
            key=lambda name: PANELS.index(panels[name]) if panels[name] in PANELS else len(PANELS),
        )

    def get_params(self, ctx: Any) -> list[Any]:
        """The group's own options."""
        return _plain_flags(super().get_params(ctx))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """A command of the group, its own `--help` among its options; its examples have a line
        each."""
        command = super().get_command(ctx, cmd_name)
        if command is not None:
            _plain_flags(command.get_params(ctx))
            command.epilog = re.sub(r" · |(?<=Examples:) ", "\n- ", command.epilog or "")
        return command


def _plain_flags(params: list[Any]) -> list[Any]:
    for param in params:
        if getattr(param, "is_flag", False):
            param.metavar = ""
    return params


def pick_arguments(kind: type[T], given: Mapping[str, Any]) -> T:
    """An instance of a dataclass, of those of a command's arguments that have the names of its
    fields."""
    return kind(**{one.name: given[one.name] for one in fields(kind) if one.name in given})  # type: ignore[arg-type]


# -- several commands ------------------------------------------------------------------------------

AS_JSON = "Print one JSON object and nothing else on standard output."
Json = Annotated[bool, Option("--json", help=AS_JSON)]
OutputJson = Annotated[bool, of_output("--json", help=AS_JSON)]
Overrides = Annotated[
    list[str] | None,
    Option("--set", metavar="KEY=VALUE", help="Override a value of the recipe; repeatable."),
]
TrustCode = Annotated[
    bool,
    Option(
        "--trust-code",
        callback=lambda value: trust() if value else None,
        help=(
            "Run code that a recipe, a model or a run names and that you did not type: yours, or "
            "read by you."
        ),
    ),
]
"""Its callback does all."""
Resume = Annotated[bool, Option("--resume", help="Go on with what was stopped: a run, a sweep.")]
Recipe = Annotated[
    str, Argument(metavar="RECIPE", help="A path, or a name that `plumbline recipe` lists.")
]
_TASKS = ", ".join(sorted({"jsonl", *plugins("plumbline.tasks")}))
_NAMED = (
    f"{_TASKS}, module:name of yours, or a recipe. Of a model of several tasks: the name of one."
)
TaskName = Annotated[str, of_task("--task", help=_NAMED)]
_DATA = (
    "A folder that is there, with the task's records; built in it if it is empty. By default "
    "data/TASK."
)
Data = Annotated[Path | None, of_task(help=_DATA)]
TaskOptions = Annotated[
    list[str] | None,
    of_task("--set", metavar="task.options.KEY=VALUE", help="An option of the task; repeatable."),
]
EvaluationFile = Annotated[
    Path | None,
    of_output("--out", help="Write the evaluation with every answer, for `plumbline compare`."),
]
_TABLE = "Print tables to publish instead: md, csv or latex."
TableFormat = Annotated[str | None, of_output("--table", help=_TABLE)]
Page = Annotated[Path | None, of_output("--report", help="Write an HTML page of it.")]

# -- how a model is opened: `plumbline eval`, `plumbline serve` ------------------------------------

_FAMILY = "autoregressive, masked, slots, flow or module:Class; by default as saved."
Family = Annotated[str | None, of_model(help=_FAMILY)]
Device = Annotated[str, of_model(help="auto, cpu, mps, cuda or cuda:NUMBER.")]
Dtype = Annotated[
    str | None, of_model(help="auto, float32, bfloat16; by default as in its own run.")
]
RowsAtOnce = Annotated[
    int | None, of_model(min=1, help="Answers drawn side by side; fewer need less memory.")
]
ChatTemplate = Annotated[
    str | None, of_model(help="chatml or a file, for a tokenizer without one.")
]
