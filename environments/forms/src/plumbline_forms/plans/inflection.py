"""The forms of a verb in steps: "types", "typing", "should be typed"; "digite", "digita", "deve ser digitado".

Rules of regular verbs and lists of the others. A form that nobody writes does no harm: it is a row of a table that is
never looked up.
"""

import re
from collections.abc import Iterator, Mapping

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
