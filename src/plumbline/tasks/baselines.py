"""Baselines that need to know nothing of a task: what they earn is the floor that every figure
stands on."""

from collections import Counter
from collections.abc import Sequence

from plumbline.records import Example
from plumbline.seeds import generator
from plumbline.tasks.task import Baseline, gold_of

MOST_CHARACTERS = 2000
"""Of the answer that holds every gold answer."""


def blank(examples: Sequence[Example]) -> list[str]:
    """Nothing at all."""
    return [""] * len(examples)


def echo(examples: Sequence[Example]) -> list[str]:
    """The prompt's last message, written back."""
    return [example.messages[-1]["content"] for example in examples]


def constant(examples: Sequence[Example]) -> list[str]:
    """The most frequent gold answer of these very examples, every time."""
    if not examples:
        return []
    return [Counter(map(gold_of, examples)).most_common(1)[0][0]] * len(examples)


def shuffled_gold(examples: Sequence[Example]) -> list[str]:
    """Perfect answers, each to another example's question."""
    order = generator(0, "shuffled-gold", len(examples)).permutation(len(examples))
    answers = [""] * len(examples)
    for index, other in zip(order, [*order[1:], order[0]], strict=True):
        answers[index] = gold_of(examples[other])
    return answers


def every_gold(examples: Sequence[Example]) -> list[str]:
    """All gold answers, one after the other, the frequent ones first: a verifier that only looks
    for one pays."""
    text = ""
    for gold, _ in Counter(map(gold_of, examples)).most_common():
        if len(text) + len(gold) < MOST_CHARACTERS:
            text += f"{gold}\n"
    return [text] * len(examples)


WITHOUT_GOLD: dict[str, Baseline] = {"blank": blank, "echo": echo}
WITH_GOLD: dict[str, Baseline] = {
    **WITHOUT_GOLD,
    "constant": constant,
    "shuffled-gold": shuffled_gold,
    "every-gold": every_gold,
}
