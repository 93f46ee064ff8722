"""Ways to write without understanding the situation: what they earn is the floor that every figure stands on."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from plumbline.records import Example
from plumbline.tasks.controls import WITH_GOLD, shuffled_gold
from plumbline.tasks.task import Control, gold_of

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
    """The gold message that would serve most of these examples, with each one's name and product."""
    kinds = [example.reference["situation"] for example in examples]
    common = max(sorted(set(kinds)), key=kinds.count, default="")
    model = next((example for example in examples if example.reference["situation"] == common), None)
    if model is None:
        return []
    text = gold_of(model).replace(model.reference["product"], "{product}").replace(model.reference["name"], "{name}")
    return _filled(text)(examples)


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
