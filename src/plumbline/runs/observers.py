"""Who is told of a run as it goes on: the terminal, and trackers by name (Trackio, Weights &
Biases, TensorBoard).

The terminal is standard error, so that standard output stays for results. On one: a bar for the
present stage with its latest metrics and a curve of the last rewards. Elsewhere (a log file, CI): a
line when something begins, one now and then with the time that is left, and one when it has ended.

Trackers are told what the run's own files say and nothing else, so a run without one loses nothing.
What the user should know is an alert in those that have such. A tracker that fails must not cost
the run: `GuardedTracker` turns its first failure into an event and stops calling it.
"""

import importlib
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import redirect_stdout
from functools import partial
from pathlib import Path
from typing import IO, Any

from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.live import Live
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from plumbline.config.imports import missing_module_error
from plumbline.errors import RunError, make_visible
from plumbline.recipe import Recipe
from plumbline.records import Row
from plumbline.runs import output_guard
from plumbline.runs.run import QUIET, RUN, Observer

SHOWN = (
    ("train/reward", "reward"),
    ("train/reading/strict", "strict"),
    ("train/loss", "loss"),
    ("train/frac_reward_zero_std", "no signal"),
    ("train/completion_length", "tokens"),
    ("train/entropy", "entropy"),
    ("train/grad_norm", "gradient"),
    ("train/sampler_scorer_gap", "gap"),
    ("train/learning_rate", "lr"),
    ("eval/mean_reward", "eval"),
    ("eval/sampled_mean_reward", "eval sampled"),
)
BARS = "▁▂▃▄▅▆▇█"
SECONDS_BETWEEN_LINES = 5.0
SECONDS_OF_PACE = 3600.0
"""Over which a bar takes the pace that says how much time is left: a step may take many minutes."""
WORTH_SAYING = 2.0
"""Seconds from which a log says when a piece of work has ended."""


class Terminal(Console):
    """Where people read: the texts of others are shown as they are, but for what would drive a
    terminal."""

    def __init__(self, file: IO[str] | None = None) -> None:
        super().__init__(file=file, markup=False, emoji=False)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """See `Console.render`."""
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else make_visible(text), style, control)


class LiveView(Observer):
    """An observer that draws on standard error."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Terminal(sys.stderr)
        self.latest: dict[str, float] = {}
        self.rewards: deque[float] = deque(maxlen=40)
        self.progress = Progress(
            TextColumn("{task.description:<12}", markup=False),
            BarColumn(bar_width=28),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=self.console,
            speed_estimate_period=SECONDS_OF_PACE,
        )
        self.task: TaskID | None = None
        self.bar: TaskID | None = None
        """Of a piece of work: it goes when the work is over."""
        self.name, self.total = "", 0
        self.live: Live | None = None
        self.last_line = 0.0
        self.pace, self.work = Pace(), Pace()
        self.what, self.done = "", 0

    def stage(self, name: str, total: int, done: int) -> None:
        """See `Observer.stage`."""
        self.latest, self.name, self.total = {}, name, total
        self.rewards.clear()
        if self.console.is_terminal:
            self._draw()
            self.task = self.progress.add_task(name, total=total, completed=done)
        else:
            self.console.print(
                f"{name}: {total} steps" + (f", {done} already done" if done else "")
            )
            self.pace = Pace(done)

    def metrics(self, row: Row) -> None:
        """See `Observer.metrics`."""
        self.latest |= {key: value for key, value in row.items() if isinstance(value, (int, float))}
        if row.get("train/reward") is not None:
            self.rewards.append(row["train/reward"])
        total = row.get("train/expected_steps") or self.total
        if self.task is not None:
            self.progress.update(self.task, completed=row["step"], total=total)
        elif not self.console.is_terminal:
            now = time.monotonic()
            if now - self.last_line > SECONDS_BETWEEN_LINES or row["step"] == total:
                self.last_line = now
                values = "  ".join(
                    f"{label} {_value_text(self.latest[key])}"
                    for key, label in SHOWN
                    if key in self.latest
                )
                self._line(
                    f"{self.name} {row['step']}/{total}  {values}  "
                    f"{self.pace.time_left(row['step'], total)}"
                )

    def working(self, what: str, done: int, total: int) -> None:
        """See `Observer.working`."""
        if self.console.is_terminal:
            self._draw()
            if self.what != what or self.bar is None:
                self.what = what
                self._end_bar()
                self.bar = self.progress.add_task(what, total=total)
            self.progress.update(self.bar, completed=done)
        elif what != self.what or done < self.done:
            self.what, self.work, self.last_line = what, Pace(done), time.monotonic()
            how_far = f" {done}/{total}" if done else f" ({total})" if total > 1 else ""
            self._line(what + how_far)
        elif done == total > self.done:
            if (spent := time.monotonic() - self.work.began) >= WORTH_SAYING:
                self._line(f"{what}: done in {_time(spent)}")
        elif time.monotonic() - self.last_line > SECONDS_BETWEEN_LINES:
            self.last_line = time.monotonic()
            self._line(f"{what} {done}/{total}  {self.work.time_left(done, total)}")
        self.done = done

    def event(self, kind: str, message: str) -> None:
        """See `Observer.event`."""
        style = "yellow" if kind not in QUIET else ""
        self.console.print(Text(f"{kind}: {message}", style=style), soft_wrap=True)

    def _draw(self) -> None:
        if self.live is None:
            # what somebody catches is theirs, and this may end after that
            ours = sys.stdout is sys.__stdout__
            self.live = Live(self, console=self.console, refresh_per_second=4, redirect_stdout=ours)
            self.live.start()

    def _end_bar(self) -> None:
        if self.bar is not None:
            self.progress.remove_task(self.bar)
            self.bar = None

    def _line(self, text: str) -> None:
        self.console.print(Text(text.rstrip()), soft_wrap=True)

    def close(self) -> None:
        """See `Observer.close`."""
        if self.live is not None:
            self._end_bar()
            self.live.stop()
            self.live = None

    def __rich__(self) -> RenderableType:
        """The bars, and under them the present stage's numbers."""
        shown = [
            (label, _value_text(self.latest[key])) for key, label in SHOWN if key in self.latest
        ]
        if not shown:
            return self.progress
        table = Table.grid(padding=(0, 2))
        for start in range(0, len(shown), 6):
            table.add_row(
                *[
                    Text.assemble((f"{label} ", "dim"), value)
                    for label, value in shown[start : start + 6]
                ]
            )
        parts: list[RenderableType] = [self.progress, table]
        if len(self.rewards) > 1:
            parts.append(Text.assemble(("reward ", "dim"), sparkline(list(self.rewards))))
        return Group(*parts)


class Pace:
    """When something began, and how much of it was done by then."""

    def __init__(self, done: int = 0) -> None:
        self.began, self.first = time.monotonic(), done

    def time_left(self, done: int, total: int) -> str:
        """The time that the rest takes at the pace so far; nothing where there is no rest, or no
        pace yet."""
        if done >= total or done <= self.first:
            return ""
        return (
            f"{_time((total - done) * (time.monotonic() - self.began) / (done - self.first))} left"
        )


def _time(seconds: float) -> str:
    minutes = round(seconds / 60)
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"


def sparkline(values: list[float], low: float = 0.0, high: float = 1.0) -> str:
    """Values as a row of small bars; one at `low` or below it is the least, one at `high` the
    greatest."""
    shares = (min(1.0, max(0.0, (value - low) / ((high - low) or 1.0))) for value in values)
    return "".join(BARS[int(share * (len(BARS) - 1))] for share in shares)


def _value_text(value: float) -> str:
    if isinstance(value, int) or value == 0:
        return f"{value:g}"
    return f"{value:.1e}" if abs(value) < 1e-3 or abs(value) >= 1e5 else f"{value:.3f}"


# -- trackers --------------------------------------------------------------------------------------


class HostedTracker:
    """A tracker with the calls of W&B: Trackio or Weights & Biases, by the name of its module.

    Trackio stores on this machine, and `trackio show --project NAME` opens its dashboard. With
    WANDB_MODE=offline nothing of W&B's leaves this machine.
    """

    def __init__(self, module: str, recipe: Recipe, folder: Path) -> None:
        self.module = module
        own = (
            {"id": f"{folder.name}-{recipe.identity()}", "dir": str(folder)}
            if module == "wandb"
            else {}
        )
        self.run = _import_tracker(module).init(
            project=recipe.run.project,
            name=folder.name,
            config=recipe.model_dump(mode="json"),
            resume="allow",
            **own,
        )

    def metrics(self, row: Row) -> None:
        """Log a row under its stage's names."""
        self.run.log(_name_metrics(row))

    def alert(self, kind: str, message: str) -> None:
        """Alert."""
        alert(self.module, self.run, kind, message)

    def close(self) -> None:
        """Flush and close."""
        self.run.finish()


class TensorBoard:
    """TensorBoard event files in the run's folder; `tensorboard --logdir RUN/tensorboard` shows
    them."""

    def __init__(self, recipe: Recipe, folder: Path) -> None:
        writing = _import_tracker("tensorboard")
        self.writer = writing.SummaryWriter(str(folder / "tensorboard"))
        self.writer.add_text("recipe", f"```yaml\n{recipe.to_yaml()}\n```")

    def metrics(self, row: Row) -> None:
        """Write each value at its stage's own step."""
        for name, value in _name_metrics(row).items():
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
    level = _import_tracker(name).AlertLevel["ERROR" if kind == "fatal" else "WARN"]
    run.alert(title=f"{kind}: {message}"[:63], text=message, level=level)


TRACKERS: dict[str, Callable[[Recipe, Path], Any]] = {
    "trackio": partial(HostedTracker, "trackio"),
    "wandb": partial(HostedTracker, "wandb"),
    "tensorboard": TensorBoard,
}
MODULES = {"tensorboard": "torch.utils.tensorboard"}
"""What is imported for a tracker, where that is not called as it is."""


class GuardedTracker(Observer):
    """A tracker as an observer whose failure is said once and costs nothing else.

    Trackers are told numbers, and what the user should know.
    """

    def __init__(self, name: str, tracker: Any, say: Callable[[str], None]) -> None:
        self.name, self.tracker, self.say = name, tracker, say

    def _call(self, method: str, *arguments: Any) -> None:
        if self.tracker is None:
            return
        try:
            # trackers greet and say goodbye; standard output is for results
            with redirect_stdout(sys.stderr):
                getattr(self.tracker, method)(*arguments)
        except Exception as error:  # noqa: BLE001 - a tracker is a guest: whatever breaks in it, the run goes on
            self.tracker = None
            self.say(
                f"{self.name} stopped working and is told no more: {type(error).__name__}: {error}"
            )

    def metrics(self, row: Row) -> None:
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
        _import_tracker(name)
    if recipe.run.trackers:  # they write into the folder before the run does
        output_guard.claim_folder(folder, RUN)
        for name in ("wandb", "tensorboard"):
            output_guard.check_link(folder / name, folder)
    for name in recipe.run.trackers:
        try:
            with redirect_stdout(sys.stderr):
                tracker = TRACKERS[name](recipe, folder)
        except RunError:
            raise
        except Exception as error:
            raise RunError(
                f"{name} does not start: {error}", f"remove {name} from run.trackers, or fix it"
            ) from error
        opened.append(GuardedTracker(name, tracker, say))
    return opened


def _import_tracker(name: str) -> Any:
    """The module of a tracker."""
    try:
        return importlib.import_module(MODULES.get(name, name))
    except ImportError as error:
        raise missing_module_error("the recipe's run.trackers", name, RunError) from error


def _name_metrics(row: Row) -> dict[str, Any]:
    """The row without what was not computed; SFT's and the base's `train/loss` beside RL's, not
    over it."""
    stage = row["stage"]
    prefix = "" if stage == "rl" else f"{stage}/"
    values = {
        f"{prefix}{key}": value
        for key, value in row.items()
        if value is not None and key not in {"stage", "step"}
    }
    return {f"{stage}/step": row["step"], **values}
