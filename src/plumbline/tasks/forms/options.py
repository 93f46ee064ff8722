"""What a recipe may say about the forms task."""

import difflib
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, field_validator

from plumbline.errors import RecipeError
from plumbline.recipe import Section
from plumbline.tasks.forms.suite.catalogue import FORMS
from plumbline.tasks.forms.suite.records import RECORDS

Probability = Annotated[float, Field(ge=0, le=1)]


class Noise(Section):
    """What real forms and real instructions do; each dial is a probability. All 0: everything is spelled as it is."""

    labels: Probability = 0.0
    """Of each field that has one: the instructions use another name than the page."""
    dates: Probability = 0.0
    """Of each date: not ISO, but as people write dates."""
    options: Probability = 0.0
    """Of each choice: other capitals, or blanks for dashes."""
    numbers: Probability = 0.0
    """Of each number: thousands separators, and the language's decimal mark."""
    stars: Probability = 0.0
    """Of each example: labels of required fields end in a star."""
    prefilled: Probability = 0.0
    """Of each typed field or list: it comes filled in, half of the time with what another record has there."""
    newlines: Probability = 0.0
    """Of each address in one line: the instructions break it into two."""
    order: Probability = 0.0
    """Of each example: the instructions go through the fields in another order than the page."""
    asides: Probability = 0.0
    """Of each example on the values surface: a sentence that has nothing to do with the form; documents always have."""


class FormsOptions(Section):
    """Options of the forms task; all but the executor and the rubric decide the examples."""

    seed: int = 42
    """Of the records, the splits and the noise."""
    forms: list[str] | None = None
    """Only these forms, by name; None takes all."""
    held_out: list[str] | None = None
    """Forms that make up the split held-out-forms and are in no other; None takes the suite's own five."""
    records: int = Field(default=RECORDS, ge=3, le=1000)
    """Records of each form."""
    max_fields: int | None = Field(default=None, ge=1)
    """Only so many fields of each form (the site serves it so), for tiny models."""
    surface: Literal["values", "document"] = "values"
    """What is given: labels and values, or a text in which they must be found."""
    plan: Literal["steps", "agent"] = "steps"
    """The language of the demonstrations, and the one that the instructions ask for; answers may be in either."""
    instructions: Literal["full", "short"] = "full"
    """full describes the plan language and the page's controls; short gives the values alone."""
    noise: Noise = Noise()
    executor: Literal["direct", "browser"] = "direct"
    rubric: Literal["received", "seed-v6"] = "received"
    """received: what the server received. seed-v6: the rubric of the seed's tables, for comparison with them only."""

    @field_validator("forms", "held_out")
    @classmethod
    def _known(cls, names: list[str] | None) -> list[str] | None:
        """In the order of the suite, each once."""
        if names is None:
            return None
        for name in names:
            if name not in FORMS:
                close = difflib.get_close_matches(name, FORMS, n=1)
                raise ValueError(
                    f"there is no form {name}; " + (f"did you mean {close[0]}?" if close else _all_names())
                )
        return [name for name in FORMS if name in names]

    @field_validator("forms")
    @classmethod
    def _some(cls, names: list[str] | None) -> list[str] | None:
        if names == []:
            raise ValueError("name at least one form")
        return names


def _all_names() -> str:
    return f"there are {', '.join(FORMS)}"


def read_options(values: dict[str, Any]) -> FormsOptions:
    """Check a recipe's `task.options`.

    Raises:
        RecipeError: an unknown key, form or value.
    """
    try:
        return FormsOptions.model_validate(values)
    except ValidationError as error:
        problems = [f"task.options.{'.'.join(map(str, p['loc']))}: {p['msg']}" for p in error.errors()]
        known = ", ".join(FormsOptions.model_fields)
        raise RecipeError("; ".join(problems), f"the forms task knows {known}") from error
