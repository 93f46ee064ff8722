"""Valid JSON and nothing else: no NaN, no infinity, and no exception whatever the text."""

import json
import re
from typing import Any, NoReturn


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


_DECODE = json.JSONDecoder(parse_constant=_refuse).raw_decode
_MAY_BE_INFINITE = re.compile(r"[eE]\+?\d{3}|\d{200}").search


def valid_at(text: str, start: int) -> tuple[Any, int] | None:
    """The valid JSON that begins at `start`, and where it ends; None where there is none.

    What Python cannot hold is not valid here: a number that overflows to an infinity, an integer of more than 4,300
    digits, nesting beyond the recursion limit.
    """
    try:
        value, end = _DECODE(text, start)
    except (ValueError, RecursionError):
        return None
    if _MAY_BE_INFINITE(text, start, end) and _holds_infinity(value):
        return None
    return value, end


def strict_json(text: str) -> Any:
    """Decode a text that is valid JSON as a whole, outer blanks aside.

    Returns:
        The value, of any type; None where the text is not JSON, and also for `null`. Never raises.
    """
    text = text.strip()
    found = valid_at(text, 0)
    return found[0] if found is not None and found[1] == len(text) else None


def _holds_infinity(value: Any) -> bool:
    """Whether a number such as 1e999 became infinite."""
    todo = [value]
    while todo:
        item = todo.pop()
        if isinstance(item, dict):
            todo.extend(item.values())
        elif isinstance(item, list):
            todo.extend(item)
        elif isinstance(item, float) and item in (float("inf"), float("-inf")):
            return True
    return False
