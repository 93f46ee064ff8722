"""The task short-answers: words to reverse, sort or select and numbers to add, with answers of a
few tokens."""

import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import Field

from plumbline.records import Example, Outcome, Score
from plumbline.tasks import Progress
from plumbline.tasks.baselines import blank, constant, shuffled_gold
from plumbline.tasks.rubric import Part, Rubric
from plumbline.tasks.tables import read_table
from plumbline.tasks.task import Baseline, gold_of
from plumbline_answers.generated import (
    GeneratedOptions,
    GeneratedTask,
    Made,
    pick,
    read_options,
    sample,
)

Kind = Literal["reverse", "sort", "sum", "select"]
ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth")
_SEPARATORS = re.compile(r"[\s,]+")
_MARKS = ".:;!?\"'`*()[]"
_EXACT = Part("exact", 1.0, "the answer is the gold answer, letter by letter")
_ITEMS = (
    "the share of words at their place; of a word or number among others its share of the answer"
)
_BARE = "nothing stands around the words or the number"
STRICT = Rubric(
    "short-answers", 1, (_EXACT, Part("items", 0.0, _ITEMS)), form=(Part("bare", 0.0, _BARE),)
)
SLOPE = Rubric(
    "short-answers-slope", 1, (_EXACT, Part("items", 1.0, _ITEMS)), form=(Part("bare", 0.2, _BARE),)
)


class ShortAnswersOptions(GeneratedOptions):
    """Options of the short-answers task."""

    kinds: list[Kind] = Field(default=["reverse", "sort", "sum", "select"], min_length=1)
    """What is asked for: words in reverse or alphabetical order, a sum, or a word of a list."""
    train: int = Field(default=2048, ge=4, le=5000)
    """See `GeneratedOptions.train`."""


def open_short_answers(
    options: Mapping[str, Any],
    folder: Path,  # noqa: ARG001
    progress: Progress,  # noqa: ARG001
) -> "ShortAnswers":
    """Open the task short-answers.

    Raises:
        RecipeError: an unknown option.
    """
    return ShortAnswers(read_options(ShortAnswersOptions, options, ShortAnswers.name))


class ShortAnswers(GeneratedTask):
    """A word, a number or a few words, exactly as asked."""

    name = "short-answers"

    def __init__(self, options: ShortAnswersOptions) -> None:
        super().__init__(
            SLOPE if options.reward == "slope" else STRICT, options, options.kinds, make_request
        )

    @property
    def baselines(self) -> Mapping[str, Baseline]:
        """See `Task.baselines`."""
        return {
            "blank": blank,
            "constant": constant,
            "shuffled-gold": shuffled_gold,
            "as-given": lambda examples: [example.reference["given"] for example in examples],
            "sentence": lambda examples: [
                f"The answer is: {gold_of(example)}" for example in examples
            ],
        }

    def judge(self, example: Example, completion: str) -> tuple[Outcome, Score]:
        """See `Task.judge`."""
        answer, gold = completion.strip(), gold_of(example)
        wanted, exact = gold.split(" "), float(answer == gold)
        words = [word for one in _SEPARATORS.split(answer) if (word := one.strip(_MARKS))]
        longest = max(len(wanted), len(words))
        same = sum(map(str.__eq__, wanted, words)) if len(wanted) > 1 else gold in words
        bare = answer == " ".join(words) and len(words) == len(wanted)
        parts = {"exact": exact, "items": same / longest, "bare": float(bare)}
        how = "strict" if bare else "prose" if words else "none"
        return Outcome(how=how), self.scores.score(parts, {"strict": exact})


@cache
def load_words() -> Any:
    """Words and wordings."""
    return read_table(Path(__file__).with_suffix(".yaml"))


def make_request(kind: str, held_out: bool, rng: np.random.Generator) -> Made:
    """A request of a kind, its answer and what stands in the request."""
    if kind == "sum":
        numbers = [int(rng.integers(10 ** int(rng.integers(1, 4)))) for _ in range(2)]
        given, gold = [str(one) for one in numbers], str(sum(numbers))
        return _ask(kind, held_out, rng, given, gold, a=given[0], b=given[1])
    words = sample(rng, load_words()["words"], int(rng.integers(3, 7 if kind == "select" else 6)))
    if kind in ("reverse", "sort"):
        return _ask(
            kind,
            held_out,
            rng,
            words,
            " ".join(words[::-1] if kind == "reverse" else sorted(words)),
        )
    place = int(rng.integers(len(words)))
    gold, letter = words[place], words[place][0]
    ways = ["nth"]
    if sum(word[0] == letter for word in words) == 1:
        ways.append("letter")
    if all(len(word) < len(gold) for word in words if word != gold):
        ways.append("longest")
    return _ask(
        pick(rng, ways),
        held_out,
        rng,
        words,
        gold,
        nth=ORDINALS[place],
        place=place + 1,
        letter=letter,
    )


def _ask(
    way: str,
    held_out: bool,
    rng: np.random.Generator,
    given: Sequence[str],
    gold: str,
    **slots: object,
) -> Made:
    wording = pick(rng, load_words()["wordings"][way]["test" if held_out else "train"])
    prompt = wording.format(words=", ".join(given), list=" ".join(given), **slots)
    return prompt, gold, {"way": way, "given": " ".join(given)}, wording
