"""What is evaluated was trained on: the same prompts, nearly the same ones, the same ids, the same
customer.

Texts are nearly the same by the Jaccard similarity of their word shingles, exactly, by an inverted
index.

Shingles of five words and a similarity of 0.8 are those of Lee et al. 2022, "Deduplicating Training
Data Makes Language Models Better" (arXiv:2107.06499, section 4.2; resemblance by shingles: Broder
1997). They estimate it by MinHash because they compare all texts with all; here few are compared
with many, and a set that is alike shares at least `ALIKE` of the held-out one's shingles, so the
index finds them all.

Prompts have an instruction in common, which is no likeness: a shingle that more than `SHARED` of
the texts have counts for nothing.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from plumbline.checks.check import Finding, Level, check, describe_refusal
from plumbline.checks.preflight.before import BeforeRun
from plumbline.checks.refusals import catch_error, check_disjoint, check_start_model
from plumbline.policies.opening import find_model_path
from plumbline.records import Example
from plumbline.tasks.task_data import TaskData

MOST = 50_000
"""Examples of a task whose texts are compared."""
SOME, MANY = 0.02, 0.1
"""Shares of a split with a twin in train, from which on its figures are worth less, and nothing. Of
records that are drawn apart 1 % have one, by chance."""
ENTITY = re.compile(
    r"(^|_)(id|uuid|customer|user|patient|author|session|conversation|review|order|document|source|url)$",
    re.IGNORECASE,
)
"""Columns that name what a row is about."""
FEW_ROWS = 5.0
"""Rows of an entity, on average, up to which a split would keep them together: the orders of one
customer, and not its reviews of one product."""


@check("before", name="overlap", quick=False)
def find_equal_prompts(before: BeforeRun) -> Iterator[Finding]:
    """Equal prompts, which the run refuses, and other prompts under equal ids."""
    tasks_data = list(before.tasks.values())
    found = list(catch_error(check_disjoint, tasks_data))
    name = before.recipe.model.name
    if (
        name is not None
        and find_model_path(name) is not None
        and all(one.built for one in tasks_data)
    ):
        found += catch_error(check_start_model, name, tasks_data)
    for error in found:
        yield describe_refusal(error, causes=("dealt-with-doubles",))
    for one in tasks_data:
        known = {example.id: example.fingerprint() for example in one.train}
        for split, examples in one.held_out.items():
            shared = [e.id for e in examples if known.get(e.id, e.fingerprint()) != e.fingerprint()]
            if shared:
                yield Finding(
                    "warning",
                    "equal-ids",
                    task=one.name,
                    evidence={
                        "split": split,
                        "shared": len(shared),
                        "of": len(examples),
                        "example": shared[0],
                    },
                    samples=tuple(shared[:5]),
                    causes=("two-files", "written-again"),
                )


@check("before", name="near-copies")
def find_near_copies(before: BeforeRun) -> Iterator[Finding]:
    """Nearly equal prompts, and prompts about the same entity, of each task."""
    for one in before.tasks.values():
        for split, examples in one.held_out.items():
            yield from _find_near_prompts(one, split, examples[:MOST], one.train[:MOST])
            yield from _find_shared_entities(one, split, examples[:MOST], one.train[:MOST])


def _find_near_prompts(
    one: TaskData, split: str, examples: Sequence[Example], train: Sequence[Example]
) -> Iterator[Finding]:
    """Nearly equal prompts with the same gold answer; those with another answer ask something
    else."""

    def texts(examples: Sequence[Example]) -> list[str]:
        return [
            "\n".join(message["content"] for message in example.messages) for example in examples
        ]

    def gold(example: Example) -> str | None:
        return None if example.gold is None else " ".join(example.gold.casefold().split())

    known = {example.fingerprint() for example in train}
    fresh = [example for example in examples if example.fingerprint() not in known]
    pairs = [
        (fresh[pair.held_out], train[pair.train], pair.alike)
        for pair in find_near_texts(texts(fresh), texts(train))
    ]
    twins = [pair for pair in pairs if gold(pair[0]) == gold(pair[1])]
    if not twins:
        return
    share, several = len(twins) / len(examples), len(twins)
    mine, other, share_alike = max(twins, key=lambda pair: pair[2])
    fatal, warned = share >= MANY and several > 2, share >= SOME and several > 1
    level: Level = "fatal" if fatal else "warning" if warned else "note"
    yield Finding(
        level,
        task=one.name,
        evidence={
            "split": split,
            "share": share,
            "near": several,
            "n": len(examples),
            "with another answer": len(pairs) - several,
            "example": mine.id,
            "like": other.id,
            "alike": share_alike,
            "at least": ALIKE,
        },
        samples=tuple(pair[0].id for pair in twins[:5]),
        causes=("copies", "one-source"),
    )


def _find_shared_entities(
    one: TaskData, split: str, examples: Sequence[Example], train: Sequence[Example]
) -> Iterator[Finding]:
    """Whose rows stand on both sides, by the columns that name what a row is about."""

    def named(example: Example, column: str) -> str | None:
        value = example.reference.get(column)
        return (
            None
            if isinstance(value, bool) or not isinstance(value, str | int) or value == ""
            else str(value)
        )

    columns = {key for example in examples[:20] for key in example.reference if ENTITY.search(key)}
    for column in sorted(columns - {"id"}):
        rows = Counter(value for example in train if (value := named(example, column)) is not None)
        shared = [
            e.id for e in examples if (value := named(e, column)) is not None and value in rows
        ]
        if not shared or len(shared) < SOME * len(examples):
            continue
        each = sum(rows.values()) / len(rows)
        level: Level = "warning" if each <= FEW_ROWS else "note"
        yield Finding(
            level,
            check="entity",
            task=one.name,
            evidence={
                "split": split,
                "column": column,
                "shared": len(shared),
                "n": len(examples),
                "rows each": each,
            },
            samples=tuple(shared[:5]),
            causes=("split-by-rows",),
        )


CHECKS = (find_equal_prompts, find_near_copies)


# -- texts that are nearly the same ----------------------------------------------------------------

WORDS = 5
ALIKE = 0.8
SHARED, FEW = 0.01, 10
"""A shingle that more texts have than this share of them, and than so many, is of the
instruction."""
_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class NearPair:
    """Two texts that are nearly the same, by their places."""

    held_out: int
    train: int
    alike: float


def find_near_texts(held_out: Sequence[str], train: Sequence[str]) -> list[NearPair]:
    """For each held-out text that has one the training text that is most like it, where that is
    `ALIKE` or more."""
    mine = [_shingles(text) for text in held_out]
    numbers = {
        shingle: number for number, shingle in enumerate({one for found in mine for one in found})
    }
    texts = Counter(numbers[one] for found in mine for one in found)
    # of each training text: its shingles that a held-out one has, and how many it has in all
    shared, sizes = [], []
    for text in train:
        found = _shingles(text)
        shared.append([numbers[one] for one in found if one in numbers])
        sizes.append(len(found))
        texts.update(shared[-1])
    common = {
        one
        for one, count in texts.items()
        if count > max(FEW, SHARED * (len(held_out) + len(train)))
    }
    index: dict[int, list[int]] = defaultdict(list)
    for place, known in enumerate(shared):
        sizes[place] -= sum(one in common for one in known)
        for one in known:
            index[one].append(place)
    twins = []
    for place, shingles in enumerate(mine):
        own = {numbers[one] for one in shingles} - common
        best = NearPair(place, -1, 0.0)
        for other, count in sorted(Counter(other for one in own for other in index[one]).items()):
            alike = count / (len(own) + sizes[other] - count)
            if count >= ALIKE * len(own) - 1e-9 and alike > best.alike:
                best = NearPair(place, other, alike)
        if best.alike >= ALIKE - 1e-9:
            twins.append(best)
    return twins


def _shingles(text: str) -> set[tuple[str, ...]]:
    words = _WORD.findall(text.casefold())
    if len(words) < WORDS:
        return {tuple(words)} if words else set()
    return set(zip(*(words[offset:] for offset in range(WORDS)), strict=False))
