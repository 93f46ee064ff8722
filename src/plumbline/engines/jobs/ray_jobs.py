"""A job on Ray, by its own client (`ray.job_submission`): sent, watched, followed, stopped; and the cluster of this
machine alone that a job without an address is given.

Nothing secret goes through Ray: `runtime_env` and metadata are stored in the cluster, printed in its logs and shown on
its dashboard. A head that we start inherits the environment, and so do its jobs; on any other cluster a secret has to
be in the environment of its nodes, and the job refuses to begin without it (`entry.py`).

Ray's head listens on every network of a machine (its GCS and raylet cannot be told otherwise, 2.60), and whoever
reaches it can run code there. So ours demands a token (RAY_AUTH_MODE=token), which lies in a file that only this user
can read; its dashboard, which takes jobs, and its agents listen on loopback addresses only.
"""

import logging
import os
import secrets
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import plumbline
from plumbline.config.imports import check_installed, missing, own_folders
from plumbline.engines.jobs.outcome import State
from plumbline.engines.jobs.spec import JobSpec
from plumbline.engines.jobs.store import Head, Job, end_group, leads, started
from plumbline.engines.workers_pool import LOOPBACK
from plumbline.errors import EngineError, PlumblineError
from plumbline.storage import write_text

if TYPE_CHECKING:
    from ray.job_submission import JobSubmissionClient

STATES = {"PENDING": "pending", "RUNNING": "running", "STOPPED": "stopped", "SUCCEEDED": "succeeded"}
QUIET = ("ray.dashboard.modules.job.sdk", "ray.dashboard.modules.dashboard_sdk", "ray._private.runtime_env")
MOST_LOST = 5
"""Times in a row that the cluster may leave a question for the log unanswered."""
HEAD_PATIENCE = 15.0
"""Seconds that a head has to end by itself."""
STARTS_WITHIN = 90.0
"""Seconds in which a head has to answer; 6 to 12 are usual on two cores."""
STORE = 200_000_000
"""Bytes of Ray's object store: a run needs none, its workers little."""
ADDRESSES = ("RAY_ADDRESS", "RAY_API_SERVER_ADDRESS")
"""Variables that Ray would obey instead of the address of a head of ours."""


def runtime_env(spec: JobSpec) -> dict[str, Any]:
    """What the cluster is told to give the job: files, packages, visible variables.

    A cluster that is not this machine is sent Plumbline, too (`py_modules`), so that the same version runs there.
    """
    made: dict[str, Any] = {"working_dir": spec.working_dir, "env_vars": {**spec.env, "PYTHONUNBUFFERED": "1"}}
    if spec.excludes:
        made["excludes"] = list(spec.excludes)
    if not spec.here:
        made["py_modules"] = own_folders()
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
        kept = {name: os.environ.pop(name) for name in ADDRESSES if name in os.environ}
        try:
            return JobSubmissionClient(job.head.address, headers=headers(job.head))
        finally:
            os.environ.update(kept)


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
    """What the job prints, from its beginning, until it is over; a cluster that does not answer is asked again.

    Raises:
        EngineError: nothing answers any more.
    """
    seen, lost = 0, 0
    while True:
        now = state(job)
        try:
            text = logs(job)
        except EngineError as error:
            lost += 1
            if lost > MOST_LOST:
                what = f"the cluster does not answer any more: {now.message or error.cause}"
                raise EngineError(what, "look after its head") from error
        else:
            lost = 0
            if len(text) > seen:
                yield text[seen:]
            seen = len(text)
            if now.over:
                return
        time.sleep(0.5)


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


# -- a head of this machine


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
    with ExitStack() as held:  # ports that nobody listens on
        sockets = [held.enter_context(socket.socket()) for _ in range(5)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        port, *others = (one.getsockname()[1] for one in sockets)
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
            env={
                **given,
                "RAY_AUTH_MODE": "token",
                "RAY_AUTH_TOKEN_PATH": str(folder / "token"),
                # To drain a node, for 30 seconds, is for services that answer others.
                "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S": "0",
            },
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    head = Head(pid=process.pid, port=port, folder=str(folder), started=started(process.pid))
    until, look = time.monotonic() + STARTS_WITHIN, f"{folder / 'head.log'} says why; `--on process` needs no Ray"
    with ExitStack() as failed:
        failed.callback(stop_head, head, keep=True)
        while not _answers(head):
            if process.poll() is not None:
                raise EngineError(f"the Ray head ended with {process.returncode} as it started", look)
            if time.monotonic() > until:
                raise EngineError(f"the Ray head does not answer after {STARTS_WITHIN:.0f} s", look)
            time.sleep(0.2)
        failed.pop_all()
    return head


def _answers(head: Head) -> bool:
    """Whether jobs can be sent to a head: the agent that starts them is there some seconds after the dashboard."""
    asked = urllib.request.Request(f"{head.address}/api/jobs/", headers=headers(head))  # noqa: S310 - http of our own
    try:
        with urllib.request.urlopen(asked, timeout=5) as answer:  # noqa: S310
            return bool(answer.status == 200)
    except OSError:
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
    end_group(head.pid, head.started, HEAD_PATIENCE)
    if not keep:
        shutil.rmtree(head.folder, ignore_errors=True)


def ours(head: Head) -> bool:
    """Whether the head still runs: its process leads a group, and its token is there."""
    return leads(head.pid, head.started) and (Path(head.folder) / "token").is_file()
