"""What a recipe may say about the task jsonl."""

from collections.abc import Mapping
from string import Formatter
from typing import Annotated, Any, Self

from pydantic import Field, ValidationInfo, field_validator, model_validator

from plumbline.config.imports import dotted
from plumbline.recipe import Section, section

Range = tuple[float, float]
Weight = Annotated[float, Field(allow_inf_nan=False)]


class JsonlOptions(Section):
    """Options of the task jsonl. Paths are relative to the working directory, as all paths of a recipe are."""

    train: str
    """A file of JSON lines: one object a row."""
    val: str | float = 0.1
    """A file of its own, or a share of the prompts of `train`, which are then held out."""
    test: str | float = 0.1
    seed: int = 0
    """Of the shares: which prompts are held out."""
    prompt: str = "prompt"
    """The column with the prompt: a text, or a list of messages. Messages that end with the assistant's hold the gold
    answer, too."""
    gold: str | None = None
    """The column with an answer that earns everything, or a template of columns such as `#### {answer}`; None where
    there is none."""
    system: str | None = None
    """A system message before every prompt that has none."""
    stratum: str | None = None
    """The column that evaluations break down by."""
    score: str | list[str]
    """`module:function` or `file.py:function`, one or several (see `plumbline.tasks.jsonl.scorer`)."""
    weights: dict[str, Weight] | None = Field(default=None, min_length=1)
    """Of the named parts, or a list in the order of the functions. A negative weight pays for low numbers; a part of
    weight 0 is measured and pays nothing. None: the functions themselves are the parts, each with the weight 1."""
    range: Range | dict[str, Range] | None = None
    """What a function returns lies between these two, which become 0 and 1; or such a pair for each part. None: [0, 1]
    for every part."""
    judges: int = Field(default=0, ge=0, le=256)
    """Threads that score while the model samples, for functions that wait (for a network, for a process); 0: none."""

    @field_validator("val", "test")
    @classmethod
    def _file_or_share(cls, value: str | float) -> str | float:
        if not isinstance(value, str) and not 0 < value < 1:
            raise ValueError(f"give a file, or a share between 0 and 1, not {value:g}")
        return value

    @field_validator("gold")
    @classmethod
    def _template(cls, value: str | None) -> str | None:
        if value is not None and "{" in value:
            template_columns(value)
        return value

    @field_validator("score")
    @classmethod
    def _functions(cls, value: str | list[str]) -> str | list[str]:
        value = dotted(value) if isinstance(value, str) else list(map(dotted, value))
        names = [name.partition(":")[2] for name in ([value] if isinstance(value, str) else value)]
        if not names or not all(names):
            raise ValueError("name a function as module:function, or several")
        if len(set(names)) < len(names):
            raise ValueError(f"two functions have one name ({', '.join(names)}), which is the name of their part")
        return value

    @field_validator("weights", mode="before")
    @classmethod
    def _in_order(cls, value: Any, known: ValidationInfo) -> Any:
        if not isinstance(value, list) or (score := known.data.get("score")) is None:
            return value
        names = [name.partition(":")[2] for name in ([score] if isinstance(score, str) else score)]
        if len(value) != len(names):
            raise ValueError(f"weights are {len(value)} for {len(names)} functions; give each one, or name the parts")
        return dict(zip(names, value, strict=True))

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if sum(share for share in (self.val, self.test) if not isinstance(share, str)) >= 1:
            raise ValueError("val and test hold out all of train")
        if not any(self.parts().values()):
            raise ValueError("weights are all 0, so no answer earns anything; give one part another weight")
        pairs = self.range.values() if isinstance(self.range, dict) else [] if self.range is None else [self.range]
        for low, high in pairs:
            if not low < high:
                raise ValueError(f"range goes from the lowest reward to the highest, not from {low:g} to {high:g}")
        if isinstance(self.range, dict) and (unknown := self.range.keys() - set(self.parts())):
            raise ValueError(f"range names {', '.join(sorted(unknown))}; the parts are {', '.join(self.parts())}")
        return self

    def functions(self) -> list[str]:
        """Each scoring function as `module:function`."""
        return [self.score] if isinstance(self.score, str) else self.score

    def parts(self) -> dict[str, float]:
        """The weight of every part by its name."""
        return self.weights or {name.partition(":")[2]: 1.0 for name in self.functions()}

    def range_of(self, part: str) -> Range:
        """What the functions' numbers for a part lie between."""
        return self.range.get(part, (0.0, 1.0)) if isinstance(self.range, dict) else self.range or (0.0, 1.0)


def template_columns(template: str) -> list[str]:
    """The columns that a template of gold answers names. Names are all that may stand in its braces.

    Raises:
        ValueError: it is no such template.
    """
    how = "write {column} for a column of the rows, {{ and }} for braces, so \\boxed{{{answer}}} for \\boxed{42}"
    try:
        fields = [field for field in Formatter().parse(template) if field[1] is not None]
    except ValueError as error:
        raise ValueError(f"{template!r} is no template: {error}; {how}") from error
    names = [name for _, name, form, conversion in fields if name and not form and conversion is None]
    if not fields or len(names) < len(fields) or any(set(name) & set(".[]{}!") for name in names):
        raise ValueError(f"{template!r} is no template; {how}")
    return names


def read_options(values: Mapping[str, Any]) -> JsonlOptions:
    """Check a recipe's `task.options`.

    Raises:
        RecipeError: an unknown key, one that is missing, or a value out of range.
    """
    known = ", ".join(JsonlOptions.model_fields)
    advice = f"the task jsonl needs train and score, and knows {known}"
    return section(JsonlOptions, values, inside="task.options.", advice=advice)
