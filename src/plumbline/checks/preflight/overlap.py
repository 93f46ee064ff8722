"""What is evaluated was trained on: the same prompts, nearly the same ones, the same ids, the same customer.

Texts are nearly the same by the Jaccard similarity of their word shingles, exactly, by an inverted index. Letters in
shapes: D texts, N shingles of all texts, P pairs of a text and a shingle of the held-out ones.

Shingles of five words and a similarity of 0.8 are those of Lee et al. 2022, "Deduplicating Training Data Makes Language
Models Better" (arXiv:2107.06499, section 4.2; resemblance by shingles: Broder 1997). They estimate it by MinHash
because they compare all texts with all; here few are compared with many, and a set that is alike shares at least
`ALIKE` of the held-out one's shingles, so the index finds them all.

Prompts have an instruction in common, which is no likeness: a shingle that more than `SHARED` of the texts have counts
for nothing.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from plumbline.checks.diagnosis.finding import Finding
from plumbline.checks.preflight.before import BeforeRun, Check
from plumbline.checks.refusals import Ground, check_disjoint, check_start, refused
from plumbline.records import Example

MOST = 50_000
"""Examples of a task whose texts are compared."""
SOME, MANY = 0.02, 0.1
"""Shares of a split with a twin in train, from which on its figures are worth less, and nothing. Of records
that are drawn apart 1 % have one, by chance."""
ENTITY = re.compile(
    r"(^|_)(id|uuid|customer|user|patient|author|session|conversation|review|order|document|source|url)$", re.IGNORECASE
)
"""Columns that name what a row is about."""
FEW_ROWS = 5.0
"""Rows of an entity, on average, up to which a split would keep them together: the orders of one customer, and not
its reviews of one product."""


def equal(before: BeforeRun) -> Iterator[Finding]:
    """Equal prompts, which the run refuses, and other prompts under equal ids."""
    grounds = list(before.tasks.values())
    found = list(refused(check_disjoint, grounds))
    if before.recipe.model.name is not None and all(one.built for one in grounds):
        found += refused(check_start, before.recipe.model.name, grounds)
    for error in found:
        causes = ("rows dealt to splits before doubles were taken out",)
        yield Finding("overlap", "fatal", error.cause, causes=causes, fix=error.fix)
    for one in grounds:
        known = {example.id: example.fingerprint() for example in one.train}
        for split, examples in one.held_out.items():
            shared = [e.id for e in examples if known.get(e.id, e.fingerprint()) != e.fingerprint()]
            if shared:
                yield Finding(
                    "overlap",
                    "warning",
                    f"{one.called}{len(shared)} of {len(examples)} ids of {split} are ids of train, too, for example "
                    f"{shared[0]}, with other prompts",
                    evidence={"shared": len(shared), "n": len(examples)},
                    samples=tuple(shared[:5]),
                    causes=("two files numbered from 0", "one record written anew for another split"),
                    fix="give each example an id of its own: samples and comparisons go by it",
                )


def alike(before: BeforeRun) -> Iterator[Finding]:
    """Nearly equal prompts, and prompts about the same entity, of each task."""
    for one in before.tasks.values():
        for split, examples in one.held_out.items():
            yield from _near(one, split, examples[:MOST], one.train[:MOST])
            yield from _entities(one, split, examples[:MOST], one.train[:MOST])


def _near(one: Ground, split: str, examples: Sequence[Example], train: Sequence[Example]) -> Iterator[Finding]:
    """Nearly equal prompts with the same gold answer; those with another answer ask something else."""

    def texts(examples: Sequence[Example]) -> list[str]:
        return ["\n".join(message["content"] for message in example.messages) for example in examples]

    def gold(example: Example) -> str | None:
        return None if example.gold is None else " ".join(example.gold.casefold().split())

    known = {example.fingerprint() for example in train}
    fresh = [example for example in examples if example.fingerprint() not in known]
    pairs = [(fresh[pair.held_out], train[pair.train], pair.alike) for pair in near(texts(fresh), texts(train))]
    twins = [pair for pair in pairs if gold(pair[0]) == gold(pair[1])]
    if not twins:
        return
    share = len(twins) / len(examples)
    mine, other, share_alike = max(twins, key=lambda pair: pair[2])
    yield Finding(
        "near-copies",
        "fatal" if share >= MANY and len(twins) > 2 else "warning" if share >= SOME and len(twins) > 1 else "note",
        f"{one.called}{len(twins)} of {len(examples)} prompts of {split} ({share:.1%}) are nearly the same as one of "
        f"train that has the same answer, for example {mine.id} and {other.id} ({share_alike:.0%} of their "
        f"{WORDS}-word shingles)",
        evidence={
            "share": share,
            "near": len(twins),
            "n": len(examples),
            "with another answer": len(pairs) - len(twins),
        },
        samples=tuple(pair[0].id for pair in twins[:5]),
        causes=("copies of a text that differ in a word", "one source cut into rows before it was split"),
        fix=f"take rows out of train whose text is {ALIKE:.0%} that of a held-out one, or split by what they are from",
    )


def _entities(one: Ground, split: str, examples: Sequence[Example], train: Sequence[Example]) -> Iterator[Finding]:
    """Whose rows stand on both sides, by the columns that name what a row is about."""

    def named(example: Example, column: str) -> str | None:
        value = example.reference.get(column)
        return None if isinstance(value, bool) or not isinstance(value, str | int) or value == "" else str(value)

    for column in sorted(
        {key for example in examples[:20] for key in example.reference if ENTITY.search(key)} - {"id"}
    ):
        rows = Counter(value for example in train if (value := named(example, column)) is not None)
        shared = [e.id for e in examples if (value := named(e, column)) is not None and value in rows]
        if not shared or len(shared) < SOME * len(examples):
            continue
        each = sum(rows.values()) / len(rows)
        yield Finding(
            "entity",
            "warning" if each <= FEW_ROWS else "note",
            f"{one.called}{len(shared)} of {len(examples)} prompts of {split} have a {column} that train has, too "
            f"({each:.1f} rows each there): {split} does not say what another {column} would get",
            evidence={"column": column, "shared": len(shared), "n": len(examples), "rows each": each},
            samples=tuple(shared[:5]),
            causes=("rows were split one by one",),
            fix=f"split by {column}",
        )


CHECKS = (
    Check("overlap", "whether what is evaluated was trained on", equal, cheap=False),
    Check(
        "near-copies",
        "whether what is evaluated is nearly what was trained on, or about the same customer, review or document",
        alike,
    ),
)


# -- texts that are nearly the same -----------------------------------------------------------------------------------

WORDS = 5
ALIKE = 0.8
SHARED, FEW = 0.01, 10
"""A shingle that more texts have than this share of them, and than so many, is of the instruction."""
_WORD = re.compile(r"\w+")
_MIX = np.uint64(0x9E3779B97F4A7C15)
"""An odd number near 2^64 over the golden ratio: a shingle's hash is a polynomial in it (Knuth, volume 3, 6.4)."""
_BITS = 24
"""Of a first, quick look at which training shingles a held-out text may have."""


@dataclass(frozen=True, slots=True)
class Near:
    """Two texts that are nearly the same, by their places."""

    held_out: int
    train: int
    alike: float


def near(held_out: Sequence[str], train: Sequence[str]) -> list[Near]:
    """For each held-out text that has one the training text that is most like it, where that is `ALIKE` or more."""
    hashes, starts = _shingles([*held_out, *train])
    split, cut = len(held_out), int(starts[len(held_out)])
    known = np.unique(hashes[:cut])
    if not len(known) or cut == len(hashes):
        return []
    owners = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    pairs = _pairs(hashes, owners, known)
    texts, shingles = pairs // len(known), pairs % len(known)
    own = np.bincount(shingles, minlength=len(known)) <= max(FEW, SHARED * (len(starts) - 1))
    texts, shingles = texts[own[shingles]], shingles[own[shingles]]
    first = int(np.searchsorted(texts, split))
    order = np.argsort(shingles[first:], kind="stable")
    index, others = shingles[first:][order], texts[first:][order]
    bounds = np.searchsorted(texts[:first], np.arange(split + 1))
    found = []
    for place in range(split):
        mine = shingles[bounds[place] : bounds[place + 1]]
        left, right = (np.searchsorted(index, mine, side) for side in ("left", "right"))
        sharing = [others[a:b] for a, b in zip(left, right, strict=True) if b > a]
        if not sharing:
            continue
        candidates, common = np.unique(np.concatenate(sharing), return_counts=True)
        enough = common >= ALIKE * len(mine) - 1e-9
        best = Near(place, -1, 0.0)
        for other, count in zip(candidates[enough], common[enough], strict=True):
            size = _size(hashes[starts[other] : starts[other + 1]], known, own)
            alike = float(count / (len(mine) + size - count))
            if alike > best.alike:
                best = Near(place, int(other) - split, alike)
        if best.alike >= ALIKE - 1e-9:
            found.append(best)
    return found


def _shingles(texts: Sequence[str]) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """The hashes [N] of all shingles, text by text, and where each text's begin [D + 1]."""
    numbers: dict[str, int] = {}
    words = [[numbers.setdefault(word, len(numbers) + 1) for word in _WORD.findall(text.casefold())] for text in texts]
    lengths = np.array([len(one) for one in words], dtype=np.int64)
    counts = np.where(lengths > 0, np.maximum(1, lengths - WORDS + 1), 0)  # a shorter text is one shingle
    width = np.maximum(lengths, WORDS)  # filled up with 0, so that every text has a whole one
    places = np.concatenate([[0], np.cumsum(width)])
    flat = np.zeros(int(places[-1]), dtype=np.uint64)
    for place, one in zip(places, words, strict=False):
        flat[place : place + len(one)] = one
    starts = np.concatenate([[0], np.cumsum(counts)])
    at = np.arange(int(starts[-1])) + np.repeat(places[:-1] - starts[:-1], counts)
    hashes = np.zeros(len(at), dtype=np.uint64)
    for offset in range(WORDS):
        hashes = (hashes ^ (hashes >> np.uint64(29))) * _MIX + flat[at + offset]
    return hashes * _MIX, starts


def _pairs(hashes: NDArray[np.uint64], owners: NDArray[np.int64], known: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Each text with each of the known shingles that it has [P], as text times their number plus shingle; ascending."""
    short = np.uint64(64 - _BITS)
    maybe = np.zeros(1 << _BITS, dtype=bool)
    maybe[(known >> short).astype(np.int64)] = True
    kept = maybe[(hashes >> short).astype(np.int64)]
    hashes, owners = hashes[kept], owners[kept]
    place = np.minimum(np.searchsorted(known, hashes), len(known) - 1)
    there = known[place] == hashes
    return np.unique(owners[there] * len(known) + place[there])


def _size(hashes: NDArray[np.uint64], known: NDArray[np.uint64], own: NDArray[np.bool_]) -> int:
    """How many different shingles a text has that are not of the instruction."""
    unique = np.unique(hashes)
    place = np.minimum(np.searchsorted(known, unique), len(known) - 1)
    return int(((known[place] != unique) | own[place]).sum())
