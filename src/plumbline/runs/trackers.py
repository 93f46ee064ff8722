"""Trackers by name: Trackio (local), Weights & Biases, TensorBoard. Each is an observer of the same records.

They are told what the run's own files say and nothing else, so a run without one loses nothing. What the user should
know is an alert in those that have such. A tracker that fails must not cost the run: `Guarded` turns its first failure
into an event and stops calling it.
"""

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from plumbline.config.imports import missing
from plumbline.errors import RunError
from plumbline.recipe import Recipe
from plumbline.runs import claims
from plumbline.runs.run import QUIET, RUN, Observer, Silent, is_run


class Hosted:
    """A tracker with the calls of W&B."""

    run: Any
    module: str

    def metrics(self, row: Mapping[str, Any]) -> None:
        """Log a row under its stage's names."""
        self.run.log(_named(row))

    def alert(self, kind: str, message: str) -> None:
        """Alert."""
        alert(self.module, self.run, kind, message)

    def close(self) -> None:
        """Flush and close."""
        self.run.finish()


class Trackio(Hosted):
    """Trackio: W&B's calls, stored on this machine; `trackio show --project NAME` opens its dashboard."""

    module = "trackio"

    def __init__(self, recipe: Recipe, folder: Path) -> None:
        self.run = _imported(self.module).init(
            project=recipe.run.project, name=folder.name, config=recipe.model_dump(mode="json"), resume="allow"
        )


class Wandb(Hosted):
    """Weights & Biases; with WANDB_MODE=offline nothing leaves this machine."""

    module = "wandb"

    def __init__(self, recipe: Recipe, folder: Path) -> None:
        self.run = _imported(self.module).init(
            project=recipe.run.project,
            name=folder.name,
            id=f"{folder.name}-{recipe.identity()}",
            resume="allow",
            dir=str(folder),
            config=recipe.model_dump(mode="json"),
        )


class TensorBoard:
    """TensorBoard event files in the run's folder; `tensorboard --logdir RUN/tensorboard` shows them."""

    def __init__(self, recipe: Recipe, folder: Path) -> None:
        writing = _imported("tensorboard")
        self.writer = writing.SummaryWriter(str(folder / "tensorboard"))
        self.writer.add_text("recipe", f"```yaml\n{recipe.to_yaml()}\n```")

    def metrics(self, row: Mapping[str, Any]) -> None:
        """Write each value at its stage's own step."""
        for name, value in _named(row).items():
            if isinstance(value, (int, float)):
                self.writer.add_scalar(name, value, row["step"])

    def close(self) -> None:
        """Flush and close."""
        self.writer.close()


def alert(name: str, run: Any, kind: str, message: str) -> None:
    """An alert of Trackio or W&B.

    Args:
        name: of the tracker's module.
        run: whatever of it has `alert`.
        kind: of the event; `fatal` is an error, all others are warnings.
        message: the text; its beginning is the title, of which W&B takes 64 characters.
    """
    level = _imported(name).AlertLevel["ERROR" if kind == "fatal" else "WARN"]
    run.alert(title=f"{kind}: {message}"[:63], text=message, level=level)


TRACKERS: dict[str, Callable[[Recipe, Path], Any]] = {"trackio": Trackio, "wandb": Wandb, "tensorboard": TensorBoard}


MODULES = {"tensorboard": "torch.utils.tensorboard"}
"""What is imported for a tracker, where that is not called as it is."""


class Guarded(Silent):
    """A tracker as an observer whose failure is said once and costs nothing else.

    Trackers are told numbers, and what the user should know.
    """

    def __init__(self, name: str, tracker: Any, say: Callable[[str], None]) -> None:
        self.name, self.tracker, self.say = name, tracker, say

    def _call(self, method: str, *arguments: Any) -> None:
        if self.tracker is None:
            return
        try:
            with redirect_stdout(sys.stderr):  # trackers greet and say goodbye; standard output is for results
                getattr(self.tracker, method)(*arguments)
        except Exception as error:  # noqa: BLE001 - a tracker is a guest: whatever breaks in it, the run goes on
            self.tracker = None
            self.say(f"{self.name} stopped working and is told no more: {type(error).__name__}: {error}")

    def metrics(self, row: Mapping[str, Any]) -> None:
        """See `Observer.metrics`."""
        self._call("metrics", row)

    def event(self, kind: str, message: str) -> None:
        """What the user should know is an alert."""
        if kind not in QUIET and hasattr(self.tracker, "alert"):
            self._call("alert", kind, message)

    def close(self) -> None:
        """See `Observer.close`."""
        self._call("close")


def open_trackers(recipe: Recipe, folder: Path, say: Callable[[str], None]) -> Sequence[Observer]:
    """The trackers that the recipe names.

    Args:
        recipe: names them in `run.trackers`.
        folder: the run's.
        say: how a tracker's later failure reaches the user.

    Raises:
        RunError: one is not installed, or does not start: better now than after six hours.
        StorageError: the folder holds what is no run's.
    """
    opened = []
    for name in recipe.run.trackers:
        _imported(name)
    if recipe.run.trackers:  # they write into the folder before the run does
        claims.claim(folder, RUN, is_run)
        for name in ("wandb", "tensorboard"):
            claims.check_link(folder / name, folder)
    for name in recipe.run.trackers:
        try:
            with redirect_stdout(sys.stderr):
                tracker = TRACKERS[name](recipe, folder)
        except RunError:
            raise
        except Exception as error:
            raise RunError(f"{name} does not start: {error}", f"remove {name} from run.trackers, or fix it") from error
        opened.append(Guarded(name, tracker, say))
    return opened


def _imported(name: str) -> Any:
    """The module of a tracker."""
    try:
        return importlib.import_module(MODULES.get(name, name))
    except ImportError as error:
        raise missing("the recipe's run.trackers", name, RunError) from error


def _named(row: Mapping[str, Any]) -> dict[str, Any]:
    """The row without what was not computed; SFT's and the base's `train/loss` beside RL's, not over it."""
    stage = row["stage"]
    prefix = "" if stage == "rl" else f"{stage}/"
    values = {
        f"{prefix}{key}": value for key, value in row.items() if value is not None and key not in {"stage", "step"}
    }
    return {f"{stage}/step": row["step"], **values}
