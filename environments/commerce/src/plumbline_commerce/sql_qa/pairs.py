"""Which questions are asked: of all families equally many, each query once, some families in val and test alone."""

import hashlib
from collections.abc import Iterator, Sequence
from itertools import cycle
from pathlib import Path

from plumbline.seeds import generator
from plumbline_commerce.job import Pair, Shop, split_evenly, split_sizes, too_few
from plumbline_commerce.options import CommerceOptions
from plumbline_commerce.sql_qa import prompt
from plumbline_commerce.sql_qa.databases import databases
from plumbline_commerce.sql_qa.engine import Result, run
from plumbline_commerce.sql_qa.questions import Family, Question, families

SIFTED_ON = 3
"""Databases on which the answer to a question must tell something, whatever number the reward uses."""
FRUITLESS = 300
"""Draws in a row without a new question, after which a family has no more."""


def pairs(shop: Shop) -> dict[str, list[Pair]]:
    """The pairs of each split; no two share a query or a question, and about half of val and test are of new families.

    Raises:
        DataError: the shop gives fewer different questions.
    """
    options, seed = shop.options, shop.options.seed
    count = options.count("sql_qa")
    sizes = split_sizes(count)
    new = {split: size // 2 for split, size in sizes.items()}
    paths = databases(shop.folder / "sql_qa", SIFTED_ON)
    there = families(shop.database)
    outside = [family for family in there if family.held_out]
    inside = [family for family in there if not family.held_out]
    kept_out = choose(outside, sum(new.values()), seed, paths)
    seen = choose(inside, count - sum(new.values()), seed, paths)
    dealt = _dealt(kept_out, {"val": new["val"]}, seed, "new")
    asked = _dealt(seen, {split: size - new[split] for split, size in sizes.items()}, seed, "seen")
    asked["val"] += dealt["val"]
    asked["test"] += dealt["train"]
    return {
        split: [_pair(questions[at], options) for at in generator(seed, "sql_qa", split).permutation(len(questions))]
        for split, questions in asked.items()
    }


def choose(asked: Sequence[Family], count: int, seed: int, paths: Sequence[Path]) -> list[Question]:
    """So many questions of different queries, of each family as many as it has, up to its share.

    Raises:
        DataError: the families have fewer.
    """
    chosen: list[Question] = []
    drawing = {family.name: sift(family, seed, paths) for family in asked}
    for family in cycle(asked):
        if len(chosen) == count:
            return chosen
        if not drawing:
            raise too_few(count, f"the shop's records give {len(chosen)} different questions")
        if family.name in drawing:
            question = next(drawing[family.name], None)
            if question is None:
                del drawing[family.name]
            else:
                chosen.append(question)
    return chosen


def sift(family: Family, seed: int, paths: Sequence[Path]) -> Iterator[Question]:
    """A family's questions that tell something on some databases, in a seeded order, until it has no more."""
    rng = generator(seed, "sql_qa", family.name)
    seen: set[str] = set()
    fruitless = 0
    while fruitless < FRUITLESS:
        question = family.draw(rng)
        fruitless += 1
        if question.sql not in seen and _tells(question, paths):
            fruitless = 0
            yield question
        seen.add(question.sql)


def _tells(question: Question, paths: Sequence[Path]) -> bool:
    """Whether a query's results are none of them empty, not all the same, and not those of a rival."""
    results = [run(path, question.sql) for path in paths]
    rows = [result.rows for result in results if isinstance(result, Result)]
    full = [found for found in rows if any(value for row in found for value in row if not isinstance(value, str))]
    if len(full) < len(paths) or len(set(rows)) == 1:
        return False
    return all([run(path, rival) for path in paths] != results for rival in question.rivals)


def _dealt(questions: Sequence[Question], sizes: dict[str, int], seed: int, which: str) -> dict[str, list[Question]]:
    kinds = [question.family.name for question in questions]
    dealt = split_evenly(sizes, kinds, generator(seed, "sql_qa", "split", which))
    return {split: [questions[at] for at in members] for split, members in dealt.items()}


def _pair(question: Question, options: CommerceOptions) -> Pair:
    family = question.family
    return Pair(
        id=f"sql_qa-{hashlib.sha256(question.sql.encode()).hexdigest()[:16]}",
        prompt=prompt.messages(question.text, family.tables, options.instructions),
        gold=prompt.gold(question.sql, question.sentence),
        reference={"question": question.text, "sql": question.sql, "ordered": family.ordered},
        about={"family": family.name, "difficulty": family.difficulty},
    )
