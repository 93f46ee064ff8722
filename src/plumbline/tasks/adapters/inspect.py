"""A task as an evaluation of Inspect (inspect-ai)."""

from typing import Any

from plumbline.config.imports import missing
from plumbline.tasks.adapters.verdicts import by_id, verdict
from plumbline.tasks.task import Task


def to_inspect(task: Task, split: str = "test", limit: int | None = None) -> Any:
    """An `inspect_ai.Task` of a split: its prompts, `generate()`, and a scorer whose value is the verifier's total.

    Parts and readings stand in the score's metadata. An answer that cannot be judged is unscored (`Score.unscored`).

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
        from inspect_ai.scorer import Score, Target, mean, scorer, stderr
        from inspect_ai.solver import TaskState, generate
    except ImportError as error:
        raise missing("to_inspect", error) from error
    examples = dict(list(by_id(task, [split]).items())[:limit])
    roles = {"system": ChatMessageSystem, "user": ChatMessageUser, "assistant": ChatMessageAssistant}
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
        async def score(state: TaskState, target: Target) -> Score:  # noqa: ARG001 - Inspect's signature
            text = state.output.completion
            judged, failure = verdict(task, examples[str(state.sample_id)], text)
            if judged is None:
                return Score.unscored(answer=text, explanation=str(failure))
            details = {"parts": dict(judged.parts), "readings": dict(judged.readings), "rubric": judged.rubric}
            return Score(value=judged.total, answer=text, metadata=details)

        return score

    dataset = MemoryDataset(samples, name=f"{task.name}/{split}")
    return inspect_ai.Task(dataset=dataset, solver=generate(), scorer=verifier(), name=task.name)
