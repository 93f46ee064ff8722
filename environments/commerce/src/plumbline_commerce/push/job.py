"""The job: one push notification for one customer; and what is earned by writing without
understanding."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from plumbline.records import Example, Outcome, Score
from plumbline.tasks.baselines import blank, shuffled_gold
from plumbline.tasks.tables import read_table
from plumbline.tasks.task import Baseline, gold_of
from plumbline_commerce.job import HERE, Job, read_limits
from plumbline_commerce.push.pairs import pairs
from plumbline_commerce.push.rubric import RUBRIC, judge, situations

TRIED = 100
"""Examples by which a constant is chosen."""
COUPON = " Use o cupom PUSH10."


def _of_each(write: Callable[[Mapping[str, Any], str], str]) -> Baseline:
    """A text made of an example's reference and gold message."""
    return lambda examples: [write(example.reference, gold_of(example)) for example in examples]


def _fill_for_each(text: str) -> Baseline:
    """The same text for everybody, the name and the product put in."""
    return _of_each(lambda given, _: text.format_map(given))


def _skeleton(example: Example) -> str:
    """A gold message with gaps for the name and the product."""
    given = example.reference
    return gold_of(example).replace(given["product"], "{product}").replace(given["name"], "{name}")


def renamed_gold(examples: Sequence[Example]) -> list[str]:
    """Another customer's perfect message, with this one's name and product."""
    skeletons = {gold_of(example): _skeleton(example) for example in examples}
    others = zip(examples, shuffled_gold(examples), strict=True)
    return [skeletons[other].format_map(example.reference) for example, other in others]


def named_constant(examples: Sequence[Example]) -> list[str]:
    """One gold message with everybody's own name and product: of one for each situation, the one
    that earns most.

    Those with an offer are left out, because where it is not allowed it is invented.
    """
    models: dict[str, Baseline] = {}
    for example in examples:
        if not example.reference["offers"]:
            models.setdefault(example.reference["situation"], _fill_for_each(_skeleton(example)))
    some = examples[:TRIED]

    def earned(baseline: Baseline) -> float:
        return sum(
            judge(e.reference, text, "lenient")[1].total
            for e, text in zip(some, baseline(some), strict=True)
        )

    return max(models.values(), key=earned, default=blank)(examples)


WAYS: dict[str, Baseline] = {
    "named-constant": named_constant,
    "renamed-gold": renamed_gold,
    **{
        name: _fill_for_each(text)
        for name, text in read_table(HERE / "push" / "baselines.yaml")["texts"].items()
    },
    "facts-copied": _of_each(
        lambda given, _: (
            f"{given['name']}, {given['product']}: {given['told']}. {' '.join(given['offers'])}".strip()
        )
    ),
    "invented-coupon": _of_each(lambda _, gold: gold[: 119 - len(COUPON)].rstrip() + COUPON),
}


class Push(Job):
    """See `Job`."""

    name, rubric, limits, ways = "push", RUBRIC, read_limits("push"), WAYS
    cluster = "situation"
    pairs = staticmethod(pairs)

    @property
    def identity(self) -> str:
        """The reading, because it decides the totals."""
        return f":{self.options.reading}"

    def judge(self, example: Example, completion: str) -> tuple[Outcome, Score]:
        """See `Job.judge`."""
        return judge(example.reference, completion, self.options.reading)

    @staticmethod
    def check(reference: Mapping[str, Any]) -> None:
        """See `Job.check`."""
        for key in ("name", "product", "told"):
            if not isinstance(reference.get(key), str) or not reference[key].strip():
                raise ValueError(f"the reference lacks {key}; write what the prompt says of it")
        situation, offers = reference.get("situation"), reference.get("offers")
        if situation not in situations():
            raise ValueError(
                f"the situation is {situation!r}, and there are {', '.join(situations())}"
            )
        if not isinstance(offers, list) or not all(
            isinstance(offer, str) and offer.strip() for offer in offers
        ):
            raise ValueError(
                "the reference lacks offers; write a list of texts, [] where nothing may be offered"
            )
        if not isinstance(reference.get("titled"), bool):
            raise ValueError(  # noqa: TRY004
                "the reference lacks titled; write true where a title is asked for, else false"
            )
