"""Which customers are written to, in which situation, with which offers; the prompt and a gold
message for each."""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from plumbline.errors import DataError
from plumbline.seeds import generator
from plumbline.tasks.tables import read_table
from plumbline_commerce.database.catalogue import BY_NAME, Noun
from plumbline_commerce.extraction import pairs as extraction
from plumbline_commerce.job import (
    Pair,
    Shop,
    pick,
    rows_of,
    split_evenly,
    split_sizes,
    too_few_error,
)
from plumbline_commerce.options import COUNTS
from plumbline_commerce.push.rubric import LONG, MOST_TITLE, SHORT, Situation, situations

SEVERAL = 0.2
"""Of the prompts with an offer, those that have two."""


def pairs(shop: Shop) -> dict[str, list[Pair]]:
    """The pairs of each split, in even shares of the situations. They share no customer, nor one
    with extraction's.

    Raises:
        DataError: the shop has too few customers for so many prompts.
    """
    count = shop.options.count("push")
    taken = _taken_customers(shop)
    rows = {name: _rows(shop, situation) for name, situation in situations().items()}
    chosen: list[tuple[str, Mapping[str, Any]]] = []
    while len(chosen) < count:
        before = len(chosen)
        # Of each situation one in turn, the rarest first: one that has no more rows leaves its
        # share to the others.
        for name in sorted(rows, key=lambda name: (len(rows[name]), name)):
            while rows[name] and rows[name][-1]["customer_unique_id"] in taken:
                rows[name].pop()
            if rows[name] and len(chosen) < count:
                chosen.append((name, rows[name].pop()))
                taken.add(chosen[-1][1]["customer_unique_id"])
        if len(chosen) == before:
            raise too_few_error(count, f"the shop has {before} customers that one could write to")
    rng = generator(shop.options.seed, "push", "split")
    dealt = split_evenly(split_sizes(count), [name for name, _ in chosen], rng)
    return {
        split: [_pair(shop, *chosen[index]) for index in members]
        for split, members in dealt.items()
    }


def _taken_customers(shop: Shop) -> set[str]:
    """The customers of extraction's pairs: of as many as the options ask for, or else of the
    default number.

    A shop that is too small for the default number has no such pairs, and all of its customers may
    be written to.
    """
    options = shop.options
    if not options.count("extraction"):
        options = options.model_copy(update={"extraction": COUNTS["extraction"]})
    try:
        return {
            row["customer_unique_id"]
            for row in extraction.choose_reviews(replace(shop, options=options))
        }
    except DataError:
        if shop.options.count("extraction"):
            raise
        return set()


def _rows(shop: Shop, situation: Situation) -> list[dict[str, Any]]:
    """The rows that a situation may be about, in a seeded order."""
    query = f"SELECT o.* FROM orders_enriched AS o WHERE ({situation.rows}) ORDER BY o.order_id"  # noqa: S608 - ours
    rows = [
        row
        for row in rows_of(shop.database, query)
        if row["product_category"] in BY_NAME and row["first_name"]
    ]
    order = generator(shop.options.seed, "push", "order", situation.name).permutation(len(rows))
    return [rows[index] for index in order]


def _pair(shop: Shop, name: str, row: Mapping[str, Any]) -> Pair:
    situation, rng, table = (
        situations()[name],
        generator(shop.options.seed, "push", row["order_id"]),
        texts(),
    )
    noun = pick(BY_NAME[row["product_category"]].nouns, rng)
    late = row["delay_days"] or 0
    slots = {
        "name": row["first_name"],
        "days": f"{late} dia" if late == 1 else f"{late} dias",
        **agree_words(noun),
    }
    complaint = table["complaints"][row["complaint_category"] or "nenhum"]
    told = pick(situation.told, rng).format(days=slots["days"], complaint=complaint)
    offers = draw_offers(rng) if rng.random() < situation.offered else []
    given = [offer for offer, _ in offers]
    lines = [
        f"Cliente: {slots['name']}",
        f"Produto: {noun.word}",
        f"Situação: {told}",
        f"Oferta: {'; '.join(given) or 'nenhuma'}",
    ]
    # A gold message is a skeleton that has its length once it is filled in.
    filled = [
        text
        for skeleton in (situation.offer if offers else situation.plain)
        for offer in [form for _, forms in offers for form in forms] or [""]
        if SHORT <= len(text := skeleton.format(**slots, offer=offer)) <= LONG
    ]
    gold = pick(filled, rng)
    if shop.options.titles:
        lines.append(table["titled"])
        titles = [title.format_map(slots) for title in situation.titles]
        gold = f"{pick([title for title in titles if len(title) <= MOST_TITLE], rng)}\n{gold}"
    return Pair(
        id=f"push-{row['order_id'][:16]}",
        prompt=[
            {"role": "system", "content": table["system"][shop.options.instructions]},
            {"role": "user", "content": "\n".join(lines)},
        ],
        gold=gold,
        reference={
            "name": slots["name"],
            "product": noun.word,
            "situation": name,
            "told": told,
            "offers": given,
            "titled": shop.options.titles,
        },
        about={
            "situation": name,
            **{key: row[key] for key in ("order_id", "customer_id", "customer_unique_id")},
        },
    )


def agree_words(noun: Noun) -> dict[str, str]:
    """The product, and the words that agree with it."""
    return {"product": noun.word, **texts()["feminine" if noun.feminine else "masculine"]}


def draw_offers(rng: np.random.Generator) -> list[tuple[str, list[str]]]:
    """One or two different offers: how the prompt says each, and how a message may."""
    table = texts()
    kinds = rng.permutation(len(table["offers"]))[: 2 if rng.random() < SEVERAL else 1]
    drawn = []
    for kind in kinds:
        slots = {slot: pick(table[slot], rng) for slot in ("n", "reais", "word", "day")}
        offer = table["offers"][kind]
        drawn.append(
            (offer["given"].format_map(slots), [form.format_map(slots) for form in offer["said"]])
        )
    return drawn


@cache
def texts() -> dict[str, Any]:
    """`messages.yaml`."""
    table: dict[str, Any] = read_table(Path(__file__).with_name("messages.yaml"))
    return table
