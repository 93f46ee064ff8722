"""What written keys and values mean: the forms in which people and models write what the prompt asks for.

A value that fits its key is never changed. One that does not is read where it has a single meaning ("Positivo", "7
dias", "entrega em atraso", ["sim"]); where it has two, or none ("positivo ou neutro", "3 a 4", "talvez"), it stays as
it is written, so that it earns nothing.
"""

import re
import unicodedata
from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from itertools import product
from typing import Any

from plumbline.tasks.commerce.extraction.schema import ISSUES, KEYS, is_number
from plumbline.tasks.text.json_schema import FALSE_WORDS, NULL_WORDS, TRUE_WORDS
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


def _phrases(*sides: str) -> set[str]:
    """Every way to go through lists of words, one word of each; "/" separates them, and one may be empty."""
    return {" ".join(choice) for choice in product(*(side.split("/") for side in sides))}


_NO_COMPLAINT = NULL_WORDS | {
    *_phrases(
        "nenhum/nenhuma/sem/não há/não houve/não tem/não existe/não possui/não apresenta/não identifiquei",
        "reclamação/reclamações/queixa/queixas/problema/problemas/crítica/críticas",
    ),
    *_phrases(
        "não", "há/houve/tem/existe/possui/reclamou/reclama/se aplica/aplicável/identificada/mencionada/informada"
    ),
    *("nada", "nenhuma categoria", "inexistente", "no complaint", "vazio"),
}
_UNSAID = NULL_WORDS | {
    *_phrases("não", "informado/informa/informou/informada/diz/disse/dito/menciona/mencionou/mencionado/declarado"),
    *_phrases("não", "especificado/especifica/se aplica/aplicável/fala/consta/está claro/fica claro/opina"),
    *("indefinido", "indeterminado", "desconhecido", "sem informação", "unknown", "n/d", "nd"),
}
_FORMS: dict[str, dict[Any, Iterable[str]]] = {
    "sentiment": {
        "positivo": {"positive", *_phrases("/muito/sentimento/avaliação", "positivo/positiva")},
        "neutro": {"neutral", *_phrases("/sentimento/avaliação", "neutro/neutra")},
        "negativo": {"negative", *_phrases("/muito/sentimento/avaliação", "negativo/negativa")},
    },
    "complaint_category": {
        "entrega_atrasada": {
            *_phrases("entrega", "atrasada/em atraso/com atraso/atrasou"),
            *_phrases("atraso/demora", "na/da/de", "entrega"),
        },
        "nao_entregue": {
            *_phrases("/produto/pedido", "não", "entregue/foi entregue/recebido"),
            *("entrega não realizada", "não entregou"),
        },
        "produto_defeituoso": {
            *_phrases("produto", "defeituoso/com defeito/com defeitos"),
            *_phrases("defeito", "no/do", "produto"),
        },
        "produto_errado": _phrases("produto", "errado/incorreto"),
        "atendimento": {"mau atendimento", *_phrases("atendimento", "/ruim/ao cliente")},
        "preco_frete": _phrases("preço", "/e/ou/do/de", "frete"),
        "nenhum": _NO_COMPLAINT,
    },
    **{issue: {True: TRUE_WORDS, False: FALSE_WORDS} for issue in ISSUES},
    "would_recommend": {
        True: TRUE_WORDS | _phrases("/sim", "recomenda/recomendo/recomendaria/compraria de novo"),
        False: FALSE_WORDS | _phrases("/não", "não", "recomenda/recomendo/recomendaria/compraria de novo"),
        None: _UNSAID,
    },
    "delay_days": {
        0: {
            *_phrases("/entregue/chegou/entrega", "no/dentro do", "prazo"),
            *_phrases("sem/nenhum/não houve", "atraso/atrasos"),
            *("em dia", "não atrasou", "zero", "zero dias", "nenhum dia"),
        },
        # "nenhum" may be no delay or no delivery.
        None: (_UNSAID - {"nenhum", "nenhuma"})
        | _phrases("/ainda", "não", "entregue/foi entregue/chegou/recebido/recebeu"),
    },
    "main_complaint": {None: _NO_COMPLAINT},
}
"""Of each key the values that texts stand for, besides the members of its enumeration."""
_VALUES: dict[str, dict[str, Any]] = {
    key: {_folded(form): value for value, forms in by_value.items() for form in forms}
    for key, by_value in _FORMS.items()
}
_NUMBER = r"(?P<number>[-+−]?\s*[\d.,][\d.,_]*(?:[eE][-+−]?\d+)?)"
_AMOUNTS = {
    "sentiment_score": re.compile(
        rf"(?:nota\s*:?\s*)?{_NUMBER}\s*(?:(?:/|de|em|out of)\s*5(?:[.,]0*)?)?\s*(?:estrelas?|pontos?|stars?)?"
    ),
    "delay_days": re.compile(
        rf"(?:atraso de\s*|atrasou\s*|com\s*)?{_NUMBER}\s*(?:dias?(?: corridos)?|days?|d)?\s*"
        r"(?:de atraso(?: na entrega)?|atrasad[oa]s?|late)?"
    ),
    "churn_risk": re.compile(rf"{_NUMBER}\s*(?:(?P<percent>%|por cento|percent)|(?:/|de)\s*1(?:[.,]0*)?)?"),
}
"""Of each number the texts that hold it and its unit; a mark is out of 5, and a delay in days."""
_GLOSS = re.compile(r"(?P<said>[^()]*\w[^()]*)\((?P<gloss>[^()]*)\)\W*")
_DOUBT = frozenset({"ou", "or", "talvez", "maybe", "nao", "not"})
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


def meanings(
    written: Mapping[str, Any], repairs: Collection[str], gold: Mapping[str, Any]
) -> tuple[dict[str, Any], set[str]]:
    """What the members of an answer mean.

    Args:
        written: the answer as it is written.
        repairs: what it took to read it: a percent sign that was left out is among them.
        gold: the gold values. "nenhuma" for a complaint is no complaint, and may be a word of one: where there is none
            to quote it is the first. Nothing else depends on them.

    Returns:
        The meant values by known key, and the names of what was done, beyond the repairs of the text.
    """
    done: set[str] = set()
    meant: dict[str, Any] = {}
    for key, name in names(written).items():
        value = written[name]
        if name != key:
            done.add("key_form")
        if key == "churn_risk" and "percent" in repairs and is_number(value) and 1 < value <= 100:
            meant[key] = value / 100  # 90% without quotes, which the reader takes for 90
        elif key != "main_complaint" or gold.get(key, "") is None:
            meant[key] = _meaning(key, value, done)
        else:
            meant[key] = _alone(value, done)
    return meant, done


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
    if value == text or _names_another(values, value, gloss):
        return text
    if isinstance(value, str) and _folded(value) == name:
        repairs.add("enum")
    else:
        repairs.add({type(None): "null_word", bool: "boolean_word"}.get(type(value), "value_form"))
    return value


def _names_another(values: Mapping[str, Any], value: Any, gloss: str) -> bool:
    """Whether a remark behind a value names another value of its key, as a word or within a longer one."""
    whole, single = _folded(gloss), words(gloss)
    others = (form for form, other in values.items() if other != value)
    return any(form in single or (len(form) > 3 and form in whole) for form in others)


def _amount(key: str, text: str, repairs: set[str]) -> int | float | None:
    """The number that a text holds, its unit left out; None where it holds none, or more than one."""
    said, gloss = _without_gloss(text)
    match = _AMOUNTS[key].fullmatch(said.strip().lstrip(_QUOTES).rstrip(_QUOTES + ".,;! ").lower())
    if match is None or any(map(str.isdigit, gloss)):
        return None
    number = read_number(match["number"], integer=key == "delay_days", quoted=True)
    if number is None or number.value is None:
        return None
    repairs.update(number.repairs, ("quoted_number",))
    if match["number"] != text:
        repairs.add("value_form")
    return number.value / 100 if match.groupdict().get("percent") else number.value


def _without_gloss(text: str) -> tuple[str, str]:
    """A text and the remark in brackets behind it, unless that takes it back: "negativo (só crítica)"."""
    match = _GLOSS.fullmatch(text)
    if match is None or not _DOUBT.isdisjoint(words(match["gloss"])[:1]):
        return text, ""
    return match["said"], match["gloss"]
