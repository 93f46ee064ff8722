"""What a recipe may say about the forms task."""

import difflib
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationInfo, field_validator

from plumbline.errors import RecipeError
from plumbline.recipe import Section, section
from plumbline_forms.formfactory.checkout import NAMES, row_of
from plumbline_forms.suite.catalogue import FORMS, RECORDS

Probability = Annotated[float, Field(ge=0, le=1)]


class FormNoise(Section):
    """What real forms and real instructions do; each dial is a probability. All 0: everything is
    spelled as it is."""

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
    """Of each typed field or list: it comes filled in, half of the time with what another record
    has there."""
    newlines: Probability = 0.0
    """Of each address in one line: the instructions break it into two."""
    order: Probability = 0.0
    """Of each example: the instructions go through the fields in another order than the page."""
    asides: Probability = 0.0
    """Of each example on the values surface: a sentence that has nothing to do with the form;
    documents always have."""


class RecordingFaults(Section):
    """How carelessly the demonstrations were recorded; each dial is a probability. All 0: they are
    the gold plans.

    People's recordings are seldom whole. What is in them is right; something is missing.
    """

    skipped: Probability = 0.0
    """Of each entry: it is left out, also where the page insists on it."""
    unsent: Probability = 0.0
    """Of each demonstration: it ends before the form is sent."""


class FormsOptions(Section):
    """Options of the forms task; all but the executor and the rubric decide the examples."""

    suite: Literal["own", "formfactory"] = "own"
    """own: Plumbline's forms. formfactory: those of a checkout of the public benchmark
    (docs/research/forms.md)."""
    path: str | None = None
    """formfactory: the folder of the checkout."""
    splits: Literal["test-only", "80-10-10"] = "test-only"
    """formfactory: every record is in test, or each form's are dealt to train, val and test."""
    seed: int = 42
    """Of the records, the splits and the noise."""
    forms: list[str] | None = None
    """Only these forms, by name; None takes all."""
    held_out: list[str] | None = None
    """Forms that make up the split held-out-forms and are in no other; None takes the suite's own
    five, of the benchmark none."""
    records: int = Field(default=RECORDS, ge=3, le=1000)
    """Records of each form."""
    mixed: int = Field(default=0, ge=0, le=9999)
    """Forms that are made up of the fields of those that are trained on, one example each, in train
    alone."""
    mixed_noise: FormNoise | None = None
    """Noise of those alone; None is `noise`, as of all other forms."""
    max_fields: int | None = Field(default=None, ge=1)
    """Only so many fields of each form (the site serves it so), for tiny models."""
    surface: Literal["values", "document"] = "values"
    """What is given: labels and values, or a text in which they must be found."""
    plan: Literal["steps", "agent"] = "steps"
    """The language of the demonstrations, and the one that the instructions ask for; answers may be
    in either."""
    instructions: Literal["full", "short"] = "full"
    """full describes the plan language and the page's controls; short gives the values alone, and
    gold plans then submit pages without the names of their buttons."""
    noise: FormNoise = FormNoise()
    sloppiness: RecordingFaults = RecordingFaults()
    executor: Literal["direct", "browser", "in-page"] = "direct"
    """direct needs no browser. browser navigates and sends in a real Chromium; in-page uses one
    without navigation."""
    rubric: Literal["received", "seed-v6"] = "received"
    """received: what the server received. seed-v6: the rubric of the forms log's tables, to compare
    with them."""
    attempts: int = Field(default=1, ge=1, le=8)
    """Plans for one form, each on a fresh visit: after one that sent nothing complete, the next is
    asked for with what the page and the server said. The last one's reward is the episode's,
    whatever came before it."""

    damaged: Probability = 1.0
    """Of each faultless demonstration, with several attempts: SFT also shows the gold plan after
    one with a learner's mistakes, which sent nothing. Careless ones fail by themselves."""

    @field_validator("forms", "held_out")
    @classmethod
    def _known(cls, names: list[str] | None, info: ValidationInfo) -> list[str] | None:
        """In the order of the suite, each once; forms of the benchmark by their id, too."""
        if names is None:
            return None
        benchmark = info.data.get("suite") == "formfactory"
        if benchmark:
            names = [row.name if (row := row_of(name)) else name for name in names]
        known = NAMES if benchmark else tuple(FORMS)
        for name in names:
            if name not in known:
                close = difflib.get_close_matches(name, known, n=1)
                hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(known)}"
                raise ValueError(f"there is no form {name}; {hint}")
        return [name for name in known if name in names]

    @field_validator("forms")
    @classmethod
    def _some(cls, names: list[str] | None) -> list[str] | None:
        if names == []:
            raise ValueError("name at least one form")
        return names


def read_options(values: dict[str, Any]) -> FormsOptions:
    """Check a recipe's `task.options`.

    Raises:
        RecipeError: an unknown key, form or value, or an option of the other suite.
    """
    known = ", ".join(FormsOptions.model_fields)
    gone = {
        "task.options.assets": "task.options.assets is gone: pages of FormFactory are shown without "
        "the "
        "styles "
        "of "
        "content networks"
    }
    advice = f"the forms task knows {known}"
    options = section(
        FormsOptions,
        values,
        inside="task.options.",
        advice=advice,
        hint=lambda key: gone.get(key, ""),
    )
    foreign = {
        "own": ("path", "splits"),
        "formfactory": ("records", "mixed", "mixed_noise", "max_fields", "noise", "sloppiness"),
    }
    defaults = {name: FormsOptions.model_fields[name].default for name in foreign[options.suite]}
    if strange := [name for name, default in defaults.items() if getattr(options, name) != default]:
        undone = ", ".join(f"task.options.{name}={_written(defaults[name])}" for name in strange)
        raise RecipeError(
            f"the suite {options.suite} has no use for "
            f"{', '.join(f'task.options.{name}' for name in strange)}",
            f"leave that out, or set what a model's own run has said back: {undone}"
            if options.suite == "formfactory"
            else "set task.options.suite: formfactory, or leave it out",
        )
    if options.attempts > 1 and options.rubric == "seed-v6":
        raise RecipeError(
            "the rubric seed-v6 judges one plan, and task.options.attempts asks for more",
            "set task.options.rubric: received, or attempts: 1",
        )
    if options.suite == "formfactory" and not options.path:
        raise RecipeError(
            "the FormFactory suite is read from a checkout, and none is named",
            "set task.options.path (--path)",
        )
    return options


def _written(default: object) -> object:
    """A default as a command line has it."""
    return "{}" if isinstance(default, Section) else "null" if default is None else default
