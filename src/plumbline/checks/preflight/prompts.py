"""The prompts that a run will see, of each task: how many, how often, and how long they are."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from plumbline.checks.preflight.shapes import folder_of
from plumbline.checks.refusals import final_splits
from plumbline.errors import PlumblineError, UntrustedCodeError
from plumbline.recipe import Recipe
from plumbline.records import Example
from plumbline.tasks import open_task
from plumbline.tasks.jsonl.task import open_rows
from plumbline.tasks.source import shares
from plumbline.tasks.task import Task

CHARACTERS = 3.0
"""Of a token of Portuguese where the tokenizer is not at hand (2.2 to 3.6 of those that we measured)."""
A_MESSAGE, AN_ANSWER = 4, 3
"""Tokens that a chat template adds for each message, and for the beginning of an answer."""
MEASURED = 400
"""Examples whose lengths are taken."""


@dataclass(frozen=True, slots=True)
class Lengths:
    """Tokens of prompts and of gold answers: their means, and the longest."""

    prompt: float
    longest_prompt: int
    answer: float
    longest_answer: int


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
    """None where there are no examples. Without gold answers, those of answers are `sampling.max_tokens`."""
    gold: bool
    """Whether the lengths of answers are those of gold answers."""
    source: str
    """Where sizes and lengths are from."""

    @property
    def coverage(self) -> float:
        """How often RL will have seen each of the training prompts at its end, on average."""
        return self.drawn / max(1, self.sizes["train"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """A task of a run with what is known of its examples."""

    name: str
    """What the recipe calls it; empty for the only task of a run."""
    task: Task
    probed: Task
    """The task itself, or a small one like it where its records are not built: what `splits` are of."""
    sizes: Mapping[str, int]
    splits: Mapping[str, Sequence[Example]]
    built: bool
    """Whether these are the run's own examples."""

    @property
    def called(self) -> str:
        """With a colon, for the beginning of a sentence about one of several tasks."""
        return f"{self.name}: " if self.name else ""


def open_tasks(recipe: Recipe, records: Path, scratch: Path) -> tuple[dict[str, Opened], list[PlumblineError]]:
    """Each task of a recipe, and what is wrong with those that cannot be opened; nothing is built that is kept.

    A task that builds records says how many it will build, and builds a few in `scratch` to be looked at; any other
    task is asked for its examples.

    Args:
        recipe: of the run.
        records: where the run would keep its records; those that are there are read.
        scratch: a temporary folder.
    """
    opened: dict[str, Opened] = {}
    wrong: list[PlumblineError] = []
    for name, one in recipe.each_task.items():
        there = records / name
        place = there if there.is_dir() else scratch / "records" / name
        try:
            opened[name] = _open(name, open_task(one.name, one.options, place), scratch / "sketch" / name)
        except PlumblineError as error:
            wrong.append(error)
            if isinstance(error, UntrustedCodeError) and one.name == "jsonl":
                opened[name] = _open(name, open_rows(one.options), scratch)
    return opened, wrong


def _open(name: str, task: Task, folder: Path) -> Opened:
    built = task.built
    probed = task if built else task.sketch(folder)
    splits = {split: probed.examples(split) for split in probed.splits}
    sizes = {split: len(examples) for split, examples in splits.items()} if built else task.sizes()
    return Opened(name=name, task=task, probed=probed, sizes=sizes, splits=splits, built=built)


def prompts_of(recipe: Recipe, opened: Mapping[str, Opened]) -> list[TaskPrompts]:
    """What a run would ask of each of its tasks."""
    count, _ = token_counter(recipe.model.name)
    weights = {name: one.weight for name, one in (recipe.tasks or {}).items()} or {"": 1.0}
    known = {name: weights[name] for name in opened}
    dealt = shares(known, {name: one.sizes["train"] for name, one in opened.items()}, recipe.mix) if known else {}
    return [_prompts(recipe, name, one, dealt[name], count) for name, one in opened.items()]


def _prompts(recipe: Recipe, name: str, one: Opened, share: float, count: Callable[[str], int]) -> TaskPrompts:
    rl, evaluation = recipe.rl, recipe.evaluation
    there = one.sizes.get(evaluation.split, 0)
    measured = one.splits["train"][:MEASURED]
    lengths = _lengths(measured, count, recipe.sampling.max_tokens)
    few = f"from the options; lengths of {len(one.splits['train'])} prompts like them"
    return TaskPrompts(
        name=name,
        task=one.task.name,
        sizes=one.sizes,
        finals=[split for split in final_splits(recipe, one.task) if split in one.sizes],
        inside=min(there, evaluation.limit or there) if rl is not None and evaluation.every else 0,
        share=share,
        drawn=0.0 if rl is None else share * rl.steps * rl.prompts_per_step,
        lengths=lengths,
        gold=any(example.gold is not None for example in measured),
        source="from the records themselves" if one.built else few,
    )


def _lengths(examples: Sequence[Example], count: Callable[[str], int], most: int) -> Lengths | None:
    """Tokens of prompts and of gold answers, or without those of the longest answer; None without examples."""
    asked = [sum(count(m["content"]) + A_MESSAGE for m in one.messages) + AN_ANSWER for one in examples]
    if not asked:
        return None
    answers = [count(one.gold) + 1 for one in examples if one.gold is not None] or [most]
    return Lengths(sum(asked) / len(asked), max(asked), sum(answers) / len(answers), max(answers))


def token_counter(name: str | None) -> tuple[Callable[[str], int], bool]:
    """From a text to its tokens, and whether that is the model's own tokenizer; else it is by `CHARACTERS`."""
    folder = None if name is None else folder_of(name)
    if folder is None or not (folder / "tokenizer.json").is_file() or find_spec("tokenizers") is None:
        return lambda text: math.ceil(len(text) / CHARACTERS), False
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    return lambda text: len(tokenizer.encode(text, add_special_tokens=False).ids), True
