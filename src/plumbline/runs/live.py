"""The run as it goes on, on the terminal: on standard error, so that standard output stays for results.

On a terminal: a bar for the present stage with its latest metrics and a curve of the last rewards. Elsewhere (a log
file, CI): a line when something begins, one now and then with the time that is left, and one when it has ended.
"""

import sys
import time
from collections import deque
from collections.abc import Mapping
from typing import Any

from rich.console import Console, Group, RenderableType
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
from rich.table import Table
from rich.text import Text

from plumbline.errors import visible
from plumbline.runs.run import QUIET

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
WORTH_SAYING = 2.0
"""Seconds from which a log says when a piece of work has ended."""


class LiveView:
    """An observer that draws on standard error."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(file=sys.stderr)
        self.latest: dict[str, float] = {}
        self.rewards: deque[float] = deque(maxlen=40)
        self.progress = Progress(
            TextColumn("{task.description:<12}"),
            BarColumn(bar_width=28),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=self.console,
        )
        self.task: TaskID | None = None
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
            if self.live is None:
                self.live = Live(self, console=self.console, refresh_per_second=4, transient=False)
                self.live.start()
            self.task = self.progress.add_task(name, total=total, completed=done)
        else:
            self.console.print(f"{name}: {total} steps" + (f", {done} already done" if done else ""))
            self.pace = Pace(done)

    def metrics(self, row: Mapping[str, Any]) -> None:
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
                values = "  ".join(f"{label} {_short(self.latest[key])}" for key, label in SHOWN if key in self.latest)
                self._line(f"{self.name} {row['step']}/{total}  {values}  {self.pace.left(row['step'], total)}")

    def working(self, what: str, done: int, total: int) -> None:
        """See `Observer.working`."""
        if self.console.is_terminal:
            if self.live is None:
                self.live = Live(self, console=self.console, refresh_per_second=4, transient=False)
                self.live.start()
            if self.name != what or self.task is None:
                self.name = what
                self.latest = {}
                self.task = self.progress.add_task(what, total=total)
            self.progress.update(self.task, completed=done)
        elif what != self.what or done < self.done:
            self.what, self.work, self.last_line = what, Pace(done), time.monotonic()
            how_far = f" {done}/{total}" if done else f" ({total})" if total > 1 else ""
            self._line(what + how_far)
        elif done == total > self.done:
            if (spent := time.monotonic() - self.work.began) >= WORTH_SAYING:
                self._line(f"{what}: done in {_time(spent)}")
        elif time.monotonic() - self.last_line > SECONDS_BETWEEN_LINES:
            self.last_line = time.monotonic()
            self._line(f"{what} {done}/{total}  {self.work.left(done, total)}")
        self.done = done

    def event(self, kind: str, message: str) -> None:
        """See `Observer.event`."""
        style = "yellow" if kind not in QUIET else ""
        self.console.print(Text(visible(f"{kind}: {message}"), style=style), soft_wrap=True)

    def _line(self, text: str) -> None:
        self.console.print(Text(visible(text.rstrip())), soft_wrap=True)

    def close(self) -> None:
        """See `Observer.close`."""
        if self.live is not None:
            self.live.stop()
            self.live = None

    def __rich__(self) -> RenderableType:
        """The bars, and under them the present stage's numbers."""
        shown = [(label, _short(self.latest[key])) for key, label in SHOWN if key in self.latest]
        if not shown:
            return self.progress
        table = Table.grid(padding=(0, 2))
        for start in range(0, len(shown), 6):
            table.add_row(*[Text.assemble((f"{label} ", "dim"), value) for label, value in shown[start : start + 6]])
        parts: list[RenderableType] = [self.progress, table]
        if len(self.rewards) > 1:
            parts.append(Text.assemble(("reward ", "dim"), sparkline(list(self.rewards))))
        return Group(*parts)


class Pace:
    """When something began, and how much of it was done by then."""

    def __init__(self, done: int = 0) -> None:
        self.began, self.first = time.monotonic(), done

    def left(self, done: int, total: int) -> str:
        """The time that the rest takes at the pace so far; nothing where there is no rest, or no pace yet."""
        if done >= total or done <= self.first:
            return ""
        return f"{_time((total - done) * (time.monotonic() - self.began) / (done - self.first))} left"


def _time(seconds: float) -> str:
    minutes = round(seconds / 60)
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"


def sparkline(values: list[float]) -> str:
    """Values as a row of small bars, from their least to their greatest."""
    low, high = min(values), max(values)
    if high - low < 1e-9:
        return BARS[0] * len(values)
    return "".join(BARS[int((value - low) / (high - low) * (len(BARS) - 1))] for value in values)


def _short(value: float) -> str:
    if isinstance(value, int) or value == 0:
        return f"{value:g}"
    return f"{value:.1e}" if abs(value) < 1e-3 or abs(value) >= 1e5 else f"{value:.3f}"
