"""What is tried beside gold answers and controls: a few examples of every stratum, and their gold answers damaged."""

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from plumbline.records import Example
from plumbline.seeds import generator

CUTS = (0.75, 0.5, 0.25)
"""Shares of a gold answer that are left when it is cut short."""
MOST = 16
"""Damaged copies of one gold answer."""


def a_few(splits: Mapping[str, Sequence[Example]], count: int, seed: int) -> list[Example]:
    """So many examples at most, from all splits, of every stratum as evenly as there are; in a seeded order."""
    strata: dict[str, list[Example]] = defaultdict(list)
    every = list({example.id: example for examples in splits.values() for example in examples}.values())
    for place in generator(seed, "audit", "examples").permutation(len(every)):
        strata[every[place].stratum].append(every[place])
    deepest = max(map(len, strata.values()), default=0)
    dealt = [group[level] for level in range(deepest) for group in strata.values() if level < len(group)]
    return dealt[:count]


def damaged(example: Example, other: Example, seed: int) -> list[str]:
    """A gold answer made worse in different places and to different degrees.

    Args:
        example: whose gold answer is damaged.
        other: lends pieces of its own.
        seed: decides which of the copies are kept where there are over `MOST`.
    """
    gold, foreign = example.gold or "", other.gold or ""
    rng = generator(seed, "audit", "damage", example.id)
    found = dict.fromkeys(text for text in _damaged(gold, foreign, rng) if text != gold)
    kept = list(found)
    if len(kept) > MOST:
        kept = [kept[place] for place in sorted(rng.permutation(len(kept))[:MOST])]
    return kept


def _damaged(gold: str, foreign: str, rng: np.random.Generator) -> Iterator[str]:
    for share in CUTS:
        yield gold[: int(share * len(gold))]
    yield gold[: len(gold) // 2] + foreign[len(foreign) // 2 :]
    yield f"{gold}\n{foreign}"
    yield f"{gold}\n{gold}"
    yield re.sub(r"\d+", lambda match: str(int(match[0][:18]) + 7), gold)
    words = gold.split(" ")
    yield " ".join(rng.permutation(words))
    for place in rng.permutation(len(words))[:3]:
        yield " ".join([*words[:place], *words[place + 1 :]])
    lines = gold.split("\n")
    for place in rng.permutation(len(lines))[:4]:
        yield "\n".join([*lines[:place], *lines[place + 1 :]])
    value, lent = as_object(gold), as_object(foreign)
    for key in value:
        yield dump({name: one for name, one in value.items() if name != key})
        yield dump({**value, key: lent.get(key)})


def as_object(text: str) -> dict[str, object]:
    """The JSON object that a text is; empty where it is none."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def dump(value: Mapping[str, object]) -> str:
    """An object as JSON, its letters as they are."""
    return json.dumps(value, ensure_ascii=False)
