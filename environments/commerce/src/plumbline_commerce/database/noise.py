"""How people type: styles, internet spelling, typos, lost accents, capitals.

Noise works on words and leaves everything else alone, so marks in the text (`reviews` marks the span of the complaint
with them) stay where they are. Words that decide the gold (negations, strong words, recommendations) are never
misspelt beyond accents, case and the usual abbreviations, so that a reader can still label the text.
"""

import re
from dataclasses import dataclass

from plumbline_commerce.database.dice import Dice
from plumbline_commerce.database.gold import INTENSIFIERS, STRONG_COMPLAINT, STRONG_PRAISE
from plumbline_commerce.database.places import plain


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
    capitals: bool = False
    formal: bool = False


STYLES = {
    style.name: style
    for style in (
        Style("plain", 0.99, 0.004, 0.01, 0.0, 0.01, 0.05, 0.72, 0.14),
        Style("sloppy", 0.45, 0.03, 0.22, 0.05, 0.16, 0.65, 0.22, 0.12),
        Style("slang", 0.30, 0.015, 0.35, 0.85, 0.08, 0.60, 0.08, 0.20),
        Style("accentless", 0.75, 0.012, 1.00, 0.03, 0.06, 0.35, 0.50, 0.08),
        Style("shouting", 1.00, 0.012, 0.30, 0.03, 0.05, 0.35, 0.30, 0.40, capitals=True),
        Style("formal", 1.00, 0.000, 0.00, 0.0, 0.00, 0.00, 0.97, 0.01, formal=True),
    )
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
