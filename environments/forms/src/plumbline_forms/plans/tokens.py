"""A step as words and arguments, and where its verbs are."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from plumbline_forms.plans.quotations import Argument
from plumbline_forms.plans.vocabulary import Word, words_of

LEADS = frozenset({"seek", "click", "navigate", "use", "select", "press", "clear"})
"""Verbs that may only find the control for the verb that follows: "click on L and type V"."""


_ARROWS = frozenset({"->", "→", "=>"})


@dataclass(frozen=True, slots=True)
class Token:
    """A word of the text, or an argument."""

    start: int
    end: int
    word: Word | None
    argument: Argument | None = None

    @property
    def roles(self) -> Mapping[str, str]:
        """What the word may be."""
        return {} if self.word is None else self.word.roles

    def role(self, role: str) -> str | None:
        """Which verb, noun or link it is; None where it is none."""
        return self.roles.get(role)


def tokens_of(text: str, arguments: Sequence[Argument]) -> list[Token] | None:
    """The text as words and arguments; None where there are too many words between two arguments."""
    tokens: list[Token] = []
    at = 0
    for one in (*arguments, None):
        end = len(text) if one is None else one.start
        words = words_of(text[at:end])
        if words is None:
            return None
        tokens += [Token(at + word.start, at + word.end, word) for word in words]
        if one is not None:
            tokens.append(Token(one.start, one.end, None, one))
            at = one.end
    return tokens


def verbs_of(tokens: Sequence[Token]) -> list[int]:
    """The verbs: at the beginning of a clause, because elsewhere "input", "check" and "select" are nouns."""
    found: list[int] = []
    begins = True
    subject = _may_be_subject(tokens)
    for at, token in enumerate(tokens):
        word = token.word
        if word is None:
            begins = not found  # "in the field L type V"
        elif begins and "verb" in word.roles and not (subject and "told" in word.roles and _is_named(tokens[:at])):
            found.append(at)
            begins = False
        elif word.is_sign or "join" in word.roles or (word.text in _ARROWS and not found):
            begins = True
        elif word.text in {"to", "para"} and found and tokens[found[-1]].role("verb") in LEADS:
            begins = not may_be_name(tokens, at + 1)  # "use the field to enter ..."
        elif not {"adverb", "refusal"} & word.roles.keys() and not (begins and "noun" in word.roles):
            begins = False
    return found


def may_be_name(tokens: Sequence[Token], at: int) -> bool:
    """Whether a word is the beginning of a text and no verb: "set L to Open day"."""
    if not 0 < at < len(tokens):
        return False
    before, word = tokens[at - 1].word, tokens[at].word
    return word is not None and word.is_capital and before is not None and not before.is_capital


def _may_be_subject(tokens: Sequence[Token]) -> bool:
    """Whether what stands before a verb may be what does it: "L changes to V" tells, "in L, the user types V" asks."""
    first = next((token for token in tokens if "adverb" not in token.roles), None)
    return first is not None and "link" not in first.roles


def _is_named(before: Sequence[Token]) -> bool:
    """Whether the last one is an argument, or what one is called."""
    return bool(before) and (before[-1].argument is not None or "noun" in before[-1].roles)


def is_sign(token: Token) -> bool:
    """Whether it is punctuation."""
    return token.word is not None and token.word.is_sign


def is_colon(token: Token) -> bool:
    """Whether it is a colon."""
    return token.word is not None and token.word.text == ":"
