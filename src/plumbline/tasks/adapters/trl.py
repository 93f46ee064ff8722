"""A task as a data set and a reward function for TRL's trainers."""

from collections.abc import Callable, Sequence
from typing import Any

from plumbline.tasks.adapters.verdicts import by_id, parts_of, verdict
from plumbline.tasks.task import Task

TrlReward = Callable[..., list[float | None]]


def to_trl_rows(task: Task, split: str = "train") -> list[dict[str, Any]]:
    """A split's prompts for `datasets.Dataset.from_list`: columns prompt (messages) and id.

    Raises:
        DataError: there is no such split, or its records are malformed.
    """
    return [{"prompt": [dict(one) for one in each.messages], "id": each.id} for each in task.examples(split)]


def to_trl_reward(task: Task, splits: Sequence[str] = ()) -> TrlReward:
    """The task's verifier as a reward function; the rows need the column id of `to_trl_rows`.

    It gives None where a completion could not be judged, which TRL leaves out. The means of the parts are logged as
    metrics (`TASK/PART`), where the trainer takes any.

    Args:
        task: any; of one that asks again, the first answer is judged.
        splits: whose rows may come; none is all of them.

    Example:
        trl.GRPOTrainer(model, reward_funcs=to_trl_reward(task), train_dataset=Dataset.from_list(to_trl_rows(task)))
    """
    examples = by_id(task, splits)

    def reward(completions: Sequence[Any], id: Sequence[str], **columns: Any) -> list[float | None]:  # noqa: A002
        texts = [one if isinstance(one, str) else one[-1]["content"] for one in completions]
        scores = [verdict(task, examples[name], text)[0] for name, text in zip(id, texts, strict=True)]
        if log_metric := columns.get("log_metric"):
            for part, value in parts_of(scores).items():
                log_metric(f"{task.name}/{part}", value)
        return [None if score is None else score.total for score in scores]

    reward.__name__ = task.name
    return reward
