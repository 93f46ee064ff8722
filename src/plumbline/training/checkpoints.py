"""Checkpoints that are whole or absent, and from which a run goes on bit for bit.

A checkpoint holds the trainable weights, the optimiser's moments, the step, and the lengths of the
run's record files at that moment. Randomness needs no saving: every draw is seeded by (recipe seed,
stage, step). A folder is written beside its final name, flushed, and renamed, so a kill at any
moment leaves the previous checkpoint.
"""

import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from plumbline.errors import RunError
from plumbline.storage import clear_os_errors, open_regular, read_object, sync_folder, write_json

TENSORS, STATE = "tensors.safetensors", "state.json"
BEST = "best"
"""In a stage's memory: the best value of `EVALUATED` so far, and its step; the earliest of equal
ones."""
EVALUATED = "eval/mean_reward"


def save_checkpoint(
    folder: Path,
    step: int,
    tensors: Mapping[str, Tensor],
    state: Mapping[str, Any],
    keep: int,
    best: int | None = None,
) -> Path:
    """Write `folder/step-000040` and remove all but the newest `keep` checkpoints and the best.

    Args:
        folder: of the stage.
        step: how many are done.
        tensors: weights and moments.
        state: what else the stage goes on from.
        keep: how many of the newest stay.
        best: the step after which the evaluation was best, as far as is known; its checkpoint
            stays, or else the nearest before it.

    Raises:
        StorageError: the disk is full; the earlier checkpoints are untouched.
    """
    from safetensors.torch import save_file

    final = folder / f"step-{step:06d}"
    with clear_os_errors(final):
        folder.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(dir=folder, prefix=".writing-"))
        try:
            save_file(
                {name: tensor.contiguous() for name, tensor in tensors.items()}, temporary / TENSORS
            )
            write_json(temporary / STATE, {"step": step, **state})
            with (temporary / TENSORS).open("rb") as file:
                os.fsync(file.fileno())
            sync_folder(temporary)
            if final.exists():
                shutil.rmtree(final)
            temporary.rename(final)
            sync_folder(folder)
        except Exception:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
    found = {_step(path): path for path in _list_checkpoints(folder)}
    for old in found.keys() - choose_kept(list(found), keep, best):
        shutil.rmtree(found[old], ignore_errors=True)
    return final


def choose_kept(steps: Sequence[int], keep: int, best: int | None) -> set[int]:
    """Which of some checkpoints stay.

    Args:
        steps: of the checkpoints, ascending.
        keep: how many of the newest, at least 1.
        best: the step that was best; nothing stays for its sake where all checkpoints are later.
    """
    before = [step for step in steps if best is not None and step <= best]
    return {*steps[-keep:], *before[-1:]}


def keep_best(folder: Path) -> None:
    """Remove the checkpoints of a stage that is finished, but for that of an evaluation better than
    the last one's."""
    found = {_step(path): path for path in _list_checkpoints(folder)}
    best = read_object(found[max(found)] / STATE)["memory"].get(BEST) if found else None
    stays = [step for step in found if best is not None and step <= best[1] < max(found)][-1:]
    for step in found.keys() - stays:
        shutil.rmtree(found[step], ignore_errors=True)
    if not stays:
        shutil.rmtree(folder, ignore_errors=True)


def find_latest(folder: Path) -> Path | None:
    """The newest whole checkpoint, after sweeping away what a kill left half written."""
    for leftover in folder.glob(".writing-*"):
        shutil.rmtree(leftover, ignore_errors=True)
    found = _list_checkpoints(folder)
    return found[-1] if found else None


def read_checkpoint(checkpoint: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors and state of a checkpoint.

    Raises:
        RunError: a file of it is damaged.
    """
    from safetensors.torch import load_file

    try:
        state = read_object(checkpoint / STATE)
        _check_state(state)
        open_regular(checkpoint / TENSORS).close()  # a pipe would be waited for
        return load_file(checkpoint / TENSORS), {
            key: state[key] for key in ("step", "marks", "memory")
        }
    except Exception as error:
        before = [
            step
            for step in map(_step, _list_checkpoints(checkpoint.parent))
            if step < _step(checkpoint)
        ]
        where = (
            f"the one before it, step {before[-1]}"
            if before
            else "the stage's beginning: there is none before it"
        )
        raise RunError(
            f"the checkpoint {checkpoint} cannot be read: {error}",
            f"remove this folder: the run then resumes from {where}",
        ) from error


def _check_state(state: dict[str, Any]) -> None:
    marks, memory = state["marks"], state["memory"]
    whole = (
        isinstance(marks, dict)
        and isinstance(memory, dict)
        and isinstance(memory.get("checks", {}), dict)
    )
    if not whole or {type(one) for one in (state["step"], *marks.values())} != {int}:
        raise ValueError(f"{STATE} holds other values than were written")


def _step(checkpoint: Path) -> int:
    return int(checkpoint.name.removeprefix("step-"))


def _list_checkpoints(folder: Path) -> list[Path]:
    # a copy of one may lie beside it
    found = (path for path in folder.glob("step-*") if path.name[5:].isdecimal())
    return sorted((path for path in found if (path / STATE).is_file()), key=_step)
