"""A gold answer, written in the other ways in which people and models write the same.

What means the same depends on what the answer is: values of a JSON object are written otherwise one by one, a number or
a few words as a whole, and of a long text (a query, a plan, a message) only what stands around it.
"""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from plumbline.records import Example
from plumbline.tasks.tables import read_table
from plumbline.tasks.text.numbers import without_accents

_TABLE = read_table(Path(__file__).parent / "writings.yaml")
DECIMAL_COMMA = "decimal comma"
SHORT = 60
"""Characters of a few words; a longer text that is no JSON is changed around only."""
_COMMA = re.compile(r"(?<![\d.,])\d+,\d{1,2}(?![\d,])")
_NUMBER = re.compile(r"-?\d+(\.\d+)?")
_CODE = re.compile(r"[=();{}<>\[\]]")


def writings(example: Example, language: str) -> Iterator[tuple[str, str]]:
    """The name of each way and the text; nothing where there is no gold answer, or where a way changes nothing.

    Args:
        example: with a gold answer.
        language: of the words around it: "pt" or "en".
    """
    gold = example.gold
    if not gold:
        return
    for name, text in (*_around(gold, language), *_inside(gold, " ".join(one["content"] for one in example.messages))):
        if text != gold:
            yield name, text


def writes_commas(examples: Sequence[Example]) -> bool:
    """Whether most prompts are in a language that writes 4,5: such a number is in them, or a letter with an accent."""
    texts = [" ".join(one["content"] for one in example.messages) for example in examples]
    return sum(_COMMA.search(text) is not None or without_accents(text) != text for text in texts) * 2 > len(texts)


def _around(gold: str, language: str) -> Iterator[tuple[str, str]]:
    is_json, prose = _object(gold) is not None, _TABLE["prose"][language]
    yield "blanks around", f"\n  {gold}  \n\n"
    if "```" not in gold:
        yield "fence", f"```json\n{gold}\n```" if is_json else f"```\n{gold}\n```"
    yield "prose around", f"{prose['before']}\n\n{gold}\n\n{prose['after']}"
    if not is_json and len(gold) <= SHORT and not _CODE.search(gold):
        yield "quotes around", f'"{gold}"'
        yield "curly quotes around", f"“{gold}”"


def _inside(gold: str, prompt: str) -> Iterator[tuple[str, str]]:
    value = _object(gold)
    if value is not None:
        yield from _json(value, gold)
    elif _NUMBER.fullmatch(gold):
        money, percent = "R$" in prompt, "%" in prompt or "porcent" in prompt.lower()
        yield from _number(float(gold) if "." in gold else int(gold), money, percent)
    elif len(gold) <= SHORT and not _CODE.search(gold):
        yield "case", gold.lower() if gold != gold.lower() else gold.capitalize()
        yield "accents left out", without_accents(gold)
        yield "full stop", gold if gold.endswith(".") else f"{gold}."


def _number(value: float, money: bool, percent: bool) -> Iterator[tuple[str, str]]:
    brazilian = _brazilian(value)
    if isinstance(value, float):
        yield DECIMAL_COMMA, str(value).replace(".", ",")
    if abs(value) >= 1000:
        yield "thousands points", brazilian
    if money:
        yield "R$", f"R$ {brazilian}"
    if percent:
        yield "percent sign", f"{brazilian}%"


def _json(value: Any, gold: str) -> Iterator[tuple[str, str]]:
    """A JSON object or array, its values written otherwise."""
    bare: Callable[[str, float], str] = lambda _key, number: json.dumps(number)  # noqa: E731 - the default of four
    quoted: Callable[[str], str] = lambda text: json.dumps(text, ensure_ascii=False)  # noqa: E731

    def written(number: Callable[[str, float], str] = bare, text: Callable[[str], str] = quoted) -> str:
        return _dump(value, "", number, text)

    plain = written()
    ways = {
        DECIMAL_COMMA: written(lambda _, one: json.dumps(one).replace(".", ",")),
        "decimal comma in quotes": written(
            lambda _, one: f'"{one!s}"'.replace(".", ",") if isinstance(one, float) else json.dumps(one)
        ),
        "numbers in quotes": written(lambda _, one: f'"{one!s}"'),
        "thousands points": written(lambda _, one: f'"{_brazilian(one)}"' if abs(one) >= 1000 else json.dumps(one)),
        "R$": written(lambda key, one: f'"R$ {_brazilian(one)}"' if _is(key, "money") else json.dumps(one)),
        "percent sign": written(lambda key, one: f'"{_brazilian(one)}%"' if _is(key, "percent") else json.dumps(one)),
        "case": written(text=lambda one: quoted(one.capitalize() if one != one.capitalize() else one.upper())),
        "accents left out": written(text=lambda one: quoted(without_accents(one))),
        "escaped letters": json.dumps(value, ensure_ascii=True),
    }
    for name, text in ways.items():
        if text != plain:
            yield name, text
    yield "trailing comma", f"{gold.rstrip()[:-1]},{gold.rstrip()[-1]}"
    yield "curly quotes", re.sub(r'"([^"\\]*)"', r"“\1”", gold)
    yield "single quotes", gold if "'" in gold else gold.replace('"', "'")
    yield "on several lines", json.dumps(value, ensure_ascii=False, indent=2)


def _dump(value: Any, key: str, number: Callable[[str, float], str], text: Callable[[str], str]) -> str:
    """JSON whose numbers, with the key that they stand under, and texts are written by these functions."""
    if isinstance(value, dict):
        inside = ", ".join(f"{json.dumps(name)}: {_dump(one, name, number, text)}" for name, one in value.items())
        return f"{{{inside}}}"
    if isinstance(value, list):
        return f"[{', '.join(_dump(one, key, number, text) for one in value)}]"
    if isinstance(value, str):
        return text(value)
    return json.dumps(value) if value is None or isinstance(value, bool) else number(key, value)


def _object(text: str) -> Any:
    """The JSON object or array that a text is; None where it is neither."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict | list) and value else None


def _brazilian(value: float) -> str:
    """1234.5 as 1.234,5."""
    return f"{value:,}".translate(str.maketrans(",.", ".,"))


def _is(key: str, what: str) -> bool:
    return any(word in key.lower() for word in _TABLE[what])
