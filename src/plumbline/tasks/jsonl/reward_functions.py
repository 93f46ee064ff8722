"""The user's scoring functions: what they take, what they return, and a hash by which a change of
them is noticed.

Three signatures are known, by the parameters' names:

    def score(completion, answer): ...                     # one answer; any columns of the row, and prompt, by name
    def score(prompts, completions, answer, **columns): ... # TRL's: lists, one entry for each answer
    def compute_score(data_source, solution_str, ground_truth, extra_info=None): ... # verl's: one answer

The first returns a number, or named parts: a mapping of name to number. The second returns a list
of these. verl's returns a number, or a mapping whose `score` is the number; the rest is not read.
All may be coroutines. As in TRL, a prompt that is a list of messages gives completions that are
lists of one message, and a prompt that is a text gives texts; verl's functions take texts.

Parts of the first kind are averaged by weight, whatever their ranges; None leaves a part out of the
average. Where a function has TRL's or verl's signature, parts add up as in TRL, and one line from
the lowest sum to the highest makes it 0 to 1:

    reward = (sum of weight * value - lowest sum) / (highest sum - lowest sum)

So a part weighs its weight times the width of its range. A negative weight turns its part around:
the lowest number becomes 1. None, and NaN as in TRL, says that a function does not judge an answer:
its part is left out, and the other weights make up the whole, so that a right answer earns 1. (In
TRL it adds 0.) The scale is that of the declared ranges, 0 to 1 by default: it must be the same in
the whole run and when the run is resumed, and most of TRL's functions stay within it. The first
number outside is an error (`RewardError`) that names the range.
"""

import asyncio
import copy
import hashlib
import inspect
import math
import re
import sys
import threading
import warnings
from collections import defaultdict
from collections.abc import Mapping, Sequence
from decimal import Decimal
from functools import cache, partial
from numbers import Real
from typing import Any

from plumbline.config.imports import import_named
from plumbline.errors import DataError, RecipeError, RewardError
from plumbline.records import Rows, Score
from plumbline.tasks.jsonl.rows import JsonlOptions
from plumbline.tasks.rubric import Part, Rubric

_OURS = frozenset({"prompt", "completion"})
_TRL = frozenset({"prompts", "completions"})
_VERL = frozenset({"data_source", "solution_str", "ground_truth", "extra_info"})
_TRAINER = frozenset({"completion_ids", "trainer_state", "log_extra", "log_metric", "environments"})
"""What only TRL's trainer can give."""
_ENDS = (SystemExit, GeneratorExit, asyncio.CancelledError)
_SLACK = 1e-6
"""What rounding, in float32 too, may put a reward outside of its range by, as a share of its
width."""


class Scorer:
    """One scoring function."""

    def __init__(self, name: str) -> None:
        """Import it, and read its signature.

        Raises:
            RecipeError: there is none of that name, or it takes or gives what a scoring function
                does not.
        """
        self.name, self.part = name, name.partition(":")[2]
        self.function = function = import_named(name, "scoring function")
        while isinstance(function, partial):
            function = function.func
        self.written = function
        """What its source is read of."""
        how = (
            "def score(completion, answer), with columns of the rows by name, TRL's def "
            "score(completions, **columns), "
            "or verl's def compute_score(data_source, solution_str, ground_truth, extra_info=None)"
        )
        try:
            parameters = inspect.signature(self.function).parameters.values()
        except (TypeError, ValueError) as error:
            raise RecipeError(
                f"{name} does not say what it takes: {error}", f"write it as {how}"
            ) from error
        known = [one for one in parameters if one.kind not in {one.VAR_KEYWORD, one.VAR_POSITIONAL}]
        names = [one.name for one in known]
        answers = {"completion", "completions", "solution_str"} & set(names)
        if any(one.kind is one.POSITIONAL_ONLY for one in known) or len(answers) != 1:
            raise RecipeError(
                f"{name} takes ({', '.join(names)}), which is no answer to score",
                f"write it as {how}",
            )
        self.batched = "completions" in names
        """Whether it takes lists (TRL's signature)."""
        self.verl = "solution_str" in names
        """Whether it has verl's signature."""
        open_ = any(one.kind is one.VAR_KEYWORD for one in parameters)
        self.takes = (
            frozenset({*names, *(_VERL if open_ else ())}) if self.verl or not open_ else None
        )
        """The parameters that it names; None where it takes whatever there is."""
        needs = frozenset(one.name for one in known if one.default is one.empty)
        if self.batched and (lacking := needs & _TRAINER):
            raise RecipeError(
                f"{name} takes {', '.join(sorted(lacking))}, which only TRL's trainer has",
                "score the text alone; sampling.max_tokens limits its length",
            )
        self.required_columns = needs - (
            _TRL if self.batched else {"solution_str", "extra_info"} if self.verl else _OURS
        )
        """Columns of the row that it cannot do without."""

    def __call__(self, prompts: Sequence[Any], completions: Sequence[str], rows: Rows) -> list[Any]:
        """What the function says of each completion, as it says it. It gets copies: it may change
        what it is given.

        Raises:
            RewardError: a function of lists returned no list, or one of another length.
            Exception: whatever the function raises.
        """
        try:
            return self._checked_call(prompts, completions, rows)
        # of code that a model wrote, maybe; it would end a thread without a word
        except _ENDS as error:
            raise RuntimeError(f"{self.name} raised {error!r}") from error

    def _checked_call(
        self, prompts: Sequence[Any], completions: Sequence[str], rows: Rows
    ) -> list[Any]:
        if not self.batched:
            returned = []
            for prompt, text, row in zip(prompts, completions, rows, strict=True):
                own = (
                    {"solution_str": text} if self.verl else {"prompt": prompt, "completion": text}
                )
                returned.append(
                    self._call({**({"extra_info": {}} if self.verl else {}), **row, **own})
                )
            found = _await_values(returned)
            if wrong := [
                each
                for each in found
                if self.verl and isinstance(each, Mapping) and "score" not in each
            ]:
                raise RewardError(
                    f"{self.name} returned {_describe_value(wrong[0])}, which has no score",
                    "return a number, or a mapping that holds it as score",
                )
            return [
                each["score"] if self.verl and isinstance(each, Mapping) else each for each in found
            ]
        count = len(completions)
        columns = {
            key: [row.get(key) for row in rows] for key in rows[0] if key not in _OURS | _TRAINER
        }
        chat = isinstance(prompts[0], list)
        texts = [[{"role": "assistant", "content": text}] if chat else text for text in completions]
        (said,) = _await_values([self._call({**columns, "prompts": prompts, "completions": texts})])
        try:
            values = (
                None
                if isinstance(said, str | Mapping | set | frozenset) or len(said) != count
                else list(said)
            )
        except TypeError:  # it has no length
            values = None
        if values is None:
            raise RewardError(
                f"{self.name} returned {_describe_value(said)} for {count} completions",
                "return a list with one number for each; a function of one answer has the "
                "parameter completion",
            )
        return values

    def _call(self, values: Mapping[str, Any]) -> Any:
        given = {
            key: value for key, value in values.items() if self.takes is None or key in self.takes
        }
        own = {
            key: list(map(_copy_arguments, value)) if self.batched else _copy_arguments(value)
            for key, value in given.items()
        }
        return self.function(**own)

    def own_source(self) -> str:
        """The source of a function, or of its class, and of what it calls in its own file; of what
        it calls elsewhere the names with their modules."""
        waiting, known = (
            [self.written if inspect.isroutine(self.written) else type(self.written)],
            {},
        )
        while waiting:
            one = waiting.pop()
            known[one] = _source_of(one) or ""
            names = vars(sys.modules.get(one.__module__, math))
            for name in set(re.findall(r"[^\W\d]\w*", known[one])) & names.keys():
                called = names[name]
                if (inspect.isfunction(called) or inspect.isclass(called)) and called not in known:
                    if called.__module__ == one.__module__:
                        waiting.append(called)
                    else:
                        known[called] = f"{called.__module__}.{called.__qualname__}"
        return "\n".join(known.values())

    def source(self) -> str:
        """The source of the files that a function is named in and written in, or of the function
        alone (notebooks).

        What it calls in other files is not covered.

        Raises:
            RecipeError: there is no source to read, so that a change would go unnoticed.
        """
        modules = dict.fromkeys(
            (self.name.partition(":")[0], getattr(self.written, "__module__", ""))
        )
        texts = [
            _source_of(sys.modules[module]) if module in sys.modules else "" for module in modules
        ]
        if None in texts:
            texts.append(_source_of(self.written))
        found = [text for text in texts if text is not None]
        if not any(found):
            raise RecipeError(
                f"the source of {self.name} cannot be read, so a change of it would go unnoticed",
                "call it from a function in a file of yours, and name that",
            )
        return "\x1e".join(found)


def _source_of(what: Any) -> str | None:
    """The source of a module, function or class; None where it cannot be read."""
    try:
        return inspect.getsource(what)
    except (OSError, TypeError):
        return None


def _copy_arguments(value: Any) -> Any:
    return copy.deepcopy(value) if isinstance(value, list | dict) else value


def _await_values(returned: list[Any]) -> list[Any]:
    """The same values, with what coroutines give in their place; they run in one event loop,
    together."""
    if not any(map(inspect.isawaitable, returned)):
        return returned

    async def value(one: Any) -> Any:
        return await one if inspect.isawaitable(one) else one

    async def gathered() -> list[Any]:
        return await asyncio.gather(*map(value, returned))

    return asyncio.run_coroutine_threadsafe(gathered(), _loop()).result()


@cache
def _loop() -> asyncio.AbstractEventLoop:
    """An event loop on a thread of its own, as TRL has one: a function's clients stay in one
    loop."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="coroutines of rewards", daemon=True).start()
    return loop


class Scoring:
    """All scoring functions of a task as one rubric."""

    def __init__(self, options: JsonlOptions, *, inferred: bool = False) -> None:
        """Import the functions.

        Args:
            options: of the task.
            inferred: whether the ranges are guessed: a number beyond one counts as its nearest end,
                and is kept.

        Raises:
            RecipeError: see `Scorer`; or the source of one cannot be read.
        """
        self.options, self.inferred = options, inferred
        self.beyond: dict[str, list[float]] = defaultdict(list)
        """By part the numbers beyond guessed ranges."""
        self.scorers = list(map(Scorer, options.functions()))
        self.sums = any(scorer.batched or scorer.verl for scorer in self.scorers)
        """Whether parts add up, as in TRL."""
        self.weights = options.parts()
        parts = []
        for name, weight in self.weights.items():
            low, high = options.range_of(name)
            parts.append(
                Part(name, abs(weight) * (high - low if self.sums else 1), f"what {name} says")
            )
        self._rubric = Rubric("+".join(options.functions()), 1, tuple(parts))
        self._nan: set[str] = set()
        """Parts that returned NaN, which is warned of once."""
        ranges = ";".join(
            f"{part.name}={'-' if self.weights[part.name] < 0 else ''}{options.range_of(part.name)}"
            for part in parts
        )
        content = "\x1e".join([ranges, *(scorer.source() for scorer in self.scorers)])
        self.identity = (
            f"{self._rubric.identity}:{hashlib.sha256(content.encode()).hexdigest()[:8]}"
        )
        """Of the functions' names and source, the parts' weights and their ranges."""

    @property
    def shares(self) -> dict[str, float]:
        """The effective weight of each part: they add up to 1."""
        whole = sum(part.weight for part in self._rubric.parts)
        return {part.name: part.weight / whole for part in self._rubric.parts}

    @property
    def required_columns(self) -> frozenset[str]:
        """Columns that every row must have."""
        return frozenset[str]().union(*(scorer.required_columns for scorer in self.scorers))

    @property
    def named_columns(self) -> frozenset[str]:
        """Columns that functions name."""
        return frozenset[str]().union(
            *(scorer.takes or scorer.required_columns for scorer in self.scorers)
        )

    def scores(self, prompts: Sequence[Any], completions: Sequence[str], rows: Rows) -> list[Score]:
        """The scores of completions, each with its prompt and row.

        Raises:
            RewardError: a function returned what is no reward in its range; the message says what
                to do.
            DataError: nothing was said of an answer, or a number is NaN.
            Exception: whatever a function raises.
        """
        return [self._score(numbers) for numbers in self.numbers(prompts, completions, rows)]

    def numbers(
        self, prompts: Sequence[Any], completions: Sequence[str], rows: Rows
    ) -> list[dict[str, float | None]]:
        """The number of every part as the functions say it, on no scale. For what it raises see
        `scores`."""
        found: list[dict[str, float | None]] = [{} for _ in completions]
        for scorer in self.scorers:
            said = scorer(prompts, completions, rows)
            for parts, value in zip(found, said, strict=True):
                new = value if isinstance(value, Mapping) else {scorer.part: value}
                if twice := parts.keys() & new.keys():
                    raise RewardError(
                        f"two functions return the part {min(twice)}",
                        "give the parts different names",
                    )
                parts.update({name: _number(name, one) for name, one in new.items()})
        names = self._rubric.names
        for parts in found:
            if parts.keys() != set(names):
                returned, weights = (
                    ", ".join(map(str, parts)),
                    ", ".join(f"{name}: 1" for name in parts),
                )
                raise RewardError(
                    f"the parts {returned or '(none)'} were returned, and {', '.join(names)} have "
                    "weights",
                    "return the same parts every time, None for one that cannot be said, and set "
                    f"task.options.weights: {{{weights}}}",
                )
        return found

    def _score(self, numbers: Mapping[str, float | None]) -> Score:
        numbers = {name: self._without_nan(name, number) for name, number in numbers.items()}
        values = {
            name: None if (number := numbers[name]) is None else self._unit(name, number)
            for name in numbers
        }
        if all(value is None for name, value in values.items() if self.weights[name]):
            raise DataError(
                "no function gave this answer a number, so it has no reward",
                "return a number, 0 for a bad answer",
            )
        return self._rubric.score({name: values[name] for name in self._rubric.names})

    def _without_nan(self, name: str, number: float | None) -> float | None:
        if number is None or not math.isnan(number):
            return number
        if not self.sums:
            raise DataError(
                f"what {name} says is nan", "return a number for every text, 0 for a bad answer"
            )
        if name not in self._nan:
            self._nan.add(name)
            warnings.warn(
                f"{name} returned NaN, which counts as None: the part is left out. Return a number "
                "for every text, 0 "
                "for a bad answer",
                stacklevel=2,
            )
        return None

    def _unit(self, name: str, number: float) -> float:
        """A returned number on the scale from 0 to 1."""
        low, high = self.options.range_of(name)
        scaled = (number - low) / (high - low)
        if self.inferred and math.isfinite(number) and not low <= number <= high:
            self.beyond[name].append(number)
        elif not -_SLACK <= scaled <= 1 + _SLACK:
            whose = next(
                (one.name for one in self.scorers if one.part == name),
                "+".join(self.options.functions()),
            )
            raise RewardError(
                f"what {name} says is {number:g}, which is not in [{low:g}, {high:g}] ({whose})",
                range_advice({name: (min(number, low), max(number, high))})
                if math.isfinite(number)
                else "return a finite number for every text, 0 for a bad answer",
                OTHER_RANGE if math.isfinite(number) else "",
            )
        scaled = min(1.0, max(0.0, scaled))
        return 1 - scaled if self.weights[name] < 0 else scaled


OTHER_RANGE = "other-range"
"""The code of an error of a number outside of its range."""


def range_advice(seen: Mapping[str, tuple[float, float]]) -> str:
    """The line of the recipe for numbers that lie between these."""
    pairs = [f"{name}: [{low:g}, {high:g}]" for name, (low, high) in seen.items()]
    return (
        f"set task.options.range: {{{', '.join(pairs)}}}, the least and the most that each part "
        "can be, which become "
        "the rewards 0 and 1"
    )


def _number(name: str, value: Any) -> float | None:
    if value is None:
        return None
    try:
        plain = value.item() if hasattr(value, "item") else value  # numpy, torch
        if isinstance(plain, Real | Decimal):
            return float(plain)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        pass  # an array of several numbers; an integer of 400 digits
    raise RewardError(
        f"{name} is {_describe_value(value)}, and no number",
        "return a number, or a mapping of names to numbers",
    )


def _describe_value(value: Any) -> str:
    return f"{type(value).__name__} {repr(value)[:60]}"
