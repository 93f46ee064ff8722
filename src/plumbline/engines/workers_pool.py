"""Ray for the time of a run, and pools of its actors: each is lent for one call at a time.

Whoever calls waits for its answer, and where all workers are lent for one of them: so there is never more under way
than there are workers, and what waits, waits where it came from. A worker that died, or that gave no answer in time, is
replaced, and its call is asked again of another. What is asked must depend on what it is asked with alone.

Ray's own retries (`max_restarts`, `max_task_retries`) are not used: a call would wait until its own actor is there
again, while others are free, and an actor that hangs is none to restart.
"""

import os
import re
import secrets
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from plumbline.config.imports import CONSENT, check_installed
from plumbline.errors import EngineError, PlumblineError

# Workers that one call may cost: that die of it, that give no answer in time, and that die before they are there.
MOST = {"ChildProcessError": 12, "TimeoutError": 2, "opening": 40}
START = 300.0  # seconds in which a worker is there; on a cluster that grows, a machine has to come first
PATIENCE = 10.0  # seconds that the head of the cluster may be out of reach
LOOK = 1.0  # seconds of waiting between looks at the head
# The address of a node of this machine: on Linux, Ray replaces 127.0.0.1 by the machine's own.
LOOPBACK = "127.0.0.2" if sys.platform == "linux" else "127.0.0.1"


Home = tuple[Path, str]
"""Where a run was started, and what its user consented to (`plumbline.config.imports`)."""


def here() -> Home:
    """Of this process, for those on a cluster."""
    return Path.cwd(), os.environ.get(CONSENT, "")


def stand(home: Home) -> None:
    """In a process of the cluster: look for paths and modules where the run was started.

    Ray puts the driver's folder on the path, in front of what is installed; it is searched last (see `imports.named`).
    """
    folder, os.environ[CONSENT] = home
    sys.path[:] = [one for one in sys.path if one not in {"", str(folder)}]
    if folder.is_dir():
        os.chdir(folder)


@contextmanager
def cluster(address: str | None, wanted: int, what: str) -> Iterator[None]:
    """Ray for this block: what is there already, the cluster at an address, or one for the block alone.

    At its end, also by an error, what was started or connected here is shut down. Where Ray was there already, its
    actors end with what holds them.

    Args:
        address: HOST:PORT, or auto; None is that of RAY_ADDRESS, else a local cluster is started.
        wanted: workers that a local cluster has place for, at least.
        what: needs it, for messages.

    Raises:
        ModelError: Ray is not installed.
        EngineError: no cluster answers at the address.
    """
    check_installed(what, ("ray",))
    import psutil  # type: ignore[import-untyped]  # comes with Ray
    import ray

    if ray.is_initialized():
        yield
        return
    address = address or os.environ.get("RAY_ADDRESS", "")
    # Seconds that Ray's processes live on without a head: by default 60, after which this one is ended without a word.
    os.environ.setdefault("RAY_gcs_rpc_server_reconnect_timeout_s", "3600")
    local = {"num_cpus": max(os.cpu_count() or 1, wanted), "include_dashboard": False, "_node_ip_address": LOOPBACK}
    if not address:  # Ray's token, without which nobody gets in, would lie in a file that others may read
        os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
    try:
        if address not in {"", "auto"} and not answers(address):  # else Ray would try for as long
            raise ConnectionError("nothing listens there")
        ray.init(address or "local", log_to_driver=False, logging_level="ERROR", **({} if address else local))
    except (OSError, RuntimeError, ValueError) as error:
        said = f"no Ray cluster answers at {address or 'this machine, where one was started'}: {error}"
        raise EngineError(said, "see `ray status`; correct scale.address or RAY_ADDRESS") from error
    try:
        yield
    finally:
        agents = [each for each in psutil.Process().children(recursive=True) if each.name().startswith("ray::")]
        ray.shutdown()
        for process in agents:  # which Ray leaves behind where there is no head
            with suppress(psutil.Error):
                process.kill()


def answers(address: str) -> bool:
    """Whether somebody does at HOST:PORT."""
    host, _, port = address.rpartition(":")
    with suppress(OSError, ValueError):
        socket.create_connection((host.strip("[]"), int(port)), timeout=LOOK).close()
        return True
    return False


def check_head() -> None:
    """Look after the head of the cluster, without which no worker starts and none that hangs is ended.

    Raises:
        EngineError: it has not answered for `PATIENCE`.
    """
    import ray

    address, end = ray.get_runtime_context().gcs_address, time.monotonic() + PATIENCE
    while not answers(address):
        if time.monotonic() > end:
            fix = "start the cluster again, then go on from the last checkpoint: --resume"
            raise EngineError(f"the head of the Ray cluster, {address}, has not answered for {PATIENCE:g} s", fix)
        time.sleep(LOOK / 2)


class Pool:
    """Actors of one kind, started when they are first needed.

    Args:
        what: they are, in a word, for messages.
        kind: their class.
        opening: gives what it is made with; an error of that is everybody's.
        count: how many there are.
        limit: seconds of a call after which its worker counts as hung.
        gpus: that each is given.
    """

    def __init__(self, what: str, kind: type, opening: Callable[[], Any], count: int, limit: float, gpus: int) -> None:
        import ray

        self.what, self.opening, self.count, self.limit = what, opening, count, limit
        self.actor = ray.remote(num_cpus=1, num_gpus=gpus, scheduling_strategy="SPREAD")(kind)
        self._workers: dict[Any, Any] = {}  # each with the promise that it is there
        self._lent: set[Any] = set()
        self._lock = threading.Lock()

    def call(self, method: str, *arguments: Any, wanted: Any = None) -> tuple[Any, Any]:
        """What a worker's method returns, and the worker.

        Args:
            method: of the actors.
            arguments: of the method.
            wanted: the worker to ask, which is waited for as long as it lives.

        Raises:
            EngineError: the cluster is gone, or no worker can be opened.
            PlumblineError: one worker after another died of this call, or gave no answer in time; as a type of the name
                ChildProcessError or TimeoutError.
            Exception: what the method raised.
        """
        import ray

        left = dict(MOST)
        while True:
            (worker, there), opened = self._lend(wanted), False
            try:
                opened = ray.get(there)
                promised, end = getattr(worker, method).remote(*arguments), time.monotonic() + self.limit
                while not ray.wait([promised], timeout=min(LOOK, self.limit))[0]:
                    check_head()
                    if time.monotonic() > end:
                        raise ray.exceptions.GetTimeoutError(f"no answer in {self.limit:g} s (scale.timeout)")
                return ray.get(promised), worker
            except ray.exceptions.RayTaskError as error:
                raise error.cause from None
            except ray.exceptions.RayError as error:  # it died, maybe with its machine and the answer; or it hangs
                self._drop(worker)
                late = isinstance(error, ray.exceptions.GetTimeoutError)
                kind = "opening" if not opened else "TimeoutError" if late else "ChildProcessError"
                left[kind] -= 1
                if getattr(error, "actor_init_failed", False) or not left["opening"]:
                    said = re.split(r"\n(?=\S)", str(error).strip())[-1]  # after the traceback
                    fix = "every machine of the cluster needs this package, the same modules and the same files"
                    raise EngineError(f"one of the {self.what} cannot be opened: {said}", fix) from None
                if not left[kind]:
                    ended = f"it ended {MOST[kind]} {self.what}, the last with: {error}"
                    raise type(kind, (PlumblineError,), {})(ended, "see scale.timeout, and a worker's memory") from None
            finally:
                self._lent.discard(worker)

    def close(self) -> None:
        """End all workers."""
        with self._lock:
            self.count = 0
        for worker in list(self._workers):
            self._drop(worker)

    def _lend(self, wanted: Any) -> tuple[Any, Any]:
        """A free worker, once there is one, with the promise that it is there; those that are missing are started."""
        import ray

        began = time.monotonic()
        while True:
            with self._lock:
                while len(self._workers) < self.count:
                    worker = self.actor.remote(*self.opening())
                    self._workers[worker] = worker.__ray_ready__.remote()
                for worker in [wanted] if wanted in self._workers else list(self._workers):
                    if worker not in self._lent and ray.wait([self._workers[worker]], timeout=0)[0]:
                        self._lent.add(worker)
                        return worker, self._workers[worker]
            if not self.count or (not self._lent and time.monotonic() - began > START):
                fix = "see `ray status` for what the cluster has; ask for fewer (scale), or for more machines"
                raise EngineError(f"none of {self.count} {self.what} is there after {START:.0f} s", fix)
            check_head()
            time.sleep(min(LOOK, 0.01 + (time.monotonic() - began) / 10))

    def _drop(self, worker: Any) -> None:
        """End a worker, in whose place another one is started."""
        import ray

        self._workers.pop(worker, None)
        if ray.is_initialized() and answers(ray.get_runtime_context().gcs_address):
            ray.kill(worker)
