"""What is known of a run before it begins, gathered once for all checks: no weights are loaded."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from plumbline.checks.diagnosis.finding import Finding
from plumbline.checks.preflight.prompts import (
    A_MESSAGE,
    AN_ANSWER,
    CHARACTERS,
    Opened,
    TaskPrompts,
    open_tasks,
    prompts_of,
)
from plumbline.checks.preflight.shapes import Shapes, find_shapes, folder_of, of_tiny
from plumbline.checks.refusals import Ground, problems
from plumbline.errors import DataError, ModelError, PlumblineError, UntrustedCodeError
from plumbline.policies import NEEDED
from plumbline.policies.pretrained.gguf_file import is_gguf
from plumbline.policies.saved import has_tokenizer, is_adapter
from plumbline.recipe import Recipe
from plumbline.records import Example, Message
from plumbline.runs.remote import local_model

if TYPE_CHECKING:
    from plumbline.policies.pretrained.chat import Chat


class Lacking(Exception):  # noqa: N818 - it says what happened
    """A check cannot be done; its text is what it lacks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """A question to what is known of a run before it begins."""

    name: str
    asks: str
    """What it looks for, for people."""
    look: Callable[["Before"], Iterator[Finding]]
    """Raises Lacking where it cannot be done."""
    cheap: bool = True
    """Whether `plumbline run` does it, too, on its own records."""


@dataclass(frozen=True, kw_only=True)
class Before:
    """A run that has not begun. What is not known is asked for when it is needed, once."""

    recipe: Recipe
    folder: Path
    """The run's directory, which need not be there."""
    file: Path | None
    """Of the recipe."""
    tasks: Mapping[str, Opened]
    wrong: Sequence[PlumblineError] = ()
    """What a run would refuse of the recipe, its tasks and its model."""

    @cached_property
    def prompts(self) -> list[TaskPrompts]:
        """What would be asked of each task."""
        return prompts_of(self.recipe, self.tasks)

    @cached_property
    def model_folder(self) -> Path | None:
        """The directory with the weights that a run begins from, or with their base; None where none is here."""
        name = self.recipe.model.name
        return None if name is None else folder_of(name)

    @cached_property
    def shapes(self) -> Shapes | None:
        """The model's, where it is known.

        Raises:
            ModelError, DataError: its config is damaged.
        """
        name, tiny = self.recipe.model.name, self.recipe.model.tiny
        return find_shapes(name) if name is not None else of_tiny(tiny) if tiny is not None else None

    @cached_property
    def context(self) -> int | None:
        """The longest prompt with its answer [tokens]; None where it is not known."""
        try:
            return self.recipe.model.context or (self.shapes.context if self.shapes is not None else None)
        except PlumblineError:
            return None  # which is said of the checkpoint

    @cached_property
    def chat(self) -> "Chat":
        """The model's tokenizer and template, as the run would open them.

        Raises:
            Lacking: there is no tokenizer here.
            ModelError: it cannot be used.
        """
        section = self.recipe.model
        if section.name is None:
            raise Lacking("a tokenizer (the tiny model's is made by the run)")
        if is_gguf(section.name):
            raise Lacking("a tokenizer outside of the GGUF file")
        if self.model_folder is None:
            raise Lacking("the model, which is not here")
        if absent := [name for name in NEEDED if find_spec(name) is None]:
            raise Lacking(f"the package {absent[0]}")
        from plumbline.policies.pretrained.loading import load_tokenizer, open_chat, quieten

        own = Path(local_model(section.name))
        if not has_tokenizer(own) and not has_tokenizer(self.model_folder):
            raise Lacking("a tokenizer beside the model")
        quieten()
        source = own if is_adapter(own) and (own / "tokenizer_config.json").is_file() else self.model_folder
        return open_chat(load_tokenizer(str(source), section), section, str(source))

    @property
    def exact(self) -> bool:
        """Whether lengths are counted by the model's own tokenizer; else by characters."""
        try:
            return self.chat is not None
        except (Lacking, ModelError, UntrustedCodeError):
            return False

    def prompt_tokens(self, messages: Sequence[Message]) -> int:
        """Tokens of a prompt, its template included.

        Raises:
            Lacking: the template refuses it, which is a finding of its own.
        """
        if self.exact:
            try:
                return len(self.chat.prompt(messages))
            except (DataError, ModelError):
                raise Lacking("a template that takes these messages") from None
        return round(sum(len(one["content"]) / CHARACTERS + A_MESSAGE for one in messages)) + AN_ANSWER

    def answer_tokens(self, text: str) -> int:
        """Tokens of an answer with the one that ends it."""
        if self.exact:
            return len(self.chat.tokenizer(text, add_special_tokens=False)["input_ids"]) + 1
        return round(len(text) / CHARACTERS) + 1

    def evaluated(self, one: Opened) -> dict[str, Sequence[Example]]:
        """The examples of a task that the run evaluates on, by split, as far as they are known."""
        finals = next(prompts.finals for prompts in self.prompts if prompts.name == one.name)
        wanted = dict.fromkeys([*finals, self.recipe.evaluation.split])
        return {split: one.splits[split] for split in wanted if split in one.splits and split != "train"}

    def ground(self, one: Opened) -> Ground:
        """A task as the checks of `plumbline.checks.refusals` know it."""
        return Ground(
            name=one.name, task=one.probed, train=one.splits["train"], held_out=self.evaluated(one), finals=()
        )


@contextmanager
def before(recipe: Recipe, folder: Path, file: Path | None = None) -> Iterator[Before]:
    """What is known of a run before anything of it is there; what has to be built for that is gone afterwards.

    Args:
        recipe: of the run.
        folder: its directory; records that are in it are read.
        file: of the recipe.
    """
    wrong = list(problems(recipe))
    with TemporaryDirectory() as scratch:
        tasks, unopened = open_tasks(recipe, folder / "data", Path(scratch))
        told = " ".join(str(error) for error in wrong)
        wrong += [error for error in unopened if error.cause not in told]
        yield Before(recipe=recipe, folder=folder, file=file, tasks=tasks, wrong=wrong)


def before_of(recipe: Recipe, folder: Path, grounds: Sequence[Ground]) -> Before:
    """The same of a run whose records are there."""
    tasks = {
        one.name: Opened(
            name=one.name,
            task=one.task,
            probed=one.task,
            sizes={split: len(found) for split, found in {"train": one.train, **one.held_out}.items()},
            splits={"train": one.train, **one.held_out},
            built=True,
        )
        for one in grounds
    }
    return Before(recipe=recipe, folder=folder, file=None, tasks=tasks)
