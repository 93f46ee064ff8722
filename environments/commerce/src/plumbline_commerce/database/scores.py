"""Review scores and who writes a message, so that the shares hold over the whole database.

Bad experiences have their own score laws; ordinary orders get what is left of the published shares. The same goes for
messages: who is still waiting nearly always writes one.
"""

from collections import Counter
from collections.abc import Sequence

from plumbline_commerce.database.dice import Dice, Weighted
from plumbline_commerce.database.marginals import MESSAGE_SHARES, SCORE_SHARES

SCORES = tuple(SCORE_SHARES)
BAD_EXPERIENCES = {
    "undelivered": (0.78, 0.08, 0.05, 0.03, 0.06),
    "pending": (0.78, 0.09, 0.05, 0.03, 0.05),
    "late_small": (0.20, 0.07, 0.14, 0.20, 0.39),
    "late_middle": (0.47, 0.09, 0.10, 0.12, 0.22),
    "late_big": (0.54, 0.08, 0.08, 0.09, 0.21),
    "several": (0.19, 0.04, 0.09, 0.17, 0.51),
}
"""Share of each score, 1 to 5, by experience (see `facts.situation`)."""
EAGER = 0.93
"""Share of messages where a late or missing order got one or two stars."""
CATEGORY_SPREAD = 0.25
"""How much more or less often (deviation of the logarithm) a category disappoints than the average."""


def draw_scores(dice: Dice, situations: Sequence[str], categories: Sequence[str | None]) -> list[int]:
    """A score for each review.

    Args:
        dice: where they are drawn from.
        situations: the experience of each.
        categories: the category of each; some disappoint more than others, differently for each database.
    """
    count = Counter(situations)
    total, ordinary = len(situations), max(1, count["single"])
    rest = []
    for place, score in enumerate(SCORES):
        taken = sum(count[situation] * shares[place] for situation, shares in BAD_EXPERIENCES.items())
        rest.append(max(0.002, (SCORE_SHARES[score] * total - taken) / ordinary))
    laws = {situation: _law(shares) for situation, shares in BAD_EXPERIENCES.items()}
    numbers = Counter(
        category or "" for situation, category in zip(situations, categories, strict=True) if situation == "single"
    )
    factors = {name: dice.lognormal(1.0, CATEGORY_SPREAD) for name in sorted({name or "" for name in categories})}
    mean = sum(factors[name] * number for name, number in numbers.items()) / ordinary or 1.0
    by_category = {}
    for name, factor in factors.items():
        bad = [share * factor / mean for share in rest[:3]]
        by_category[name] = _law((*bad, *(share * (sum(rest) - sum(bad)) / sum(rest[3:]) for share in rest[3:])))
    return [
        dice.weighted(laws[situation] if situation in laws else by_category[category or ""])
        for situation, category in zip(situations, categories, strict=True)
    ]


def _law(shares: Sequence[float]) -> Weighted[int]:
    return Weighted(zip(SCORES, shares, strict=True))


def draw_messages(dice: Dice, situations: Sequence[str], scores: Sequence[int]) -> list[bool]:
    """Whether each review has a message."""
    number = Counter(scores)
    eager = Counter(score for situation, score in zip(situations, scores, strict=True) if _eager(situation, score))
    share = {}
    for score in SCORES:
        others = max(1, number[score] - eager[score])
        share[score] = max(0.05, (MESSAGE_SHARES[score] * number[score] - EAGER * eager[score]) / others)
    return [
        dice.chance(EAGER if _eager(situation, score) else share[score])
        for situation, score in zip(situations, scores, strict=True)
    ]


def _eager(situation: str, score: int) -> bool:
    return score <= 2 and situation not in ("single", "several")
