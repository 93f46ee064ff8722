"""A vLLM server of a run's own: started on a free port, waited for, and ended with all that it started."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
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
KEEPER = """
import os, signal, subprocess, sys, threading
signal.signal(signal.SIGTERM, lambda *_: None)
child = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL)
def end_with_the_run():
    sys.stdin.buffer.read()
    os.killpg(0, signal.SIGKILL)
threading.Thread(target=end_with_the_run, daemon=True).start()
code = child.wait()
if code < 0:
    if -code != signal.SIGKILL:
        signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
sys.stdout.flush()
os._exit(code)
"""
"""The leader of a server's process group. Its standard input ends when the run does, a killed one, too, and then it
kills the group; else it ends as the server does. A signal at the parent's death would reach the server alone, and the
processes of its engine would stay."""
GRACE = 15.0
"""Seconds that a server has to end by itself."""


@dataclass(frozen=True, slots=True)
class Server:
    """A process that was started here, with its address and its log."""

    process: subprocess.Popen[bytes]
    address: str
    log: Path
    since: int = 0
    """Bytes of the log that were there before."""


def check(python: str | None, module: str) -> str:
    """The interpreter of a server: as given, that of PLUMBLINE_VLLM_PYTHON, or this one.

    Raises:
        EngineError: it is not there, or has no vLLM.
    """
    python = python or os.environ.get(PYTHON) or sys.executable
    root = module.partition(".")[0]
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


def start(python: str | None, module: str, arguments: Sequence[str], extra: Mapping[str, str], log: Path) -> Server:
    """Start a server in a process group of its own; it ends when this process does, however that ends.

    Args:
        python: the interpreter (see `check`).
        module: what it runs.
        arguments: beside host and port.
        extra: environment variables beside those of this process.
        log: where what it prints is added.

    Raises:
        EngineError: see `check`.
    """
    python = check(python, module)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log.parent.mkdir(parents=True, exist_ok=True)
    command = [python, "-m", module, *arguments, "--host", "127.0.0.1", "--port", str(port)]
    with log.open("ab") as output:
        since = output.tell()
        process = subprocess.Popen(  # noqa: S603 - the user's interpreter
            [sys.executable, "-c", KEEPER, *command],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={**os.environ, **extra},
        )
    return Server(process, f"http://127.0.0.1:{port}", log, since)


def wait_until(
    server: Server | None, healthy: Callable[[], bool], seconds: float, told: Callable[[int, int], None]
) -> None:
    """Wait until a server is well; `told` hears how many seconds of how many have gone.

    Raises:
        EngineError: its process ended, or the time is over.
    """
    began = time.monotonic()
    while not healthy():
        gone = time.monotonic() - began
        if server is not None and server.process.poll() is not None:
            raise ended(server)
        if gone > seconds:
            where = "the server" if server is None else f"the server (its log is {server.log})"
            raise EngineError(
                f"{where} was not ready within {seconds:g} seconds", "raise engine.timeout, or see its log"
            )
        told(int(gone), int(seconds))
        time.sleep(0.25)


def ended(server: Server) -> EngineError:
    """Why a server's process has ended, as far as its log says."""
    text = server.log.read_bytes()[server.since :][-20_000:].decode(errors="replace")
    errors = [line.strip() for line in text.splitlines() if "Error" in line]
    code = server.process.poll()
    said = f": {errors[-1][-300:]}" if errors else ""
    short = code == -signal.SIGKILL or any(word in text.lower() for word in FULL)
    cause = "ran out of memory" if short and errors else f"ended with status {code}"
    advice = (
        "say in engine.arguments what it may have: --max-model-len, --gpu-memory-utilization (a share of the GPU) or, "
        "beside other programs, --kv-cache-memory-bytes; or use a smaller model"
        if short
        else "correct engine.arguments or the model"
    )
    return EngineError(f"the vLLM server {cause}{said}", f"{advice}; its log is {server.log}")


def stop(server: Server) -> None:
    """End a server and every process of its group: SIGTERM, and after a while SIGKILL."""
    with suppress(ProcessLookupError):
        os.killpg(server.process.pid, signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        server.process.wait(GRACE)
    with suppress(ProcessLookupError):  # what it started may have outlived it
        os.killpg(server.process.pid, signal.SIGKILL)
    server.process.wait()
    if server.process.stdin is not None:
        server.process.stdin.close()
