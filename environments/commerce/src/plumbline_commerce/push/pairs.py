"""Which customers are written to, in which situation, with which offers; the prompt and a gold message for each."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from plumbline.errors import DataError
from plumbline.seeds import generator
from plumbline.tasks.tables import read_table
from plumbline_commerce.database.categories import BY_NAME, Noun
from plumbline_commerce.extraction import pairs as extraction
from plumbline_commerce.job import Pair, Shop, rows_of, split_evenly, split_sizes, too_few
from plumbline_commerce.options import COUNTS
from plumbline_commerce.push.gates import MOST_TITLE
from plumbline_commerce.push.rubric import LONG, SHORT
from plumbline_commerce.push.situations import Situation, situations

SYSTEM = """\
Você escreve notificações push de uma loja on-line brasileira. Responda só com a mensagem, em português: até 120 \
caracteres, com o nome do cliente, o produto, a situação e um convite a uma ação. Use a oferta, se houver. Não invente \
oferta, preço, prazo, número nem promessa."""
SHORTLY = "Escreva a notificação push, até 120 caracteres."
TITLED = "Formato: título de até 50 caracteres na primeira linha, mensagem na segunda"
SEVERAL = 0.2
"""Of the prompts with an offer, those that have two."""


def pairs(shop: Shop) -> dict[str, list[Pair]]:
    """The pairs of each split, in even shares of the situations. They share no customer, nor one with extraction's.

    Raises:
        DataError: the shop has too few customers for so many prompts.
    """
    chosen = choose(shop)
    dealt = split_evenly(
        split_sizes(len(chosen)), [name for name, _ in chosen], generator(shop.options.seed, "push", "split")
    )
    return {split: [_pair(shop, *chosen[index]) for index in members] for split, members in dealt.items()}


def choose(shop: Shop) -> list[tuple[str, Mapping[str, Any]]]:
    """So many situations with a row of `orders_enriched` each, in even shares as far as there are rows.

    Raises:
        DataError: see `pairs`.
    """
    count = shop.options.count("push")
    taken = _taken(shop)
    rows = {name: _rows(shop, situation) for name, situation in situations().items()}
    chosen: list[tuple[str, Mapping[str, Any]]] = []
    while len(chosen) < count:
        before = len(chosen)
        # Of each situation one in turn, the rarest first: one that has no more rows leaves its share to the others.
        for name in sorted(rows, key=lambda name: (len(rows[name]), name)):
            row = next((row for row in _popped(rows[name]) if row["customer_unique_id"] not in taken), None)
            if row is not None and len(chosen) < count:
                taken.add(row["customer_unique_id"])
                chosen.append((name, row))
        if len(chosen) == before:
            raise too_few(count, f"the shop has {before} customers that one could write to")
    return chosen


def _popped(rows: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    while rows:
        yield rows.pop()


def _taken(shop: Shop) -> set[str]:
    """The customers of extraction's pairs: of as many as the options ask for, or else of the default number.

    A shop that is too small for the default number has no such pairs, and all of its customers may be written to.
    """
    options = shop.options
    if not options.count("extraction"):
        options = options.model_copy(update={"extraction": COUNTS["extraction"]})
    try:
        return {row["customer_unique_id"] for row in extraction.chosen(replace(shop, options=options))}
    except DataError:
        if shop.options.count("extraction"):
            raise
        return set()


def _rows(shop: Shop, situation: Situation) -> list[dict[str, Any]]:
    """The rows that a situation may be about, in a seeded order."""
    query = f"SELECT o.* FROM orders_enriched AS o WHERE ({situation.rows}) ORDER BY o.order_id"  # noqa: S608 - ours
    rows = [row for row in rows_of(shop.database, query) if row["product_category"] in BY_NAME and row["first_name"]]
    order = generator(shop.options.seed, "push", "order", situation.name).permutation(len(rows))
    return [rows[index] for index in order]


def _pair(shop: Shop, name: str, row: Mapping[str, Any]) -> Pair:
    situation, rng = situations()[name], generator(shop.options.seed, "push", row["order_id"])
    nouns = BY_NAME[row["product_category"]].nouns
    noun = nouns[rng.integers(len(nouns))]
    late = row["delay_days"] or 0
    days = f"{late} dia" if late == 1 else f"{late} dias"
    complaint = offer_table()["complaints"][row["complaint_category"] or "nenhum"]
    told = _pick(situation.told, rng).format(days=days, complaint=complaint)
    offers = draw_offers(rng) if rng.random() < situation.offered else []
    reference = {
        "name": row["first_name"],
        "product": noun.word,
        "situation": name,
        "told": told,
        "offers": [given for given, _ in offers],
        "titled": shop.options.titles,
    }
    slots = {"name": row["first_name"], "days": days, **agreeing(noun)}
    gold = write(situation, slots, offers, rng)
    if shop.options.titles:
        titles = [title.format_map(slots) for title in situation.titles]
        gold = f"{_pick([title for title in titles if len(title) <= MOST_TITLE], rng)}\n{gold}"
    return Pair(
        id=f"push-{row['order_id'][:16]}",
        prompt=[
            {"role": "system", "content": SYSTEM if shop.options.instructions == "full" else SHORTLY},
            {"role": "user", "content": prompt(reference)},
        ],
        gold=gold,
        reference=reference,
        about={
            "situation": name,
            **{key: row[key] for key in ("order_id", "customer_id", "customer_unique_id")},
        },
    )


def prompt(reference: Mapping[str, Any]) -> str:
    """What the customer's message must be about."""
    lines = [
        f"Cliente: {reference['name']}",
        f"Produto: {reference['product']}",
        f"Situação: {reference['told']}",
        f"Oferta: {'; '.join(reference['offers']) or 'nenhuma'}",
    ]
    return "\n".join([*lines, TITLED] if reference["titled"] else lines)


def write(
    situation: Situation,
    slots: Mapping[str, str],
    offers: Sequence[tuple[str, Sequence[str]]],
    rng: np.random.Generator,
) -> str:
    """A gold message: a skeleton that has its length once it is filled in."""
    said = [{"offer": form} for _, forms in offers for form in forms] or [{}]
    filled = [
        text
        for skeleton in (situation.offer if offers else situation.plain)
        for offer in said
        if SHORT <= len(text := skeleton.format_map({**slots, **offer})) <= LONG
    ]
    return _pick(filled, rng)


def agreeing(noun: Noun) -> dict[str, str]:
    """The product, and the words that agree with it."""
    end = "a" if noun.feminine else "o"
    seu = "sua" if noun.feminine else "seu"
    return {
        "product": noun.word,
        "seu": seu,
        "Seu": seu.capitalize(),
        "o": end,
        "O": end.capitalize(),
        "do": f"d{end}",
        "no": f"n{end}",
        "ao": "à" if noun.feminine else "ao",
        "ado": f"ad{end}",
    }


def draw_offers(rng: np.random.Generator) -> list[tuple[str, list[str]]]:
    """One or two different offers: how the prompt says each, and how a message may."""
    table = offer_table()
    kinds = rng.permutation(len(table["offers"]))[: 2 if rng.random() < SEVERAL else 1]
    drawn = []
    for kind in kinds:
        slots = {slot: _pick(table[slot], rng) for slot in ("n", "reais", "word", "day")}
        offer = table["offers"][kind]
        drawn.append((offer["given"].format_map(slots), [form.format_map(slots) for form in offer["said"]]))
    return drawn


@cache
def offer_table() -> dict[str, Any]:
    """`offers.yaml`."""
    table: dict[str, Any] = read_table(Path(__file__).with_name("offers.yaml"))
    return table


def _pick(choices: Sequence[str], rng: np.random.Generator) -> str:
    return choices[int(rng.integers(len(choices)))]
