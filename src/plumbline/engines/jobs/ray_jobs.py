"""A job on Ray, by its own client (`ray.job_submission`): sent, watched, followed, stopped.

Nothing secret goes through Ray: `runtime_env` and metadata are stored in the cluster, printed in its logs and shown on
its dashboard. A head that we start inherits the environment, and so do its jobs; on any other cluster a secret has to
be in the environment of its nodes, and the job refuses to begin without it (`job_entry.py`).
"""

import logging
import os
import shlex
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import plumbline
from plumbline.config.imports import missing
from plumbline.engines.jobs.head import headers
from plumbline.engines.jobs.outcome import State
from plumbline.engines.jobs.spec import JobSpec
from plumbline.engines.jobs.store import Job
from plumbline.errors import EngineError, PlumblineError

if TYPE_CHECKING:
    from ray.job_submission import JobSubmissionClient

STATES = {"PENDING": "pending", "RUNNING": "running", "STOPPED": "stopped", "SUCCEEDED": "succeeded"}
QUIET = ("ray.dashboard.modules.job.sdk", "ray.dashboard.modules.dashboard_sdk", "ray._private.runtime_env")
MOST_LOST = 5
"""Times in a row that a log breaks off while the cluster does not answer."""
ADDRESSES = ("RAY_ADDRESS", "RAY_API_SERVER_ADDRESS")


def runtime_env(spec: JobSpec) -> dict[str, Any]:
    """What the cluster is told to give the job: files, packages, visible variables.

    A cluster that is not this machine is sent this package, too (`py_modules`), so that the same version runs there.
    """
    made: dict[str, Any] = {"working_dir": spec.working_dir, "env_vars": {**spec.env, "PYTHONUNBUFFERED": "1"}}
    if spec.excludes:
        made["excludes"] = list(spec.excludes)
    if not spec.here:
        made["py_modules"] = [str(Path(plumbline.__file__).parent)]
    if spec.requirements is not None:
        made["pip"] = spec.requirements
    return made


def client(job: Job) -> "JobSubmissionClient":
    """A client of the cluster that the job is on.

    Raises:
        ModelError: there is no Ray, or not what its jobs need.
        EngineError: nothing answers there.
    """
    try:
        from ray.job_submission import JobSubmissionClient
    except ModuleNotFoundError as error:
        raise missing("a job on Ray", error, extra="ray") from error
    for name in QUIET:  # what they say of files that are left out was said before, better
        logging.getLogger(name).setLevel(logging.ERROR)
    with _clear(job):
        if job.head is None:
            return JobSubmissionClient(job.spec.address)
        with _without(ADDRESSES):  # which Ray would obey instead of ours
            return JobSubmissionClient(job.head.address, headers=headers(job.head))


def send(job: Job) -> None:
    """Submit the job under its own id.

    Raises:
        EngineError: the cluster does not take it.
    """
    spec = job.spec
    with _clear(job):
        client(job).submit_job(
            entrypoint=shlex.join(spec.command()),
            submission_id=spec.id,
            runtime_env=runtime_env(spec),
            metadata={"plumbline": plumbline.__version__, "recipe": spec.name, "out": spec.out},
            entrypoint_num_cpus=spec.cpus,
            entrypoint_num_gpus=spec.gpus,
        )


def state(job: Job) -> State:
    """What Ray says of the job; `unknown` where the cluster does not answer or does not know it."""
    try:
        with _clear(job):
            info = client(job).get_job_info(job.spec.id)
    except EngineError as error:
        return State(status="unknown", message=error.cause)
    status = STATES.get(str(info.status), "failed")
    return State(status=status, message=info.message or "", code=info.driver_exit_code)  # type: ignore[arg-type]


def logs(job: Job) -> str:
    """All that the job printed.

    Raises:
        EngineError: nothing answers.
    """
    with _clear(job):
        return str(client(job).get_job_logs(job.spec.id))


def follow(job: Job) -> Iterator[str]:
    """What the job prints, from its beginning, until it is over; a connection that breaks is made again.

    Raises:
        EngineError: nothing answers any more.
    """
    import asyncio

    loop, seen, lost = asyncio.new_event_loop(), 0, 0
    while True:
        place, stream = 0, client(job).tail_job_logs(job.spec.id)
        try:
            while (text := _next(loop, stream)) is not None:  # which tells a log from its beginning
                new = text[max(0, seen - place) :]
                place += len(text)
                if new:
                    seen, lost = place, 0
                    yield new
            now = state(job)
        except BaseException:
            _leave(loop)
            raise
        if now.over:
            loop.close()
            return
        lost += 1
        if now.status == "unknown" and lost > MOST_LOST:
            loop.close()
            raise EngineError(f"the cluster does not answer any more: {now.message}", "look after its head")
        time.sleep(0.5)


def _leave(loop: Any) -> None:
    """End what still waits for a log, so that the connection is closed and nothing complains of it."""
    import asyncio

    waiting = asyncio.all_tasks(loop)
    for one in waiting:
        one.cancel()
    loop.run_until_complete(asyncio.gather(*waiting, return_exceptions=True))
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()


def _next(loop: Any, stream: AsyncIterator[str]) -> str | None:
    """The next piece of a log; None where the connection has ended, or broke."""
    try:
        return str(loop.run_until_complete(anext(stream)))
    except StopAsyncIteration:
        return None
    except (RuntimeError, OSError):
        return None


def stop(job: Job) -> None:
    """End the job: Ray sends SIGTERM, and SIGKILL three seconds later.

    Raises:
        EngineError: nothing answers, or the cluster does not know it.
    """
    with _clear(job):
        client(job).stop_job(job.spec.id)


@contextmanager
def _clear(job: Job) -> Iterator[None]:
    """Turn what Ray's client raises into ours: RuntimeError, ConnectionError and ValueError, by its documentation, and
    errors of its own (a token that is lacking), which are known here by their module, because Ray may not be there."""
    try:
        yield
    except PlumblineError:
        raise
    except Exception as error:
        foreign = isinstance(error, RuntimeError | ConnectionError | ValueError | OSError)
        if not foreign and not type(error).__module__.startswith("ray."):
            raise
        where = job.spec.address if job.head is None else job.head.address
        said = " ".join(str(error).split())[:400]
        raise EngineError(
            f"the Ray cluster at {where} does not do it: {said}",
            "check that it runs, that this machine reaches its dashboard (--address http://HOST:8265) and, where it "
            "asks for a token, RAY_AUTH_MODE=token with RAY_AUTH_TOKEN_PATH",
        ) from error


@contextmanager
def _without(names: tuple[str, ...]) -> Iterator[None]:
    kept = {name: os.environ.pop(name) for name in names if name in os.environ}
    try:
        yield
    finally:
        os.environ.update(kept)
