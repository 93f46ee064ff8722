"""The run directory: everything that happened, as plain records.

    runs/mine/
      recipe.yaml          what the run does, resolved; a resume may change some keys, and events.jsonl says which
      environment.json     versions, machine, engines, data fingerprints, of the process that wrote last
      metrics.jsonl        a row for each training step (deterministic: no clock in it)
      timings.jsonl        where the seconds went, step by step
      samples.jsonl        every rollout of training with its score parts
      events.jsonl         when it began and what stopped it; warnings, counted skips, keys that changed at a resume
      difficulty.jsonl     with rl.filter: what the model earned on each training prompt before RL
      evaluations/         one JSON file for each evaluation; rows of one that is not finished in .part.jsonl
      replays/             pictures of failed episodes, where the recipe asks for them
      checkpoints/         of the stage in progress
      models/              base, sft, rl: standard model directories
      result.json          the outcome; its absence means that the run is not finished, and its status stopped that a
                           check or a watch rule stopped it
      examples.jsonl       prompts and gold answers of held-out examples, as reports show them
      report.html ...

A run is its records: reports, checks and comparisons are functions of these files, on a live run, a
finished one, or one from another machine. The four `.jsonl` files are append-only; a checkpoint
remembers their lengths, and a resumed run first cuts them back to it.
"""

import fcntl
import os
import platform
import shutil
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from plumbline.config.overrides import as_mapping
from plumbline.errors import PlumblineError, RunError, StorageError
from plumbline.recipe import Recipe, differences, load_recipe
from plumbline.records import Evaluation, Row
from plumbline.runs import output_guard
from plumbline.runs.evaluations import REFERENCE, EvaluationKey, write_evaluation
from plumbline.runs.lineage import allowed_changes
from plumbline.runs.record import (
    DIFFICULTY,
    KINDS,
    STAGES,
    STOPPED,
    RunFolder,
    RunRecord,
    is_blank,
)
from plumbline.storage import clear_os_errors, one_line, read_object, write_json, write_text
from plumbline.version import __version__

QUIET = frozenset({"note", "started", "resumed", "stopped", "changed", "engine", "budget"})
"""Kinds of events that are no warning."""
PACKAGES = ("torch", "transformers", "peft", "numpy", "tokenizers", "safetensors")


class Listener(Protocol):
    """Somebody who is told how far something has come, in a run or outside of one: what an
    `Observer` and a `Run` have in common. `tasks.Progress` is its `working` alone, `memory.Say` its
    `event` alone."""

    def working(self, what: str, done: int, total: int) -> None:
        """Something that takes a while and leaves no metrics (building records, evaluating) has
        come so far."""
        ...

    def event(self, kind: str, message: str) -> None:
        """Something happened that the user should know."""
        ...


class Observer:
    """A `Listener` who is told all that happens in a run: the terminal, a tracker. This class
    itself does nothing with it, where nobody is to be told."""

    def working(self, what: str, done: int, total: int) -> None:
        """See `Listener`."""

    def event(self, kind: str, message: str) -> None:
        """See `Listener`."""

    def stage(self, name: str, total: int, done: int) -> None:
        """A stage of `total` steps begins, of which `done` are already done."""

    def metrics(self, row: Row) -> None:
        """A row of metrics was recorded."""

    def on_checkpoint(self, run: "Run") -> None:
        """The folder holds something new to go on from, or to look at: a checkpoint, an evaluation,
        a model."""

    def close(self) -> None:
        """The run is over, well or badly."""


RUN = output_guard.RUN
RECORDS = (".building", "manifest.json", "train.jsonl", "val.jsonl", "test.jsonl")
"""What a task writes into its folder in a run's data, beside the `splits` and `files` that its
manifest names."""
WRITTEN = (
    *(
        ".lock",
        output_guard.MARK,
        "recipe.yaml",
        "environment.json",
        "result.json",
        *(f"{name}.jsonl" for name in KINDS),
    ),
    *("evaluations", "replays", "checkpoints", "models", "engine", "tensorboard", DIFFICULTY),
)
"""What a run writes into its folder, or removes there, beside its data."""


class Run(RunFolder):
    """An open run directory, locked against a second process.

    Example:
        with Run.start(recipe, folder, resume=False) as run:
            run.metrics("rl", 0, {"train/reward": 0.5})
    """

    def __init__(self, folder: Path, recipe: Recipe, observers: Sequence[Observer] = ()) -> None:
        super().__init__(folder)
        self.recipe, self.observers = recipe, tuple(observers)
        self._lock: int | None = None

    @classmethod
    def start(
        cls,
        recipe: Recipe,
        folder: Path,
        *,
        resume: bool = False,
        observers: Sequence[Observer] = (),
    ) -> "Run":
        """Create a run directory, or open one to go on.

        A run that ended before its first step (a misspelt model, a malformed record) has nothing to
        lose and is begun again; with `resume` and the same recipe it keeps its records. Of one that
        continues, `recipe` may differ in a few keys (see `lineage.allowed_changes`); they are
        recorded. What is finished keeps the recipe that made it.

        Raises:
            RunError: it exists and `resume` is False, or was started with another recipe, or is in
                use.
            StorageError: the folder holds what is no run's, or a link that leads out of it; nothing
                was touched.
        """
        output_guard.check_folder(folder, RUN)
        output_guard.check_links(folder, *WRITTEN)
        run = cls(folder, recipe, observers)
        started = (folder / "recipe.yaml").is_file() and not is_blank(folder)
        if started and not resume:
            raise RunError(
                f"{folder} already holds a run",
                "add --resume to continue it, or --out to write somewhere else",
            )
        output_guard.claim_folder(folder, RUN)
        run._acquire()
        try:
            if started:
                run._take_up(load_recipe(folder / "recipe.yaml", written=True))
            else:
                if not (resume and run._is_same()):
                    run._forget()
                run.files["events"].cut_torn()
                write_text(folder / "recipe.yaml", recipe.to_yaml())
                run._record("started", "the run begins")
                for observer in run.observers if resume else ():
                    observer.event("note", "nothing had begun to train, so the run begins")
        except BaseException:
            run._release()
            raise
        return run

    def record(self) -> RunRecord:
        """What the folder holds now."""
        return RunRecord(self.folder, recipe=self.recipe)

    def _is_same(self) -> bool:
        """Whether the folder was begun with this recipe: its records and the baselines' evaluations
        then go on."""
        with suppress(PlumblineError):
            before = load_recipe(self.folder / "recipe.yaml", written=True)
            return not any(differences(before, self.recipe))
        return False

    def _forget(self) -> None:
        """Remove what a blank run left: the oracle's and baselines' evaluations, and records that
        may differ now.

        Raises:
            StorageError: a link in the data folder leads out of the run; nothing was removed.
        """
        output_guard.check_links(self.folder, "data")
        leftovers = [*(self.folder / "evaluations").glob(f"{REFERENCE}.*.json")]
        for root, _, names in os.walk(self.folder / "data"):
            place = Path(root)
            if not (output_guard.kind_of(place) or "").endswith("records"):
                continue  # somebody else's
            ours = set(RECORDS)
            with suppress(PlumblineError):
                manifest = read_object(place / "manifest.json")
                ours |= {f"{split}.jsonl" for split in as_mapping(manifest.get("splits"))}
                ours |= {str(name) for name in manifest.get("files") or []}
            leftovers += [place / name for name in names if name in ours]
            if ours | {output_guard.MARK} >= {path.name for path in place.iterdir()}:
                leftovers.append(place / output_guard.MARK)
        for path in leftovers:
            path.unlink(missing_ok=True)

    def _acquire(self) -> None:
        path = self.folder / ".lock"
        with clear_os_errors(path):
            self._lock = os.open(path, os.O_CREAT | os.O_RDWR | os.O_NONBLOCK, 0o666)
        try:
            # the kernel frees it when the process dies
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(self._lock)
            self._lock = None
            raise RunError(
                f"another process is writing {self.folder}", "wait for it, or use --out"
            ) from error

    def _release(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _sweep(self) -> None:
        """Remove what a kill left half written: everything is written beside its place, under a
        dotted .tmp name."""
        for leftover in list(self.folder.rglob(".*.tmp")):
            if leftover.is_dir():
                shutil.rmtree(leftover, ignore_errors=True)
            else:
                leftover.unlink(missing_ok=True)
        self.files["events"].cut_torn()  # the other records are cut back to a checkpoint's marks

    def _take_up(self, before: Recipe) -> None:
        """Go on with a run, and record what has changed in its recipe."""
        finished = [stage for stage in STAGES if self.is_done(stage)]
        changes = allowed_changes(before, self.recipe, finished, self.folder)
        self._sweep()
        self.event("resumed", "the run goes on after what is finished, or its last checkpoint")
        if self.read_stop() is not None:
            (self.folder / "result.json").unlink()
        if self.result() is not None:  # nothing is left that a change could act on
            self.recipe = before
            return
        present = next((stage for stage in self._stages() if stage not in finished), None)
        if any(change.is_question for change in changes):
            self.event("changed", "what `plumbline decide` asks of the run")
        for change in changes:
            if change.is_question:
                continue
            stage = change.stage(present)
            step = None if stage is None else self._checkpoint_step(stage)
            where = "after the last stage" if stage is None else f"from step {step} of {stage} on"
            facts = {
                "key": change.key,
                "old": change.old,
                "new": change.new,
                "stage": stage,
                "step": step,
            }
            self.event("changed", f"{change}, {where}", **facts)
        if changes:
            write_text(self.folder / "recipe.yaml", self.recipe.to_yaml())

    def _stages(self) -> list[str]:
        """The stages of this run's recipe that train, in order."""
        here = {
            "base": self.recipe.model.name is None,
            "sft": self.recipe.sft,
            "rl": self.recipe.rl,
        }
        return [stage for stage in STAGES if here[stage]]

    def _checkpoint_step(self, stage: str) -> int:
        """The steps that a stage's newest whole checkpoint has behind it; 0 where there is none."""
        found = [path.parent.name[5:] for path in self.checkpoints(stage).glob("step-*/state.json")]
        return max((int(step) for step in found if step.isdecimal()), default=0)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for observer in self.observers:
            observer.close()
        if error is not None and self._lock is not None:
            what = (
                f"{type(error).__name__}: "
                f"{error.cause if isinstance(error, PlumblineError) else one_line(error)}"
            )
            with suppress(StorageError):  # it may be the full disk that stopped the run
                self._record(
                    "stopped", "interrupted" if isinstance(error, KeyboardInterrupt) else what
                )
        self._release()

    # -- writing -----------------------------------------------------------------------------------

    def stage(self, name: str, total: int, done: int = 0) -> None:
        """Tell the observers that a stage begins."""
        for observer in self.observers:
            observer.stage(name, total, done)

    def working(self, what: str, done: int, total: int) -> None:
        """Tell the observers how far something has come that leaves no metrics."""
        for observer in self.observers:
            observer.working(what, done, total)

    def metrics(self, stage: str, step: int, values: Mapping[str, float | int | None]) -> None:
        """Record one step's metrics; None is a value that was not computed."""
        row = {"stage": stage, "step": step, **values}
        self.files["metrics"].append(row)
        for observer in self.observers:
            observer.metrics(row)

    def timings(self, stage: str, step: int, seconds: Mapping[str, float]) -> None:
        """Record where one step's seconds went; apart from the metrics, which are the same in every
        repetition."""
        self.files["timings"].append(
            {"stage": stage, "step": step, **{k: round(v, 4) for k, v in seconds.items()}}
        )

    def sample(self, row: Row) -> None:
        """Record one rollout of training."""
        self.files["samples"].append(row)

    def event(self, kind: str, message: str, **facts: Any) -> None:
        """Record something that the user should know: a warning, a counted skip; `facts` are plain
        values."""
        self._record(kind, message, **facts)
        for observer in self.observers:
            observer.event(kind, message)

    def _record(self, kind: str, message: str, **facts: Any) -> None:
        now = datetime.now(UTC).isoformat(timespec="seconds")
        self.files["events"].append({"time": now, "kind": kind, "message": message, **facts})

    def evaluation(self, key: EvaluationKey, evaluation: Evaluation) -> None:
        """Record an evaluation."""
        write_evaluation(self.evaluation_file(key), evaluation)
        self.on_checkpoint()

    def has_evaluation(self, key: EvaluationKey) -> bool:
        """Whether an evaluation is recorded: a run that is resumed does not make it again."""
        return self.evaluation_file(key).is_file()

    def on_checkpoint(self) -> None:
        """Tell who copies the run that there is something new in its folder."""
        for observer in self.observers:
            observer.on_checkpoint(self)

    def environment(self, extra: Mapping[str, Any]) -> None:
        """Record versions and machine, and what else the pipeline knows."""
        write_json(self.folder / "environment.json", {**environment(), **extra})

    def finish(self, result: Mapping[str, Any]) -> None:
        """Record the outcome: from here on the run counts as finished."""
        write_json(self.folder / "result.json", dict(result))

    def halt(self, facts: Mapping[str, Any]) -> None:
        """Record what stopped the run, which can go on from there."""
        write_json(self.folder / "result.json", {"status": STOPPED, **facts})

    def marks(self) -> dict[str, int]:
        """Lengths of the record files, for a checkpoint (events are never cut back)."""
        return {name: file.size() for name, file in self.files.items() if name != "events"}

    def rewind(self, marks: Mapping[str, int]) -> None:
        """Cut the record files back to a checkpoint's marks.

        Raises:
            RunError: they are no marks.
        """
        for name, size in marks.items():
            if name not in self.files or type(size) is not int or size < 0:
                raise RunError(
                    f"a checkpoint of {self.folder} does not say how long its records were",
                    "remove it",
                )
            self.files[name].truncate(size)


def environment() -> dict[str, Any]:
    """Versions and machine; nothing that names a person or a path."""
    versions = {}
    for package in PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            versions[package] = metadata.version(package)
    return {
        "plumbline": __version__,
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
        "packages": versions,
        "command": [Path(sys.argv[0]).name, *sys.argv[1:]],
    }
