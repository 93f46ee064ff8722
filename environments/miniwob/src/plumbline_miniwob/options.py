"""What a recipe may say about the miniwob task."""

import difflib
from typing import Any, Literal

from pydantic import Field, ValidationInfo, field_validator

from plumbline.errors import RecipeError
from plumbline.recipe import Section, section
from plumbline_miniwob.pages import table


class PerTask(Section):
    """How many examples of each page a split has, where the page comes in so many different
    ways."""

    train: int = Field(default=20, ge=1, le=2000)
    val: int = Field(default=2, ge=1, le=500)
    test: int = Field(default=5, ge=1, le=500)
    held_out_tasks: int = Field(default=10, ge=1, le=500)


class MiniwobOptions(Section):
    """Options of the miniwob task."""

    tasks: list[str] | Literal["all"] | None = None
    """Only these pages, by name. None takes all that have an oracle; all takes those without one,
    too, which can be evaluated and not be shown."""
    held_out: list[str] | None = None
    """Pages that make up the split held-out-tasks and are in no other; None takes the suite's own
    twenty."""
    per_task: PerTask = PerTask()
    plan: Literal["steps", "agent"] = "steps"
    """The language of the demonstrations, and the one that the instructions ask for; answers may be
    in either."""
    naming: Literal["names", "numbers"] = "names"
    """How gold plans say which element of the first page is meant: by its name where only one is
    called so, else by its number; or always by its number. With several turns the actions are shown
    by numbers; answers may do either."""
    turns: int = Field(default=1, ge=1, le=20)
    """1: an answer is a whole plan. More: after each answer the chat goes on with what the page
    then shows, until the page has decided, or so many answers were given."""
    instructions: Literal["full", "short"] = "full"
    """full describes the plan language; short gives the page and what is asked alone."""
    seed: int = Field(default=0, ge=0, le=10_000)
    """Another seed, other episodes of the same pages."""

    @field_validator("tasks", "held_out")
    @classmethod
    def _known(cls, names: list[str] | str | None, info: ValidationInfo) -> list[str] | str | None:
        """In the order of the suite, each once."""
        if names is None or isinstance(names, str):
            return names
        for name in names:
            if name not in table():
                close = difflib.get_close_matches(name, table(), n=1)
                raise ValueError(
                    f"there is no page {name}; "
                    + (f"did you mean {close[0]}?" if close else _ADVICE)
                )
        if not names and info.field_name == "tasks":
            raise ValueError("name at least one page")
        return [name for name in table() if name in names]

    @property
    def chosen(self) -> tuple[str, ...]:
        """The pages, in the order of the suite."""
        if self.tasks is None:
            return tuple(name for name, row in table().items() if "oracle" not in row)
        return tuple(table() if self.tasks == "all" else self.tasks)

    @property
    def held(self) -> tuple[str, ...]:
        """Those of them that are held out."""
        if self.held_out is None:
            return tuple(name for name in self.chosen if table()[name].get("held_out") == "true")
        return tuple(name for name in self.chosen if name in self.held_out)

    def records(self) -> dict[str, Any]:
        """The options that decide the records' bytes."""
        counts = self.per_task.model_dump()
        pages = {"tasks": list(self.chosen), "held_out": list(self.held)}
        told = {"naming": self.naming, "turn_by_turn": self.turns > 1}
        return {**pages, "per_task": counts, "seed": self.seed, **told}


_ADVICE = "`python -c 'from plumbline_miniwob.pages import table; print(*table())'` prints all 130"


def read_options(values: dict[str, Any]) -> MiniwobOptions:
    """Check a recipe's `task.options`.

    Raises:
        RecipeError: an unknown key, page or value; a page is to be held out that is not chosen, or
            none is left to train on.
    """
    known = ", ".join(MiniwobOptions.model_fields)
    options = section(
        MiniwobOptions, values, inside="task.options.", advice=f"the miniwob task knows {known}"
    )
    if missing := [name for name in options.held_out or () if name not in options.chosen]:
        raise RecipeError(
            f"{', '.join(missing)} cannot be held out: not among task.options.tasks",
            "name it there, too",
        )
    if len(options.held) == len(options.chosen):
        raise RecipeError(
            "every page is held out, so there is nothing to train on",
            "set task.options.held_out: []",
        )
    return options
