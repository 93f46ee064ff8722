"""A vLLM server of a run's own: started, and ended with all that it started."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from plumbline.errors import EngineError

MODULE = "vllm.entrypoints.openai.api_server"
PINNED = "0.32"
"""The version whose interfaces this package uses; they changed at 0.28 and again after 0.31."""
FULL = ("out of memory", "outofmemory", "no available memory", "cannot allocate memory", "free memory on device")
"""What of a server's last lines says that memory was short."""
PYTHON = "PLUMBLINE_VLLM_PYTHON"
"""The environment variable that names an interpreter with vLLM, where no recipe does."""
KEEPER = "trap '' TERM; read -r _; kill -KILL 0"
"""The leader of a server's process group. Its standard input ends when the run does, a killed one, too, and then it
kills the group. A signal at the parent's death would reach the server alone, and its engine's processes would stay."""
GRACE = 15.0
"""Seconds that a server has to end by itself."""


@dataclass(frozen=True, slots=True)
class Server:
    """A process that was started here, the leader of its group, and its log."""

    process: subprocess.Popen[bytes]
    keeper: subprocess.Popen[bytes]
    log: Path
    since: int
    """Bytes of the log that were there before."""


def check(python: str | None) -> str:
    """The interpreter of a server: as given, that of PLUMBLINE_VLLM_PYTHON, or this one.

    Raises:
        EngineError: it is not there, or has no vLLM.
    """
    python = python or os.environ.get(PYTHON) or sys.executable
    root = MODULE.partition(".")[0]
    looked = [python, "-c", f"import importlib.util as i, sys; sys.exit(i.find_spec('{root}') is None)"]
    try:
        absent = subprocess.run(looked, capture_output=True, check=False).returncode != 0  # noqa: S603 - the user's
    except OSError as error:
        raise EngineError(f"cannot start {python}: {error.strerror}", "give an interpreter in engine.python") from error
    if absent:
        raise EngineError(
            f"{python} has no {root}",
            f"install vLLM {PINNED} in an environment of its own (docs/vllm.md) and name its interpreter in "
            f"engine.python or in {PYTHON}, or give engine.address",
        )
    return python


def free_port() -> int:
    """A port of this machine that nobody listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def start(python: str | None, arguments: Sequence[str], extra: Mapping[str, str], log: Path) -> Server:
    """Start a server in a process group of its own; it ends when this process does, however that ends.

    Args:
        python: the interpreter (see `check`).
        arguments: of the server's command.
        extra: environment variables beside those of this process.
        log: where what it prints is added.

    Raises:
        EngineError: see `check`.
    """
    command = [check(python), "-m", MODULE, *arguments]
    log.parent.mkdir(parents=True, exist_ok=True)
    keeper = subprocess.Popen(["/bin/sh", "-c", KEEPER], stdin=subprocess.PIPE, process_group=0)  # noqa: S603
    with log.open("ab") as output:
        since = output.tell()
        process = subprocess.Popen(  # noqa: S603 - the user's interpreter
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            process_group=keeper.pid,
            env={**os.environ, **extra},
        )
    return Server(process, keeper, log, since)


def ended(server: Server) -> EngineError | None:
    """Why a server's process has ended, as far as its log says; None while it runs."""
    if server.process.poll() is None:
        return None
    text = server.log.read_bytes()[server.since :][-20_000:].decode(errors="replace")
    errors = [f": {line.strip()[-300:]}" for line in text.splitlines() if "Error" in line]
    short = any(word in text.lower() for word in FULL)
    what = "ran out of memory" if short else f"ended with status {server.process.returncode}"
    return EngineError(
        f"the vLLM server {what}{''.join(errors[-1:])}",
        "where memory was short, lower --gpu-memory-utilization or --max-model-len in engine.arguments, else correct "
        f"them or the model; its log is {server.log}",
    )


def stop(server: Server) -> None:
    """End a server and every process of its group: SIGTERM, and after a while SIGKILL."""
    for sign, seconds in ((signal.SIGTERM, GRACE), (signal.SIGKILL, None)):
        with suppress(ProcessLookupError, subprocess.TimeoutExpired):
            os.killpg(server.keeper.pid, sign)  # also where it has ended: what it started may have outlived it
            server.process.wait(seconds)
    server.keeper.communicate()
