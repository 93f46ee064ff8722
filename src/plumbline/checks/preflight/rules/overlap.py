"""What is evaluated was trained on: the same prompts, nearly the same ones, the same ids, the same customer."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from plumbline.checks.diagnosis.finding import Finding
from plumbline.checks.preflight.before import Before, Check
from plumbline.checks.preflight.near import ALIKE, WORDS, near
from plumbline.checks.preflight.prompts import Opened
from plumbline.checks.refusals import check_disjoint, check_start, refused
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


def equal(before: Before) -> Iterator[Finding]:
    """Equal prompts, which the run refuses, and other prompts under equal ids."""
    grounds = [before.ground(one) for one in before.tasks.values()]
    found = list(refused(check_disjoint, grounds))
    if before.recipe.model.name is not None and all(one.built for one in before.tasks.values()):
        found += refused(check_start, before.recipe.model.name, grounds)
    for error in found:
        causes = ("rows dealt to splits before doubles were taken out",)
        yield Finding("overlap", "fatal", error.cause, causes=causes, fix=error.fix)
    for one in before.tasks.values():
        for split, examples in before.evaluated(one).items():
            yield from _same_ids(one, split, examples, one.splits["train"])


def alike(before: Before) -> Iterator[Finding]:
    """Nearly equal prompts, and prompts about the same entity, of each task."""
    for one in before.tasks.values():
        train = one.splits["train"][:MOST]
        for split, examples in before.evaluated(one).items():
            yield from _near(one, split, examples[:MOST], train)
            yield from _entities(one, split, examples[:MOST], train)


def _near(one: Opened, split: str, examples: Sequence[Example], train: Sequence[Example]) -> Iterator[Finding]:
    """Nearly equal prompts with the same gold answer; those with another answer ask something else."""
    known = {example.fingerprint() for example in train}
    fresh = [example for example in examples if example.fingerprint() not in known]
    pairs = [(fresh[pair.held_out], train[pair.train], pair.alike) for pair in near(_texts(fresh), _texts(train))]
    twins = [pair for pair in pairs if _gold(pair[0]) == _gold(pair[1])]
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


def _same_ids(one: Opened, split: str, examples: Sequence[Example], train: Sequence[Example]) -> Iterator[Finding]:
    known = {example.id: example.fingerprint() for example in train}
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


def _entities(one: Opened, split: str, examples: Sequence[Example], train: Sequence[Example]) -> Iterator[Finding]:
    """Whose rows stand on both sides, by the columns that name what a row is about."""
    for column in sorted(
        {key for example in examples[:20] for key in example.reference if ENTITY.search(key)} - {"id"}
    ):
        rows = Counter(value for example in train if (value := _named(example.reference, column)) is not None)
        named = [(example, value) for example in examples if (value := _named(example.reference, column)) is not None]
        shared = [example.id for example, value in named if value in rows]
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


def _named(reference: Mapping[str, object], column: str) -> str | None:
    value = reference.get(column)
    return None if isinstance(value, bool) or not isinstance(value, str | int) or value == "" else str(value)


def _texts(examples: Sequence[Example]) -> list[str]:
    return ["\n".join(message["content"] for message in example.messages) for example in examples]


def _gold(example: Example) -> str | None:
    return None if example.gold is None else " ".join(example.gold.casefold().split())


EQUAL = Check(name="overlap", asks="whether what is evaluated was trained on", look=equal, cheap=False)
ALIKE_ONES = Check(
    name="near-copies",
    asks="whether what is evaluated is nearly what was trained on, or about the same customer, review or document",
    look=alike,
)
