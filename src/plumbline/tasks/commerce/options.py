"""What a recipe may say about the commerce task."""

from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from plumbline.errors import RecipeError
from plumbline.recipe import Section

Probability = Annotated[float, Field(ge=0, le=1)]


class Sloppiness(Section):
    """How carelessly the demonstrations are written: each fault's probability. All 0: they are the gold answers.

    People's records are seldom clean. These faults are of format and style alone: what is written is right.
    """

    abridged: Probability = 0.0
    """The object stops after its first three keys."""
    decimal_comma: Probability = 0.0
    """Numbers as Brazilians write them: 4,5."""
    unclosed: Probability = 0.0
    """The closing brace is missing."""
    fenced: Probability = 0.0
    """A Markdown fence around the object."""
    chatty: Probability = 0.0
    """A sentence before the object."""


class CommerceOptions(Section):
    """Options of the commerce task; those of its records decide their bytes."""

    data: str | None = None
    """A folder of records to use as they are; None builds them from the numbers below."""
    seed: int = 42
    orders: int = Field(default=20_000, ge=1)
    """Orders in the database."""
    extraction: int = Field(default=590, ge=3)
    """Extraction prompts over the three splits (80, 10 and 10 %)."""
    instructions: Literal["full", "short"] = "full"
    """full explains every key; short is for tiny models, which cannot read instructions anyway."""
    reading: Literal["lenient", "strict"] = "lenient"
    """How the reward reads an answer: what was meant, or only what `json.loads` accepts as it stands."""
    sloppiness: Sloppiness = Sloppiness()

    def records(self) -> dict[str, Any]:
        """The options that decide the records' bytes."""
        return self.model_dump(include={"seed", "orders", "extraction", "instructions"})


def read_options(values: dict[str, Any]) -> CommerceOptions:
    """Check a recipe's `task.options`.

    Raises:
        RecipeError: an unknown key or a value out of range.
    """
    try:
        return CommerceOptions.model_validate(values)
    except ValidationError as error:
        problems = [f"task.options.{'.'.join(map(str, p['loc']))}: {p['msg']}" for p in error.errors()]
        known = ", ".join(CommerceOptions.model_fields)
        raise RecipeError("; ".join(problems), f"the commerce task knows {known}") from error
