"""The context of checks before a run: recipe, tasks and model, read once, without weights."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from plumbline.checks.check import LEVELS, Context, Finding, MissingDataError
from plumbline.checks.preflight.shapes import (
    Shapes,
    find_shapes,
    shapes_from_tiny,
)
from plumbline.checks.refusals import final_splits, find_problems
from plumbline.errors import DataError, ModelError, PlumblineError, UntrustedCodeError
from plumbline.policies.model_files import has_tokenizer, is_adapter, is_gguf
from plumbline.policies.opening import NEEDED, find_model_folder
from plumbline.recipe import Recipe
from plumbline.records import Message
from plumbline.runs.remote import local_model
from plumbline.tasks import open_task
from plumbline.tasks.jsonl.task import open_rows
from plumbline.tasks.task import Task
from plumbline.tasks.task_data import TaskData, task_shares

if TYPE_CHECKING:
    from plumbline.policies.pretrained.chat import Chat

CHARACTERS = 3.0
"""Of a token of Portuguese where the tokenizer is not at hand (2.2 to 3.6 of those that we
measured)."""
A_MESSAGE, AN_ANSWER = 4, 3
"""Tokens that a chat template adds for each message, and for the beginning of an answer."""
MEASURED = 400
"""Examples whose lengths are taken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskPrompts:
    """What a run would ask of one of its tasks, in figures."""

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
    lengths: Mapping[str, float] | None
    """Tokens of prompts and of answers, their means and the longest; None where there are no
    examples. Without gold answers, those of answers are `sampling.max_tokens`."""
    gold: bool
    """Whether the lengths of answers are those of gold answers."""
    source: str
    """Where sizes and lengths are from."""

    @property
    def coverage(self) -> float:
        """How often RL will have seen each of the training prompts at its end, on average."""
        return self.drawn / max(1, self.sizes["train"])


@dataclass(frozen=True, kw_only=True)
class BeforeRun(Context):
    """A run that has not begun. Each property is computed at its first use, once."""

    recipe: Recipe
    folder: Path
    """The run's directory, which need not be there."""
    file: Path | None = None
    """Of the recipe."""
    tasks: Mapping[str, TaskData]
    wrong: Sequence[PlumblineError] = ()
    """What a run would refuse of the recipe, its tasks and its model."""

    def rank(self, finding: Finding) -> tuple[int, int]:
        """By level alone: nothing has a step yet."""
        return LEVELS.index(finding.level), 0

    @cached_property
    def prompts(self) -> list[TaskPrompts]:
        """What would be asked of each task."""
        recipe, rl, evaluation = self.recipe, self.recipe.rl, self.recipe.evaluation
        count, _ = self.counter
        sizes = {name: task.sizes["train"] for name, task in self.tasks.items()}
        dealt = task_shares(recipe, sizes)
        prompts = []
        for name, task in self.tasks.items():
            held_out, measured = task.sizes.get(evaluation.split, 0), task.train[:MEASURED]
            asked = [
                sum(count(m["content"]) + A_MESSAGE for m in e.messages) + AN_ANSWER
                for e in measured
            ]
            golds = [count(e.gold) + 1 for e in measured if e.gold is not None]
            lengths: dict[str, float] = {}
            for what, tokens in (
                ("prompt", asked),
                ("answer", golds or [recipe.sampling.max_tokens]),
            ):
                if asked:
                    lengths |= {what: sum(tokens) / len(tokens), f"longest_{what}": max(tokens)}
            few = f"from the options; lengths of {len(task.train)} prompts like them"
            prompts.append(
                TaskPrompts(
                    name=name,
                    task=task.task.name,
                    sizes=task.sizes,
                    finals=[split for split in task.finals if split in task.sizes],
                    inside=min(held_out, evaluation.limit or held_out)
                    if rl is not None and evaluation.every
                    else 0,
                    share=dealt[name],
                    drawn=0.0 if rl is None else dealt[name] * rl.steps * rl.prompts_per_step,
                    lengths=lengths or None,
                    gold=bool(golds),
                    source="from the records themselves" if task.built else few,
                )
            )
        return prompts

    @cached_property
    def counter(self) -> tuple[Callable[[str], int], bool]:
        """From a text to its tokens, and whether that is the model's own tokenizer; else it is by
        `CHARACTERS`."""
        folder = self.model_folder
        if (
            folder is None
            or not (folder / "tokenizer.json").is_file()
            or find_spec("tokenizers") is None
        ):
            return lambda text: math.ceil(len(text) / CHARACTERS), False
        from tokenizers import Tokenizer

        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        return lambda text: len(tokenizer.encode(text, add_special_tokens=False).ids), True

    @cached_property
    def model_folder(self) -> Path | None:
        """The directory with the weights that a run begins from, or with their base; None where
        none is here."""
        name = self.recipe.model.name
        return None if name is None else find_model_folder(name)

    @cached_property
    def shapes(self) -> Shapes | None:
        """The model's, where it is known.

        Raises:
            ModelError, DataError: its config is damaged.
        """
        name, tiny = self.recipe.model.name, self.recipe.model.tiny
        return (
            find_shapes(name)
            if name is not None
            else shapes_from_tiny(tiny)
            if tiny is not None
            else None
        )

    @cached_property
    def context(self) -> int | None:
        """The longest prompt with its answer [tokens]; None where it is not known."""
        try:
            return self.recipe.model.context or (
                self.shapes.context if self.shapes is not None else None
            )
        except PlumblineError:
            return None  # which is said of the checkpoint

    @cached_property
    def chat(self) -> "Chat":
        """The model's tokenizer and template, as the run would open them.

        Raises:
            MissingDataError: there is no tokenizer here.
            ModelError: it cannot be used.
        """
        section = self.recipe.model
        if section.name is None:
            raise MissingDataError("a tokenizer (the tiny model's is made by the run)")
        if is_gguf(section.name):
            raise MissingDataError("a tokenizer outside of the GGUF file")
        if self.model_folder is None:
            raise MissingDataError("the model, which is not here")
        if absent := [name for name in NEEDED if find_spec(name) is None]:
            raise MissingDataError(f"the package {absent[0]}")
        from plumbline.policies.pretrained.causal_model import (
            load_tokenizer,
            open_chat,
            quieten_transformers,
        )

        own = Path(local_model(section.name))
        if not has_tokenizer(own) and not has_tokenizer(self.model_folder):
            raise MissingDataError("a tokenizer beside the model")
        quieten_transformers()
        source = (
            own
            if is_adapter(own) and (own / "tokenizer_config.json").is_file()
            else self.model_folder
        )
        return open_chat(load_tokenizer(str(source), section), section, str(source))

    @cached_property
    def exact(self) -> bool:
        """Whether lengths are counted by the model's own tokenizer; else by characters."""
        try:
            return self.chat is not None
        except (MissingDataError, ModelError, UntrustedCodeError):
            return False

    def prompt_tokens(self, messages: Sequence[Message]) -> int:
        """Tokens of a prompt, its template included.

        Raises:
            MissingDataError: the template refuses it, which is a finding of its own.
        """
        if self.exact:
            try:
                return len(self.chat.prompt(messages))
            except (DataError, ModelError):
                raise MissingDataError("a template that takes these messages") from None
        return (
            round(sum(len(one["content"]) / CHARACTERS + A_MESSAGE for one in messages)) + AN_ANSWER
        )

    def answer_tokens(self, text: str) -> int:
        """Tokens of an answer with the one that ends it."""
        if self.exact:
            return len(self.chat.tokenizer(text, add_special_tokens=False)["input_ids"]) + 1
        return round(len(text) / CHARACTERS) + 1


@contextmanager
def gather_before_run(
    recipe: Recipe, folder: Path, file: Path | None = None
) -> Iterator[BeforeRun]:
    """Gather the recipe, its tasks and its model's files before a run begins; records that are built
    for it are deleted at the end.

    Args:
        recipe: of the run.
        folder: its directory; records that are in it are read.
        file: of the recipe.
    """
    wrong = list(find_problems(recipe))
    with TemporaryDirectory() as scratch:
        tasks, unopened = open_tasks(recipe, folder / "data", Path(scratch))
        causes = " ".join(str(error) for error in wrong)
        wrong += [error for error in unopened if error.cause not in causes]
        yield BeforeRun(recipe=recipe, folder=folder, file=file, tasks=tasks, wrong=wrong)


def open_tasks(
    recipe: Recipe, records: Path, scratch: Path
) -> tuple[dict[str, TaskData], list[PlumblineError]]:
    """Each task of a recipe, and what is wrong with those that cannot be opened; nothing is built
    that is kept.

    A task that builds records says how many it will build, and builds a few in `scratch` to be
    looked at; any other task is asked for its examples.

    Args:
        recipe: of the run.
        records: where the run would keep its records; those that are there are read.
        scratch: a temporary folder.
    """

    def opened(name: str, task: Task) -> TaskData:
        planned = None
        if not task.built:
            planned, task = task.sizes(), task.sketch(scratch / "sketch" / name)
        splits = {split: task.examples(split) for split in task.splits}
        finals, inside = final_splits(recipe, task), recipe.evaluation.split
        return TaskData(
            name=name, task=task, splits=splits, finals=finals, inside=inside, planned=planned
        )

    tasks: dict[str, TaskData] = {}
    wrong: list[PlumblineError] = []
    for name, one in recipe.each_task.items():
        place = records / name if (records / name).is_dir() else scratch / "records" / name
        try:
            tasks[name] = opened(name, open_task(one.name, one.options, place))
        except PlumblineError as error:
            wrong.append(error)
            if isinstance(error, UntrustedCodeError) and one.name == "jsonl":
                try:
                    tasks[name] = opened(name, open_rows(one.options))
                except UntrustedCodeError as further:  # its rows lie at an address
                    wrong.append(further)
    return tasks, wrong
