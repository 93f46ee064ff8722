"""What written keys and values mean: the forms in which people and models write what the prompt asks for.

A value that fits its key is never changed. One that does not is read where it has a single meaning ("Positivo", "7
dias", "entrega em atraso", ["sim"]); where it has two, or none ("positivo ou neutro", "3 a 4", "talvez"), it stays as
it is written, so that it earns nothing.
"""

import re
import unicodedata
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from plumbline.tasks.commerce.extraction.schema import CATEGORIES, ISSUES, KEYS, SENTIMENTS, fits, is_number
from plumbline.tasks.text.json_schema import FALSE_WORDS, NULL_WORDS, TRUE_WORDS
from plumbline.tasks.text.lenient_json import Reading
from plumbline.tasks.text.numbers import read_number


_WORDS = re.compile(r"[^\W_]+").findall


@lru_cache(maxsize=1 << 13)
def words(text: str) -> tuple[str, ...]:
    """The words of a text (letters and digits), without case, accents, white space and punctuation."""
    if not text.isascii():
        text = "".join(char for char in unicodedata.normalize("NFKD", text) if not unicodedata.combining(char))
    return tuple(_WORDS(text.casefold()))


def _folded(text: str) -> str:
    return "".join(words(text))


_NO_COMPLAINT = NULL_WORDS | {
    *("nada", "nenhuma reclamação", "nenhuma queixa", "nenhum problema", "nenhuma categoria", "não se aplica"),
    *("sem reclamação", "sem reclamações", "sem queixa", "sem queixas", "sem problema", "sem problemas"),
    *("não há", "não há reclamação", "não há reclamações", "não há queixa", "não tem", "não tem reclamação"),
    *("não houve", "não houve reclamação", "não existe", "não reclamou", "no complaint", "vazio"),
}
_UNSAID = NULL_WORDS | {
    *("não informado", "não informa", "não informou", "não diz", "não disse", "não menciona", "não mencionado"),
    *(
        "não mencionou",
        "não especificado",
        "não especifica",
        "não se aplica",
        "não fala",
        "não consta",
        "sem informação",
    ),
    *("indefinido", "indeterminado", "desconhecido", "unknown", "n/d", "nd"),
}
_FORMS: dict[str, dict[Any, Iterable[str]]] = {
    "sentiment": {
        "positivo": ["positiva", "positive"],
        "neutro": ["neutra", "neutral"],
        "negativo": ["negativa", "negative"],
    },
    "complaint_category": {
        "entrega_atrasada": [
            *("entrega em atraso", "entrega com atraso", "atraso na entrega", "atraso da entrega", "atraso de entrega"),
            *("entrega atrasou", "entregue com atraso"),
        ],
        "nao_entregue": ["não foi entregue", "produto não entregue", "pedido não entregue", "não entregou"],
        "produto_defeituoso": ["produto com defeito", "defeito no produto", "defeito do produto"],
        "produto_errado": ["produto incorreto"],
        "atendimento": ["atendimento ao cliente"],
        "preco_frete": ["preço e frete", "preço ou frete", "preço do frete", "preço de frete"],
        "nenhum": _NO_COMPLAINT,
    },
    **{issue: {True: TRUE_WORDS, False: FALSE_WORDS} for issue in ISSUES},
    "would_recommend": {
        True: TRUE_WORDS | {"recomenda", "recomendo", "recomendaria", "sim recomenda", "sim recomendo"},
        False: FALSE_WORDS | {"não recomenda", "não recomendo", "não recomendaria"},
        None: _UNSAID,
    },
    "delay_days": {
        0: ["no prazo", "dentro do prazo", "entregue no prazo", "em dia", "sem atraso", "nenhum atraso", "zero"],
        # "nenhum" may be no delay or no delivery.
        None: (_UNSAID - {"nenhum", "nenhuma"}) | {"não entregue", "não foi entregue", "não chegou", "não recebido"},
    },
    "main_complaint": {None: _NO_COMPLAINT},
}
"""Of each key the values that texts stand for, besides the members of its enumeration."""
_VALUES: dict[str, dict[str, Any]] = {
    key: {_folded(form): value for value, forms in by_value.items() for form in forms}
    for key, by_value in _FORMS.items()
}
for _key, _members in (("sentiment", SENTIMENTS), ("complaint_category", CATEGORIES)):
    _VALUES[_key] |= {_folded(member): member for member in _members}

_NUMBER = r"(?P<number>[-+−]?\s*[\d.,][\d.,_]*(?:[eE][-+−]?\d+)?)"
_AMOUNTS = {
    "sentiment_score": re.compile(
        rf"(?:nota\s*:?\s*)?{_NUMBER}\s*(?:(?:/|de|out of)\s*5(?:[.,]0*)?)?\s*(?:estrelas?|pontos?|stars?)?"
    ),
    "delay_days": re.compile(
        rf"(?:atraso de\s*|com\s*)?{_NUMBER}\s*(?:dias?|days?|d)?\s*(?:de atraso|atrasad[oa]s?|late)?"
    ),
    "churn_risk": re.compile(rf"{_NUMBER}\s*(?P<percent>%)?"),
}
"""Of each number the texts that hold it and its unit; a mark is out of 5, and a delay in days."""
_GLOSS = re.compile(r"(?P<said>[^()]*\w[^()]*)\((?P<gloss>[^()]*)\)\W*")
_DOUBT = frozenset({"ou", "or", "talvez", "maybe", "nao", "not", "no"})
_LONGEST = 120
"""Characters of a text that may stand for a value."""
_QUOTES = "\"'“”‘’«»`*"
_KEYS = {_folded(key): key for key in KEYS}


def names(members: Mapping[str, object]) -> dict[str, str]:
    """Under which name each known key stands: its own, or else the only one that folds to it ("complaintCategory")."""
    found = {key: key for key in KEYS if key in members}
    if len(found) == len(KEYS) or len(found) == len(members):
        return found
    others: dict[str, list[str]] = {}
    for name in members:
        key = _KEYS.get(_folded(name)) if len(name) <= _LONGEST else None
        if key is not None and key not in found:
            others.setdefault(key, []).append(name)
    return found | {key: written[0] for key, written in others.items() if len(written) == 1}


def meanings(read: Reading, gold: Mapping[str, Any]) -> tuple[dict[str, Any], set[str]]:
    """What the members of an answer mean.

    Args:
        read: an object, as it is written.
        gold: the gold values. "nenhuma" for a complaint is no complaint, and may be a word of one: where there is none
            to quote it is the first. Nothing else depends on them.

    Returns:
        The meant values by known key, and the names of what was done, beyond the repairs of the text.
    """
    repairs: set[str] = set()
    meant: dict[str, Any] = {}
    assert isinstance(read.value, dict)
    for key, name in names(read.value).items():
        value = read.value[name]
        if name != key:
            repairs.add("key_form")
        if key == "churn_risk" and "percent" in read.repairs and is_number(value) and 1 < value <= 100:
            meant[key] = value / 100  # 90% without quotes, which the reader takes for 90
        elif key != "main_complaint" or gold.get(key, "") is None:
            meant[key] = _meaning(key, value, repairs)
        else:
            meant[key] = _alone(value, repairs)
    return meant, repairs


def _alone(value: Any, repairs: set[str]) -> Any:
    """The only element of a list, or the value as it is."""
    if isinstance(value, list) and len(value) == 1:
        repairs.add("unwrapped")
        return value[0]
    return value


def _meaning(key: str, value: Any, repairs: set[str]) -> Any:
    """What a value means; itself where it fits, or where it has no single meaning."""
    value = _alone(value, repairs)
    if isinstance(value, str) and len(value) <= _LONGEST:
        if key in _AMOUNTS and (number := _amount(key, value, repairs)) is not None:
            return number
        return _named(key, value, repairs)
    if key in {*ISSUES, "would_recommend"} and is_number(value) and value in (0, 1):
        repairs.add("boolean_word")
        return value == 1
    if key == "complaint_category" and value is None:
        repairs.add("value_form")
        return "nenhum"
    return value


def _named(key: str, text: str, repairs: set[str]) -> Any:
    """The value that a text names; the text where it names none, or more than one."""
    values = _VALUES.get(key, {})
    said, gloss = _without_gloss(text)
    name = _folded(said)
    if name not in values or (not name and said.strip(" \t\n-—–")):
        return text
    value = values[name]
    if value == text or any(values.get(word, value) != value for word in words(gloss)):
        return text
    if isinstance(value, str) and _folded(value) == name:
        repairs.add("enum")
    else:
        repairs.add({type(None): "null_word", bool: "boolean_word"}.get(type(value), "value_form"))
    return value


def _amount(key: str, text: str, repairs: set[str]) -> int | float | None:
    """The number that a text holds, its unit left out; None where it holds none, or more than one."""
    said, gloss = _without_gloss(text)
    match = _AMOUNTS[key].fullmatch(said.strip().lstrip(_QUOTES).rstrip(_QUOTES + "!;").strip().lower())
    if match is None or any(map(str.isdigit, gloss)):
        return None
    number = read_number(match["number"], integer=key == "delay_days", quoted=True)
    if number is None or number.value is None:
        return None
    value = number.value / 100 if match.groupdict().get("percent") else number.value
    if not fits(key, value):
        return None
    repairs.update(number.repairs, ("quoted_number",))
    if match["number"] != text:
        repairs.add("value_form")
    return value


def _without_gloss(text: str) -> tuple[str, str]:
    """A text and the remark in brackets behind it, unless that takes it back: "negativo (só crítica)"."""
    match = _GLOSS.fullmatch(text)
    if match is None or not _DOUBT.isdisjoint(words(match["gloss"])[:1]):
        return text, ""
    return match["said"], match["gloss"]
