"""Replicas of the policy in Ray actors: some draw rollouts, some do a share of an update's passes.

Each is opened from the stage's own model directory, and is handed the trainable weights by the version: whoever has
another one takes it over before it does anything, so a worker that replaces one that died has the latest.

Rollouts are dealt to workers in whole chunks, cut as one process cuts them: the same matrix products are done then, and
round to the same bits on the same kind of processor with the same number of threads. Between machines of two kinds,
and on GPUs, what is drawn is the same but for what lies within rounding of a border (see `Sampler.sample`).
"""

import os
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from plumbline.engines.workers_pool import Pool
from plumbline.errors import EngineError, RecipeError
from plumbline.policies import open_policy
from plumbline.policies.options import model_section
from plumbline.policies.policy import Cuts, Learner, Policy
from plumbline.recipe import ModelSection, Recipe
from plumbline.records import Message, Request, Sampling, Trajectory
from plumbline.runs.run import Run

Work = Callable[[Any], Any]
"""What a learner's replica is asked to do: called with the policy, it leaves gradients in the weights."""


def open_samplers(recipe: Recipe, policy: Policy, model: str, run: Run) -> "Samplers":
    """Workers that draw in place of the policy, as many as `scale.samplers` says.

    Raises:
        RecipeError: the policy does not say what it draws together.
    """
    if not isinstance(policy, Cuts):
        raise RecipeError(
            f"scale.samplers needs a policy that says which requests it draws together; {policy.family} does not",
            "leave out scale.samplers, or give the policy a method `cut` (see plumbline.policies.policy.Cuts)",
        )
    return Samplers(policy, _pool("samplers", recipe, policy, model, recipe.scale.samplers), run)


def open_learners(recipe: Recipe, policy: Policy, model: str, run: Run) -> "Learners":  # noqa: ARG001
    """Workers that share the passes of an update with this process: one fewer than `scale.learners` says."""
    return Learners(_pool("learners", recipe, policy, model, recipe.scale.learners - 1))


def _pool(what: str, recipe: Recipe, policy: Policy, model: str, count: int) -> Pool:
    import torch

    section, threads = model_section(recipe), torch.get_num_threads()
    gpus = int(policy.engine.get("device", "").startswith("cuda"))

    def make() -> Any:
        import ray

        actor = ray.remote(ModelWorker).options(num_cpus=1, num_gpus=gpus, scheduling_strategy="SPREAD")
        return actor.remote(
            section, model, threads, reference=recipe.rl is not None and recipe.rl.beta > 0, home=Path.cwd()
        )

    return Pool(what, make, count, recipe.scale.timeout)


class _Weights:
    """The trainable weights of a learner in Ray's store."""

    def __init__(self) -> None:
        self.version = -1
        self.held: Any = None

    def take(self, learner: Learner, version: int) -> None:
        import ray

        weights = {name: weight.detach().cpu().clone() for name, weight in learner.trainable().items()}
        self.version, self.held = version, ray.put(weights)

    @property
    def handed(self) -> tuple[int, list[Any]]:
        """The version, and the weights in a list: only who needs them fetches them then."""
        return self.version, [self.held]


class Samplers:
    """An `Engine` of several processes."""

    def __init__(self, policy: Policy, pool: Pool, run: Run) -> None:
        self.policy, self.pool, self.run = policy, pool, run
        self.family, self.context = policy.family, policy.context
        self.weights = _Weights()
        self._told = False

    @property
    def engine(self) -> Mapping[str, str]:
        """See `Sampler.engine`."""
        return {**self.policy.engine, "samplers": str(self.pool.count)}

    def prompt_length(self, messages: Sequence[Message]) -> int:
        """See `Sampler.prompt_length`."""
        return self.policy.prompt_length(messages)

    def exact(self, sampling: Sampling) -> bool:
        """See `Sampler.exact`."""
        return self.policy.exact(sampling)

    def take(self, learner: Learner, version: int) -> None:
        """See `Engine.take`."""
        self.weights.take(learner, version)

    def sample(self, requests: Sequence[Request]) -> Iterator[tuple[Request, Trajectory]]:
        """See `Sampler.sample`. A chunk comes as a whole, once all of its answers have ended.

        Raises:
            EngineError: the cluster is gone, worker after worker died, or one drew with other weights.
        """
        assert isinstance(self.policy, Cuts)
        chunks = self.policy.cut(requests)
        self._tell(chunks)
        with ThreadPoolExecutor(self.pool.count, thread_name_prefix="ask") as threads:
            asked = {
                threads.submit(_ask, self.pool, "draw", self.weights.handed, part, shared): part
                for part, shared in chunks
            }
            try:
                for done in as_completed(asked):
                    by_key = {request.key: request for request in asked[done]}
                    for key, trajectory in pickle.loads(done.result()):  # noqa: S301 - from a worker of ours
                        if trajectory.version != self.weights.version:
                            raise EngineError(
                                f"a sampler drew with version {trajectory.version}, not {self.weights.version}"
                            )
                        yield by_key[key], trajectory
            finally:
                threads.shutdown(wait=False, cancel_futures=True)

    def _tell(self, chunks: Sequence[tuple[Sequence[Request], int]]) -> None:
        """Say once where there are fewer chunks than workers."""
        if len(chunks) < self.pool.count and not self._told:
            self._told = True
            rows = -(-sum(len(part) for part, _ in chunks) // self.pool.count)
            self.run.event(
                "note",
                f"only {len(chunks)} of {self.pool.count} samplers have something to draw, because so many answers are "
                f"drawn side by side; model.rows_at_once: {rows} would give each a share",
            )

    def close(self) -> None:
        """See `Engine.close`."""
        self.pool.close()


class Learners:
    """Replicas that share an update's passes; see `Helpers`."""

    def __init__(self, pool: Pool) -> None:
        self.pool, self.count = pool, pool.count
        self.weights = _Weights()
        self.threads = ThreadPoolExecutor(pool.count, thread_name_prefix="ask")

    def begin(self, learner: Learner, works: Sequence[Work]) -> Callable[[], list[tuple[Any, Mapping[str, Any]]]]:
        """See `Helpers.begin`."""
        self.weights.take(learner, self.weights.version + 1)
        handed = self.weights.handed
        asked: list[Future[Any]] = [self.threads.submit(_ask, self.pool, "work", handed, work) for work in works]
        return lambda: [each.result() for each in asked]

    def close(self) -> None:
        """End the replicas."""
        self.threads.shutdown(wait=False, cancel_futures=True)
        self.pool.close()


def _ask(pool: Pool, *arguments: Any) -> Any:
    try:
        return pool.call(*arguments)[0]
    except (ChildProcessError, TimeoutError) as error:
        raise EngineError(str(error), "see scale.timeout, and the memory that a worker has; then --resume") from error


class ModelWorker:
    """The actor: a replica of the policy."""

    def __init__(self, section: ModelSection, model: str, threads: int, *, reference: bool, home: Path) -> None:
        self.section, self.model, self.threads, self.reference, self.home = section, model, threads, reference, home
        self.version = -1

    def open(self) -> None:
        """Load the model.

        Raises:
            PlumblineError: see `open_policy`.
        """
        import torch

        if self.home.is_dir():  # where the run was started: paths and modules are looked for there
            os.chdir(self.home)
        torch.set_num_threads(self.threads)
        self.policy = open_policy(self.section, self.model)
        torch.set_num_threads(self.threads)
        if self.reference:
            self.policy.keep_reference()

    def draw(self, handed: tuple[int, list[Any]], requests: Sequence[Request], shared: int) -> bytes:
        """The trajectories of a chunk by key, pickled: arrays that Ray unpacks cannot be written to."""
        self._take(*handed)
        assert isinstance(self.policy, Cuts)
        self.policy.shared = shared
        return pickle.dumps([(request.key, drawn) for request, drawn in self.policy.sample(requests)])

    def work(self, handed: tuple[int, list[Any]], work: Work) -> tuple[Any, Mapping[str, Any]]:
        """What the work returns, and the gradients that it left, by the names of the weights."""
        self._take(*handed)
        weights = self.policy.trainable()
        for weight in weights.values():
            weight.grad = None
        found = work(self.policy)
        return found, {name: weight.grad.cpu() for name, weight in weights.items() if weight.grad is not None}

    def _take(self, version: int, held: Sequence[Any]) -> None:
        if version == self.version:
            return
        import ray
        import torch

        weights = ray.get(held[0])
        with torch.no_grad():
            for name, weight in self.policy.trainable().items():
                weight.copy_(weights[name])
        self.policy.publish(version)
        self.version = version
