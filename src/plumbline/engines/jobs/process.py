"""A job as a process of its own on this machine: it outlives the command that started it."""

import os
import subprocess
import time
from collections.abc import Iterator

from plumbline.engines.jobs.outcome import State
from plumbline.engines.jobs.store import Job, end_group, works
from plumbline.errors import EngineError
from plumbline.storage import clear_os_errors, read_text

SHELL = 'trap : TERM INT; "$@"; code=$?; echo "$code" > "$0.part"; mv "$0.part" "$0"'
"""Runs a command and leaves its exit status in a file, for whoever asks later; a signal to the group is the command's
to obey, and is waited for here."""
PATIENCE = 20.0
"""Seconds that a job has to end by itself when it is stopped."""


def send(job: Job) -> int:
    """Start the job's process; its id, which is that of its group, too.

    Raises:
        EngineError: it cannot be started.
        StorageError: its log cannot be written.
    """
    spec = job.spec
    with clear_os_errors(job.log), job.log.open("wb") as log:
        try:
            process = subprocess.Popen(  # noqa: S603
                ["/bin/sh", "-c", SHELL, str(job.folder / "exit"), *spec.command()],
                cwd=spec.working_dir,
                env={**os.environ, **spec.env, "PYTHONUNBUFFERED": "1"},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            raise EngineError(f"the job's process does not start: {error.strerror}", "see the cause above") from error
    return process.pid


def state(job: Job) -> State:
    """What can be seen of the process, by whoever looks."""
    alive = job.pid is not None and works(job.pid, job.started)
    written = job.folder / "exit"
    if written.is_file():  # looked for after the process, which may have ended in between
        text = read_text(written, limit=100).strip()
        code = int(text) if text.isdecimal() else 1
        return State(status="failed" if code else "succeeded", code=code, message=f"its process ended with {code}")
    if alive:
        return State(status="running")
    return State(status="failed", message="its process was killed")


def follow(job: Job) -> Iterator[str]:
    """What the job prints, from its beginning, until it is over."""
    done = 0
    while True:
        over = state(job).over
        with job.log.open("rb") as log:
            log.seek(done)
            if text := log.read():
                done += len(text)
                yield text.decode("utf-8", "replace")
        if over:
            return
        time.sleep(0.2)


def stop(job: Job) -> None:
    """End the job's process and all that it started, kindly first."""
    if job.pid is not None:
        end_group(job.pid, job.started, PATIENCE)
