"""The parser that this package replaces, as its users ran it: the negative control of the fuzz and
the benchmark.

It rewrites every `digits,digits` outside double quotes, in arrays too, knows no single quotes, and
takes everything from the first brace to the last.
"""

import json
import re
from typing import Any


def _normalize_pt_decimals(s: str) -> str:
    text_or_decimal = r'("(?:\\.|[^"\\])*(?:"|\\?\Z))|(\d+),(\d+)'
    return re.sub(
        text_or_decimal, lambda found: found[1] or f"{found[2]}.{found[3]}", s, flags=re.DOTALL
    )


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
