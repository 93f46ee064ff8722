"""Ray for the time of a run, and pools of its actors: each is lent for one call at a time.

Whoever calls waits for its answer, and where all workers are lent for one of them: so there is never more under way
than there are workers, and what waits, waits where it came from. A worker that died, or that gave no answer in time, is
replaced, and its call is asked again of another. What is asked must depend on what it is asked with alone.

Ray's own retries (`max_restarts`, `max_task_retries`) are not used: a call would wait until its own actor is there
again, while others are free, and an actor that hangs is none to restart.
"""

import logging
import os
import re
import secrets
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from plumbline.errors import EngineError
from plumbline.imports import missing

MOST = {ChildProcessError: 12, TimeoutError: 2}
"""Workers that one call may cost before it counts as what ends them: by their deaths, by the time limit."""
START = 300.0
"""Seconds in which a worker is there; on a cluster that grows, a machine has to come first."""
PATIENCE = 10.0
"""Seconds that the head of the cluster may be out of reach."""
LOOK = 1.0
"""Seconds between looks at the head while an answer is waited for."""
OUTLIVE = "3600"
"""Seconds for which Ray lets a process live on without a head (by default 60, and then it ends it without a word)."""
LOOPBACK = "127.0.0.2" if sys.platform == "linux" else "127.0.0.1"
"""The address of a node of this machine. Ray replaces 127.0.0.1 by the machine's own on Linux, and leaves 127.0.0.2."""
_pools: list["Pool"] = []  # Ray is one for the whole process, and so is what is open in it


@contextmanager
def cluster(address: str | None, wanted: int, what: str) -> Iterator["Head"]:
    """Ray for this block: what is there already, the cluster at an address, or one for the block alone; its head.

    At its end, also by an error, all pools are closed, and what was started or connected here is shut down.

    Args:
        address: HOST:PORT, or auto; None is that of RAY_ADDRESS, else a local cluster is started.
        wanted: workers that a local cluster has place for, at least.
        what: needs it, for messages.

    Raises:
        EngineError: Ray is not installed, or no cluster answers at the address.
    """
    try:
        import ray
    except ImportError as error:
        raise missing(what, error, EngineError) from error
    ours = not ray.is_initialized()
    if ours:
        _connect(address or os.environ.get("RAY_ADDRESS", ""), wanted)
    try:
        yield Head()
    finally:
        while _pools:
            _pools.pop().close()
        if ours:
            _disconnect()


def _connect(address: str, wanted: int) -> None:
    import ray

    os.environ.setdefault("RAY_gcs_rpc_server_reconnect_timeout_s", OUTLIVE)
    local = {"num_cpus": max(os.cpu_count() or 1, wanted), "include_dashboard": False, "_node_ip_address": LOOPBACK}
    if not address:  # Ray's token, without which nobody gets in, would lie in a file that others may read
        os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
    try:
        if address not in {"", "auto"} and not answers(address):  # with `OUTLIVE` Ray itself would try for as long
            raise ConnectionError("nothing listens there")
        options = {} if address else local
        ray.init(address=address or "local", log_to_driver=False, logging_level=logging.ERROR, **options)
    except (OSError, RuntimeError, ValueError) as error:
        where = f"no Ray cluster answers at {address}" if address else "a local Ray cluster does not start"
        raise EngineError(f"{where}: {error}", "see `ray status`; correct scale.address or RAY_ADDRESS") from error


def _disconnect() -> None:
    """End what was started here: without a head, Ray leaves the agents of its node behind."""
    import psutil  # type: ignore[import-untyped]  # comes with Ray
    import ray

    left = [each for each in psutil.Process().children(recursive=True) if each.name().startswith("ray::")]
    ray.shutdown()
    for process in left:
        with suppress(psutil.Error):
            process.kill()


def answers(address: str) -> bool:
    """Whether somebody does at HOST:PORT."""
    host, _, port = address.rpartition(":")
    with suppress(OSError, ValueError):
        socket.create_connection((host.strip("[]"), int(port)), timeout=LOOK).close()
        return True
    return False


class Head:
    """The head of the cluster that this process is connected to: without it nothing can be started or ended."""

    def __init__(self) -> None:
        import ray

        self.address: str = ray.get_runtime_context().gcs_address
        self.heard = time.monotonic()

    def check(self) -> None:
        """Look after it, where that was not done for a while.

        Raises:
            EngineError: it has not answered for `PATIENCE`.
        """
        began = time.monotonic()
        if began - self.heard < LOOK:
            return
        while not answers(self.address):
            if time.monotonic() - began > PATIENCE:
                raise EngineError(
                    f"the head of the Ray cluster, {self.address}, has not answered for {PATIENCE:g} s",
                    "start the cluster again, then go on from the last checkpoint: --resume",
                )
            time.sleep(LOOK / 2)
        self.heard = time.monotonic()


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

    def __init__(
        self, what: str, kind: type, opening: Callable[[], Any], count: int, limit: float, gpus: int = 0
    ) -> None:
        import ray

        self.what, self.opening, self.count, self.limit = what, opening, count, limit
        self.actor = ray.remote(num_cpus=1, num_gpus=gpus, scheduling_strategy="SPREAD")(kind)
        self.lost = 0
        """Workers that were replaced so far."""
        self._workers: dict[Any, Any] = {}
        """Those that were started, each with the promise that it is there."""
        self._lent: set[Any] = set()
        self._lock = threading.Lock()
        self._head = Head()
        _pools.append(self)

    def call(self, method: str, *arguments: Any, wanted: Any = None) -> tuple[Any, Any]:
        """What a worker's method returns, and the worker.

        Args:
            method: of the actors.
            arguments: of the method.
            wanted: the worker to ask, which is waited for as long as it lives.

        Raises:
            EngineError: the cluster is gone, or no worker can be opened.
            ChildProcessError: worker after worker died of this call.
            TimeoutError: one worker after another gave no answer in time.
            Exception: what the method raised.
        """
        from ray.exceptions import GetTimeoutError, RayError, RayTaskError

        lost: Counter[type[OSError]] = Counter()
        while True:
            worker = self._lend(wanted)
            try:
                return self._answer(getattr(worker, method).remote(*arguments)), worker
            except RayTaskError as error:
                raise error.cause from None
            except RayError as error:  # it died, or its machine did and took the answer along; or it hangs
                self._drop(worker)
                if getattr(error, "actor_init_failed", False):
                    said = re.split(r"\n(?=\S)", str(error).strip())[-1]  # after the traceback
                    raise EngineError(
                        f"one of the {self.what} cannot be opened: {said}",
                        "every machine of the cluster needs this package, the same modules and the same files",
                    ) from error
                kind = TimeoutError if isinstance(error, GetTimeoutError) else ChildProcessError
                lost[kind] += 1
                if lost[kind] == MOST[kind]:
                    raise kind(f"it ended {MOST[kind]} {self.what}, the last with: {error}") from None
            finally:
                self._lent.discard(worker)

    def close(self) -> None:
        """End all workers."""
        with self._lock:
            self.count = 0
        for worker in list(self._workers):
            self._drop(worker)

    def _answer(self, promised: Any) -> Any:
        import ray
        from ray.exceptions import GetTimeoutError

        end = time.monotonic() + self.limit
        while not ray.wait([promised], timeout=min(LOOK, self.limit))[0]:
            self._head.check()
            if time.monotonic() > end:
                raise GetTimeoutError(f"no answer in {self.limit:g} s (scale.timeout)")
        return ray.get(promised)

    def _lend(self, wanted: Any) -> Any:
        """A worker that is free, once there is one; those that are missing are started."""
        import ray

        end = time.monotonic() + START
        while True:
            self._head.check()
            with self._lock:
                while len(self._workers) < self.count:
                    worker = self.actor.remote(*self.opening())
                    self._workers[worker] = worker.__ray_ready__.remote()
                for worker in [wanted] if wanted in self._workers else list(self._workers):
                    if worker not in self._lent and ray.wait([self._workers[worker]], timeout=0)[0]:
                        self._lent.add(worker)
                        return worker
            if not self.count or (not self._lent and time.monotonic() > end):
                raise EngineError(
                    f"none of {self.count} {self.what} is there after {START:.0f} s",
                    "see `ray status` for what the cluster has; ask for fewer (scale), or for more machines",
                )
            time.sleep(0.02)

    def _drop(self, worker: Any) -> None:
        """End a worker, in whose place another one is started."""
        import ray

        self.lost += self._workers.pop(worker, None) is not None
        if ray.is_initialized() and answers(self._head.address):
            ray.kill(worker)
