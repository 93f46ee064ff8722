"""The ten keys of an extraction, their types, ranges and values.

What written keys and values mean: the forms in which people and models write what the prompt asks
for.

A value that fits its key is never changed. One that does not is read where it has a single meaning
("Positivo", "7 dias", "entrega em atraso", ["sim"]); where it has two, or none ("positivo ou
neutro", "3 a 4", "talvez"), it stays as it is written, so that it earns nothing.
"""

import re
from collections.abc import Collection, Mapping
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import Any, TypeGuard, get_args

import yaml

from plumbline.tasks.text.json_schema import FALSE_WORDS, NULL_WORDS, TRUE_WORDS
from plumbline.tasks.text.numbers import read_number, without_accents
from plumbline_commerce.database.gold import MAX_SPAN, Category, Sentiment

SENTIMENTS: tuple[str, ...] = get_args(Sentiment)
CATEGORIES: tuple[str, ...] = get_args(Category)
ISSUES = ("delivery_issue", "product_issue", "service_issue")
JSON_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "sentiment": {"type": "string", "enum": list(SENTIMENTS)},
        "sentiment_score": {"type": "number", "minimum": 0, "maximum": 5},
        "complaint_category": {"type": "string", "enum": list(CATEGORIES)},
        "delivery_issue": {"type": "boolean"},
        "product_issue": {"type": "boolean"},
        "service_issue": {"type": "boolean"},
        "would_recommend": {"type": ["boolean", "null"]},
        "delay_days": {"type": ["integer", "null"], "minimum": 0},
        "churn_risk": {"type": "number", "minimum": 0, "maximum": 1},
        "main_complaint": {"type": ["string", "null"], "minLength": 1, "maxLength": MAX_SPAN},
    },
    "additionalProperties": False,
}
JSON_SCHEMA["required"] = list(JSON_SCHEMA["properties"])
KEYS: tuple[str, ...] = tuple(JSON_SCHEMA["required"])
MAY_BE_NULL = frozenset(
    key for key, value in JSON_SCHEMA["properties"].items() if "null" in value["type"]
)
"""Keys of which null says something of the review; of another, that nobody knows it."""


def fits(key: str, value: object) -> bool:
    """Whether a value has the key's type, range and spelling. 7.0 is an integer, as JSON Schema has
    it."""
    if key == "sentiment":
        return value in SENTIMENTS
    if key == "complaint_category":
        return value in CATEGORIES
    if key in ISSUES:
        return isinstance(value, bool)
    if key == "would_recommend":
        return value is None or isinstance(value, bool)
    if key == "delay_days":
        return value is None or (is_number(value) and value == value // 1 >= 0)
    if key == "main_complaint":
        return value is None or (isinstance(value, str) and 0 < len(value) <= MAX_SPAN)
    top = 5 if key == "sentiment_score" else 1
    return is_number(value) and 0 <= value <= top


def is_number(value: object) -> TypeGuard[int | float]:
    """Whether a decoded JSON value is a number, which true and false are not."""
    return isinstance(value, int | float) and not isinstance(value, bool)


_WORDS = re.compile(r"[^\W_]+").findall


@lru_cache(maxsize=1 << 13)
def words(text: str) -> tuple[str, ...]:
    """The words of a text (letters and digits), without case, accents, white space and
    punctuation."""
    return tuple(_WORDS(without_accents(text).casefold()))


def _fold_text(text: str) -> str:
    return "".join(words(text))


_WRITTEN: Mapping[str, Any] = yaml.safe_load(
    Path(__file__).with_name("meanings.yaml").read_text(encoding="utf-8")
)
_JSON_WORDS = {"$true": TRUE_WORDS, "$false": FALSE_WORDS, "$null": NULL_WORDS}


def _forms(written: str | list[Any]) -> set[str]:
    """The folded forms that an entry of `meanings.yaml` stands for."""
    if isinstance(written, list):
        return {form for each in written for form in _forms(each)}
    if written in _JSON_WORDS:
        return {_fold_text(word) for word in _JSON_WORDS[written]}
    sides = [side.strip().split("/") for side in written.split("|")]
    return {_fold_text(" ".join(choice)) for choice in product(*sides)}


_VALUES: dict[str, dict[str, Any]] = {
    key: {
        form: value
        for value, entry in _WRITTEN["issue" if key in ISSUES else key].items()
        for form in _forms(entry)
    }
    for key in KEYS
    if key in _WRITTEN or key in ISSUES
}
"""Of each key the values that folded texts stand for, besides the members of its enumeration."""
_NUMBER = r"(?P<number>[-+−]?\s*[\d.,][\d.,_]*(?:[eE][-+−]?\d+)?)"
_AMOUNTS = {
    "sentiment_score": re.compile(
        rf"(?:nota\s*:?\s*)?{_NUMBER}\s*(?:(?:/|de|em|out of)\s*5(?:[.,]0*)?)?\s*(?:estrelas?|pontos?|stars?)?"
    ),
    "delay_days": re.compile(
        rf"(?:atraso de\s*|atrasou\s*|com\s*)?{_NUMBER}\s*(?:dias?(?: corridos)?|days?|d)?\s*"
        r"(?:de atraso(?: na entrega)?|atrasad[oa]s?|late)?"
    ),
    "churn_risk": re.compile(
        rf"{_NUMBER}\s*(?:(?P<percent>%|por cento|percent)|(?:/|de)\s*1(?:[.,]0*)?)?"
    ),
}
"""Of each number the texts that hold it and its unit; a mark is out of 5, and a delay in days."""
_GLOSS = re.compile(r"(?P<said>[^()]*\w[^()]*)\((?P<gloss>[^()]*)\)\W*")
_DOUBT = frozenset({"ou", "or", "talvez", "maybe", "nao", "not"})
_LONGEST = 120
"""Characters of a text that may stand for a value."""
_QUOTES = "\"'“”‘’«»`*"
_KEYS = {_fold_text(key): key for key in KEYS}


def names(members: Mapping[str, object]) -> dict[str, str]:
    """Under which name each known key stands: its own, or else the only one that folds to it
    ("complaintCategory")."""
    found = {key: key for key in KEYS if key in members}
    if len(found) == len(KEYS) or len(found) == len(members):
        return found
    others: dict[str, list[str]] = {}
    for name in members:
        key = _KEYS.get(_fold_text(name)) if len(name) <= _LONGEST else None
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
        gold: the gold values. "nenhuma" for a complaint is no complaint, and may be a word of one:
            where there is none to quote it is the first. Nothing else depends on them.

    Returns:
        The meant values by known key, and the names of what was done, beyond the repairs of the
        text.
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
            meant[key] = _only_element(value, done)
    return meant, done


def _only_element(value: Any, repairs: set[str]) -> Any:
    """The only element of a list, or the value as it is."""
    if isinstance(value, list) and len(value) == 1:
        repairs.add("unwrapped")
        return value[0]
    return value


def _meaning(key: str, value: Any, repairs: set[str]) -> Any:
    """What a value means; itself where it fits, or where it has no single meaning."""
    value = _only_element(value, repairs)
    if isinstance(value, str) and len(value) <= _LONGEST:
        if key in _AMOUNTS and (number := _amount(key, value, repairs)) is not None:
            return number
        return _find_named_value(key, value, repairs)
    if key in {*ISSUES, "would_recommend"} and is_number(value) and value in (0, 1):
        repairs.add("boolean_word")
        return value == 1
    if key == "complaint_category" and value is None:
        repairs.add("value_form")
        return "nenhum"
    return value


def _find_named_value(key: str, text: str, repairs: set[str]) -> Any:
    """The value that a text names; the text where it names none, or more than one."""
    values = _VALUES.get(key, {})
    said, gloss = _without_gloss(text)
    name = _fold_text(said)
    if name not in values or (not name and said.strip(" \t\n-—–")):
        return text
    value = values[name]
    if value == text or _names_another(values, value, gloss):
        return text
    if isinstance(value, str) and _fold_text(value) == name:
        repairs.add("enum")
    else:
        repairs.add({type(None): "null_word", bool: "boolean_word"}.get(type(value), "value_form"))
    return value


def _names_another(values: Mapping[str, Any], value: Any, gloss: str) -> bool:
    """Whether a remark behind a value names another value of its key, as a word or within a longer
    one."""
    whole, single = _fold_text(gloss), words(gloss)
    others = (form for form, other in values.items() if other != value)
    return any(form in single or (len(form) > 3 and form in whole) for form in others)


def _amount(key: str, text: str, repairs: set[str]) -> int | float | None:
    """The number that a text holds, its unit left out; None where it holds none, or more than
    one."""
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
    """A text and the remark in brackets behind it, unless that takes it back: "negativo (só
    crítica)"."""
    match = _GLOSS.fullmatch(text)
    if match is None or not _DOUBT.isdisjoint(words(match["gloss"])[:1]):
        return text, ""
    return match["said"], match["gloss"]
