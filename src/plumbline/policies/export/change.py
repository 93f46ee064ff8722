"""What an export costs in reward: the same examples before and after, both computed in float32."""

from dataclasses import dataclass, replace
from pathlib import Path

from plumbline.evaluation.command import EvaluationSpec, each_task, open_task_for
from plumbline.evaluation.models import as_trained, evaluate_model
from plumbline.evaluation.statistics import Interval, paired
from plumbline.policies.export.source import Source
from plumbline.policies.export.weights import OPTIONS
from plumbline.runs.run import Listener


@dataclass(frozen=True, slots=True)
class Change:
    """Greedy rewards of one task's examples, by the model as it was trained and by what was exported."""

    task: str
    split: str
    n: int
    before: float
    after: float
    difference: Interval
    same: int
    """Answers that are the same to the letter."""


def changes(source: Source, exported: Path, n: int, listener: Listener) -> list[Change]:
    """Evaluate both on the first `n` examples of each task that the model was trained on.

    Args:
        source: the model as it was trained.
        exported: a model directory or GGUF file made of it.
        n: examples of a task.
        listener: is told how far it has come.

    Raises:
        DataError: the task has no such split.
    """
    found = []
    split = source.run.recipe.evaluation.final[-1] if source.run and source.run.recipe.evaluation.final else "test"
    _, law = as_trained(source.model, OPTIONS)
    options = replace(OPTIONS, max_tokens=law.max_tokens)
    for spec in each_task(EvaluationSpec(model=source.model, task="")).values():
        task = open_task_for(source.model, spec.task, spec.options, None, listener.working)
        examples = task.examples(split)[:n]
        before, after = (
            evaluate_model(model, task, examples, split, options, listener) for model in (source.model, str(exported))
        )
        rows = {row.id: row for row in after.rows}
        pairs = [(one, rows[one.id]) for one in before.rows if one.id in rows]
        rewards = [one.reward for one, _ in pairs], [other.reward for _, other in pairs]
        compared = paired(*rewards)
        same = sum(one.completion == other.completion for one, other in pairs)
        label = spec.task or task.name
        found.append(Change(label, split, len(pairs), compared.before, compared.after, compared.difference, same))
    return found
