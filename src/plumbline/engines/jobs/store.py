"""Where the jobs of this user are recorded: a folder each, with `job.json` and, of local processes, the log.

$PLUMBLINE_JOBS, or $XDG_STATE_HOME/plumbline/jobs, or ~/.local/state/plumbline/jobs
"""

import os
import signal
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from plumbline.engines.jobs.outcome import Outcome
from plumbline.engines.jobs.spec import JobSpec
from plumbline.errors import DataError, RunError
from plumbline.storage import clear_os_errors, read_object, write_json


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """A Ray cluster of one machine that a job was given."""

    pid: int
    """Of `ray start`, which leads a process group of its own."""
    port: int
    """Of the dashboard, on 127.0.0.1."""
    folder: str
    """With Ray's session, its log, and the token that its clients must show."""
    started: str = ""
    """When its process began: see `started`."""

    @property
    def address(self) -> str:
        """What jobs are sent to."""
        return f"http://127.0.0.1:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job that was sent."""

    spec: JobSpec
    sent: str
    """When, in UTC."""
    pid: int | None = None
    """Of a local process, which leads a process group of its own."""
    started: str = ""
    """When that process began: see `started`."""
    head: Head | None = None
    outcome: Outcome | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raises TypeError for what no record of ours says."""
        if type(self.pid) not in {int, type(None)} or not all(
            isinstance(one, str) for one in (self.sent, self.started)
        ):
            raise TypeError("sent and started are texts, and pid is a whole number or null")

    @property
    def folder(self) -> Path:
        """Where it is recorded."""
        return place() / self.spec.id

    @property
    def log(self) -> Path:
        """What it printed, as far as that is here."""
        return self.folder / "log.txt"

    def save(self) -> "Job":
        """Record it."""
        values = {**asdict(self), "spec": self.spec.plain()}
        with clear_os_errors(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_json(self.folder / "job.json", values)
        return self


def started(pid: int) -> str:
    """When a process began, in the system's own words; empty where there is none. Numbers are given again, and with
    another beginning it is another process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[19]
    except OSError:
        found = subprocess.run(["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)  # noqa: S603, S607
        return found.stdout.strip()


def leads(pid: int, since: str) -> bool:
    """Whether the process that began then still leads its group; one of which nobody noted when, by its number."""
    with suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)  # where it is our child, so that it is no zombie
    try:
        return os.getpgid(pid) == pid and since in {"", started(pid)}
    except OSError:
        return False


def works(leader: int, since: str) -> bool:
    """Whether anything of a process group still runs whose leader began then.

    The leader may have been killed and have left the others behind; while one of them is there, no other process is
    given its number. What has ended and waits for its parent (a zombie) does not run.
    """
    with suppress(ChildProcessError):
        os.waitpid(leader, os.WNOHANG)  # where it is our child, so that it is no zombie
    members = _group(leader)
    return bool(members) and (leader not in members or since in {"", started(leader)})


def end_group(leader: int, since: str, patience: float) -> None:
    """End a process group, kindly first; no other group that was given its number."""
    until = time.monotonic() + patience
    with suppress(ProcessLookupError, PermissionError):
        if works(leader, since):
            os.killpg(leader, signal.SIGTERM)
        while works(leader, since) and time.monotonic() < until:
            time.sleep(0.1)
        if works(leader, since):
            os.killpg(leader, signal.SIGKILL)


def _group(leader: int) -> list[int]:
    """The processes of a group, without zombies."""
    if not Path("/proc/self/stat").exists():
        said = subprocess.run(["ps", "-axo", "pid=,pgid=,stat="], capture_output=True, text=True, check=False).stdout  # noqa: S607
        rows = [line.split() for line in said.splitlines()]
        return [int(pid) for pid, group, state in rows if int(group) == leader and not state.startswith("Z")]
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it ended meanwhile
            state, _, group, *_ = path.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
            if int(group) == leader and state not in {"Z", "X"}:
                found.append(int(path.parent.name))
    return found


def place() -> Path:
    """The folder of all jobs."""
    own = os.environ.get("PLUMBLINE_JOBS")
    state = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(own or f"{state}/plumbline/jobs").expanduser().absolute()


def read(folder: Path) -> Job:
    """One job.

    Raises:
        DataError: its record is damaged.
    """
    values = read_object(folder / "job.json")
    try:
        head, outcome = values["head"], values["outcome"]
        return Job(
            **{
                **values,
                "spec": JobSpec.from_plain(values["spec"]),
                "head": None if head is None else Head(**head),
                "outcome": None if outcome is None else Outcome(**outcome),
            }
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{folder / 'job.json'} is no job's record: {error}", f"remove {folder}") from error


def jobs() -> list[Job]:
    """All jobs, the newest last.

    Raises:
        DataError: the record of one is damaged.
    """
    return sorted((read(one.parent) for one in place().glob("*/job.json")), key=lambda job: job.sent)


def find(name: str) -> Job:
    """The job with this id, or the only one whose id begins so; `last` is the newest.

    Raises:
        RunError: there is none, or there are several.
    """
    known = jobs()
    found = known[-1:] if name == "last" else [one for one in known if one.spec.id == name]
    found = found or [one for one in known if one.spec.id.startswith(name)]
    if len(found) != 1:
        what = "no job" if not found else f"{len(found)} jobs"
        raise RunError(f"there {'is' if not found else 'are'} {what} called {name}", "`plumbline jobs` lists them")
    return found[0]
