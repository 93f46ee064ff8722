"""Review titles: short, and never saying anything that the message does not say."""

from plumbline.tasks.commerce.database.banks import BANKS
from plumbline.tasks.commerce.database.dice import Dice
from plumbline.tasks.commerce.database.gold import Gold

WITH_MESSAGE, WITHOUT_MESSAGE = 0.24, 0.027
"""Share of reviews with a title, with and without a message."""


def draw_title(dice: Dice, gold: Gold | None, score: int) -> str | None:
    """A title, or None.

    Args:
        dice: where it is drawn from.
        gold: the labels of the message; None without a message.
        score: 1 to 5 stars.
    """
    if gold is None:
        if not dice.chance(WITHOUT_MESSAGE):
            return None
        return _pick(dice, "good" if score >= 4 else "middle" if score == 3 else "bad")
    if not dice.chance(WITH_MESSAGE):
        return None
    if gold.would_recommend is not None and gold.sentiment != "neutro" and dice.chance(0.5):
        return _pick(dice, "recommends" if gold.would_recommend else "refuses")
    if gold.sentiment == "negativo" and gold.complaint_category != "nenhum" and dice.chance(0.55):
        return _pick(dice, gold.complaint_category)
    return _pick(dice, {"positivo": "good", "neutro": "middle", "negativo": "bad"}[gold.sentiment])


def _pick(dice: Dice, kind: str) -> str:
    return dice.pick(BANKS[f"title.{kind}"])
