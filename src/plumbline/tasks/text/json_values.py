"""Values of JSON in what a model wrote as a plan for a browser agent: one, a list of them, or one a line."""

import json
import re
from typing import Any

from plumbline.tasks.text.lenient_json import read_json

_JSON = re.compile(
    r"""^[^\w'"“‘]{0,16}(?:json\s{0,4})?[\[{][\s\[]{0,64}+(?:\{\s{0,64}+)?(?:["'“‘]|\w{1,64}+\s{0,64}+:)"""
    r"""|["'“‘]?\baction["'”’]?\s*:\s*[\[{]""",
    re.M,
)
"""What a text that may hold such JSON has in it: a line that begins with it, or actions. Every line is looked at, so
what one of them reaches over is bounded."""


def whole(text: str) -> str:
    """Without halves of surrogate pairs, which no browser could send."""
    if text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def values_in(text: str, most: int) -> list[Any]:
    """The JSON of a text: one value, a list of them, or one after the other, at most so many; [] where it has none."""
    if _JSON.search(text) is None:
        return []
    decoder = json.JSONDecoder()
    found: list[Any] = []
    at = min((place for sign in "[{" if (place := text.find(sign)) >= 0), default=-1)
    while 0 <= at < len(text) and len(found) < most:
        try:
            value, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            found = []
            break
        found += value if isinstance(value, list) else [value]
        while at < len(text) and text[at] not in "[{":
            at += 1
    if any(isinstance(value, dict) for value in found):
        return found
    lines = [line for line in text.splitlines() if line.strip().startswith("{") and line.rstrip(" ,;").endswith("}")]
    each = [read_json(line).value for line in lines[:most]] if len(lines) > 1 else []
    if each and all(isinstance(value, dict) for value in each) and not text.lstrip(" \n`json").startswith("["):
        return each
    value = read_json(text).value
    return value if isinstance(value, list) else [value]
