"""A task as a taskset of verifiers (its API v1: verifiers 0.4 and later)."""

from collections.abc import Iterable
from typing import Any

from plumbline.config.imports import missing
from plumbline.tasks.adapters.verdicts import by_id, parts_of, verdict
from plumbline.tasks.task import Task


def to_verifiers(task: Task, split: str = "train") -> Any:
    """A `verifiers.v1.Taskset` of a split; its reward is the verifier's total, and its metrics are the parts.

    The check without a model that verifiers has (`validate`) asks whether the gold answer earns 1. A completion that
    cannot be judged raises, which verifiers records as an error of the trace.

    Raises:
        ModelError: verifiers is not installed.
        DataError: there is no such split, or its records are malformed.
    """
    try:
        import verifiers.v1 as vf
    except ImportError as error:
        raise missing("to_verifiers", error) from error
    examples = by_id(task, [split])

    roles = {"system": vf.SystemMessage, "user": vf.UserMessage, "assistant": vf.AssistantMessage}

    class Data(vf.TaskData):
        """A prompt; `id` names the example."""

    class Checked(vf.Task[Data, vf.State, vf.TaskConfig]):
        """One example."""

        @property
        def key(self) -> str:
            return f"{task.name}/{split}/{self.data.id}"

        @vf.reward
        async def reward(self, trace: Any) -> float:
            score, failure = verdict(task, examples[self.data.id], trace.last_reply)
            if score is None:
                raise RuntimeError(f"{task.name} could not judge the answer to {self.data.id}: {failure}")
            return score.total

        @vf.metric
        async def parts(self, trace: Any) -> dict[str, float]:
            return parts_of([verdict(task, examples[self.data.id], trace.last_reply)[0]])

        async def validate(self, runtime: Any) -> bool | None:  # noqa: ARG002 - its signature
            gold = examples[self.data.id].gold
            score = None if gold is None else verdict(task, examples[self.data.id], gold)[0]
            return None if gold is None else score is not None and score.total > 1 - 1e-6

    class Set(vf.Taskset[Checked, vf.TasksetConfig]):
        """The split."""

        def load(self) -> Iterable[Checked]:
            for example in examples.values():
                prompt = [roles[one["role"]](content=one["content"]) for one in example.messages]
                yield Checked(Data(id=example.id, prompt=prompt), self.config.task)

    return Set(vf.TasksetConfig(id=task.name))
