"""The checks of `plumbline check` while a trainer of TRL or transformers continues, as a callback
in one line."""

import logging
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from plumbline.checks.check import Finding, suggest_options
from plumbline.checks.diagnosis.history import History
from plumbline.checks.diagnosis.live import Live, format_message, validate_check_names
from plumbline.checks.diagnosis.readers.completions import read_completions, split_by_mode
from plumbline.checks.diagnosis.readers.rows import TABLE, map_settings
from plumbline.recipe.decision_rules import ChecksSection
from plumbline.runs.observers import alert

_log = logging.getLogger("plumbline")
TRACKERS = ("trackio", "wandb")


class CallbackBase:
    """A callback that costs the training nothing: what breaks in it is said once, and it does no
    more."""

    what = ""
    failed = False

    def __getattr__(self, name: str) -> Callable[..., None]:
        """Events that are of no interest here, those of later versions too: transformers' base
        class is not needed."""
        if name.startswith("on_"):
            return lambda *_, **__: None
        raise AttributeError(name)

    def _safely(self, do: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return do(*arguments)
        except Exception as error:  # noqa: BLE001 - whatever breaks in a guest, the training continues
            self.failed = True
            text = "the %s failed and look no more, training continues: %s: %s"
            _log.warning(text, self.what, type(error).__name__, error)
            return None


class CheckCallback(CallbackBase):
    """Says what is wrong while it can still be changed, and stops what has become pointless after a
    checkpoint.

    Findings are warnings and errors of the logger `plumbline` (Python prints them where nobody set
    up another way), and alerts of Trackio and W&B where `report_to` names these. Completions are
    read where TRL writes them (`log_completions=True`). What goes wrong in a check is said once,
    and costs the training nothing. On several ranks the main process looks and speaks, and all of
    them stop together.

    Args:
        every: steps from one look to the next; where the trainer logs less often, each log is
            looked at.
        stop: whether what is fatal, and no passing draw, saves a checkpoint and stops.
        ignore: names of checks of which nothing is said and by which nothing is stopped.

    Raises:
        RecipeError: a name is that of no check; it lists them.

    Example:
        trainer.add_callback(CheckCallback())
    """

    what = "checks"

    def __init__(self, every: int = 10, *, stop: bool = True, ignore: Sequence[str] = ()) -> None:
        self.section = ChecksSection(every=every, stop=stop, ignore=list(ignore))
        validate_check_names(self.section)
        self.said: list[tuple[Finding, int]] = []
        """Findings, each with the step at which it was said."""
        self.stopped: Finding | None = None
        """What stopped the training."""
        self._live: Live | None = None
        self._looked = 0
        self._told = False
        self._read: set[tuple[str, int]] = set()

    def on_train_begin(
        self,
        args: Any,
        state: Any,
        control: Any,  # noqa: ARG002
        model: Any = None,
        **_: Any,
    ) -> None:
        """Take up what was logged before, where training continues."""
        self._looked, self.stopped, self._told, self.failed = state.global_step, None, False, False
        if state.is_world_process_zero and self.section.every:
            self._safely(self._begin, args, state, model)

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        """Take a row, and look where it is time to."""
        urgent = False
        if self._live is not None and logs and "train_runtime" not in logs:
            urgent = bool(self._safely(self._live.add, {**logs, "step": state.global_step}))
        if self._live is not None and (
            urgent or state.global_step - self._looked >= self.section.every
        ):
            self._looked = state.global_step
            self.stopped = self._safely(self._look, args)
        stoppable = self.section.every and self.section.stop and state.global_step < state.max_steps
        if (
            stoppable
            and _broadcast_stop(self.stopped is not None)
            and not control.should_training_stop
        ):
            control.should_save = control.should_training_stop = True
            if self.stopped is not None:
                _log.error("training stops after a checkpoint: %s", format_message(self.stopped))

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002 - transformers'
        """Say what no look before has said."""
        self._looked = state.global_step
        self._safely(self._look, args, True)

    def _safely(self, do: Callable[..., Any], *arguments: Any) -> Any:
        found = super()._safely(do, *arguments)
        if self.failed:
            self._live = None
        return found

    def _begin(self, args: Any, state: Any, model: Any) -> None:
        adapters = {
            name: {"r": getattr(one, "r", None)}
            for name, one in (getattr(model, "peft_config", None) or {}).items()
        }
        settings = map_settings({**args.to_dict(), "peft_config": adapters})
        settings["steps"] = state.max_steps
        settings |= {
            key.replace("rl.optimiser.", "sft.optimiser."): value for key, value in settings.items()
        }
        words = TABLE["trainers"]["trl"]
        stage = History(
            origin="trl",
            name="training",
            kind="rl",
            series={},
            settings=settings,
            options=words["keys"],
            logs=words["log"],
        )
        self._live = Live(stage, self.section, {})
        if not state.global_step:
            self._read = set(_completions(args))  # of an earlier run in this folder
            return
        for row in state.log_history:
            self._live.add(row)
        self._complete(args, state.global_step)
        self._live.look(last=True)  # was said before

    def _look(self, args: Any, last: bool = False) -> Finding | None:
        if self._live is None:
            return None
        self._complete(args)
        look = self._live.look(last=last)
        if not self._told and look.not_run:
            lacks = ", ".join(look.not_run)
            more = "".join(
                f"{one}; " for one in suggest_options(look.not_run, self._live.stage.logs)
            )
            text = "checks every %d steps; %sskipped for lack of data: %s"
            _log.warning(text, self.section.every, more, lacks)
        self._told = True
        for finding in look.new:
            self.said.append((finding, self._looked))
            _log.log(
                logging.ERROR if finding.level == "fatal" else logging.WARNING,
                "%s",
                format_message(finding),
            )
            for name in TRACKERS:
                self._alert(name, args, finding)
        return look.stop

    def _alert(self, name: str, args: Any, finding: Finding) -> None:
        module = sys.modules.get(name) if name in (args.report_to or ()) else None
        run = getattr(module, "run", None) if name == "wandb" else module
        if run is not None:
            try:
                alert(name, run, finding.level, format_message(finding))
            except Exception as error:  # noqa: BLE001 - as above; what else there is to say is said all the same
                _log.warning("%s took no alert: %s: %s", name, type(error).__name__, error)

    def _complete(self, args: Any, until: int | None = None) -> None:
        """Read the completions that were written since the last look."""
        assert self._live is not None
        history = self._live.current_history()
        for key, file in _completions(args).items():
            if key not in self._read and history is not None:
                self._read.add(key)
                samples, _ = split_by_mode(
                    read_completions(file, history.names("reward/")).samples, history.series
                )
                self._live.add_samples(one for one in samples if until is None or one.step <= until)


def _completions(args: Any) -> dict[tuple[str, int], Path]:
    """The files of completions by name and time."""
    files = sorted((Path(args.output_dir) / "completions").glob("completions_*.parquet"))
    return {(file.name, file.stat().st_mtime_ns): file for file in files}


def _broadcast_stop(stop: bool) -> bool:
    """What the main process says, on every rank: one that stops alone leaves the others waiting."""
    import torch.distributed as ranks

    if not (ranks.is_available() and ranks.is_initialized() and ranks.get_world_size() > 1):
        return stop
    said = [stop]
    ranks.broadcast_object_list(said, src=0)
    return said[0]
