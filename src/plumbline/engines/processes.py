"""Processes that work for a run and end with it: started in a group of their own, and stopped with
all they started."""

import os
import signal
import socket
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

KEEPER = "trap '' TERM; read -r _; kill -KILL 0"
"""The leader of a process group. Its standard input ends when this process does, a killed one, too,
and then it kills the group. A signal at the parent's death would reach the process alone, and what
that started would stay."""
GRACE = 15.0
"""Seconds that a process has to end by itself."""


@dataclass(frozen=True, slots=True)
class ChildProcess:
    """A process that was started here, the leader of its group, and its log."""

    process: subprocess.Popen[bytes]
    keeper: subprocess.Popen[bytes]
    log: Path
    since: int
    """Bytes of the log that were there before."""

    @property
    def status(self) -> int | None:
        """What the process ended with, minus the signal where it was killed; None while it runs."""
        return self.process.poll()

    def read_output(self) -> str:
        """The end of what it has printed, 20 kB at most."""
        return self.log.read_bytes()[self.since :][-20_000:].decode(errors="replace")


def start_process(
    command: Sequence[str], environment: Mapping[str, str], log: Path
) -> ChildProcess:
    """Start a process in a group of its own; it ends when this process does, however that ends.

    Args:
        command: the program and its arguments.
        environment: variables beside those of this process.
        log: where what it prints is added.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    keeper = subprocess.Popen(["/bin/sh", "-c", KEEPER], stdin=subprocess.PIPE, process_group=0)  # noqa: S603
    with log.open("ab") as output:
        since = output.tell()
        process = subprocess.Popen(  # noqa: S603 - the caller's
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            process_group=keeper.pid,
            env={**os.environ, **environment},
        )
    return ChildProcess(process, keeper, log, since)


def stop_process(kept: ChildProcess) -> None:
    """End a process and all of its group: SIGTERM, and after a while SIGKILL."""
    for sign, seconds in ((signal.SIGTERM, GRACE), (signal.SIGKILL, None)):
        with suppress(ProcessLookupError, subprocess.TimeoutExpired):
            # also where it has ended: what it started may have outlived it
            os.killpg(kept.keeper.pid, sign)
            kept.process.wait(seconds)
    kept.keeper.communicate()


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on; somebody else may take it before it is used."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])
