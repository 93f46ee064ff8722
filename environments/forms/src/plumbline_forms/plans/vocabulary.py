"""The words of plain-text steps (`words.yaml`), and how a text is cut into them."""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from plumbline.tasks.tables import read_table
from plumbline_forms.plans.actions import Element

# -- inflection ----------------------------------------------------------------------------------------------------

_DUE_EN = ("should be", "must be", "needs to be", "need to be", "has to be", "have to be", "is to be", "are to be")
_DUE_PT = ("deve ser", "devem ser", "deverá ser", "precisa ser", "precisa de ser", "tem de ser", "tem que ser")
_PARTICIPLES = {
    "choose": "chosen", "give": "given", "go": "gone", "hit": "hit", "input": "input", "leave": "left", "keep": "kept",
    "make": "made", "put": "put", "send": "sent", "set": "set", "slide": "slid", "take": "taken", "write": "written",
}  # fmt: skip
_IRREGULAR = {
    "dar": ("dê", "dá", "dou"),
    "fazer": ("faça", "faz", "faço"),
    "incluir": ("inclua", "inclui", "incluo"),
    "inserir": ("insira", "insere", "insiro"),
    "introduzir": ("introduza", "introduz", "introduzo"),
    "ir": ("vá", "vai", "vou"),
    "ler": ("leia", "lê", "leio"),
    "pôr": ("ponha", "põe", "ponho"),
    "premir": ("prima", "prime", "primo"),
    "prosseguir": ("prossiga", "prossegue", "prossigo"),
    "conferir": ("confira", "confere", "confiro"),
    "reduzir": ("reduza", "reduz", "reduzo"),
    "rever": ("reveja", "revê", "revejo"),
    "seguir": ("siga", "segue", "sigo"),
    "subir": ("suba", "sobe", "subo"),
    "substituir": ("substitua", "substitui", "substituo"),
}
"""How one is told to, what is told of somebody, and of oneself."""
_PAST = {"pôr": "posto", "escrever": "escrito", "fazer": "feito", "abrir": "aberto"}


def plain_forms(phrase: str, language: str) -> Iterator[str]:
    """How somebody is told to do it, and what is said of oneself; the phrase itself is the first."""
    yield phrase
    verb, rest = _cut(phrase)
    if language == "en":
        yield _ing(verb) + rest
    elif (found := _portuguese(verb)) is not None:
        told, _, own, gerund, _ = found
        yield from (form + rest for form in (told, own, gerund))


def due_forms(phrase: str, language: str) -> Iterator[str]:
    """What is to be done with something: "should be typed", "deve ser digitado"."""
    verb, rest = _cut(phrase)
    if len(phrase.split()) > 2:
        return
    if language == "en":
        yield from (f"{due} {_PARTICIPLES.get(verb, _past(verb))}{rest}" for due in _DUE_EN)
    elif (found := _portuguese(verb)) is not None:
        yield from (f"{due} {found[4][:-1]}{end}{rest}" for due in _DUE_PT for end in ("o", "a", "os", "as"))


def told_forms(phrase: str, language: str) -> Iterator[str]:
    """What is said of somebody else ("the user types"), which in Portuguese is the familiar imperative too."""
    verb, rest = _cut(phrase)
    if language == "en":
        yield _s(verb) + rest
    elif (found := _portuguese(verb)) is not None:
        yield found[1] + rest


def by_forms(phrase: str, language: str) -> Iterator[str]:
    """How something else is done by it: "by typing", "digitando", "ao digitar"."""
    verb, rest = _cut(phrase)
    if language == "en":
        yield f"by {_ing(verb)}{rest}"
    elif (found := _portuguese(verb)) is not None:
        yield from (found[3] + rest, f"ao {phrase}")


def _cut(phrase: str) -> tuple[str, str]:
    verb, blank, rest = phrase.partition(" ")
    return verb, blank + rest


def _s(verb: str) -> str:
    if re.search(r"[^aeiou]y$", verb):
        return verb[:-1] + "ies"
    return verb + ("es" if re.search(r"(?:s|x|z|ch|sh|o)$", verb) else "s")


def _doubled(verb: str) -> str:
    """The stem before a vowel: "putt", "dropp", "submitt"."""
    return verb + verb[-1] if re.search(r"^[^aeiou]*[aeiou][^aeiouwxy]$|mit$", verb) else verb


def _ing(verb: str) -> str:
    return (verb[:-1] if verb.endswith("e") and not verb.endswith("ee") else _doubled(verb)) + "ing"


def _past(verb: str) -> str:
    if verb.endswith("e"):
        return verb + "d"
    return verb[:-1] + "ied" if re.search(r"[^aeiou]y$", verb) else _doubled(verb) + "ed"


def _portuguese(verb: str) -> tuple[str, str, str, str, str] | None:
    """Imperative, third person, first person, gerund and participle; None for what is no infinitive."""
    stem, end = verb[:-2], verb[-2:]
    if end not in {"ar", "er", "ir", "ôr"} or (len(verb) < 4 and verb not in _IRREGULAR):
        return None
    gerund = {"ar": "ando", "er": "endo", "ir": "indo", "ôr": "ondo"}[end]
    past = _PAST.get(verb, stem + ("ado" if end == "ar" else "ido"))
    if verb in _IRREGULAR:
        told, said, own = _IRREGULAR[verb]
    elif end == "ar":
        told, said, own = _respelled(stem, {"c": "qu", "g": "gu", "ç": "c"}) + "e", stem + "a", stem + "o"
    else:
        soft = _respelled(stem, {"c": "ç", "g": "j"})
        told, said, own = soft + "a", stem + "e", soft + "o"
    return told, said, own, stem + gerund, past


def _respelled(stem: str, endings: Mapping[str, str]) -> str:
    """The stem as it is spelled before the other vowels, so that it sounds the same."""
    return stem[:-1] + endings.get(stem[-1], stem[-1])


# -- vocabulary ----------------------------------------------------------------------------------------------------

LONGEST = 1_000
"""Characters that are looked at word by word."""
_DATA: Mapping[str, Any] = read_table(Path(__file__).with_name("words.yaml"))
_WORD = re.compile(
    r"[a-z][a-z0-9+.-]{0,30}://[^\s<>'\"`|]*[^\W_]/?"  # an address, a name with dots, a time: nothing in them is a word
    r"|[^\W_]+(?:['’+_-][^\W_]+|[@.][^\W_]+|(?<=\d):\d+)*|->|=>|[^\w\s]|_+",
    re.IGNORECASE,
)
SUBMIT_WORDS = frozenset(_DATA["submits"])
"""A button named by one of these words is the one that sends the page, whatever it reads."""
YES, NO = frozenset(_DATA["yes"]), frozenset(_DATA["no"])
"""What is said of a single box that is to be ticked, or not to be."""
KEYS = frozenset(_DATA["keys"])
FILE_BUTTONS = frozenset(_DATA["file_buttons"])
"""What browsers write on the button of a file field."""
BE = frozenset({"is", "are", "was", "be", "ser", "é", "são", "foi", "está"})
"""Words with which something is told."""
OWN = frozenset({"your", "their", "his", "her", "my", "our", "seu", "sua", "teu", "tua", "meu", "minha"})
"""Words after which something is described and not given."""
ASKING = frozenset(_DATA["asking"])
"""Words that a question begins with."""


def _table() -> dict[str, dict[str, str]]:
    """For each phrase what it may be: roles, and which verb, noun or link it is."""
    table: dict[str, dict[str, str]] = {}
    verbs = [
        (name, phrase, language)
        for name, languages in _DATA["verbs"].items()
        for language, phrases in languages.items()
        for phrase in phrases
    ]
    for name, phrase, language in verbs:
        for form in told_forms(phrase, language):
            table[form] = {"verb": name, "told": ""}
        for form in due_forms(phrase, language):
            table[form] = {"verb": name, "due": ""}
    for forms in (plain_forms, lambda phrase, _: (phrase,)):  # what is listed comes before what is derived
        for name, phrase, language in verbs:
            table |= {form: {"verb": name} for form in forms(phrase, language)}
    for name, phrase, language in verbs:
        for form in by_forms(phrase, language):
            table.setdefault(form, {}).update(link="value", means=name)
    for role in ("noun", "link"):
        for name, phrases in _DATA[role + "s"].items():
            for phrase in phrases:
                table.setdefault(phrase, {})[role] = name
    conditions = [
        f"{first} {state}" for one in _DATA["already"].values() for first in one["before"] for state in one["states"]
    ]
    for role, phrases in (
        *(("article", _DATA["articles"]), ("called", _DATA["called"]), ("join", _DATA["joins"])),
        *(("refusal", _DATA["refusals"]), ("doubt", _DATA["doubts"]), ("adverb", [*_DATA["adverbs"], *conditions])),
    ):
        for phrase in phrases:
            table.setdefault(phrase, {})[role] = ""
    return table


_TABLE = _table()
_MOST_WORDS: dict[str, int] = {}
"""Of the phrases in the table that begin with a word."""
for _phrase in _TABLE:
    _first, *_others = _phrase.split(" ")
    _MOST_WORDS[_first] = max(_MOST_WORDS.get(_first, 1), 1 + len(_others))


@dataclass(frozen=True, slots=True)
class Word:
    """A word, a phrase of the table or a sign."""

    start: int
    end: int
    text: str
    roles: Mapping[str, str]
    """What it may be; empty for a word that the table does not have."""
    is_capital: bool = False

    def name(self, role: str) -> str:
        """Which verb, noun or link it is; "" where it is none."""
        return self.roles.get(role, "")

    @property
    def is_sign(self) -> bool:
        """Whether it is punctuation."""
        return not self.roles and not self.text[0].isalnum()


_NOTHING: Mapping[str, str] = {}


@lru_cache(maxsize=8192)
def words_of(text: str) -> tuple[Word, ...] | None:
    """The words of a text, the longest phrases of the table first; None where it is too long to be looked at."""
    if len(text) > LONGEST:
        return None
    plain = list(_WORD.finditer(text))
    read = [found.group().casefold() for found in plain]
    words: list[Word] = []
    at = 0
    while at < len(plain):
        for size in range(min(_MOST_WORDS.get(read[at], 1), len(plain) - at), 0, -1):
            phrase = " ".join(read[at : at + size])
            if size == 1 or phrase in _TABLE:
                roles = _TABLE.get(phrase, _NOTHING)
                start, end = plain[at].start(), plain[at + size - 1].end()
                words.append(Word(start, end, phrase, roles, text[start].isupper()))
                at += size
                break
    return tuple(words)


# -- labels --------------------------------------------------------------------------------------------------------

_MARKS = tuple(f"({word})" for word in ("required", "obrigatório", "optional", "opcional"))
"""What may stand behind a label, beside stars and colons."""
_BETWEEN = re.compile(r"(?:[\s,;/&|+'\"]|\b(?:and|e|as well as|both|bem como)\b)*")
"""What may stand between the items of a list."""
_LONGEST = 500


@lru_cache(maxsize=8192)
def folded(label: str) -> str:
    """A label without stars, colons and capitals, with single blanks."""
    text = " ".join(unicodedata.normalize("NFKC", label).casefold().split())
    while (shorter := text.rstrip(" *:")).endswith(_MARKS):
        text = shorter[: shorter.rindex("(")]
    return shorter


@lru_cache(maxsize=8192)
def loose(label: str) -> str:
    """Letters and digits only, without accents."""
    plain = unicodedata.normalize("NFKD", folded(label))
    return "".join(letter for letter in plain if letter.isalnum())


@dataclass(frozen=True, slots=True, eq=False)
class Names:
    """What the controls of a form are called; keys are `loose`. A reader that knows no form has empty ones."""

    kinds: Mapping[str, str]
    """The kind of the control with this label."""
    labels: Mapping[str, tuple[str, ...]]
    """The labels of the controls of a kind (its key)."""
    options: Mapping[str, tuple[str, ...]]
    """Labels of the lists and groups that have this option."""
    offers: Mapping[str, tuple[str, ...]]
    """The options of the list or group with this label, as they read."""
    buttons: frozenset[str]
    mention: re.Pattern[str] | None
    """Finds a label in a text, the longest one that begins at a place."""

    def kind(self, label: str) -> str:
        """The kind of a control; "" where none is called so."""
        return self.kinds.get(loose(label), "")

    def has(self, label: str) -> bool:
        """Whether a control or a button is called so."""
        return loose(label) in self.kinds or loose(label) in self.buttons

    def has_option(self, label: str, option: str) -> bool:
        """Whether the list or group with this label has this option."""
        return any(loose(one) == loose(label) for one in self.options.get(loose(option), ()))

    def items_of(self, label: str, text: str) -> list[str]:
        """The options of a list or group that a text names, one or several ("A, B and C"); [] where it has other words.

        An option may have an "and" of its own, so the options are looked for and not the signs between them.
        """
        if self.has_option(label, text):
            return [text]
        offered = sorted(self.offers.get(loose(label), ()), key=len, reverse=True)
        if not offered or len(text) > _LONGEST or self.kind(label) not in {"multiselect", "checkboxes"}:
            return []
        each = re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, offered))})(?!\w)", re.IGNORECASE)
        return each.findall(text) if _BETWEEN.fullmatch(each.sub("", text)) else []

    def knows(self, text: str) -> bool:
        """Whether a control, a button or an option is called so."""
        return self.has(text) or loose(text) in self.options

    def group_of(self, option: str) -> str:
        """The list or group with this option; "" where none or several have it, or a control is called so."""
        groups = self.options.get(loose(option), ())
        return groups[0] if len(groups) == 1 and not self.has(option) else ""

    def group_of_all(self, text: str) -> str:
        """The list or group whose options a text names, several of them; "" where it is none's, or that of several."""
        if self.has(text) or len(text) > _LONGEST:
            return ""
        groups = [label for labels in self.labels.values() for label in labels if len(self.items_of(label, text)) > 1]
        return groups[0] if len(groups) == 1 else ""

    def only(self, kind: str) -> str:
        """The label of the only control of a kind; "" where there are several or none."""
        labels = self.labels.get(kind, ())
        return labels[0] if len(labels) == 1 else ""


@lru_cache(maxsize=256)
def names_of(elements: tuple[Element, ...]) -> Names:
    """The names of a form's elements (a tuple of them)."""
    fields = [one for one in elements if one.kind != "button"]
    options: dict[str, list[str]] = {}
    offers: dict[str, list[str]] = {}
    labels: dict[str, list[str]] = {}
    for one in fields:
        for option in (one.option, *one.offers):
            if option:
                options.setdefault(loose(option), []).append(one.label)
                offers.setdefault(loose(one.label), []).append(option)
        if one.label not in labels.setdefault(one.kind, []):
            labels[one.kind].append(one.label)
    buttons = [one.label for one in elements if one.kind == "button"]
    return Names(
        {loose(one.label): one.kind for one in fields},
        {kind: tuple(found) for kind, found in labels.items()},
        {option: tuple(dict.fromkeys(groups)) for option, groups in options.items()},
        {label: tuple(texts) for label, texts in offers.items()},
        frozenset(map(loose, buttons)),
        _mention([*(one.label for one in fields), *buttons]),
    )


def _mention(labels: Iterable[str]) -> re.Pattern[str] | None:
    longest_first = sorted({label for label in labels if label}, key=len, reverse=True)
    if not longest_first:
        return None
    return re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, longest_first))})(?!\w)", re.IGNORECASE)


UNKNOWN = names_of(())
"""Of no form in particular."""
