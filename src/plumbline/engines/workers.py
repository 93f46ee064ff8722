"""What a recipe's `scale` asks for: Ray, and on it workers for verdicts, for rollouts and for an update's passes.

**Verdicts.** Each worker has opened the same task for itself. The threads of `training.judging` ask, one for each
worker; all else is answered by the task in this process. An episode lives in one worker, which is told its next text.
Where that died, another one is told all texts so far: what an episode comes to depends on its texts alone.

**Rollouts and passes.** Each worker is a replica of the policy, opened from the stage's own model directory. It is
handed the trainable weights by the version: whoever has another one takes it over before it does anything, so a worker
that replaces one that died has the latest. Rollouts are dealt in whole chunks, cut as one process cuts them: the same
matrix products are done then, and round to the same bits on the same kind of processor with the same number of threads.
Between machines of two kinds, and on GPUs, what is drawn is the same but for what lies within rounding of a border (see
`Sampler.sample`).
"""

import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import AbstractContextManager, contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any
from uuid import uuid4

from plumbline.engines.workers_pool import Home, Pool, cluster, here, stand
from plumbline.errors import EngineError, RecipeError, RewardError
from plumbline.policies import open_policy
from plumbline.policies.options import model_section
from plumbline.policies.policy import Cuts, Learner, Policy
from plumbline.recipe import ModelSection, Recipe, ScaleSection
from plumbline.records import Example, Failure, Message, Outcome, Request, Score, Trajectory
from plumbline.runs.run import Run
from plumbline.tasks import open_task
from plumbline.tasks.task import Episode, Task, Wrapped, episode_of, whole

KEPT = 1024  # episodes that a worker keeps; an older one that goes on is told anew
Verdict = tuple[Outcome, Score]
Told = tuple[Sequence[Message] | None, Verdict | None]
Work = Callable[..., Any]  # called with the policy, and with further arguments


def workers(scale: ScaleSection) -> AbstractContextManager[None]:
    """Ray for what runs in this block, with all that this file opens: see `cluster`."""
    return cluster(scale.address, scale.verdicts + scale.samplers + scale.learners, "scale")


# -- verdicts ----------------------------------------------------------------------------------------------------------


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

    def opening() -> tuple[Any, ...]:  # when the first verdict is asked for: the records have been built then
        return section.name, section.options, folder, folder.is_dir(), here()

    pool = Pool("workers for verdicts", TaskWorker, opening, scale.verdicts, scale.timeout, 0)
    return _Spread(task, pool)


class _Spread(Wrapped):
    """A task whose verdicts are asked of workers, one by each thread."""

    def __init__(self, task: Task, pool: Pool) -> None:
        super().__init__(task)
        self.pool = pool

    @property
    def judges(self) -> int:
        """See `Task.judges`."""
        return self.pool.count

    def judge(self, example: Example, completion: str) -> Verdict:
        """See `Task.judge`."""
        return whole(self.judge_group(example, [completion])[0])

    def judge_group(self, example: Example, completions: Sequence[str]) -> Sequence[Verdict | Failure]:
        """See `Task.judge_group`: of any task, because a call to a worker costs about as much as a query."""
        found: Sequence[Verdict | Failure] = self.pool.call("judge", pickle.dumps(example), list(completions))[0]
        return found

    def episode(self, example: Example) -> "SpreadEpisode":
        """See `Task.episode`."""
        return SpreadEpisode(self.pool, example)


class SpreadEpisode:
    """An episode that lives in a worker; see `Episode`."""

    def __init__(self, pool: Pool, example: Example) -> None:
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
        self._found, self._lives = self.pool.call("tell", self.name, self.example, self.texts, wanted=self._lives)

    def result(self) -> Verdict:
        """See `Episode.result`."""
        assert self._found[1] is not None, "an episode comes to nothing before its first answer"
        return self._found[1]


@contextmanager
def _named() -> Iterator[None]:
    """What a task raises, under the name that it has, of a type that any process can read: its own may be known in the
    worker alone, or be one that cannot be pickled."""
    try:
        yield
    except RewardError:
        raise
    except Exception as error:  # noqa: BLE001 - the boundary to a task's code, as in `plumbline.training.judging`
        raise type(type(error).__name__, (Exception,), {})(str(error)) from None


class TaskWorker:
    """The actor: a task that is asked for one verdict at a time, opened where the run was started."""

    def __init__(self, name: str, options: Mapping[str, Any], folder: Path, there: bool, home: Home) -> None:
        """Open the task (see `open_task`).

        Raises:
            EngineError: the run's records, which are `there`, are not on this machine.
            PlumblineError: see `open_task`.
        """
        stand(home)
        if there and not folder.is_dir():
            fix = "let run.folder be on a disk that all machines of the cluster share"
            raise EngineError(f"this machine has no folder {folder}, where the run's records are", fix)
        self.task = open_task(name, options, folder)
        self.example: Callable[[bytes], Example] = lru_cache(KEPT)(pickle.loads)  # a task may know it by its identity
        self.episodes: dict[str, Episode] = {}  # those that are not over, the oldest first

    @_named()
    def judge(self, example: bytes, completions: Sequence[str]) -> Sequence[Verdict | Failure]:
        """The verdicts of texts of one prompt, together where the task can do that."""
        task, asked = self.task, self.example(example)
        together = task.judge_group(asked, completions) if len(completions) > 1 else None
        return [task.judge(asked, completion) for completion in completions] if together is None else together

    @_named()
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


# -- rollouts and passes -----------------------------------------------------------------------------------------------


def open_samplers(recipe: Recipe, policy: Policy, model: str, run: Run) -> "Samplers":
    """Workers that draw in place of the policy, as many as `scale.samplers` says.

    Raises:
        RecipeError: the policy does not say what it draws together.
    """
    return Samplers(recipe, policy, model, run)


def open_learners(recipe: Recipe, policy: Policy, model: str, run: Run) -> "Learners":  # noqa: ARG001
    """Workers that share the passes of an update with this process: one fewer than `scale.learners` says."""
    return Learners("learners", recipe, policy, model, recipe.scale.learners - 1)


class Replicas:
    """Workers with the policy's model, each asked by a thread, and the weights that they have to have."""

    def __init__(self, what: str, recipe: Recipe, policy: Policy, model: str, workers: int) -> None:
        import torch

        reference = recipe.rl is not None and recipe.rl.beta > 0
        opening = model_section(recipe), model, torch.get_num_threads(), reference, here()
        gpus = int(policy.engine.get("device", "").startswith("cuda"))
        self.pool = Pool(what, ModelWorker, lambda: opening, workers, recipe.scale.timeout, gpus)
        self.count, self.threads = workers, ThreadPoolExecutor(workers, thread_name_prefix="ask")
        self.weights: tuple[int, list[Any]] = -1, []  # the version, and where in Ray's store: fetched by who needs them

    def take(self, learner: Learner, version: int) -> None:
        """See `Engine.take`."""
        import ray

        weights = {name: weight.detach().cpu().clone() for name, weight in learner.trainable().items()}
        self.weights = version, [ray.put(weights)]

    def ask(self, work: Work, *further: Any) -> Future[tuple[Any, Any]]:
        """What the work comes to in a worker with the weights that were taken last, and the worker."""
        return self.threads.submit(self.pool.call, "work", *self.weights, work, *further)

    def close(self) -> None:
        """See `Engine.close`."""
        self.threads.shutdown(wait=False, cancel_futures=True)
        self.pool.close()


class Samplers(Replicas):
    """An `Engine` of several processes."""

    def __init__(self, recipe: Recipe, policy: Policy, model: str, run: Run) -> None:
        if not isinstance(policy, Cuts):
            fix = "leave out scale.samplers, or give the policy a method `cut` (see plumbline.policies.policy.Cuts)"
            raise RecipeError(f"scale.samplers needs requests that are drawn together; {policy.family} cuts none", fix)
        super().__init__("samplers", recipe, policy, model, recipe.scale.samplers)
        self.family, self.context, self.cut = policy.family, policy.context, policy.cut
        self.prompt_length, self.exact = policy.prompt_length, policy.exact
        self.engine = {**policy.engine, "samplers": str(self.count)}
        self.run, self._told = run, False

    def sample(self, requests: Sequence[Request]) -> Iterator[tuple[Request, Trajectory]]:
        """See `Sampler.sample`. A chunk comes as a whole, once all of its answers have ended.

        Raises:
            EngineError: the cluster is gone, or worker after worker died.
        """
        chunks = self.cut(requests)
        if len(chunks) < self.count and not self._told:
            self._told = True
            self.run.event(
                "note",
                f"only {len(chunks)} of {self.count} samplers have something to draw, because so many answers are "
                f"drawn side by side; model.rows_at_once: {-(-len(requests) // self.count)} would give each a share",
            )
        for done in as_completed([self.ask(_drawn, *chunk) for chunk in chunks]):
            yield from pickle.loads(done.result()[0])  # noqa: S301 - from a worker of ours


def _drawn(policy: Any, requests: Sequence[Request], shared: int) -> bytes:
    """A chunk's requests with their trajectories, pickled: arrays that Ray unpacks cannot be written to."""
    policy.shared = shared
    return pickle.dumps(list(policy.sample(requests)))


class Learners(Replicas):
    """Replicas that share an update's passes; see `Helpers`."""

    def begin(self, learner: Learner, works: Sequence[Work]) -> Callable[[], list[tuple[Any, Mapping[str, Any]]]]:
        """See `Helpers.begin`."""
        self.take(learner, self.weights[0] + 1)
        asked = [self.ask(_with_gradients, work) for work in works]
        return lambda: [each.result()[0] for each in asked]


def _with_gradients(policy: Policy, work: Work) -> tuple[Any, Mapping[str, Any]]:
    """What the work returns, and the gradients that it left, by the names of the weights."""
    weights = policy.trainable()
    for weight in weights.values():
        weight.grad = None
    found = work(policy)
    return found, {name: weight.grad.cpu() for name, weight in weights.items() if weight.grad is not None}


class ModelWorker:
    """The actor: a replica of the policy."""

    def __init__(self, section: ModelSection, model: str, threads: int, reference: bool, home: Home) -> None:
        """Load the model; see `open_policy`."""
        import torch

        stand(home)
        torch.set_num_threads(threads)
        self.version, self.policy = -1, open_policy(section, model)
        if reference:
            self.policy.keep_reference()

    def work(self, version: int, held: Sequence[Any], work: Work, *further: Any) -> Any:
        """What the work returns, called with the policy, once that has the weights of the version."""
        if version != self.version:
            import ray

            weights = ray.get(held[0])
            for name, weight in self.policy.trainable().items():
                weight.detach().copy_(weights[name])
            self.policy.publish(version)
            self.version = version
        return work(self.policy, *further)
