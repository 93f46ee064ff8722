"""The prompts that a run will see, of each task: how many, how often, and how long they are."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

from plumbline.checks import Ground, check_disjoint, check_start, final_splits, refused
from plumbline.dryrun.estimate import Lengths
from plumbline.dryrun.shapes import folder_of
from plumbline.errors import PlumblineError
from plumbline.recipe import Recipe
from plumbline.records import Example
from plumbline.tasks import open_task
from plumbline.tasks.source import shares
from plumbline.tasks.task import Sketched, Task

CHARACTERS = 3.0
"""Of a token of Portuguese where the tokenizer is not at hand (2.2 to 3.6 of those that we measured)."""
A_MESSAGE, AN_ANSWER = 4, 3
"""Tokens that a chat template adds for each message, and for the beginning of an answer."""
MEASURED = 400
"""Examples whose lengths are taken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskPrompts:
    """What a run would ask of one of its tasks."""

    name: str
    """What the recipe calls it; empty for the only task of a run."""
    task: str
    sizes: Mapping[str, int]
    """Examples of each split."""
    finals: Sequence[str]
    """The splits that every stage is evaluated on."""
    inside: int
    """Examples of an evaluation inside RL."""
    share: float
    """Of a step's prompts."""
    drawn: float
    """Prompts of RL in all."""
    lengths: Lengths | None
    """None where there are no gold answers."""
    longer: float
    """Share of the gold answers that are longer than `sampling.max_tokens`."""
    source: str
    """Where sizes and lengths are from."""

    @property
    def coverage(self) -> float:
        """How often RL will have seen each of the training prompts at its end, on average."""
        return self.drawn / max(1, self.sizes["train"])


@dataclass(frozen=True, slots=True)
class _Opened:
    task: Task
    sizes: Mapping[str, int]
    few: Sequence[Example]
    """Of train, or like those."""
    held_out: Mapping[str, Sequence[Example]]
    """What the run itself would hold out, as far as it is known."""
    source: str


def look(recipe: Recipe, records: Path) -> tuple[list[TaskPrompts], list[PlumblineError]]:
    """Each task's prompts, and what is wrong with those that cannot be opened; nothing is built that is kept.

    A task that builds records says how many it will build, and builds a few in a temporary folder to be measured; any
    other task is asked for its examples.

    Args:
        recipe: of the run.
        records: where the run would keep its records; those that are there are read.
    """
    opened: dict[str, _Opened] = {}
    wrong: list[PlumblineError] = []
    with TemporaryDirectory() as folder:
        for name, one in recipe.each_task.items():
            there = records / name
            place = there if there.is_dir() else Path(folder) / "records" / name
            try:
                opened[name] = _open(open_task(one.name, one.options, place), Path(folder) / "sketch" / name)
            except PlumblineError as error:
                wrong.append(error)
    wrong += _conflicts(recipe, opened)
    count, _ = token_counter(recipe.model.name)
    weights = {name: one.weight for name, one in (recipe.tasks or {}).items()} or {"": 1.0}
    known = {name: weights[name] for name in opened}
    dealt = shares(known, {name: one.sizes["train"] for name, one in opened.items()}, recipe.mix) if known else {}
    return [_prompts(recipe, name, one, dealt[name], count) for name, one in opened.items()], wrong


def _open(task: Task, folder: Path) -> _Opened:
    if isinstance(task, Sketched) and not task.built:
        few = task.sketch(folder).examples("train")
        said = f"from the options; lengths of {len(few)} prompts like them"
        return _Opened(task, task.sizes(), few, {"test": []}, said)
    splits = {split: task.examples(split) for split in task.splits}
    sizes = {split: len(examples) for split, examples in splits.items()}
    return _Opened(task, sizes, splits.pop("train"), splits, "from the records themselves")


def _conflicts(recipe: Recipe, opened: Mapping[str, _Opened]) -> Iterator[PlumblineError]:
    """What is held out and was trained on, or will be, as far as the examples are known."""
    grounds = [
        Ground(name=name, task=one.task, train=one.few, held_out=one.held_out, finals=())
        for name, one in opened.items()
    ]
    yield from refused(check_disjoint, grounds)
    if recipe.model.name is not None:
        yield from refused(check_start, recipe.model.name, grounds)


def _prompts(recipe: Recipe, name: str, one: _Opened, share: float, count: Callable[[str], int]) -> TaskPrompts:
    rl, evaluation = recipe.rl, recipe.evaluation
    there = one.sizes.get(evaluation.split, 0)
    lengths, longer = _lengths(one.few[:MEASURED], count, recipe.sampling.max_tokens)
    return TaskPrompts(
        name=name,
        task=one.task.name,
        sizes=one.sizes,
        finals=[split for split in final_splits(recipe, one.task) if split in one.sizes],
        inside=min(there, evaluation.limit or there) if rl is not None and evaluation.every else 0,
        share=share,
        drawn=0.0 if rl is None else share * rl.steps * rl.prompts_per_step,
        lengths=lengths,
        longer=longer,
        source=one.source,
    )


def _lengths(examples: Sequence[Example], count: Callable[[str], int], limit: int) -> tuple[Lengths | None, float]:
    """Tokens of prompts and gold answers, and the share of the answers beyond a limit."""
    asked = [sum(count(m["content"]) + A_MESSAGE for m in one.messages) + AN_ANSWER for one in examples]
    answers = [count(one.gold) + 1 for one in examples if one.gold is not None]
    if not answers:
        return None, 0.0
    found = Lengths(sum(asked) / len(asked), max(asked), sum(answers) / len(answers), max(answers))
    return found, sum(answer > limit for answer in answers) / len(answers)


def token_counter(name: str | None) -> tuple[Callable[[str], int], bool]:
    """From a text to its tokens, and whether that is the model's own tokenizer; else it is by `CHARACTERS`."""
    folder = None if name is None else folder_of(name)
    if folder is None or not (folder / "tokenizer.json").is_file() or find_spec("tokenizers") is None:
        return lambda text: math.ceil(len(text) / CHARACTERS), False
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    return lambda text: len(tokenizer.encode(text, add_special_tokens=False).ids), True


def together(prompts: Sequence[TaskPrompts]) -> Lengths | None:
    """The lengths of a step's prompts over all tasks; None where some are not known."""
    found = [(one.share, one.lengths) for one in prompts if one.lengths is not None]
    if not found or len(found) < len(prompts):
        return None
    return Lengths(
        sum(share * one.prompt for share, one in found),
        max(one.longest_prompt for _, one in found),
        sum(share * one.answer for share, one in found),
        max(one.longest_answer for _, one in found),
    )
