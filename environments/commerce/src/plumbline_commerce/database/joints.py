"""How clauses are joined to a text: connectives, sentence ends, capitals, line breaks."""

import re
from dataclasses import dataclass
from itertools import pairwise

from plumbline_commerce.database.dice import Dice, Weighted
from plumbline_commerce.database.noise import Style

OPEN, CLOSE, END = "\ue000", "\ue001", "\ue002"
"""Marks in a text in the making: where the complaint's span begins and ends, and after what it may be cut off."""
MARKS = (OPEN, CLOSE, END)


@dataclass(frozen=True, slots=True)
class Clause:
    """One clause of a review."""

    text: str
    kind: str
    """The point it makes, or before, more, after, closing."""
    side: int
    """1 for, -1 against, 0 neither."""


_CONTRAST = Weighted([(", mas ", 6), (", porém ", 3), (", só que ", 2), (". Porém ", 2), (". Mas ", 2), (" mas ", 2),
                      (". Só que ", 1)])  # fmt: skip
_CONTRAST_LOOSE = Weighted([(" mas ", 5), (", mas ", 4), (" só que ", 2), (" porém ", 2), (", só que ", 1),
                            ("... mas ", 0.5)])  # fmt: skip
_CONTRAST_FORMAL = Weighted([(", porém ", 3), (". No entanto, ", 2), (", contudo ", 1), (". Entretanto, ", 1)])
_STILL = Weighted([(". Mesmo assim ", 3), (", mesmo assim ", 3), (", mas ", 2), (" mas ", 2)])
_FORMAL = Weighted([(". ", 8), (", ", 0.5), (" e ", 1.5)])
_LOOSE = Weighted([(", ", 9), (" ", 3), (" e ", 2), (". ", 3), ("... ", 0.7)])
_PLAIN = Weighted([(". ", 9), (", ", 3), (" e ", 2.5), ("! ", 0.8)])
_WORSE = Weighted([(". Além disso, ", 3), (". Para piorar, ", 2), (". E ainda por cima ", 1), (". Fora isso, ", 1),
                   (", além disso ", 1), (" e ainda por cima ", 0.7)])  # fmt: skip
_ALSO = Weighted([(". Além disso, ", 2), (", além de tudo ", 0.4)])
_ASIDE = ("before", "more", "after", "closing")
_SENTENCE = re.compile(
    "o|a|os|as|ninguém|não|só|já|ainda|até|nem|me|eu|fui|fiquei|estou|tive|chegou|veio|foi|era|vieram|gostei|"
    "amei|adorei|recomendo|indico|comprarei|compraria|voltarei|vou|super|jamais|nunca|atrasou|recebi|demorou|"
    "levou|esperei|paguei|pedi|comprei|mandaram|enviaram|entregaram|cancelaram|venderam|testei|usei|abri|achei|"
    "vi|liguei|lavei|montei|cumpriram|responderam|tiraram|cabe|faltou|faltaram|falta|faltam|prometeram|disseram|"
    "falaram|vale|valeu|deu|correu|instalei|reclamei|tentei|mandei|solicitei|acertei|surpreendeu|minha|meu|com|"
    "essa|esse"
)
"""First words of clauses that are whole sentences, so that "e" or "só que" may stand before them."""
_PLACES = ("moro", "é a", "compro pela")


def joint(dice: Dice, before: Clause, after: Clause, style: Style) -> str:
    """What stands between two clauses."""
    if before.text.rstrip("".join(MARKS))[-1] in "?!":
        return " "
    if before.side < 0 and after.kind == "recommends":
        return dice.weighted(_STILL)
    if before.side * after.side < 0:
        kinds = _CONTRAST_FORMAL if style.formal else _CONTRAST_LOOSE if dice.chance(style.loose) else _CONTRAST
        drawn = dice.weighted(kinds)
        return drawn if _is_sentence(after) or "só que" not in drawn.lower() else ", mas "
    aside = before.kind in _ASIDE or after.kind in _ASIDE
    if not aside and before.side < 0 and after.side < 0 and after.kind not in ("refuses", "displeased"):
        if before.kind not in ("refuses", "displeased") and dice.chance(0.35):
            return dice.weighted(_WORSE)
    elif not aside and before.side > 0 and after.kind.startswith("praise") and dice.chance(0.04):
        return dice.weighted(_ALSO)
    kinds = _FORMAL if style.formal else _LOOSE if dice.chance(style.loose) else _PLAIN
    drawn = dice.weighted(kinds)
    if drawn == " e " and not _takes_and(before, after):
        return ". " if style.formal or not dice.chance(style.loose) else ", "
    if before.kind == "before" and not style.formal and _takes_and(before, after) and dice.chance(0.4):
        return " e "
    return drawn


def _takes_and(before: Clause, after: Clause) -> bool:
    if after.kind in ("more", "after", "closing", "displeased", "lukewarm") or not _is_sentence(after):
        return False
    if before.text.startswith(_PLACES):
        return False
    return " e " not in before.text and " e " not in after.text


def _is_sentence(clause: Clause) -> bool:
    words = clause.text.strip("".join(MARKS)).split(" ")
    if len(words) > 1 and _SENTENCE.fullmatch(words[0]):
        return True
    return words[0] in ("recomendo", "gostei", "amei", "adorei")


def capitalised(text: str) -> str:
    """The text with its first letter as a capital, past marks and quotes."""
    for place, letter in enumerate(text):
        if letter.isalpha():
            return text[:place] + letter.upper() + text[place + 1 :]
        if letter.isdigit():
            return text
    return text


def join(dice: Dice, clauses: list[Clause], style: Style, *, lines: bool) -> str:
    """All clauses as one text, without an end mark.

    Args:
        dice: where choices are drawn from.
        clauses: at least one.
        style: how carefully the person writes.
        lines: whether sentences may begin on a new line.
    """
    text = capitalised(clauses[0].text) if dice.chance(style.cased) else clauses[0].text
    for before, after in pairwise(clauses):
        drawn = joint(dice, before, after, style)
        begins = not drawn.strip() or drawn.strip()[-1] in ".!?"
        if lines and (drawn.strip() in ("", ",", ".", "!") and dice.chance(0.75)):
            stop = "" if style.loose > 0.3 or drawn == ", " else drawn.strip()
            drawn, begins = stop + ("\n\n" if dice.chance(0.15) else "\n"), True
        elif drawn == " " and before.text.rstrip("".join(MARKS))[-1] not in "?!":
            begins = False
        if style.cased < 0.5 and drawn[0] == "." and len(drawn) > 2:
            drawn = drawn.lower()
        new = capitalised(after.text) if begins and dice.chance(style.cased) else after.text
        text += drawn + new
    return text
