"""Ways to write without understanding the situation: what they earn is the floor that every figure stands on."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from plumbline.records import Example
from plumbline.tasks.controls import WITH_GOLD, blank, shuffled_gold
from plumbline.tasks.task import Control, gold_of
from plumbline_commerce.push.rubric import judge

TRIED = 100
"""Examples by which a constant is chosen."""
LIKE_ANY = "{name}, veja as novidades e aproveite o melhor para você com {product}."
EVERY_SITUATION = (
    "{name}, {product}: desculpe o atraso, chegou, a caminho, avalie, obrigado, boleto, saudade, "
    "cancelado, peça de novo!"
)
IMPERATIVES = "{name}, veja, confira, avalie, pague, volte, peça, acompanhe, aproveite e conte sobre {product}!"
SEARCHED = "{name}, sobre o seu {product}: sua opinião vale muito. Volte. Conte para nós. Recebeu. Valeu!"
"""The best of a greedy search over the lexicon's phrases: what a text can earn that is the same for everybody."""
COUPON = " Use o cupom PUSH10."


def _filled(text: str) -> Control:
    """The same text for everybody, the name and the product put in."""

    def control(examples: Sequence[Example]) -> list[str]:
        return [text.format_map(example.reference) for example in examples]

    return control


def _of_each(write: Callable[[Mapping[str, Any], str], str]) -> Control:
    """A text made of an example's reference and gold message."""

    def control(examples: Sequence[Example]) -> list[str]:
        return [write(example.reference, gold_of(example)) for example in examples]

    return control


def renamed_gold(examples: Sequence[Example]) -> list[str]:
    """Another customer's perfect message, with this one's name and product."""
    owner = {gold_of(example): example.reference for example in examples}
    return [
        other.replace(owner[other]["product"], example.reference["product"]).replace(
            owner[other]["name"], example.reference["name"]
        )
        for example, other in zip(examples, shuffled_gold(examples), strict=True)
    ]


def named_constant(examples: Sequence[Example]) -> list[str]:
    """One gold message with everybody's own name and product: of one for each situation, the one that earns most.

    Those with an offer are left out, because where it is not allowed it is invented.
    """
    models: dict[str, Control] = {}
    for example in examples:
        given = example.reference
        if not given["offers"]:
            text = gold_of(example).replace(given["product"], "{product}").replace(given["name"], "{name}")
            models.setdefault(given["situation"], _filled(text))
    some = examples[:TRIED]

    def earned(control: Control) -> float:
        return sum(judge(e.reference, text, "lenient")[1].total for e, text in zip(some, control(some), strict=True))

    return max(models.values(), key=earned, default=blank)(examples)


CONTROLS: dict[str, Control] = {
    **WITH_GOLD,
    "named-constant": named_constant,
    "renamed-gold": renamed_gold,
    "like-any": _filled(LIKE_ANY),
    "searched": _filled(SEARCHED),
    "name-confira": _filled("{name}, confira!"),
    "keyword-stuffing": _filled(EVERY_SITUATION),
    "imperatives": _filled(IMPERATIVES),
    "facts-copied": _of_each(
        lambda given, _: f"{given['name']}, {given['product']}: {given['told']}. {' '.join(given['offers'])}".strip()
    ),
    "half-prompt": _of_each(lambda given, _: f"Cliente: {given['name']}. Produto: {given['product']}."),
    "invented-coupon": _of_each(lambda _, gold: gold[: 119 - len(COUPON)].rstrip() + COUPON),
}
LIMITS = {
    "blank": 0.0,
    "echo": 0.05,
    "constant": 0.3,
    "shuffled-gold": 0.3,
    "every-gold": 0.05,
    "named-constant": 0.5,
    "renamed-gold": 0.4,
    "like-any": 0.3,
    "searched": 0.5,
    "name-confira": 0.05,
    "keyword-stuffing": 0.2,
    "imperatives": 0.1,
    "facts-copied": 0.2,
    "half-prompt": 0.05,
    "invented-coupon": 0.1,
}
"""What each may earn on average on a split; a split may have 15 examples, of which one is worth 0.07."""
