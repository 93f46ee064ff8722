"""How people type: styles, internet spelling, typos, lost accents, capitals.

Noise works on words and leaves everything else alone, so marks in the text (`reviews` marks the span of the complaint
with them) stay where they are. Words that decide the gold (negations, strong words, recommendations) are never
misspelt beyond accents, case and the usual abbreviations, so that a reader can still label the text.

How clauses are joined to a text: connectives, sentence ends, capitals, line breaks.
"""

import re
from dataclasses import dataclass
from itertools import pairwise

from plumbline_commerce.database.dice import SHARES, Dice, shares_by
from plumbline_commerce.database.gold import INTENSIFIERS, STRONG_COMPLAINT, STRONG_PRAISE
from plumbline_commerce.database.people import plain


@dataclass(frozen=True, slots=True)
class Style:
    """How carefully somebody writes; probabilities are per word, per sentence or per comma."""

    name: str
    cased: float
    """A sentence begins with a capital."""
    typos: float
    accents_lost: float
    """A word loses its accents."""
    slang: float
    """A word with an internet spelling gets it."""
    tight_commas: float
    """The space after a comma is forgotten."""
    loose: float
    """Sentences are strung together with commas or nothing instead of full stops."""
    stop: float
    """The text ends in a full stop."""
    exclaims: float
    """The text ends in exclamation marks."""
    capitals: bool
    formal: bool


STYLES = {
    name: Style(name, **chances, capitals=name == "shouting", formal=name == "formal")
    for name, chances in SHARES["styles"].items()
}

SLANG = {
    "você": ("vc",), "vocês": ("vcs",), "também": ("tbm", "tb"), "muito": ("mto", "mt"), "muita": ("mta",),
    "porque": ("pq",), "quando": ("qdo", "qnd"), "beleza": ("blz",), "demais": ("d+",), "não": ("n", "nao", "ñ"),
    "que": ("q", "que"), "mesmo": ("msm",), "hoje": ("hj",), "tudo": ("td",), "obrigado": ("obg",),
    "obrigada": ("obg",), "está": ("tá",), "estou": ("tô", "to"), "para": ("pra",), "depois": ("dps",),
    "mensagem": ("msg",), "mensagens": ("msgs",), "qualidade": ("qualidade", "qlde"), "comigo": ("cmg",),
    "problema": ("prob", "problema"), "agora": ("agr", "agora"), "nada": ("nd", "nada"),
    "verdade": ("vdd",), "aqui": ("aki", "aqui"), "alguém": ("alguem",),
    "ninguém": ("ninguem", "ngm"), "quero": ("qro", "quero"), "vezes": ("vzs", "vezes"), "abraço": ("abs",),
    "valeu": ("vlw",), "internet": ("net", "internet"), "celular": ("cel", "celular"),
}  # fmt: skip
"""Internet spellings."""
PHRASES = (("com certeza", "ctz"), ("para o ", "pro "), ("para a ", "pra "), ("por favor", "pfv"))

_WORD = re.compile(r"[^\W\d_]+")
_KEPT = re.compile(
    rf"(?:nao|nem|nunca|jamais|sem|nada|mais|so|ja|ainda|mas|novamente|outras|vezes|medo|"
    rf"{STRONG_PRAISE}|{STRONG_COMPLAINT}|{INTENSIFIERS}|"
    r"(?:recomend|indic|compr|volt|atras|quebr|defeit|errad|receb|cheg|entreg|frete|atend|respond|praz|igual)\w*)"
)
"""Words, without accents, that no typo touches."""
_TYPO_FROM = 5
"""Letters that a word has at least to be mistyped."""


def spell(dice: Dice, text: str, style: Style) -> str:
    """The text as somebody of this style types it."""
    if style.slang and dice.chance(style.slang):
        for phrase, short in PHRASES:
            text = text.replace(phrase, short)
    text = _WORD.sub(lambda match: _word(dice, match.group(), style), text)
    if style.slang:
        text = text.replace("pra a ", "pra ").replace("pra o ", "pro ")
    if style.tight_commas:
        text = re.sub(r", (?=\D)", lambda _: "," if dice.chance(style.tight_commas) else ", ", text)
    return text.upper() if style.capitals else text


def _word(dice: Dice, word: str, style: Style) -> str:
    if style.slang and word in SLANG and dice.chance(style.slang):
        return dice.pick(SLANG[word])
    if style.typos and len(word) >= _TYPO_FROM and dice.chance(style.typos) and not _KEPT.fullmatch(plain(word)):
        word = _mistype(dice, word)
    if style.accents_lost and not word.isascii() and dice.chance(style.accents_lost):
        word = _without_accents(word)
    return word


def _mistype(dice: Dice, word: str) -> str:
    """A swap, a missing letter or a doubled one, never at the first letter."""
    place = dice.between(1, len(word) - 2)
    kind = dice.random()
    if kind < 0.45:
        return word[:place] + word[place + 1] + word[place] + word[place + 2 :]
    if kind < 0.8:
        return word[:place] + word[place + 1 :]
    return word[: place + 1] + word[place:]


def _without_accents(word: str) -> str:
    bare = plain(word)
    return "".join(b.upper() if w.isupper() else b for b, w in zip(bare, word, strict=True))


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


_JOINTS = shares_by("joints")
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
        return dice.weighted(_JOINTS["still"])
    if before.side * after.side < 0:
        kinds = "contrast_formal" if style.formal else "contrast_loose" if dice.chance(style.loose) else "contrast"
        drawn = dice.weighted(_JOINTS[kinds])
        return drawn if _is_sentence(after) or "só que" not in drawn.lower() else ", mas "
    aside = before.kind in _ASIDE or after.kind in _ASIDE
    if not aside and before.side < 0 and after.side < 0 and after.kind not in ("refuses", "displeased"):
        if before.kind not in ("refuses", "displeased") and dice.chance(0.35):
            return dice.weighted(_JOINTS["worse"])
    elif not aside and before.side > 0 and after.kind.startswith("praise") and dice.chance(0.04):
        return dice.weighted(_JOINTS["moreover"])
    kinds = "formal" if style.formal else "loose" if dice.chance(style.loose) else "plain"
    drawn = dice.weighted(_JOINTS[kinds])
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
