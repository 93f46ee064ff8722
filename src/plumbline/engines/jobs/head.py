"""A Ray cluster of this machine alone, for one job: started, found again by whoever follows the job, and stopped.

Ray's head listens on every network of a machine (its GCS and raylet cannot be told otherwise, 2.60), and whoever
reaches it can run code there. So ours demands a token (RAY_AUTH_MODE=token), which lies in a file that only this user
can read; its dashboard, which takes jobs, and its agents listen on loopback addresses only.
"""

import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from plumbline.config.imports import check_installed
from plumbline.engines.jobs.store import Head, leads, started
from plumbline.engines.workers_pool import LOOPBACK
from plumbline.errors import EngineError
from plumbline.storage import write_text

STARTS_WITHIN = 90.0
"""Seconds; 6 to 12 are usual on two cores."""
STOPS_WITHIN = 15.0
STORE = 200_000_000
"""Bytes of Ray's object store: a run needs none, its workers little."""


def start_head(environment: Mapping[str, str], cpus: int | None = None, say: Callable[[str], None] = print) -> Head:
    """Start a head whose jobs have this environment.

    Args:
        environment: what jobs find in theirs: this process's own, and what the job sets.
        cpus: that it counts; by default the machine's.
        say: is told what takes a while.

    Raises:
        ModelError: there is no Ray.
        EngineError: it does not start in time; names its log.
    """
    check_installed("a job on Ray", ("ray",))
    # Short, because a socket's path below it has 107 characters at most; and not Ray's own, where a note of its address
    # would have every other `ray.init()` of this machine try it.
    folder = Path(tempfile.mkdtemp(prefix="plb-ray-"))
    write_text(folder / "token", secrets.token_hex(32))
    (folder / "token").chmod(0o600)
    port, *others = free_ports(5)
    words = {
        "node-ip-address": LOOPBACK,
        "port": others[0],
        "dashboard-host": "127.0.0.1",
        "dashboard-port": port,
        "dashboard-agent-listen-port": others[1],
        "ray-client-server-port": others[2],
        "metrics-export-port": others[3],
        "object-store-memory": STORE,
        "temp-dir": folder,
        **({} if cpus is None else {"num-cpus": cpus}),
    }
    command = [sys.executable, "-P", "-m", "ray.scripts.scripts", "start", "--head", "--block", "--disable-usage-stats"]
    command += [f"--{name}={value}" for name, value in words.items()]
    say("starting a Ray head on this machine")
    given = {name: value for name, value in environment.items() if name != "RAY_AUTH_TOKEN"}  # before a file, for Ray
    with (folder / "head.log").open("wb") as log:
        process = subprocess.Popen(  # noqa: S603
            command,
            env={**given, **_variables(folder)},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    head = Head(pid=process.pid, port=port, folder=str(folder), started=started(process.pid))
    try:
        _await(head, process)
    except BaseException:
        stop_head(head, keep=True)
        raise
    return head


def _await(head: Head, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + STARTS_WITHIN
    while time.monotonic() < until:
        if process.poll() is not None:
            raise EngineError(f"the Ray head ended with {process.returncode} as it started", _look(head))
        if answers(head):
            return
        time.sleep(0.2)
    raise EngineError(f"the Ray head does not answer after {STARTS_WITHIN:.0f} s", _look(head))


def _look(head: Head) -> str:
    return f"{Path(head.folder) / 'head.log'} says why; `--on process` needs no Ray"


def answers(head: Head) -> bool:
    """Whether jobs can be sent to a head: the agent that starts them is there some seconds after the dashboard."""
    asked = urllib.request.Request(f"{head.address}/api/jobs/", headers=headers(head))  # noqa: S310 - http of our own
    try:
        with urllib.request.urlopen(asked, timeout=5) as answer:  # noqa: S310
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def headers(head: Head) -> dict[str, str]:
    """What a client of this head has to show."""
    return {"Authorization": f"Bearer {(Path(head.folder) / 'token').read_text(encoding='utf-8')}"}


def stop_head(head: Head, *, keep: bool = False) -> None:
    """Stop a head of ours and all its processes; no other Ray on this machine is touched.

    Args:
        head: to stop; one that is not there any more is no error.
        keep: leave its folder, where its log is.
    """
    until = time.monotonic() + STOPS_WITHIN
    if ours(head):
        with suppress(ProcessLookupError):
            os.killpg(head.pid, signal.SIGTERM)
    while ours(head) and time.monotonic() < until:
        time.sleep(0.1)
    if started(head.pid) in {"", head.started} or not head.started:  # else its number is another one's by now
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(head.pid, signal.SIGKILL)  # what the head left behind in its group
    if not keep:
        shutil.rmtree(head.folder, ignore_errors=True)


def ours(head: Head) -> bool:
    """Whether the head still runs: its process leads a group, and its token is there."""
    return leads(head.pid, head.started) and (Path(head.folder) / "token").is_file()


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on; somebody else may take one before it is used, and then the head says so."""
    held = [socket.socket() for _ in range(count)]
    try:
        for one in held:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in held]
    finally:
        for one in held:
            one.close()


def _variables(folder: Path) -> dict[str, str]:
    """What a head finds in its environment beside that of its jobs: its token; and to stop at once, because to drain
    a node, for 30 seconds, is for services that answer others."""
    return {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(folder / "token"),
        "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S": "0",
    }
