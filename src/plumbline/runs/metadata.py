"""What a model directory that Plumbline wrote says about itself: `plumbline.json`, beside the
weights.

It names the task, or the tasks, with the options that rebuild the records, and the fingerprints of
every prompt that the weights were trained on, in this run or before it; an evaluation on one of
those prompts is refused.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

from pydantic import TypeAdapter

from plumbline.config.imports import note_file_text
from plumbline.errors import DataError, RecipeError
from plumbline.recipe import TaskName, TaskSection, explain_foreign_key, options_as_written, section
from plumbline.storage import one_line, read_object

METADATA = "plumbline.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelMetadata:
    """Where a model came from."""

    recipe: str
    """The recipe's name and identity."""
    stage: str
    task: str
    """Empty where there were several."""
    options: Mapping[str, Any]
    """The task's options, which rebuild its records."""
    tasks: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Of several: {"name", "options"} of each, by the names that the recipe gave them."""
    model: Mapping[str, Any] = field(default_factory=dict)
    """The recipe's model section, as far as it decides what the weights score (family, canvas,
    quantize, dtype ...)."""
    sampling: Mapping[str, Any] = field(default_factory=dict)
    """The sampling distribution that evaluations drew by (the fields of the family's
    `Sampling`)."""
    ends: Sequence[str] = ()
    """The tokens that end an answer."""
    trained_on: frozenset[str] = field(default_factory=frozenset)
    """Fingerprints of the prompts (`Example.fingerprint`)."""

    def to_json(self) -> dict[str, Any]:
        """Plain values; the fingerprints as one string, which is a quarter of the size of a
        list."""
        return {**asdict(self), "trained_on": " ".join(sorted(self.trained_on))}

    @classmethod
    def read(cls, model: str | Path) -> Self | None:
        """The metadata of a model directory; None for a model from elsewhere.

        Raises:
            DataError: there is one, but it is damaged.
        """
        path = Path(model) / METADATA
        if not path.is_file():
            return None
        values = read_object(path)
        note_file_text(
            path, str({key: value for key, value in values.items() if key != "trained_on"})
        )
        advice = "remove it to treat the model as one from elsewhere"
        try:
            seen, ends = frozenset(values["trained_on"].split()), tuple(values.get("ends", ()))
            metadata = cls(**{**values, "trained_on": seen, "ends": ends})
            metadata._check()
        except RecipeError as error:
            raise DataError(f"{path} is damaged: {error.cause}", advice) from error
        except (TypeError, KeyError, AttributeError, ValueError) as error:
            lacks = "it lacks " if isinstance(error, KeyError) else ""
            raise DataError(f"{path} is damaged: {lacks}{one_line(error)}", advice) from error
        return metadata

    def _check(self) -> None:
        """Raises TypeError or ValueError where a value is none that `to_json` writes."""
        # With an adapter: of one this says all but what stands in its own configuration, and 4
        # bits need one.
        options = options_as_written(self.model, self.sampling)
        lora: dict[str, Any] = {"lora": {}} if "lora" in options.model.model_fields else {}
        section(
            options.model,
            {**self.model, "name": "x", **lora},
            inside="model.",
            hint=explain_foreign_key,
        )
        section(options.sampling, self.sampling, inside="sampling.", hint=explain_foreign_key)
        texts = all(isinstance(one, str) for one in (self.stage, self.task, *self.ends))
        if not texts or not isinstance(self.options, dict):
            raise TypeError("stage and task are texts, ends a list of texts, and options an object")
        TypeAdapter(dict[TaskName, Any]).validate_python(self.tasks)
        for one in self.tasks.values():
            section(TaskSection, one, "tasks")
        if not re.fullmatch(r"[\w.-]+ [\w.-]+", self.recipe):
            raise ValueError("recipe is a name and an identity")


def add_trained_prompts(model: str | Path, prompts: Iterable[str]) -> frozenset[str]:
    """The fingerprints that the model at `model` was trained on already, and those of further
    prompts."""
    metadata = ModelMetadata.read(model)
    return frozenset(prompts) | (metadata.trained_on if metadata is not None else frozenset())
