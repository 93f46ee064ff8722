"""What became of a job: what its engine says and what its run left, put together. Neither is believed alone.

A job's own lines in its log (`said`) carry its id, so that the result of an earlier run in the same folder is never
taken for this job's:

    plumbline-job: {"job": "mine-1123-034500-1a2b", "event": "began", ...}
    plumbline-job: {"job": "mine-1123-034500-1a2b", "event": "ended", "status": "finished", ...}
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from plumbline.runs.remote import is_address
from plumbline.storage import dumps, read_bytes, read_object

PREFIX = "plumbline-job: "
EngineStatus = Literal["pending", "running", "succeeded", "failed", "stopped", "unknown"]
Ended = Literal["succeeded", "failed", "never started", "produced nothing", "stopped", "unknown"]
CODES: Mapping[Ended, int] = {
    "succeeded": 0,
    "failed": 3,
    "never started": 4,
    "produced nothing": 5,
    "stopped": 6,
    "unknown": 7,
}
"""Exit statuses of `plumbline submit` and `plumbline jobs follow`, beside those of `plumbline.cli.exits`."""
OVER = frozenset({"succeeded", "failed", "stopped"})
"""What an engine says of a job that is over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """What the engine says of a job."""

    status: EngineStatus
    message: str = ""
    code: int | None = None
    """With which status its process ended."""

    @property
    def over(self) -> bool:
        """Whether nothing more will come."""
        return self.status in OVER


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a job came to."""

    ended: Ended
    why: str
    engine: str
    """The status that the engine gave."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """What the run said of its result: folder, steps, mean rewards by evaluation."""

    @property
    def code(self) -> int:
        """The exit status."""
        return CODES[self.ended]


def said(job: str, event: str, **facts: Any) -> str:
    """A line of a job's log by which the submitter knows it."""
    return PREFIX + dumps({"job": job, "event": event, **facts})


def heard(job: str, log: str) -> Iterator[dict[str, Any]]:
    """What a job said of itself in its log, the lines of other jobs left out."""
    for line in log.splitlines():
        if line.startswith(PREFIX):
            try:
                found = json.loads(line.removeprefix(PREFIX))
            except json.JSONDecodeError:
                continue  # cut off by a kill
            if isinstance(found, dict) and found.get("job") == job:
                yield found


def result_of(folder: Path) -> tuple[dict[str, Any] | None, str]:
    """The result that lies in a run's folder and the hash of its file; None where there is none.

    Raises:
        DataError: it is damaged.
    """
    path = folder / "result.json"
    if not path.is_file():
        return None, ""
    return read_object(path), hashlib.sha256(read_bytes(path)).hexdigest()


def judge(job: str, state: State, log: str, out: str, here: bool) -> Outcome:
    """What a job came to that is over, as far as its engine is concerned.

    Args:
        job: its id.
        state: what the engine says.
        log: all that it printed.
        out: the run's folder.
        here: whether that folder can be read from this machine.

    Raises:
        DataError: the result in the folder is damaged.
    """
    events = {one.get("event"): one for one in heard(job, log)}
    began, ended = "began" in events, events.get("ended")
    engine = state.status if state.code is None else f"{state.status}, exit status {state.code}"

    def outcome(kind: Ended, why: str) -> Outcome:
        return Outcome(ended=kind, why=why, engine=engine, facts=ended or {})

    if not state.over:
        return outcome("unknown", f"the engine says no more than {state.status}: {state.message or 'nothing'}")
    status, why = ("", "") if ended is None else (str(ended.get("status")), str(ended.get("why", "")))
    if state.status == "stopped":
        return outcome("stopped", why or "it was told to stop")
    if status == "never started" or (not began and state.status == "failed"):
        return outcome("never started", why or state.message or "its command never ran")
    if status == "stopped":
        return outcome("stopped", why)
    if state.status == "failed" and status not in {"finished", "nothing"}:
        return outcome("failed", why or _last_words(log) or state.message)
    if ended is None or status == "nothing":
        return outcome("produced nothing", f"{_engine(state)}, and the run left no result: {why or _last_words(log)}")
    if state.status == "failed":
        return outcome("failed", f"the run has a result, and its process ended badly: {state.message}")
    if here and not is_address(out):
        found, digest = result_of(Path(out))
        if found is None or digest != ended.get("result"):
            what = "is not there" if found is None else "is another one than the job wrote"
            return outcome("produced nothing", f"the job says finished, and {Path(out) / 'result.json'} {what}")
    return outcome("succeeded", "engine and record agree")


def _engine(state: State) -> str:
    return "the engine says that it succeeded" if state.status == "succeeded" else "its process has ended"


def _last_words(log: str) -> str:
    """The last error in a log, or else its last line."""
    lines = [line.strip() for line in log.splitlines() if line.strip() and not line.startswith(PREFIX)]
    error = next((line for line in reversed(lines) if line.startswith("error:")), None)
    return error or (lines[-1] if lines else "it printed nothing")
