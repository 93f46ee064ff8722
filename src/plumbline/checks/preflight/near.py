"""Texts that are nearly the same: the Jaccard similarity of their word shingles, exactly, by an inverted index.

Letters in shapes: D texts, N shingles of all texts, P pairs of a text and a shingle of the held-out ones.

Shingles of five words and a similarity of 0.8 are those of Lee et al. 2022, "Deduplicating Training Data Makes Language
Models Better" (arXiv:2107.06499, section 4.2; resemblance by shingles: Broder 1997). They estimate it by MinHash
because they compare all texts with all; here few are compared with many, and a set that is alike shares at least
`ALIKE` of the held-out one's shingles, so the index finds them all.

Prompts have an instruction in common, which is no likeness: a shingle that more than `SHARED` of the texts have counts
for nothing.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

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
