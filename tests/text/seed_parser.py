"""The parser that this package replaces, as its users ran it: the negative control of the fuzz and the benchmark.

It rewrites every `digits,digits` outside double quotes, in arrays too, knows no single quotes, and takes everything
from the first brace to the last.
"""

import json
import re
from typing import Any


def _normalize_pt_decimals(s: str) -> str:
    result, in_string, escape_next = [], False, False
    i = 0
    while i < len(s):
        c = s[i]
        if escape_next:
            result.append(c)
            escape_next = False
            i += 1
            continue
        if c == "\\" and in_string:
            result.append(c)
            escape_next = True
            i += 1
            continue
        if c == '"':
            in_string = not in_string
            result.append(c)
            i += 1
            continue
        if not in_string:
            m = re.match(r"(\d+),(\d+)", s[i:])
            if m:
                result.append(m.group(1) + "." + m.group(2))
                i += len(m.group(0))
                continue
        result.append(c)
        i += 1
    return "".join(result)


def extract_json(text: str) -> dict[str, Any] | None:
    stripped = re.sub(r"^```(?:json)?\s*|\s*```$", "", text.strip(), flags=re.MULTILINE).strip()
    for attempt in [stripped, _normalize_pt_decimals(stripped)]:
        try:
            result = json.loads(attempt)
            if isinstance(result, dict):
                return result
        except (json.JSONDecodeError, TypeError):
            pass
        match = re.search(r"\{[\s\S]*\}", attempt)
        if match:
            try:
                result = json.loads(match.group())
                if isinstance(result, dict):
                    return result
            except (json.JSONDecodeError, TypeError):
                pass
    return None
