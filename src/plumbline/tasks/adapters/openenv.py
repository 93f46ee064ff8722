"""A task as an environment of OpenEnv, for trainers that speak to environments by reset and step."""

from typing import Any

from plumbline.config.imports import missing
from plumbline.errors import DataError
from plumbline.records import Example
from plumbline.seeds import generator
from plumbline.tasks.task import Task
from plumbline.training.judging import Judging


def to_openenv(task: Task) -> tuple[Any, Any, Any]:
    """What `openenv.core.env_server.create_fastapi_app` takes: a factory of environments, and the classes of an action
    and an observation.

    `reset(split=..., index=...)` or `reset(id=..., split=...)` chooses the example, else `seed` does (from train). An
    action is `{"text": ...}`; an observation has `messages` (what is asked next), `done`, and at the end `reward` with
    the parts in `metadata`. Where the verifier fails, the reward is None and the metadata say why.

    Raises:
        ModelError: openenv is not installed.
    """
    try:
        from openenv.core.env_server import Action, Environment, Observation, State
    except ImportError as error:
        raise missing("to_openenv", error) from error

    class Answer(Action):
        """What the model wrote."""

        text: str

    class Asked(Observation):
        """What is asked."""

        messages: list[dict[str, str]] = []  # noqa: RUF012 - a field of pydantic's, copied for each

    class Checked(Environment[Answer, Asked, State]):
        """One episode at a time."""

        SUPPORTS_CONCURRENT_SESSIONS = True

        def __init__(self) -> None:
            super().__init__()
            self.judging: Judging | None = None
            self.now = State()

        def reset(self, seed: int | None = None, episode_id: str | None = None, **chosen: Any) -> Asked:
            example = _chosen(task, seed or 0, chosen)
            self.judging = Judging(task, [example])
            self.now = State(episode_id=episode_id, step_count=0)
            return Asked(messages=[dict(one) for one in example.messages], metadata={"id": example.id})

        def step(self, action: Answer, timeout_s: float | None = None, **more: Any) -> Asked:  # noqa: ARG002
            if self.judging is None:
                raise DataError("no episode was begun, or it is over", "call reset first")
            judging, self.now.step_count = self.judging, self.now.step_count + 1
            judging.judge(0, [(0, action.text)])
            if (asked := judging.asked().get((0, 0))) is not None:
                return Asked(messages=[dict(one) for one in asked])
            self.judging = None
            _, score, failure = judging.verdict(0, 0)
            if score is None:
                return Asked(done=True, reward=None, metadata={"failure": str(failure)})
            metadata = {"parts": dict(score.parts), "readings": dict(score.readings), "rubric": score.rubric}
            return Asked(done=True, reward=score.total, metadata=metadata)

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

        def get_task_range(self, split: str, start: int | None = None, stop: int | None = None) -> list[dict[str, Any]]:
            every = [{"id": one.id, "index": index} for index, one in enumerate(task.examples(split))]
            return every[start:stop]

    return Checked, Answer, Asked


def _chosen(task: Task, seed: int, chosen: dict[str, Any]) -> Example:
    examples = task.examples(str(chosen.get("split", "train")))
    if "id" in chosen:
        found = next((one for one in examples if one.id == chosen["id"]), None)
        if found is None:
            raise DataError(f"there is no example {chosen['id']} in this split", "list_tasks has their ids")
        return found
    index = chosen.get("index")
    if index is None:
        index = int(generator(seed, "openenv").integers(len(examples)))
    if not isinstance(index, int) or not 0 <= index < len(examples):
        raise DataError(f"there is no example {index}", f"the split has {len(examples)}, counted from 0")
    return examples[index]
