"""What a recipe's `scale` asks for: Ray, and on it workers for verdicts, for rollouts and for an
update's micro-batches.

**Verdicts.** Each worker has opened the same task for itself. The threads of
`rollouts.reward_workers` ask, one for each worker; all else is answered by the task in this
process. An episode lives in one worker, which is told its next text. Where that died, another one
is told all texts so far: what an episode comes to depends on its texts alone.

**Rollouts and micro-batches.** Each worker is a replica of the policy, opened from the stage's own
model directory. It is handed the trainable weights by the version: whoever has another one takes it
over before it does anything, so a worker that replaces one that died has the latest. Rollouts are
dealt in whole chunks, cut as one process cuts them: the same matrix products are done then, and
round to the same bits on the same kind of processor with the same number of threads. Between
machines of two kinds, and on GPUs, what is drawn is the same but for what lies within rounding of a
border (see `Sampler.sample`).
"""

import os
import pickle
import re
import secrets
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any
from uuid import uuid4

from plumbline.config.imports import CONSENT, check_installed
from plumbline.errors import EngineError, PlumblineError, RewardError
from plumbline.policies import open_policy
from plumbline.policies.options import model_section
from plumbline.policies.policy import Policy, with_gradients
from plumbline.recipe import ModelSection, Recipe, ScaleSection
from plumbline.records import Draws, Example, Failure, Message, Outcome, Request, Score
from plumbline.runs.run import Run
from plumbline.tasks import open_task
from plumbline.tasks.task import Episode, Task, TaskAdapter, episode_of, unwrap_result

KEPT = 1024  # episodes that a worker keeps; an older one that continues is told again
# Workers that one call may cost: that die of it, that give no answer in time, and that die before
# they are there.
MOST = {"ChildProcessError": 12, "TimeoutError": 2, "opening": 40}
# seconds in which a worker is there; on a cluster that grows, a machine has to come first
START = 300.0
PATIENCE = 10.0  # seconds that the head of the cluster may be out of reach
LOOK = 1.0  # seconds of waiting between looks at the head
# The address of a node of this machine: on Linux, Ray replaces 127.0.0.1 by the machine's own.
LOOPBACK = "127.0.0.2" if sys.platform == "linux" else "127.0.0.1"
Told = tuple[Sequence[Message] | None, tuple[Outcome, Score] | None]
Work = Callable[..., Any]  # called with the policy, and with further arguments
# where a run was started, and what its user consented to (`plumbline.config.imports`)
Home = tuple[Path, str]


def open_workers(scale: ScaleSection) -> AbstractContextManager[None]:
    """Ray for what runs in this block, with all that this file opens: see `connect_cluster`."""
    return connect_cluster(scale.address, scale.verdicts + scale.samplers + scale.learners, "scale")


def process_home() -> Home:
    """Of this process, for those on a cluster."""
    return Path.cwd(), os.environ.get(CONSENT, "")


def adopt_home(home: Home) -> None:
    """In a process of the cluster: look for paths and modules where the run was started.

    Ray puts the driver's folder on the path, in front of what is installed; it is searched last
    (see `imports.import_named`).
    """
    folder, os.environ[CONSENT] = home
    sys.path[:] = [one for one in sys.path if one not in {"", str(folder)}]
    if folder.is_dir():
        os.chdir(folder)


@contextmanager
def connect_cluster(address: str | None, wanted: int, what: str) -> Iterator[None]:
    """Ray for this block: what is there already, the cluster at an address, or one for the block
    alone.

    At its end, also by an error, what was started or connected here is shut down. Where Ray was
    there already, its actors end with what holds them.

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
    # Seconds that Ray's processes live on without a head: by default 60, after which this one is
    # ended without a word.
    os.environ.setdefault("RAY_gcs_rpc_server_reconnect_timeout_s", "3600")
    local = {
        "num_cpus": max(os.cpu_count() or 1, wanted),
        "include_dashboard": False,
        "_node_ip_address": LOOPBACK,
    }
    # Ray's token, without which nobody gets in, would lie in a file that others may read
    if not address:
        os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
    try:
        # else Ray would try for as long
        if address not in {"", "auto"} and not is_listening(address):
            raise ConnectionError("nothing listens there")
        ray.init(
            address or "local",
            log_to_driver=False,
            logging_level="ERROR",
            **({} if address else local),
        )
    except (OSError, RuntimeError, ValueError) as error:
        raise EngineError(
            f"no Ray cluster answers at {address or 'this machine, where one was started'}: {error}",
            "see `ray status`; correct scale.address or RAY_ADDRESS",
        ) from error
    try:
        yield
    finally:
        started = psutil.Process().children(recursive=True)
        agents = [each for each in started if each.name().startswith("ray::")]
        ray.shutdown()
        for process in agents:  # which Ray leaves behind where there is no head
            with suppress(psutil.Error):
                process.kill()


def is_listening(address: str) -> bool:
    """Whether somebody does at HOST:PORT."""
    host, _, port = address.rpartition(":")
    with suppress(OSError, ValueError):
        socket.create_connection((host.strip("[]"), int(port)), timeout=LOOK).close()
        return True
    return False


def check_head() -> None:
    """Look after the head of the cluster, without which no worker starts and none that hangs is
    ended.

    Raises:
        EngineError: it has not answered for `PATIENCE`.
    """
    import ray

    address, end = ray.get_runtime_context().gcs_address, time.monotonic() + PATIENCE
    while not is_listening(address):
        if time.monotonic() > end:
            raise EngineError(
                f"the head of the Ray cluster, {address}, has not answered for {PATIENCE:g} s",
                "start the cluster again, then resume from the last checkpoint: --resume",
            )
        time.sleep(LOOK / 2)


class ActorPool:
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
        self, what: str, kind: type, opening: Callable[[], Any], count: int, limit: float, gpus: int
    ) -> None:
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
            PlumblineError: one worker after another died of this call, or gave no answer in time;
                as a type of the name ChildProcessError or TimeoutError.
            Exception: what the method raised.
        """
        import ray

        left = dict(MOST)
        while True:
            (worker, there), opened = self._lend(wanted), False
            try:
                opened = ray.get(there)
                promised = getattr(worker, method).remote(*arguments)
                end = time.monotonic() + self.limit
                while not ray.wait([promised], timeout=min(LOOK, self.limit))[0]:
                    check_head()
                    if time.monotonic() > end:
                        raise ray.exceptions.GetTimeoutError(
                            f"no answer in {self.limit:g} s (scale.timeout)"
                        )
                return ray.get(promised), worker
            except ray.exceptions.RayTaskError as error:
                raise error.cause from None
            # it died, maybe with its machine and the answer; or it hangs
            except ray.exceptions.RayError as error:
                self._drop(worker)
                late = isinstance(error, ray.exceptions.GetTimeoutError)
                kind = "opening" if not opened else "TimeoutError" if late else "ChildProcessError"
                left[kind] -= 1
                if getattr(error, "actor_init_failed", False) or not left["opening"]:
                    said = re.split(r"\n(?=\S)", str(error).strip())[-1]  # after the traceback
                    raise EngineError(
                        f"one of the {self.what} cannot be opened: {said}",
                        "every machine of the cluster needs this package, the same modules and the "
                        "same files",
                    ) from None
                if not left[kind]:
                    raise type(kind, (PlumblineError,), {})(
                        f"it ended {MOST[kind]} {self.what}, the last with: {error}",
                        "see scale.timeout, and a worker's memory",
                    ) from None
            finally:
                self._lent.discard(worker)

    def close(self) -> None:
        """End all workers."""
        with self._lock:
            self.count = 0
        for worker in list(self._workers):
            self._drop(worker)

    def _lend(self, wanted: Any) -> tuple[Any, Any]:
        """A free worker, once there is one, with the promise that it is there; those that are
        missing are started."""
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
                raise EngineError(
                    f"none of {self.count} {self.what} is there after {START:.0f} s",
                    "see `ray status` for what the cluster has; ask for fewer (scale), or for more "
                    "machines",
                )
            check_head()
            time.sleep(min(LOOK, 0.01 + (time.monotonic() - began) / 10))

    def _drop(self, worker: Any) -> None:
        """End a worker, in whose place another one is started."""
        import ray

        self._workers.pop(worker, None)
        if ray.is_initialized() and is_listening(ray.get_runtime_context().gcs_address):
            ray.kill(worker)


# -- verdicts --------------------------------------------------------------------------------------


def spread_verdicts(recipe: Recipe, task: Task, name: str, run: Run) -> Task:
    """The task, judged by as many workers as the recipe's `scale.verdicts` says.

    What else it has, it keeps under the same names.

    Args:
        recipe: of the run.
        task: opened in this process.
        name: of the task in the recipe.
        run: whose data folder the workers open it with.
    """
    section, folder, scale = recipe.each_task[name], run.folder / "data" / name, recipe.scale

    # when the first verdict is asked for: the records have been built then
    def opening() -> tuple[Any, ...]:
        return section.name, section.options, folder, folder.is_dir(), process_home()

    pool = ActorPool("workers for verdicts", TaskWorker, opening, scale.verdicts, scale.timeout, 0)
    return _Spread(task, pool)


class _Spread(TaskAdapter):
    """A task whose verdicts are asked of workers, one by each thread."""

    def __init__(self, task: Task, pool: ActorPool) -> None:
        super().__init__(task)
        self.pool = pool

    @property
    def judges(self) -> int:
        """See `Task.judges`."""
        return self.pool.count

    def judge(self, example: Example, completion: str) -> tuple[Outcome, Score]:
        """See `Task.judge`."""
        return unwrap_result(self.judge_group(example, [completion])[0])

    def judge_group(
        self, example: Example, completions: Sequence[str]
    ) -> Sequence[tuple[Outcome, Score] | Failure]:
        """See `Task.judge_group`: of any task, because a call to a worker costs about as much as a
        query."""
        return self.pool.call("judge", pickle.dumps(example), list(completions))[0]

    def episode(self, example: Example) -> "SpreadEpisode":
        """See `Task.episode`."""
        return SpreadEpisode(self.pool, example)


class SpreadEpisode:
    """An episode that lives in a worker; see `Episode`."""

    def __init__(self, pool: ActorPool, example: Example) -> None:
        self.pool, self.name, self.example = pool, uuid4().hex, pickle.dumps(example)
        self.texts: list[str] = []
        self._found: Told = example.messages, None
        self._lives: Any = None

    def ask(self) -> Sequence[Message] | None:
        """See `Episode.ask`."""
        return self._found[0]

    def tell(self, text: str) -> None:
        """See `Episode.tell`."""
        self.texts.append(text)
        self._found, self._lives = self.pool.call(
            "tell", self.name, self.example, self.texts, wanted=self._lives
        )

    def result(self) -> tuple[Outcome, Score]:
        """See `Episode.result`."""
        assert self._found[1] is not None, "an episode comes to nothing before its first answer"
        return self._found[1]


@contextmanager
def _keep_name() -> Iterator[None]:
    """What a task raises, under the name that it has, of a type that any process can read: its own
    may be known in the worker alone, or be one that cannot be pickled."""
    try:
        yield
    except RewardError:
        raise
    except Exception as error:  # noqa: BLE001 - the boundary to a task's code, as in `plumbline.rollouts.reward_workers`
        raise type(type(error).__name__, (Exception,), {})(str(error)) from None


class TaskWorker:
    """The actor: a task that is asked for one verdict at a time, opened where the run was
    started."""

    def __init__(
        self, name: str, options: Mapping[str, Any], folder: Path, there: bool, home: Home
    ) -> None:
        """Open the task (see `open_task`).

        Raises:
            EngineError: the run's records, which are `there`, are not on this machine.
            PlumblineError: see `open_task`.
        """
        adopt_home(home)
        if there and not folder.is_dir():
            raise EngineError(
                f"this machine has no folder {folder}, where the run's records are",
                "let run.folder be on a disk that all machines of the cluster share",
            )
        self.task = open_task(name, options, folder)
        # a task may know it by its identity
        self.example: Callable[[bytes], Example] = lru_cache(KEPT)(pickle.loads)
        self.episodes: dict[str, Episode] = {}  # those that are not over, the oldest first

    @_keep_name()
    def judge(
        self, example: bytes, completions: Sequence[str]
    ) -> Sequence[tuple[Outcome, Score] | Failure]:
        """The verdicts of texts of one prompt, together where the task can do that."""
        task, asked = self.task, self.example(example)
        together = task.judge_group(asked, completions) if len(completions) > 1 else None
        return (
            [task.judge(asked, completion) for completion in completions]
            if together is None
            else together
        )

    @_keep_name()
    def tell(self, name: str, example: bytes, texts: Sequence[str]) -> Told:
        """What an episode asks and comes to after these texts, of which the last is new."""
        here = self.episodes.pop(name, None)
        episode = here or episode_of(self.task, self.example(example))
        for text in texts[-1:] if here else texts:
            episode.tell(text)
        if (asks := episode.ask()) is not None:
            self.episodes[name] = episode
            if len(self.episodes) > KEPT:
                del self.episodes[next(iter(self.episodes))]
        return asks, episode.result()


# -- rollouts and micro-batches --------------------------------------------------------------------


def open_learners(recipe: Recipe, policy: Policy, model: str, run: Run) -> "Learners":  # noqa: ARG001
    """Workers that share the micro-batches of an update with this process: one fewer than
    `scale.learners` says."""
    return Learners("learners", recipe, policy, model, recipe.scale.learners - 1)


class Replicas:
    """Workers with the policy's model, each asked by a thread, and the weights that they have to
    have."""

    def __init__(self, what: str, recipe: Recipe, policy: Policy, model: str, workers: int) -> None:
        import torch

        reference = recipe.rl is not None and recipe.rl.beta > 0
        opening = model_section(recipe), model, torch.get_num_threads(), reference, process_home()
        gpus = int(policy.engine.get("device", "").startswith("cuda"))
        self.pool = ActorPool(
            what, ModelWorker, lambda: opening, workers, recipe.scale.timeout, gpus
        )
        self.count, self.threads = workers, ThreadPoolExecutor(workers, thread_name_prefix="ask")
        # the version, and where in Ray's store: fetched by who needs them
        self.weights: tuple[int, list[Any]] = -1, []

    def take(self, learner: Policy, version: int) -> None:
        """See `Engine.take`."""
        import ray

        held = {name: one.detach().cpu().clone() for name, one in learner.trainable().items()}
        self.weights = version, [ray.put(held)]

    def ask(self, work: Work, *further: Any) -> Future[tuple[Any, Any]]:
        """What the work comes to in a worker with the weights that were taken last, and the
        worker."""
        return self.threads.submit(self.pool.call, "work", *self.weights, work, *further)

    def close(self) -> None:
        """See `Engine.close`."""
        self.threads.shutdown(wait=False, cancel_futures=True)
        self.pool.close()


class Samplers(Replicas):
    """An `Engine` of several processes: workers that draw in place of the policy, as many as
    `scale.samplers` says."""

    def __init__(self, recipe: Recipe, policy: Policy, model: str, run: Run) -> None:
        super().__init__("samplers", recipe, policy, model, recipe.scale.samplers)
        self.family, self.context, self.cut = policy.family, policy.context, policy.cut
        self.prompt_length, self.exact = policy.prompt_length, policy.exact
        self.engine = {**policy.engine, "samplers": str(self.count)}
        self.run, self._told = run, False
        self.figures: Mapping[str, float] = {}

    def sample(self, requests: Sequence[Request]) -> Draws:
        """See `Sampler.sample`. A chunk comes as a whole, once all of its answers have ended.

        Raises:
            EngineError: the cluster is gone, or worker after worker died.
        """
        chunks = self.cut(requests)
        if len(chunks) < self.count and not self._told:
            self._told = True
            self.run.event(
                "note",
                f"only {len(chunks)} of {self.count} samplers have something to draw, because so "
                "many answers are "
                f"drawn side by side; model.rows_at_once: {-(-len(requests) // self.count)} would "
                "give each a share",
            )
        for done in as_completed([self.ask(_draw_chunk, *chunk) for chunk in chunks]):
            yield from pickle.loads(done.result()[0])  # noqa: S301 - from a worker of ours


def _draw_chunk(policy: Any, requests: Sequence[Request], shared: int) -> bytes:
    """A chunk's requests with their trajectories, pickled: arrays that Ray unpacks cannot be
    written to."""
    policy.shared = shared
    return pickle.dumps(list(policy.sample(requests)))


class Learners(Replicas):
    """Replicas that share an update's micro-batches; see `Helpers`."""

    @contextmanager
    def working(
        self, learner: Policy, works: Sequence[Work]
    ) -> Iterator[Callable[[], list[tuple[Any, Mapping[str, Any]]]]]:
        """See `Helpers.working`."""
        self.take(learner, self.weights[0] + 1)
        asked = [self.ask(with_gradients, work) for work in works]
        yield lambda: [each.result()[0] for each in asked]


class ModelWorker:
    """The actor: a replica of the policy."""

    def __init__(
        self, section: ModelSection, model: str, threads: int, reference: bool, home: Home
    ) -> None:
        """Load the model; see `open_policy`."""
        import torch

        adopt_home(home)
        torch.set_num_threads(threads)
        self.version, self.policy = -1, open_policy(section, model)
        if reference:
            self.policy.keep_reference()

    def work(self, version: int, held: Sequence[Any], work: Work, *further: Any) -> Any:
        """What the work returns, called with the policy, once that has the weights of the
        version."""
        if version != self.version:
            import ray

            weights = ray.get(held[0])
            for name, weight in self.policy.trainable().items():
                weight.detach().copy_(weights[name])
            self.policy.publish(version)
            self.version = version
        return work(self.policy, *further)
