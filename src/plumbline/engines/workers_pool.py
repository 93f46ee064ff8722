"""Ray for the time of a run, and pools of its actors: each is lent for one call at a time.

Whoever calls waits for its answer, and where all workers are lent for one of them: so there is never more under way
than there are workers, and what waits, waits where it came from. A worker that died, or that gave no answer in time, is
replaced, and its call is asked again of another. What is asked must depend on what it is asked with alone.
"""

import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from plumbline.errors import EngineError
from plumbline.imports import missing
from plumbline.recipe.running import ScaleSection

DIED, HUNG = 12, 2
"""Workers that one call may cost before it counts as what ends them: by their deaths, by the time limit."""
START = 300.0
"""Seconds in which a worker is there; on a cluster that grows, a machine has to come first."""
PATIENCE = 10.0
"""Seconds that the head of the cluster may be out of reach."""
LOOK = 1.0
"""Seconds between looks at the head while an answer is waited for."""
OUTLIVE = "3600"
"""Seconds for which Ray lets a process live on without a head (by default 60, and then it ends it without a word)."""
_pools: list["Pool"] = []  # Ray is one for the whole process, and so is what is open in it


@contextmanager
def workers(scale: ScaleSection) -> Iterator[None]:
    """Ray for what runs in this block, where a recipe's `scale` asks for any of it: see `cluster`.

    At its end, also by an error, all pools are closed.
    """
    if not scale.spread:
        yield
        return
    with cluster(scale.address, scale.verdicts + scale.samplers + scale.learners, "scale"):
        try:
            yield
        finally:
            while _pools:
                _pools.pop().close()


@contextmanager
def cluster(address: str | None, wanted: int, what: str) -> Iterator[None]:
    """Ray for this block: what is there already, the cluster at an address, or one for the block alone.

    At its end, also by an error, what was started or connected here is shut down.

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
        yield
    finally:
        if ours:
            _disconnect()


def _disconnect() -> None:
    """End what was started here: without a head, Ray leaves the agents of its node behind."""
    import psutil  # type: ignore[import-untyped]  # comes with Ray
    import ray

    left = [each for each in psutil.Process().children(recursive=True) if each.name().startswith("ray::")]
    ray.shutdown()
    for process in left:
        with suppress(psutil.Error):
            process.kill()


def _connect(address: str, wanted: int) -> None:
    import ray

    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_gcs_rpc_server_reconnect_timeout_s", OUTLIVE)
    local: dict[str, Any] = {
        "num_cpus": max(os.cpu_count() or 1, wanted),
        "include_dashboard": False,
        "_node_ip_address": "127.0.0.2",  # Ray takes 127.0.0.1 for the machine's name on the network
    }
    try:
        if address not in {"", "auto"}:  # with `OUTLIVE` Ray itself would try for as long
            _reach(address)
        ray.init(
            address=address or "local",
            log_to_driver=False,
            logging_level=logging.ERROR,
            **({} if address else local),
        )
    except (OSError, RuntimeError, ValueError) as error:
        where = f"no Ray cluster answers at {address}" if address else "a local Ray cluster does not start"
        raise EngineError(f"{where}: {error}", "see `ray status`; correct scale.address or RAY_ADDRESS") from error


def _reach(address: str) -> None:
    """Raise OSError or ValueError where nothing answers at HOST:PORT."""
    host, _, port = address.rpartition(":")
    socket.create_connection((host.strip("[]"), int(port)), timeout=LOOK).close()


class Pool:
    """Actors of one kind, started when they are first needed.

    Args:
        what: they are, in a word, for messages.
        make: starts one. It has a method `open`, which is called once, and whose errors are everybody's.
        count: how many there are.
        limit: seconds of a call after which its worker counts as hung.
    """

    def __init__(self, what: str, make: Callable[[], Any], count: int, limit: float) -> None:
        import ray

        self.what, self.make, self.count, self.limit = what, make, count, limit
        self.lost = 0
        """Workers that were replaced so far."""
        self._free: list[Any] = []
        self._lent: list[Any] = []
        self._coming: dict[Any, Any] = {}
        self._news = threading.Condition()
        self._head: str = ray.get_runtime_context().gcs_address
        self._heard = self._looked = time.monotonic()
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

        died = hung = 0
        while True:
            worker, kept = self._lend(wanted), False
            try:
                answer = self._answer(getattr(worker, method).remote(*arguments))
                kept = True
            except RayTaskError as error:
                kept = True
                raise error.cause from None
            except GetTimeoutError:
                hung += 1
                if hung == HUNG:
                    late = f"{HUNG} {self.what} gave no answer in {self.limit:g} s each (scale.timeout)"
                    raise TimeoutError(late) from None
            except RayError as error:  # it died, or its machine did and took the answer along
                died += 1
                if died == DIED:
                    raise ChildProcessError(f"{DIED} {self.what} died of it, the last with: {error}") from error
            else:
                return answer, worker
            finally:
                self._give_back(worker, kept=kept)

    def close(self) -> None:
        """End all workers."""
        with self._news:
            everybody = [*self._free, *self._lent, *self._coming.values()]
            self._free, self._lent, self._coming, self.count = [], [], {}, 0
            self._news.notify_all()
        for worker in everybody:
            self._kill(worker)

    def _answer(self, promised: Any) -> Any:
        import ray
        from ray.exceptions import GetTimeoutError

        end = time.monotonic() + self.limit
        self._check()
        while not ray.wait([promised], timeout=min(LOOK, self.limit))[0]:
            self._check()
            if time.monotonic() >= end:
                raise GetTimeoutError
        return ray.get(promised)

    def _lend(self, wanted: Any) -> Any:
        """A free worker, once there is one."""
        began = time.monotonic()
        with self._news:
            while True:
                self._welcome()
                if wanted in self._free or (self._free and wanted not in self._lent):
                    worker = wanted if wanted in self._free else self._free[0]
                    self._free.remove(worker)
                    self._lent.append(worker)
                    return worker
                self._check()
                if not self.count or (not self._lent and time.monotonic() - began > START):
                    raise EngineError(
                        f"none of {self.count} {self.what} is there after {time.monotonic() - began:.0f} s",
                        "see `ray status` for what the cluster has; ask for fewer (scale), or for more machines",
                    )
                self._news.wait(0.02 if self._coming else LOOK)

    def _welcome(self) -> None:
        """Start the workers that are missing, and take in those that have opened."""
        import ray
        from ray.exceptions import RayError, RayTaskError

        while len(self._free) + len(self._lent) + len(self._coming) < self.count:
            worker = self.make()
            self._coming[worker.open.remote()] = worker
        opened = ray.wait(list(self._coming), num_returns=len(self._coming), timeout=0)[0] if self._coming else []
        for promised in opened:
            worker = self._coming.pop(promised)
            try:
                ray.get(promised)
                self._free.append(worker)
            except RayTaskError as error:
                raise EngineError(
                    f"one of the {self.what} cannot be opened: {error.cause}",
                    "every machine of the cluster needs this package, the same modules and the same files",
                ) from error
            except RayError:  # it died: the next look starts another
                self.lost += 1

    def _give_back(self, worker: Any, *, kept: bool) -> None:
        with self._news:
            if worker in self._lent:
                self._lent.remove(worker)
                self._free += [worker] * kept
                self.lost += not kept
            self._news.notify_all()
        if not kept:
            self._kill(worker)

    def _kill(self, worker: Any) -> None:
        import ray

        if ray.is_initialized() and self._answers():
            ray.kill(worker)

    def _answers(self) -> bool:
        """Whether the head of the cluster does: without it nothing can be started or ended."""
        try:
            _reach(self._head)
        except OSError:
            return False
        self._heard = time.monotonic()
        return True

    def _check(self) -> None:
        """Look after the head, at most once in a while."""
        now = time.monotonic()
        if now - self._looked < LOOK:
            return
        if now - self._looked > PATIENCE:  # nobody looked, so nothing is known of the time before
            self._heard = now
        self._looked = now
        if not self._answers() and (silent := now - self._heard) > PATIENCE:
            raise EngineError(
                f"the head of the Ray cluster, {self._head}, has not answered for {silent:.0f} s",
                "start the cluster again, then go on from the last checkpoint: --resume",
            )
