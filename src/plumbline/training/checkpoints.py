"""Checkpoints that are whole or absent, and from which a run goes on bit for bit.

A checkpoint holds the trainable weights, the optimiser's moments, the step, and the lengths of the run's record files
at that moment. Randomness needs no saving: every draw is seeded by (recipe seed, stage, step). A folder is written
beside its final name, flushed, and renamed, so a kill at any moment leaves the previous checkpoint.
"""

import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from plumbline.errors import RunError
from plumbline.storage import clear_os_errors, read_object, sync_folder, write_json

TENSORS, STATE = "tensors.safetensors", "state.json"


def save(folder: Path, step: int, tensors: Mapping[str, Tensor], state: Mapping[str, Any], keep: int) -> Path:
    """Write `folder/step-000040` and remove all but the newest `keep` checkpoints.

    Raises:
        StorageError: the disk is full; the earlier checkpoints are untouched.
    """
    from safetensors.torch import save_file

    final = folder / f"step-{step:06d}"
    with clear_os_errors(final):
        folder.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(dir=folder, prefix=".writing-"))
        try:
            save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, temporary / TENSORS)
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
    for old in _all(folder)[:-keep]:
        shutil.rmtree(old, ignore_errors=True)
    return final


def latest(folder: Path) -> Path | None:
    """The newest whole checkpoint, after sweeping away what a kill left half written."""
    for leftover in folder.glob(".writing-*"):
        shutil.rmtree(leftover, ignore_errors=True)
    found = _all(folder)
    return found[-1] if found else None


def read(checkpoint: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors and state of a checkpoint.

    Raises:
        RunError: a file of it is damaged.
    """
    from safetensors.torch import load_file

    try:
        state = read_object(checkpoint / STATE)
        return load_file(checkpoint / TENSORS), {key: state[key] for key in ("step", "marks", "memory")}
    except Exception as error:
        raise RunError(
            f"the checkpoint {checkpoint} cannot be read: {error}",
            "remove this folder: the run then resumes from the one before it",
        ) from error


def _all(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("step-*") if (path / STATE).is_file())
