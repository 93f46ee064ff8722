"""The user's scoring functions: what they take, what they return, and a hash by which a change of them is noticed.

Two signatures are known, by the parameters' names:

    def score(completion, answer): ...                     # one answer; any columns of the row, and prompt, by name
    def score(prompts, completions, answer, **columns): ... # TRL's: lists, one entry for each answer

The first returns a number, or named parts: a mapping of name to number. The second returns a list of these. None is
"cannot be said here" and leaves the part out. As in TRL, a prompt that is a list of messages gives completions that
are lists of one message, and a prompt that is a text gives texts.
"""

import hashlib
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from plumbline.errors import DataError, RecipeError
from plumbline.imports import named
from plumbline.records import Score
from plumbline.tasks.jsonl.options import JsonlOptions
from plumbline.tasks.rubric import Part, Rubric

_OURS = frozenset({"prompt", "completion"})
_TRL = frozenset({"prompts", "completions"})
_TRAINER = frozenset({"completion_ids", "trainer_state", "log_extra", "log_metric", "environments"})
"""What only TRL's trainer can give."""
_SLACK = 1e-9
"""What rounding may put a reward outside of its range by."""


@dataclass(frozen=True, slots=True)
class Scorer:
    """One scoring function."""

    name: str
    """`module:function`."""
    part: str
    """What its number is called: the function's name."""
    function: Callable[..., Any]
    batched: bool
    """Whether it takes lists (TRL's signature)."""
    takes: frozenset[str] | None
    """The parameters that it names; None where it takes whatever there is."""
    needs: frozenset[str]
    """Columns of the row that it cannot do without."""

    def __call__(self, prompt: Any, completions: Sequence[str], row: Mapping[str, Any]) -> list[Any]:
        """What the function says of each completion of one row, as it says it.

        Raises:
            DataError: a function of lists returned no list, or one of another length.
            Exception: whatever the function raises.
        """
        if not self.batched:
            return [self.function(**self._of({**row, "prompt": prompt, "completion": text})) for text in completions]
        count = len(completions)
        columns = {key: [value] * count for key, value in row.items() if key not in _OURS | _TRAINER}
        chat = isinstance(prompt, list)
        texts = [[{"role": "assistant", "content": text}] if chat else text for text in completions]
        returned = self.function(**self._of({**columns, "prompts": [prompt] * count, "completions": texts}))
        if isinstance(returned, str | Mapping) or not hasattr(returned, "__len__") or len(returned) != count:
            raise DataError(
                f"{self.name} returned {_shown(returned)} for {count} completions",
                "return a list with one number for each; a function of one answer has the parameter completion",
            )
        return list(returned)

    def _of(self, values: dict[str, Any]) -> dict[str, Any]:
        return values if self.takes is None else {key: value for key, value in values.items() if key in self.takes}


def open_scorer(name: str) -> Scorer:
    """Import a scoring function and read its signature.

    Raises:
        RecipeError: there is none of that name, or it takes or gives what a scoring function does not.
    """
    function = named(name, "scoring function")
    how = "def score(completion, answer), with columns of the rows by name, or TRL's def score(completions, **columns)"
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError) as error:
        raise RecipeError(f"{name} does not say what it takes: {error}", f"write it as {how}") from error
    if inspect.iscoroutinefunction(function):
        raise RecipeError(f"{name} is a coroutine", f"write a plain function, {how}; task.options.judges has threads")
    known = [one for one in parameters if one.kind not in {one.VAR_KEYWORD, one.VAR_POSITIONAL}]
    names = [one.name for one in known]
    if any(one.kind is one.POSITIONAL_ONLY for one in known) or ("completions" in names) == ("completion" in names):
        raise RecipeError(f"{name} takes ({', '.join(names)}), which is no answer to score", f"write it as {how}")
    batched = "completions" in names
    needs = frozenset(one.name for one in known if one.default is one.empty)
    if batched and (lacking := needs & _TRAINER):
        raise RecipeError(
            f"{name} takes {', '.join(sorted(lacking))}, which only TRL's trainer has",
            "score the text; length has sampling.max_tokens and rl.mask_truncated",
        )
    return Scorer(
        name=name,
        part=name.partition(":")[2],
        function=function,
        batched=batched,
        takes=None if any(one.kind is one.VAR_KEYWORD for one in parameters) else frozenset(names),
        needs=needs - (_TRL if batched else _OURS),
    )


class Scoring:
    """All scoring functions of a task as one rubric."""

    def __init__(self, options: JsonlOptions) -> None:
        """Import the functions.

        Raises:
            RecipeError: see `open_scorer`; or the source of one cannot be read.
        """
        self.options = options
        self.scorers = [open_scorer(name) for name in options.functions()]
        parts = tuple(Part(name, weight, f"what {name} says") for name, weight in options.parts().items())
        self._rubric = Rubric("+".join(options.functions()), 1, parts)
        ranges = ";".join(f"{part.name}={options.range_of(part.name)}" for part in parts)
        content = "\x1e".join([ranges, *map(_source, self.scorers)])
        self.identity = f"{self._rubric.identity}:{hashlib.sha256(content.encode()).hexdigest()[:8]}"
        """Of the functions' names and source, the parts' weights and their ranges."""

    @property
    def needs(self) -> frozenset[str]:
        """Columns that every row must have."""
        return frozenset[str]().union(*(scorer.needs for scorer in self.scorers))

    def scores(self, prompt: Any, completions: Sequence[str], row: Mapping[str, Any]) -> list[Score]:
        """The scores of completions of one row.

        Raises:
            DataError: a function returned what is no reward in its range; the message says what to do.
            Exception: whatever a function raises.
        """
        found: list[dict[str, Any]] = [{} for _ in completions]
        for scorer in self.scorers:
            for parts, value in zip(found, scorer(prompt, completions, row), strict=True):
                new = value if isinstance(value, Mapping) else {scorer.part: value}
                if twice := parts.keys() & new.keys():
                    raise DataError(f"two functions return the part {min(twice)}", "give the parts different names")
                parts.update(new)
        return [self._score(parts) for parts in found]

    def _score(self, parts: Mapping[str, Any]) -> Score:
        names = self._rubric.names
        if parts.keys() != set(names):
            returned, weights = ", ".join(map(str, parts)), ", ".join(f"{name}: 1" for name in parts)
            raise DataError(
                f"the parts {returned or '(none)'} were returned, and {', '.join(names)} have weights",
                "return the same parts every time, None for one that cannot be said, and set "
                f"task.options.weights: {{{weights}}}",
            )
        values = {name: self._unit(name, parts[name]) for name in names}
        if all(value is None for value in values.values()):
            raise DataError("nothing was said of this answer: None is no reward", "return a number, 0 for a bad answer")
        return self._rubric.score(values)

    def _unit(self, name: str, value: Any) -> float | None:
        """A returned number on the scale from 0 to 1."""
        number = _number(name, value)
        if number is None:
            return None
        low, high = self.options.range_of(name)
        scaled = (number - low) / (high - low)
        if not -_SLACK <= scaled <= 1 + _SLACK:  # NaN fails this, too
            advice = "set task.options.range: [LOWEST, HIGHEST] to what it can be, which become the rewards 0 and 1"
            if number != number:
                advice = "return a number for every text, 0 for a bad answer"
            raise DataError(f"what {name} says is {number:g}, which is not in [{low:g}, {high:g}]", advice)
        return min(1.0, max(0.0, scaled))


def _number(name: str, value: Any) -> float | None:
    if value is None:
        return None
    try:
        plain = value.item() if hasattr(value, "item") else value  # numpy, torch
        if isinstance(plain, int | float):
            return float(plain)
    except (ValueError, RuntimeError, OverflowError):  # an array of several numbers; an integer of 400 digits
        pass
    raise DataError(f"{name} is {_shown(value)}, and no number", "return a number, or a mapping of names to numbers")


def _shown(value: Any) -> str:
    return f"{type(value).__name__} {repr(value)[:60]}"


def _source(scorer: Scorer) -> str:
    """The source of the files that a function is named in and written in, or of the function alone (notebooks).

    What it calls in other files is not covered.

    Raises:
        RecipeError: there is no source to read, so that a change would go unnoticed.
    """
    found = []
    modules = dict.fromkeys((scorer.name.partition(":")[0], getattr(scorer.function, "__module__", "")))
    for candidate in [*(sys.modules.get(module) for module in modules), scorer.function]:
        try:
            found.append(inspect.getsource(candidate) if candidate is not None else "")
        except (OSError, TypeError):
            continue
        if candidate is scorer.function or len(found) == len(modules):
            break
    if not any(found):
        raise RecipeError(
            f"the source of {scorer.name} cannot be read, so a change of it would go unnoticed",
            "call it from a function in a file of yours, and name that",
        )
    return "\x1e".join(found)
