"""Where jobs run: a process of its own on this machine, or a Ray cluster, by Ray's own client.

Nothing secret goes through Ray: `runtime_env` and metadata are stored in the cluster, printed in
its logs and shown on its dashboard. A secret has to be in the environment of its nodes, and the job
refuses to begin without (`entry.py`).
"""

import fcntl
import logging
import os
import shlex
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Literal

from plumbline.config.imports import check_installed, own_folders
from plumbline.errors import EngineError, PlumblineError, StorageError
from plumbline.jobs.job import JobSpec, SentJob
from plumbline.storage import clear_os_errors, one_line, open_regular, read_bytes, read_text
from plumbline.version import __version__

SHELL = 'trap : TERM INT; "$@"; code=$?; echo "$code" > "$0.part"; mv "$0.part" "$0"'
"""Runs a command and leaves its exit status in a file, for whoever asks later; a signal to the
group is the command's to obey, and is waited for here."""
PATIENCE = 20.0
"""Seconds that a job's process has to end by itself when it is stopped."""
STATES = {name.upper(): name for name in ("pending", "running", "stopped", "succeeded", "failed")}
QUIET = (
    "ray.dashboard.modules.job.sdk",
    "ray.dashboard.modules.dashboard_sdk",
    "ray._private.runtime_env",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """What the engine says of a job."""

    status: Literal["pending", "running", "succeeded", "failed", "stopped", "unknown"]
    message: str = ""
    code: int | None = None
    """With which status its process ended."""

    @property
    def is_over(self) -> bool:
        """Whether nothing more will come."""
        return self.status in {"succeeded", "failed", "stopped"}


def open_backend(job: SentJob) -> "ProcessJob | RayJob":
    """What a job is sent to and asked of."""
    return RayJob(job) if job.spec.on == "ray" else ProcessJob(job)


class ProcessJob:
    """A job as a process of its own on this machine: it outlives the command that started it.

    It holds the lock of a file for as long as it lives, so no other process that was given its
    number is taken for it.
    """

    def __init__(self, job: SentJob) -> None:
        self.job, self.lock, self.exit = job, job.folder / "lock", job.folder / "exit"

    def send(self) -> int:
        """Start the job's process; its id, which is that of its group, too.

        Raises:
            EngineError: it cannot be started.
            StorageError: its log cannot be written.
        """
        spec = self.job.spec
        with (
            clear_os_errors(self.job.log),
            self.job.log.open("wb") as log,
            self.lock.open("wb") as lock,
        ):
            fcntl.flock(lock, fcntl.LOCK_EX)
            try:
                return subprocess.Popen(  # noqa: S603
                    ["/bin/sh", "-c", SHELL, str(self.exit), *spec.command()],
                    cwd=spec.working_dir,
                    env={**os.environ, **spec.env, "PYTHONUNBUFFERED": "1"},
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    pass_fds=[lock.fileno()],
                ).pid
            except OSError as error:
                raise EngineError(
                    f"the job's process does not start: {error.strerror}", "see the cause above"
                ) from error

    def is_alive(self) -> bool:
        """Whether the job's process, or the shell that waits for it, still holds the lock."""
        with suppress(StorageError), open_regular(self.lock, StorageError) as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
        return False

    def state(self) -> State:
        """What can be seen of the process, by whoever looks."""
        alive = self.is_alive()
        if self.exit.is_file():  # looked for after the process, which may have ended in between
            text = read_text(self.exit, limit=100).strip()
            code = int(text) if text.isdecimal() else 1
            return State(
                status="failed" if code else "succeeded",
                code=code,
                message=f"its process ended with {code}",
            )
        if alive:
            return State(status="running")
        return State(status="failed", message="its process was killed")

    def log(self) -> str:
        """All that the job has printed."""
        return read_bytes(self.job.log, StorageError).decode("utf-8", "replace")

    def stop(self) -> None:
        """End the job's process and all of its group, kindly first."""
        if self.job.pid is None or not self.is_alive():
            return
        # the second one for what the run started, too
        for sign in (signal.SIGTERM, signal.SIGKILL):
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.job.pid, sign)
            until = time.monotonic() + PATIENCE
            while self.is_alive() and time.monotonic() < until:
                time.sleep(0.1)


class RayJob:
    """A job on a Ray cluster, under its own id."""

    def __init__(self, job: SentJob) -> None:
        self.job = job
        self._client: Any = None

    def send(self) -> None:
        """Submit the job.

        Raises:
            EngineError: the cluster does not take it.
        """
        spec = self.job.spec
        with self._ray_client() as client:
            client.submit_job(
                entrypoint=shlex.join(spec.command()),
                submission_id=spec.id,
                runtime_env=runtime_env(spec),
                metadata={"plumbline": __version__, "recipe": spec.name, "out": spec.out},
                entrypoint_num_cpus=spec.cpus,
                entrypoint_num_gpus=spec.gpus,
            )

    def state(self) -> State:
        """What Ray says of the job; `unknown` where the cluster does not answer or does not know
        it."""
        try:
            with self._ray_client() as client:
                info = client.get_job_info(self.job.spec.id)
                status: Any = STATES.get(str(info.status), "unknown")
                code = info.driver_exit_code if isinstance(info.driver_exit_code, int) else None
                return State(status=status, message=one_line(info.message or ""), code=code)
        except EngineError as error:
            return State(status="unknown", message=error.cause)

    def log(self) -> str:
        """All that the job has printed, as far as the cluster still has it."""
        with suppress(EngineError), self._ray_client() as client:
            return str(client.get_job_logs(self.job.spec.id)).encode(errors="replace").decode()
        return ""

    def stop(self) -> None:
        """End the job: Ray sends SIGTERM, and SIGKILL three seconds later.

        Raises:
            EngineError: nothing answers, or the cluster does not know it.
        """
        with self._ray_client() as client:
            client.stop_job(self.job.spec.id)

    @contextmanager
    def _ray_client(self) -> Iterator[Any]:
        """Ray's client, and whatever it raises as an error of ours: it does not check what a
        dashboard answers.

        Raises:
            ModelError: there is no Ray.
            EngineError: nothing answers at the address, or it does not do it.
        """
        check_installed("a job on Ray (--on process needs none)", ("ray",))
        from ray.job_submission import JobSubmissionClient

        for name in QUIET:  # what they say of files that are left out was said before, better
            logging.getLogger(name).setLevel(logging.ERROR)
        # Ray's client would obey these instead of its argument.
        told = {
            name: os.environ.pop(name, None) for name in ("RAY_ADDRESS", "RAY_API_SERVER_ADDRESS")
        }
        try:
            self._client = self._client or JobSubmissionClient(self.job.spec.address)
            yield self._client
        except Exception as error:
            if isinstance(error, PlumblineError):
                raise
            raise EngineError(
                f"the Ray cluster at {self.job.spec.address} does not do it: {one_line(error)}",
                "check that it runs, that it has the version of Ray that is installed here, that "
                "this machine reaches its dashboard (--address http://HOST:8265) and, where it "
                "asks for a token, RAY_AUTH_MODE=token with RAY_AUTH_TOKEN_PATH",
            ) from error
        finally:
            os.environ.update({name: value for name, value in told.items() if value is not None})


def runtime_env(spec: JobSpec) -> dict[str, Any]:
    """What the cluster is told to give the job: files, packages, visible variables.

    A cluster that is not this machine is sent Plumbline, too (`py_modules`), so that the same
    version runs there.
    """
    made = {
        "working_dir": spec.working_dir,
        "env_vars": {**spec.env, "PYTHONUNBUFFERED": "1"},
        "excludes": list(spec.excludes),
        "py_modules": None if spec.is_local else own_folders(),
        "pip": spec.requirements,
    }
    return {name: value for name, value in made.items() if value}
