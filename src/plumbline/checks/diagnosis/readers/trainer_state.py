"""`trainer_state.json` of TRL and transformers: also what Unsloth, Axolotl and ms-swift leave."""

import re
from pathlib import Path
from typing import Any

from plumbline.checks.diagnosis.history import History
from plumbline.checks.diagnosis.readers.logs import config_beside, read_log
from plumbline.checks.diagnosis.readers.rows import mark_evaluation
from plumbline.errors import DataError
from plumbline.storage import LARGEST_JSON, clear_read_errors, parse_json, read_text

NAME = "trainer_state.json"


def find(path: Path) -> Path | None:
    """The file itself, that of a folder, or that of a folder's last checkpoint."""
    if path.is_file():
        return path if path.name.endswith(".json") and _is_state(path) else None
    if (path / NAME).is_file():
        return path / NAME
    states = [state for state in path.glob(f"*/{NAME}") if _is_checkpoint(state.parent)]
    return max(states, key=lambda state: int(state.parent.name.rpartition("-")[2]), default=None)


def read(path: Path) -> list[History]:
    """See `Reader.read`: one stage."""
    state = _parse_state(path)
    rows = state.get("log_history")
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise DataError(
            f"{path}: log_history is no list of objects",
            "give a trainer_state.json as the trainer wrote it",
        )
    output = path.parent.parent if _is_checkpoint(path.parent) else path.parent
    planned, done = state.get("max_steps"), state.get("global_step")
    return [
        read_log(
            "trl",
            path,
            [mark_evaluation(row) for row in rows],
            folder=output,
            config=config_beside(output)
            | config_beside(path.parent)
            | ({"max_steps": planned} if planned else {}),
            step="step",
            finished=done >= planned
            if isinstance(done, int) and isinstance(planned, int) and planned > 0
            else None,
        )
    ]


def _is_checkpoint(folder: Path) -> bool:
    return re.fullmatch(r"checkpoint-\d+", folder.name) is not None


def _is_state(path: Path) -> bool:
    try:
        return "log_history" in _parse_state(path)
    except DataError:
        return path.name == NAME


def _parse_state(path: Path) -> dict[str, Any]:
    text = read_text(path, limit=LARGEST_JSON)
    with clear_read_errors(path):
        try:
            state = parse_json(text)
        except ValueError as error:
            raise DataError(
                f"{path} is no whole JSON ({error})",
                "it may be half written: give an earlier checkpoint's",
            ) from error
    if not isinstance(state, dict):
        raise DataError(
            f"{path} holds no JSON object", "give a trainer_state.json as the trainer wrote it"
        )
    return state
