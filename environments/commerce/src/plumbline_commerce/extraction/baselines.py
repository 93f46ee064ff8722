"""Ways to answer without understanding the review: what they earn is the floor that every figure
stands on.

The gold answer as a careless person would have written it: faults of form, none of fact.
"""

import json
import re
from collections import Counter
from collections.abc import Sequence

import numpy as np

from plumbline.records import Example
from plumbline_commerce.database.gold import MAX_SPAN, shorten
from plumbline_commerce.extraction.schema import CATEGORIES, KEYS, SENTIMENTS
from plumbline_commerce.options import Sloppiness


def constant(examples: Sequence[Example]) -> list[str]:
    """The same object every time: each key's most frequent gold value on these very examples, the
    best constant."""
    best = {}
    for key in _asked_keys(examples):
        values = Counter(json.dumps(example.reference[key]) for example in examples)
        best[key] = json.loads(values.most_common(1)[0][0])
    return [json.dumps(best, ensure_ascii=False)] * len(examples)


def stuffing(examples: Sequence[Example]) -> list[str]:
    """Every keyword in every field, every flag up, and the review's beginning as the complaint."""
    answers = []
    for example in examples:
        everything = {
            "sentiment": " ".join(SENTIMENTS),
            "sentiment_score": 2.5,
            "complaint_category": " ".join(CATEGORIES),
            "delivery_issue": True,
            "product_issue": True,
            "service_issue": True,
            "would_recommend": True,
            "delay_days": 1,
            "churn_risk": 0.5,
            "main_complaint": example.messages[-1]["content"][-MAX_SPAN:],
        }
        answers.append(_answer(everything, example))
    return answers


def facts_only(examples: Sequence[Example]) -> list[str]:
    """The order's dates and not one word of the review: late or missing is a complaint about that,
    else all is well."""
    return [_answer(_facts(example), example) for example in examples]


def _facts(example: Example) -> dict[str, object]:
    days = _delay(example.messages[-1]["content"])
    category = "nao_entregue" if days is None else "entrega_atrasada" if days else "nenhum"
    late = category != "nenhum"
    return {
        "sentiment": "negativo" if late else "positivo",
        "sentiment_score": 0.5 if late else 4.8,
        "complaint_category": category,
        "delivery_issue": late,
        "product_issue": False,
        "service_issue": False,
        "would_recommend": None,
        "delay_days": days,
        "churn_risk": 1.0 if late else 0.0,
        "main_complaint": None,
    }


def first_sentence(examples: Sequence[Example]) -> list[str]:
    """facts-only, and the review's first sentence as what an unhappy customer complains of,
    whatever it says.

    With a complaint quoted every time the best tone is a bad one: where most reviews complain, this
    is the best answer known that understands no word, and where few do facts-only is.
    """
    unhappy = {"sentiment": "negativo", "sentiment_score": 1.5, "churn_risk": 0.8}
    return [
        _answer(
            {**_facts(example), **unhappy, "main_complaint": opening(example.reference["review"])},
            example,
        )
        for example in examples
    ]


def opening(review: str) -> str | None:
    """The first sentence of a review, as much of it as a span may hold; None where there are no
    words."""
    return shorten(re.split(r"(?<=[.!?])\s|\n", review.strip())[0]) or None


DELAY = re.compile(
    r"^Entrega: (?:entregue em \d+ dias, (?:no prazo|com (\d+) de atraso)|não entregue)$",
    re.MULTILINE,
)


def _delay(prompt: str) -> int | None:
    """Days late as the prompt's facts say it, which not every choice of keys asks for; None where
    not delivered."""
    found = DELAY.search(prompt)
    if found is None:
        return 0
    return None if found[0].endswith("não entregue") else int(found[1] or 0)


def _asked_keys(examples: Sequence[Example]) -> list[str]:
    """The keys that these examples ask for."""
    return [key for key in KEYS if key in examples[0].reference] if examples else []


def _answer(values: dict[str, object], example: Example) -> str:
    """The asked keys of a guess, as JSON."""
    return json.dumps(
        {key: values[key] for key in KEYS if key in example.reference}, ensure_ascii=False
    )


WAYS = {
    "constant": constant,
    "facts-only": facts_only,
    "first-sentence": first_sentence,
    "keyword-stuffing": stuffing,
}


DECIMAL = re.compile(r"(?<=: )(\d+)\.(\d+)(?=[,}])")


def write_sloppily(gold: str, sloppiness: Sloppiness, rng: np.random.Generator) -> str:
    """Write a gold answer with each fault at its probability.

    Args:
        gold: one line of JSON with ", " between members.
        sloppiness: probabilities.
        rng: decides which faults; as many numbers are drawn whatever they come to, so one
            probability moves no other.
    """
    chance = rng.random(5)
    members = json.loads(gold)
    kept = {key: value for key, value in members.items() if rng.random() >= sloppiness.dropped}
    if chance[0] < sloppiness.abridged:
        kept = dict(list(kept.items())[: max(1, round(len(members) * 0.3))])
    text = json.dumps(kept, ensure_ascii=False) if kept != members else gold
    if chance[1] < sloppiness.decimal_comma:
        text = DECIMAL.sub(r"\1,\2", text)
    if chance[2] < sloppiness.unclosed:
        text = text.removesuffix("}")
    if chance[3] < sloppiness.fenced:
        text = f"```json\n{text}\n```"
    if chance[4] < sloppiness.chatty:
        text = f"Claro! Aqui está a análise:\n{text}"
    return text
