"""Tasks of Plumbline for other programs: each adapter is one function, and imports its program only
when it is called.

TRL takes a data set and a reward function, verifiers (its API v1: 0.4 and later) a taskset, Inspect
an evaluation, and OpenEnv an environment, for trainers that speak to one by reset and step. A text
that cannot be judged is unscored in all of them, never 0: what each program has for that is used.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from plumbline.config.imports import missing_module_error
from plumbline.errors import DataError
from plumbline.records import Example, Score, group_by_key
from plumbline.rollouts.reward_workers import RewardWorkers, judge
from plumbline.seeds import generator
from plumbline.tasks.task import Task, as_task

TrlReward = Callable[..., list[float | None]]


def to_trl_rows(task: Task, split: str = "train") -> list[dict[str, Any]]:
    """A split's prompts for `datasets.Dataset.from_list`: columns prompt (messages) and id.

    Raises:
        DataError: there is no such split, or its records are malformed.
    """
    return [
        {"prompt": [dict(one) for one in each.messages], "id": each.id}
        for each in task.examples(split)
    ]


def to_trl_reward(task: Task, splits: Sequence[str] = ()) -> TrlReward:
    """The task's verifier as a reward function; the rows need the column id of `to_trl_rows`.

    It gives None where a completion could not be judged, which TRL leaves out. The means of the
    parts are logged as metrics (`TASK/PART`), where the trainer takes any.

    Args:
        task: any; of one that asks again, the first answer is judged.
        splits: whose rows may come; none is all of them.

    Example:
        trl.GRPOTrainer(model, reward_funcs=to_trl_reward(task),
        train_dataset=Dataset.from_list(to_trl_rows(task)))
    """
    task = as_task(task)
    examples = {one.id: one for split in splits or task.splits for one in task.examples(split)}

    def reward(completions: Sequence[Any], id: Sequence[str], **columns: Any) -> list[float | None]:  # noqa: A002
        texts = [one if isinstance(one, str) else one[-1]["content"] for one in completions]
        scores = [
            judge(task, examples[name], text)[1] for name, text in zip(id, texts, strict=True)
        ]
        if log_metric := columns.get("log_metric"):
            for part, value in _means(scores).items():
                log_metric(f"{task.name}/{part}", value)
        return [None if score is None else score.total for score in scores]

    reward.__name__ = task.name
    return reward


def to_verifiers(task: Task, split: str = "train") -> Any:
    """A `verifiers.v1.Taskset` of a split; its reward is the verifier's total, and its metrics are
    the parts.

    The check without a model that verifiers has (`validate`) asks whether the gold answer earns 1.
    A completion that cannot be judged raises, which verifiers records as an error of the trace.

    Raises:
        ModelError: verifiers is not installed.
        DataError: there is no such split, or its records are malformed.
    """
    try:
        import verifiers.v1 as vf
    except ImportError as error:
        raise missing_module_error("to_verifiers", error) from error
    task = as_task(task)
    examples = {one.id: one for one in task.examples(split)}
    roles = {"system": vf.SystemMessage, "user": vf.UserMessage, "assistant": vf.AssistantMessage}

    class Data(vf.TaskData):
        """A prompt; `id` names the example."""

    class VerifiersTask(vf.Task[Data, vf.State, vf.TaskConfig]):
        """One example."""

        @property
        def key(self) -> str:
            return f"{task.name}/{split}/{self.data.id}"

        @vf.reward
        async def reward(self, trace: Any) -> float:
            _, score, failure = judge(task, examples[self.data.id], trace.last_reply)
            if score is None:
                raise RuntimeError(
                    f"{task.name} could not judge the answer to {self.data.id}: {failure}"
                )
            return score.total

        @vf.metric
        async def parts(self, trace: Any) -> dict[str, float]:
            return _means([judge(task, examples[self.data.id], trace.last_reply)[1]])

        async def validate(self, runtime: Any) -> bool | None:  # noqa: ARG002 - its signature
            gold = examples[self.data.id].gold
            if gold is None:
                return None
            score = judge(task, examples[self.data.id], gold)[1]
            return score is not None and score.total > 1 - 1e-6

    class VerifiersTaskset(vf.Taskset[VerifiersTask, vf.TasksetConfig]):
        """The split."""

        def load(self) -> Iterable[VerifiersTask]:
            for example in examples.values():
                prompt = [roles[one["role"]](content=one["content"]) for one in example.messages]
                yield VerifiersTask(Data(id=example.id, prompt=prompt), self.config.task)

    return VerifiersTaskset(vf.TasksetConfig(id=task.name))


def to_inspect(task: Task, split: str = "test", limit: int | None = None) -> Any:
    """An `inspect_ai.Task` of a split: its prompts, `generate()`, and a scorer whose value is the
    verifier's total.

    Parts and readings stand in the score's metadata. An answer that cannot be judged is unscored
    (`Score.unscored`).

    Raises:
        ModelError: inspect-ai is not installed.
        DataError: there is no such split, or its records are malformed.

    Example:
        inspect_ai.eval(to_inspect(task), model="hf/local", model_args={"model_path": "./mine"})
    """
    try:
        import inspect_ai
        from inspect_ai.dataset import MemoryDataset, Sample
        from inspect_ai.model import ChatMessageAssistant, ChatMessageSystem, ChatMessageUser
        from inspect_ai.scorer import Score as Scored
        from inspect_ai.scorer import Target, mean, scorer, stderr
        from inspect_ai.solver import TaskState, generate
    except ImportError as error:
        raise missing_module_error("to_inspect", error) from error
    task = as_task(task)
    examples = {one.id: one for one in task.examples(split)[:limit]}
    roles = {
        "system": ChatMessageSystem,
        "user": ChatMessageUser,
        "assistant": ChatMessageAssistant,
    }
    samples = [
        Sample(
            id=one.id,
            input=[roles[message["role"]](content=message["content"]) for message in one.messages],
            target=one.gold or "",
            metadata={"stratum": one.stratum},
        )
        for one in examples.values()
    ]

    @scorer(metrics=[mean(), stderr()], name=f"plumbline_{task.name}")
    def verifier() -> Any:
        async def score(state: TaskState, target: Target) -> Scored:  # noqa: ARG001 - Inspect's signature
            text = state.output.completion
            _, judged, failure = judge(task, examples[str(state.sample_id)], text)
            if judged is None:
                return Scored.unscored(answer=text, explanation=str(failure))
            return Scored(value=judged.total, answer=text, metadata=_details(judged))

        return score

    dataset = MemoryDataset(samples, name=f"{task.name}/{split}")
    return inspect_ai.Task(dataset=dataset, solver=generate(), scorer=verifier(), name=task.name)


def to_openenv(task: Task) -> tuple[Any, Any, Any]:
    """What `openenv.core.env_server.create_fastapi_app` takes: a factory of environments, and the
    classes of an action and an observation.

    `reset(split=..., index=...)` or `reset(id=..., split=...)` chooses the example, else `seed`
    does (from train). An action is `{"text": ...}`; an observation has `messages` (what is asked
    next), `done`, and at the end `reward` with the parts in `metadata`. Where the verifier fails,
    the reward is None and the metadata say why.

    Raises:
        ModelError: openenv is not installed.
    """
    try:
        from openenv.core.env_server import Action, Environment, Observation, State
    except ImportError as error:
        raise missing_module_error("to_openenv", error) from error
    task = as_task(task)

    class TaskAction(Action):
        """What the model wrote."""

        text: str

    class TaskObservation(Observation):
        """What is asked."""

        messages: list[dict[str, str]] = []  # noqa: RUF012 - a field of pydantic's, copied for each

    class TaskEnvironment(Environment[TaskAction, TaskObservation, State]):
        """One episode at a time."""

        SUPPORTS_CONCURRENT_SESSIONS = True

        def __init__(self) -> None:
            super().__init__()
            self.workers: RewardWorkers | None = None
            self.now = State()

        def reset(
            self, seed: int | None = None, episode_id: str | None = None, **chosen: Any
        ) -> TaskObservation:
            example = _choose_example(task, seed or 0, chosen)
            self.workers = RewardWorkers(task, [example])
            self.now = State(episode_id=episode_id, step_count=0)
            return TaskObservation(
                messages=[dict(one) for one in example.messages], metadata={"id": example.id}
            )

        def step(
            self,
            action: TaskAction,
            timeout_s: float | None = None,  # noqa: ARG002
            **more: Any,  # noqa: ARG002
        ) -> TaskObservation:
            if self.workers is None:
                raise DataError("no episode was begun, or it is over", "call reset first")
            workers, self.now.step_count = self.workers, self.now.step_count + 1
            workers.judge_texts(0, [(0, action.text)])
            if (asked := workers.next_prompts().get((0, 0))) is not None:
                return TaskObservation(messages=[dict(one) for one in asked])
            self.workers = None
            _, score, failure = workers.result(0, 0)
            if score is None:
                return TaskObservation(done=True, reward=None, metadata={"failure": str(failure)})
            return TaskObservation(done=True, reward=score.total, metadata=_details(score))

        @property
        def state(self) -> State:
            return self.now

        def list_splits(self) -> list[str]:
            return list(task.splits)

        def num_tasks(self, split: str) -> int:
            return len(task.examples(split))

        def list_tasks(self, split: str) -> list[dict[str, Any]]:
            return self.get_task_range(split)

        def get_task(self, split: str, index: int) -> dict[str, Any]:
            return {"id": task.examples(split)[index].id, "index": index}

        def get_task_range(
            self, split: str, start: int | None = None, stop: int | None = None
        ) -> list[dict[str, Any]]:
            every = [
                {"id": one.id, "index": index} for index, one in enumerate(task.examples(split))
            ]
            return every[start:stop]

    return TaskEnvironment, TaskAction, TaskObservation


def _choose_example(task: Task, seed: int, chosen: dict[str, Any]) -> Example:
    examples = task.examples(str(chosen.get("split", "train")))
    if "id" in chosen:
        found = next((one for one in examples if one.id == chosen["id"]), None)
        if found is None:
            raise DataError(
                f"there is no example {chosen['id']} in this split", "list_tasks has their ids"
            )
        return found
    index = chosen.get("index")
    if index is None:
        index = int(generator(seed, "openenv").integers(len(examples)))
    if not isinstance(index, int) or not 0 <= index < len(examples):
        raise DataError(
            f"there is no example {index}", f"the split has {len(examples)}, counted from 0"
        )
    return examples[index]


def _means(scores: Sequence[Score | None]) -> dict[str, float]:
    """The mean of each part over the scores that have it."""
    found = group_by_key(
        (name, value)
        for score in scores
        for name, value in ({} if score is None else score.parts).items()
        if value is not None
    )
    return {name: sum(values) / len(values) for name, values in found.items()}


def _details(score: Score) -> dict[str, Any]:
    return {"parts": dict(score.parts), "readings": dict(score.readings), "rubric": score.rubric}
