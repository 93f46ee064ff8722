"""What the two loops share: going on from a checkpoint, leaving one, and stopping when asked.

Ctrl-C and SIGTERM (a preempted job) let the step in progress end, leave a checkpoint, and stop; a
second Ctrl-C stops at once, and the last checkpoint stands.
"""

import math
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from plumbline.checks.diagnosis.live import Checker
from plumbline.checks.diagnosis.watch import Watcher
from plumbline.errors import TrainingStopped
from plumbline.policies.forks import processor_seconds
from plumbline.runs.run import Run
from plumbline.storage import read_object, write_json
from plumbline.training import checkpoints
from plumbline.training.optimiser import Optimiser

SPENT = "spent"
"""In a stage's memory: the processor-seconds of its steps, where it has a budget of them."""


@dataclass(frozen=True, slots=True)
class StopReason:
    """Why a stage stops after the step's checkpoint."""

    error: TrainingStopped
    """What is raised."""
    facts: Mapping[str, Any]
    """What the run's result says."""


class StepTimer:
    """Where a step's seconds go, by kind of work: the wall's (`time/...`), and those of all
    processors (`cpu/...`)."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = time.perf_counter(), processor_seconds()

    def lap(self, name: str) -> None:
        """What was done since the last lap was of this kind."""
        now = time.perf_counter(), processor_seconds()
        for clock, before, after in zip(("time", "cpu"), self._last, now, strict=True):
            self.seconds[f"{clock}/{name}"] = after - before
        self._last = now


class Stage:
    """A stage of a run (base, sft, rl) that can be stopped and resumed at any step.

    Args:
        run: where records and checkpoints go; its recipe says how often to leave one, and how many
            to keep.
        name: of the stage.
        optimiser: holds all weights and moments that change.
        seconds: processor-seconds that its steps may take; None for no limit.
    """

    def __init__(
        self, run: Run, name: str, optimiser: Optimiser, seconds: float | None = None
    ) -> None:
        self.run, self.name, self.optimiser, self.section = run, name, optimiser, run.recipe.run
        self.seconds = seconds
        self.folder: Path = run.checkpoints(name)
        self.memory: dict[str, Any] = {}
        """Plain values that the loop must remember across a resume."""
        self.older: dict[str, Tensor] = {}
        """Weights of earlier versions that a resumed run samples with once more, by
        `VERSION:NAME`."""
        self._checker = Checker(run, self, optimiser.total)
        self._watcher = Watcher(run, self) if name == "rl" else None
        self._begin = run.marks()
        self._stop: StopReason | None = None
        self.idle = False
        """Whether a stop loses nothing now, and need not wait for a step's end."""

    def resume(self) -> int:
        """Take up the newest checkpoint, if there is one; the number of steps already done."""
        checkpoint = checkpoints.find_latest(self.folder)
        if checkpoint is None:
            marks = self.folder / "begin.json"
            if marks.is_file():
                self.run.rewind(read_object(marks))
            else:
                write_json(marks, self._begin)
            return 0
        tensors, state = checkpoints.read_checkpoint(checkpoint)
        self.optimiser.load(tensors)
        self.older = {
            key: tensor for key, tensor in tensors.items() if key.partition(":")[0].isdigit()
        }
        self.run.rewind(state["marks"])
        self.memory = state["memory"]
        self.spend(0.0)
        return int(state["step"])

    def spend(self, seconds: float) -> None:
        """A step took so many processor-seconds; those of steps that a kill undid are not
        counted."""
        if self.seconds is not None:
            self.memory[SPENT] = self.memory.get(SPENT, 0.0) + seconds
            self.optimiser.gone = min(1.0, self.memory[SPENT] / self.seconds)

    def expected_steps(self, done: int) -> int:
        """The steps that the stage will have had: all of them, or what its budget allows at the
        pace so far."""
        gone, total = self.optimiser.gone, self.optimiser.total
        return min(total, max(done, math.ceil(done / gone - 1e-9))) if gone else total

    def is_last(self, done: int) -> bool:
        """Whether nothing is left to do after so many steps."""
        return done >= self.optimiser.total or self.optimiser.gone >= 1

    def steps(self) -> Iterator[int]:
        """Yield each step that is still to do; after each, leave a checkpoint where one is due.

        Raises:
            KeyboardInterrupt: the user or the system asked to stop; a checkpoint was left.
            TrainingStopped: `should_stop` gave a reason; a checkpoint was left.
        """
        # Reading, too: an interrupt inside safetensors would come out as an error of the
        # checkpoint.
        with stop_requests(lambda: self.idle) as asked:
            done, total = self.resume(), self.optimiser.total
            self.run.stage(self.name, total, done)
            if self.seconds is not None:
                self.run.event(
                    "budget",
                    f"{self.name} ends when {self.seconds:,.0f} processor-seconds are spent",
                )
            if asked():
                raise KeyboardInterrupt
            for step in range(done, total):
                if self.is_last(step):
                    return
                yield step
                stopping = asked() or self._stop is not None
                if (
                    stopping
                    or (step + 1) % self.section.checkpoint_every == 0
                    or self.is_last(step + 1)
                ):
                    self._save(step + 1)
                if self._stop is not None:
                    self.run.halt({"stage": self.name, "step": step + 1, **self._stop.facts})
                    raise self._stop.error
                if stopping:
                    raise KeyboardInterrupt

    def record(
        self,
        step: int,
        values: Mapping[str, float | int | None],
        samples: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        """Record a step's metrics, and stop after its checkpoint where `should_stop` says so.

        Args:
            step: how many are done.
            values: by name.
            samples: the rollouts of the step, which were recorded.
        """
        if self.seconds is not None:
            self._checker.total = self.expected_steps(step)
            values = {**values, "train/expected_steps": self._checker.total}
        self.run.metrics(self.name, step, values)
        self.remember_best(step, values)
        reason = self.should_stop({"step": step, **values}, samples)
        if not self.is_last(step):
            self._stop = reason

    def should_stop(
        self, row: Mapping[str, Any], samples: Sequence[Mapping[str, Any]]
    ) -> StopReason | None:
        """Why going on is pointless after a step, by the recipe's watch rules or by the checks;
        both record what they find as events. Interrupts, and numbers that must not reach the
        weights (`guards`), need no reason.

        Args:
            row: the step's metrics with its number.
            samples: its rollouts.
        """
        found = self._checker.look(row, samples)
        fired = None if self._watcher is None else self._watcher.look(row)
        if fired is not None:
            fix = (
                f"{fired.advice} Then --resume, with --set watch.{fired.rule}=null to continue "
                "without this rule"
            )
            return StopReason(
                TrainingStopped(f"the rule {fired.rule}: {fired.reason}", fix), fired.to_json()
            )
        if found is not None:
            ignored = ", ".join([*self.run.recipe.checks.ignore, found.check])
            fix = (
                f"{found.fix}. Or --resume with --set 'checks.ignore=[{ignored}]' to continue "
                "without this check"
            )
            facts = {
                "check": found.check,
                "code": found.code,
                "reason": found.what,
                "since": found.since,
            }
            return StopReason(TrainingStopped(f"the check {found.check}: {found.what}", fix), facts)
        return None

    def remember_best(self, step: int, values: Mapping[str, float | int | None]) -> None:
        """Remember an evaluation that is better than all before: the checkpoint of its step
        stays."""
        value, best = values.get(checkpoints.EVALUATED), self.memory.get(checkpoints.BEST)
        if value is not None and (best is None or value > best[0]):
            self.memory[checkpoints.BEST] = [value, step]

    def _save(self, step: int) -> None:
        checkpoints.save_checkpoint(
            self.folder,
            step,
            self.optimiser.state() | self.older,
            {"marks": self.run.marks(), "memory": self.memory},
            self.section.keep_checkpoints,
            self.memory.get(checkpoints.BEST, (None, None))[1],
        )
        self.run.on_checkpoint()


STOPPING = b"\nstopping when this step, or what is being opened, is done; again stops at once\n"
"""Written at the first signal: a step with its evaluations may take minutes."""


@contextmanager
def stop_requests(at_once: Callable[[], bool] = bool) -> Iterator[Callable[[], bool]]:
    """Count SIGINT and SIGTERM instead of dying of the first; yields a function that says whether
    one came.

    Only the main thread can set handlers; elsewhere nothing is caught.

    Args:
        at_once: whether the first raises KeyboardInterrupt now.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    asked = False

    def ask(*_: object) -> None:
        nonlocal asked
        if asked or at_once():
            raise KeyboardInterrupt
        asked = True
        os.write(2, STOPPING)

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
