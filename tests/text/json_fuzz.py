"""Random typed documents, written the way language models write them: a sloppy serialiser with a
known answer."""

import json
import random
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

DATA = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "sentiment": {"enum": ["negativo", "neutro", "positivo", None]},
        "main_complaint": {"type": ["string", "null"]},
        "url": {"type": ["string", "null"]},
        "city": {"type": "string"},
        "sentiment_score": {"type": ["number", "null"]},
        "churn_risk": {"type": "number"},
        "order_value": {"type": ["number", "null"]},
        "delivery_days": {"type": ["integer", "null"]},
        "would_recommend": {"type": ["boolean", "null"]},
        "scores": {"type": "array", "items": {"type": "number"}},
        "tags": {"type": "array", "items": {"type": "string"}},
        "items": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "id": {"type": "integer"},
                    "nota": {"type": "number"},
                    "nome": {"type": "string"},
                    "preço": {"type": "number"},
                },
            },
        },
        "endereço": {
            "type": "object",
            "properties": {"cep": {"type": "string"}, "número": {"type": "integer"}},
        },
    },
}

TEXTS = tuple(DATA["texts"])
# Unescaped quotes inside these have one reading only.
INNER = tuple(text for text in TEXTS if '"' in text and "{" not in text and ': "' not in text)
QUOTES = (('"', '"'), ("'", "'"), ("“", "”"), ("‘", "’"), ("«", "»"), ("`", "`"))
WORDS = ("atraso", "frete", "embalagem", "Recife", "bom", "preço", "entrega rápida", "pós-venda")
NUMBERS = tuple(DATA["numbers"])

BEFORE = (
    *("Claro! Aqui está:", "Segue a análise {json}:", "Resposta final:", "**Resultado**"),
    *("Use {chave: valor} como pedido [1].", "A nota {1} é 4,5; veja:", 'O formato é {"x"} e {}.'),
    *("Here is the JSON (d'acordo):", "json", "1. Primeiro, {{template}}."),
    *('Pensei em ["a"] e if (x) { return y; }',),
)
AFTER = (
    *("Espero ter ajudado.", "(ver nota {1}) :}", "Qualquer dúvida, avise: {contato}."),
    *('Obs.: 4,5 de 5 "estrelas".', "}", "]", "Fim } e ] d'aqui."),
)
THOUGHTS = (
    'Preciso de um {json} com nota {"x"',
    'Rascunho: {"sentiment": "neutro", "delivery_days": 1} e pronto',
    "O cliente reclamou d'água, nota 2,5",
    "{'a': 1}, {'b': [2,",
)


@dataclass(frozen=True)
class Sloppy:
    """How one document is written wrongly."""

    faults: frozenset[str]
    rng: random.Random
    indent: str
    quote: tuple[str, str]

    def has(self, fault: str, chance: float = 1.0) -> bool:
        return fault in self.faults and self.rng.random() < chance


FAULTS = tuple(DATA["faults"])
"""Every way to write a document wrongly that has one reading under `SCHEMA`."""

NEEDS_SCHEMA = frozenset(
    {
        "early_close",
        "no_brace",
        "portuguese_literals",
        "quoted_literals",
        "quoted_numbers",
        "case",
        "list",
        "draft",
    }
)
"""Faults that only a schema can resolve."""
PUBLISHED = tuple(DATA["published"])
"""The faults of the comparison with other libraries that this package's design started from."""


def noise(rng: random.Random) -> str:
    """A text of characters that mean something to a parser."""
    pieces = "\"\"'',:;{}[]()\\/#*`~.-+=<>&%$01234 abçã“”‘’«\n\t\r\x00\x0b\u00a0\u200b😀"
    words = [
        *(
            "null",
            "true",
            "R$ ",
            ', "a": 1',
            "}, {",
            "```json",
            "</think>",
            "\\u00e9",
            "\\n",
            "http://",
            "d'",
            "...",
        ),
        *("NaN",),
    ]
    parts = [
        rng.choice(pieces) if rng.random() < 0.85 else rng.choice(words)
        for _ in range(rng.randint(1, 16))
    ]
    return "".join(parts)


def _text_value(rng: random.Random) -> str:
    kind = rng.random()
    return rng.choice(TEXTS) if kind < 0.7 else rng.choice(WORDS) if kind < 0.85 else noise(rng)


def _number_value(rng: random.Random) -> float:
    return (
        rng.choice(NUMBERS)
        if rng.random() < 0.7
        else round(rng.uniform(-9, 2000), rng.randint(1, 4))
    )


def _item(number: int, rng: random.Random) -> dict[str, Any]:
    item: dict[str, Any] = {"id": number, "nota": _number_value(rng)}
    if rng.random() < 0.5:
        item["nome"] = _text_value(rng)
    return {**item, "preço": abs(_number_value(rng))}


def document(rng: random.Random) -> dict[str, Any]:
    """A random document that fits `SCHEMA`."""
    makers: dict[str, Any] = {
        "sentiment": lambda: rng.choice(["negativo", "neutro", "positivo", None]),
        "main_complaint": lambda: rng.choice([_text_value(rng), _text_value(rng), None]),
        "url": lambda: rng.choice(["http://loja.com/a?x=1,2", "https://x.br/#a,b", None]),
        "city": lambda: rng.choice(
            ["São Paulo", "Santa Bárbara d'Oeste", "Recife", "não", "12", "1.234"]
        ),
        "sentiment_score": lambda: rng.choice([_number_value(rng), _number_value(rng), None]),
        "churn_risk": lambda: _number_value(rng),
        "order_value": lambda: rng.choice([abs(round(_number_value(rng), 2)), None]),
        "delivery_days": lambda: rng.choice([rng.randint(-2, 40), rng.randint(0, 3000), None]),
        "would_recommend": lambda: rng.choice([True, False, None]),
        "scores": lambda: [
            rng.choice([rng.randint(0, 10), _number_value(rng)]) for _ in range(rng.randint(0, 5))
        ],
        "tags": lambda: [_text_value(rng) for _ in range(rng.randint(0, 4))],
        "items": lambda: [_item(i, rng) for i in range(rng.randint(0, 3))],
        "endereço": lambda: {
            "cep": rng.choice(["01310-100", "00123", "x"]),
            "número": rng.randint(0, 2000),
        },
    }
    keys = rng.sample(list(makers), rng.randint(1, len(makers)))
    made = {key: makers[key]() for key in keys}
    if rng.random() < 0.05:
        made["extra"] = _text_value(rng)
    return made


_PLAIN_QUOTES = (
    "single_quotes",
    "curly_quotes",
    "mixed_quotes",
    "bare_keys",
    "some_bare_keys",
    "prefixes",
)
_EXCLUDES: dict[str, tuple[str, ...]] = {
    "single_quotes": ("curly_quotes",),
    "curly_quotes": ("prefixes",),
    "double_encoded": ("inner_quotes", "raw_newlines", "odd_escape"),
    "missing_bracket": ("list", "draft", "semicolons"),
    "draft": ("list",),
    "thought": ("stray_thought",),
    "equals": ("missing_comma",),
    "bare_strings": ("inner_quotes", "chatter"),
    "inner_quotes": ("triple_quotes", "mixed_quotes"),
    "triple_quotes": ("mixed_quotes",),
    "chatter": ("early_close", "portuguese_literals", "comments"),
    # Quotings of the whole, and objects whose braces are wrong, are recognised by their plain
    # double quotes.
    "escaped": (
        *(
            "double_encoded",
            "inner_quotes",
            "odd_escape",
            "prose_after",
            "fence",
            "list",
            "draft",
            "triple_quotes",
        ),
        *(
            "comments",
            "no_brace",
            "single_quotes",
            "curly_quotes",
            "mixed_quotes",
            "bare_keys",
            "some_bare_keys",
        ),
    ),
    "no_brace": (
        *(
            "draft",
            "list",
            "prose_before",
            "odd_escape",
            "equals",
            "full_width",
            "extra_bracket",
            "double_encoded",
        ),
        *("comments", *_PLAIN_QUOTES),
    ),
    "early_close": (
        *(
            "double_encoded",
            "list",
            "odd_escape",
            "equals",
            "full_width",
            "no_brace",
            "missing_comma",
            "comments",
        ),
        *("draft", *_PLAIN_QUOTES),
    ),
}
"""Faults that would leave a text with two readings, or undo one another."""


def sample_faults(
    rng: random.Random, faults: tuple[str, ...] = FAULTS, most: int = 6
) -> frozenset[str]:
    """A random composition of faults, without those that exclude one another."""
    chosen = set(rng.sample(faults, min(len(faults), rng.randint(1, most))))
    for fault, others in _EXCLUDES.items():
        if fault in chosen:
            chosen.difference_update(others)
    return frozenset(chosen)


def write(document: dict[str, Any], rng: random.Random, faults: frozenset[str]) -> str:
    """The document with these faults, as a completion."""
    quote = ('"', '"')
    if "single_quotes" in faults:
        quote = ("'", "'")
    elif "curly_quotes" in faults:
        quote = ("“", "”")
    sloppy = Sloppy(faults, rng, rng.choice(["", "", "  "]), quote)
    body = _object(document, sloppy, 0, SCHEMA)
    if sloppy.has("crlf"):
        body = (
            body.replace("\r", "").replace("\n", "\r\n") if "raw_newlines" not in faults else body
        )
    if (
        sloppy.has("no_brace")
        and len(document) > 1
        and next(iter(document)) in SCHEMA["properties"]
    ):
        body = body.lstrip("{ \n")
    if sloppy.has("escaped"):
        body = json.dumps(body, ensure_ascii=False)[1:-1]
    if sloppy.has("extra_bracket"):
        body += "}"
    if sloppy.has("list"):
        body = f"[{body}]"
    if sloppy.has("double_encoded"):
        body = json.dumps(body, ensure_ascii=rng.random() < 0.5)
    return _surround(body, document, sloppy)


def _surround(body: str, document: dict[str, Any], sloppy: Sloppy) -> str:
    rng = sloppy.rng
    if sloppy.has("draft") and len(document) > 1:
        draft = {
            key: value for key, value in document.items() if rng.random() < 0.6 and key != "extra"
        }
        body = f"Rascunho: {_object(draft, sloppy, 0, SCHEMA)}\nCorrigindo:\n{body}"
    fence = rng.choice(["```", "```json", "~~~json", "```JSON", "~~~"])
    if sloppy.has("fence"):
        body = f"{fence}\n{body}\n{fence[:3]}"
    elif sloppy.has("open_fence"):
        body = f"{fence}\n{body}"
    space = rng.choice(["\n", "\n\n", " "])
    if sloppy.has("prose_before"):
        body = rng.choice(BEFORE) + ("\n" if "fence" in sloppy.faults else space) + body
    if sloppy.has("prose_after"):
        body += ("\n" if "fence" in sloppy.faults else space) + rng.choice(AFTER)
    tag = rng.choice(["think", "reasoning", "thinking"])
    if sloppy.has("thought"):
        body = f"<{tag}>{rng.choice(THOUGHTS)}</{tag}>\n{body}"
    if sloppy.has("stray_thought"):
        body = f"{rng.choice(THOUGHTS)}</{tag}>\n{body}"
    return body


def _object(value: dict[str, Any], sloppy: Sloppy, depth: int, schema: dict[str, Any]) -> str:
    members = []
    for key, member in value.items():
        child = schema.get("properties", {}).get(key, {})
        written = _member(key, member, sloppy, depth + 1, child)
        if (
            isinstance(member, list)
            and member
            and len(members) == len(value) - 1
            and sloppy.has("missing_bracket")
        ):
            written = written.removesuffix("]").rstrip()
        colon = sloppy.rng.choice([": ", ":", " : "])
        if sloppy.has("equals"):
            colon = sloppy.rng.choice(["=", " => "])
        if sloppy.has("full_width", 0.5):
            colon = "："
        members.append(f"{_key(key, sloppy)}{colon}{written}")
    if depth == 0 and sloppy.has("early_close") and len(members) > 2:
        keys = list(value)
        cut = next((i for i in range(1, len(keys)) if keys[i] in SCHEMA["properties"]), 0)
        if cut and "extra" not in keys:
            members[cut - 1] += "}"
    return _joined(members, "{", "}", sloppy, depth, in_array=False)


def _joined(
    parts: list[str], opening: str, closing: str, sloppy: Sloppy, depth: int, *, in_array: bool
) -> str:
    rng = sloppy.rng
    newline = "\n" + sloppy.indent * (depth + 1) if sloppy.indent else ""
    text = opening + newline
    semicolon = in_array and "semicolons" in sloppy.faults
    for i, part in enumerate(parts):
        text += part
        last = i == len(parts) - 1
        if not last:
            separator = "; " if semicolon else rng.choice([",", ", "])
            if sloppy.has("full_width", 0.3) and not semicolon:
                separator = "，"
            if sloppy.has("chatter", 0.1) and not in_array:
                separator = ", (obs), "
            if sloppy.has("missing_comma", 0.4) and newline and not semicolon:
                separator = ""
            text += separator
            if sloppy.has("comments", 0.2):
                text += rng.choice([' // nota, "x": {1}\n', " # obs: d'água\n", " /* 4,5 } */ "])
            text += newline
        elif sloppy.has("trailing_comma"):
            text += ","
    if in_array and parts and sloppy.has("ellipsis", 0.3):
        text = text.rstrip(", ") + rng.choice([", ...", ", …"])
    end = "\n" + sloppy.indent * depth if sloppy.indent else ""
    if sloppy.has("odd_blanks", 0.3):
        end += rng.choice(["\u00a0", "\u200b", "\ufeff"])
    return text + end + closing


def _key(key: str, sloppy: Sloppy) -> str:
    if sloppy.has("bare_keys") or sloppy.has("some_bare_keys", 0.5):
        return key
    if sloppy.has("mixed_quotes"):
        opening, closing = sloppy.rng.choice(QUOTES)
        return f"{opening}{key}{closing}"
    prefix = "u" if sloppy.has("prefixes") else ""
    written = key.replace("_", "\\_") if sloppy.has("odd_escape", 0.3) else key
    return f"{prefix}{sloppy.quote[0]}{written}{sloppy.quote[1]}"


def _member(
    key: str,
    value: Any,
    sloppy: Sloppy,
    depth: int,
    schema: dict[str, Any],
    *,
    in_array: bool = False,
) -> str:
    rng = sloppy.rng
    if isinstance(value, dict):
        return _object(value, sloppy, depth, schema)
    if isinstance(value, list):
        items = schema.get("items", {})
        # "[4,5]" is two numbers: only a semicolon shows that commas are decimal commas
        if len(value) == 1:
            sloppy = replace(sloppy, faults=sloppy.faults - {"semicolons"})
        parts = [_member(key, item, sloppy, depth + 1, items, in_array=True) for item in value]
        return _joined(parts, "[", "]", sloppy, depth, in_array=True)
    if isinstance(value, str):
        if key == "sentiment" and sloppy.has("case"):
            value = rng.choice([value.upper(), value.title(), f" {value}"])
        plain = value.isalpha() and value.lower() not in ("true", "null", "nan", "não", "x")
        if plain and sloppy.has("bare_strings", 0.5):
            return value
        return _text(value, sloppy)
    if value is None or isinstance(value, bool):
        return _literal(value, sloppy, schema)
    return _number(value, sloppy, schema, money=key in ("order_value", "preço"), in_array=in_array)


def _literal(value: bool | None, sloppy: Sloppy, schema: dict[str, Any]) -> str:
    rng = sloppy.rng
    json_form = {True: "true", False: "false", None: "null"}[value]
    types = schema.get("type", [])
    if value is None:
        if sloppy.has("non_finite", 0.5):
            return rng.choice(["NaN", "nan", "Infinity", "-Infinity"])
        if sloppy.has("quoted_literals", 0.5) and types and "string" not in types:
            return _text(rng.choice(["null", "None", "nulo", "nenhum", "N/A"]), sloppy)
        if sloppy.has("portuguese_literals"):
            return "nulo"
        return (
            rng.choice(["None", "undefined", "NULL"])
            if sloppy.has("python_literals")
            else json_form
        )
    words = ["verdadeiro", "sim", "Sim"] if value else ["falso", "não", "nao"]
    if sloppy.has("quoted_literals", 0.5):
        return _text(rng.choice([*words, json_form, str(value)]), sloppy)
    if sloppy.has("portuguese_literals"):
        return rng.choice(words)
    return (
        rng.choice([str(value), str(value).upper()]) if sloppy.has("python_literals") else json_form
    )


def _number(
    value: float, sloppy: Sloppy, schema: dict[str, Any], *, money: bool, in_array: bool
) -> str:
    rng = sloppy.rng
    comma = sloppy.has("decimal_comma") and (not in_array or "semicolons" in sloppy.faults)
    brazilian = f"{value:,.2f}".translate(str.maketrans(",.", ".,"))
    text = json.dumps(value)
    exact = isinstance(value, float) and float(f"{value:.2f}") == value
    if money and exact and sloppy.has("money") and not in_array:
        text = rng.choice([f"R$ {brazilian}", f"R${brazilian}", brazilian, f"{brazilian} reais"])
    elif comma and isinstance(value, float):
        text = text.replace(".", rng.choice([",", ",", " , "]))
        if "e" not in text and "," not in text:
            text = json.dumps(value)
    elif (
        sloppy.has("american", 0.5)
        and isinstance(value, float)
        and exact
        and abs(value) >= 1000
        and not in_array
    ):
        text = f"{value:,.2f}"
    elif (
        sloppy.has("leading_zeros", 0.5) and not in_array and value >= 0 and isinstance(value, int)
    ):
        text = f"0{text}"
    elif sloppy.has("underscores", 0.5) and isinstance(value, int) and value >= 1000:
        text = f"{value:_}"
    if sloppy.has("percent", 0.3) and not in_array and "R$" not in text and "reais" not in text:
        text += rng.choice(["%", " %"])
    if sloppy.has("minus_sign") and text[0] == "-":
        text = "−" + text[1:]
    if sloppy.has("plus", 0.3) and text[0].isdigit():
        text = f"+{text}"
    # "1.234" in quotes has two readings where the schema says number.
    lone = (
        text.count(".") == 1 and "," not in text and len(text.rstrip("% ").rpartition(".")[2]) == 3
    )
    if sloppy.has("quoted_numbers", 0.5) and not lone:
        return _text(text, sloppy)
    return text


def _text(value: str, sloppy: Sloppy) -> str:
    opening, closing = sloppy.quote
    rng = sloppy.rng
    if sloppy.has("triple_quotes", 0.3) and value.isalnum():
        return f'"""{value}"""'
    if sloppy.has("mixed_quotes"):
        opening, closing = rng.choice(QUOTES)
        if any(mark in value for mark in "\"'`“”‘’«»´"):
            opening = closing = '"'
    inner = sloppy.has("inner_quotes") and value in INNER
    body = json.dumps(value, ensure_ascii=rng.random() < 0.2)[1:-1]
    if opening == "'":
        body = body.replace('\\"', '"')
        apostrophes = value.count("'")
        body = (
            body.replace("'", "\\'")
            if apostrophes and (value not in TEXTS or rng.random() < 0.5)
            else body
        )
    elif inner:
        body = body.replace('\\"', '"')
    if opening == "“" and ("”" in value or "“" in value):
        opening = closing = '"'
    if sloppy.has("raw_newlines"):
        body = (
            body.replace("\\\\", "\0")
            .replace("\\n", "\n")
            .replace("\\t", "\t")
            .replace("\0", "\\\\")
        )
    if sloppy.has("odd_escape", 0.5):
        body = body.replace("%", "\\%").replace("$", "\\$")
    prefix = "u" if sloppy.has("prefixes") and opening in "\"'" else ""
    return f"{prefix}{opening}{body}{closing}"


def within(part: Any, whole: Any) -> bool:
    """Whether a value that was read from a text cut off says nothing that the whole one does
    not."""
    if isinstance(part, dict):
        return isinstance(whole, dict) and all(
            key in whole and within(part[key], whole[key]) for key in part
        )
    if isinstance(part, list):
        return isinstance(whole, list) and len(part) <= len(whole) and all(map(within, part, whole))
    if isinstance(part, str):
        return isinstance(whole, str) and whole.startswith(part.rstrip())
    return same(part, whole)


def same(left: Any, right: Any) -> bool:
    """Equal, and of equal types; an integer equals a float of its value."""
    if isinstance(left, dict):
        return (
            isinstance(right, dict)
            and left.keys() == right.keys()
            and all(same(left[k], right[k]) for k in left)
        )
    if isinstance(left, list):
        return isinstance(right, list) and len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, bool) or isinstance(right, bool) or left is None or right is None:
        return left is right
    return (type(left) in (int, float) and type(right) in (int, float) and left == right) or (
        type(left) is type(right) and left == right
    )
