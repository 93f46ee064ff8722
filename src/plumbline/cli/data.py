"""`plumbline data TASK`: build a task's records, by the command that the task's package declares."""

from typing import Any

import typer

from plumbline.cli import options as take
from plumbline.config.imports import loaded, plugins


class _Declared(take.Group):
    """The commands that installed packages declare (entry points of the group `plumbline.data`, each a typer app)."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 - click's interface
        """Their names; nothing is imported for them."""
        return sorted(plugins("plumbline.data"))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """One of them, imported."""
        declared = plugins("plumbline.data").get(cmd_name)
        if declared is not None and cmd_name not in self.commands:
            self.commands[cmd_name] = typer.main.get_command(loaded(declared, "command"))
        return super().get_command(ctx, cmd_name)


data_app = typer.Typer(
    cls=_Declared,
    no_args_is_help=True,
    help="Build a task's records.",
    epilog="Example: `plumbline data TASK --help`",
)


@data_app.callback()
def _group() -> None:
    """Build a task's records."""
