"""Random typed documents as a careless writer writes them: a second fuzz, which shares nothing with
`json_fuzz`.

A `Writer` draws its habits once for each document (how it quotes, separates, spaces, writes numbers
and literals) and keeps to them; where it has two ways to quote it mixes them. `wrap` puts the text
where models put it: fences, prose, thoughts, other objects, another layer of quotes. Habits that
together leave two readings are never drawn together.
"""

import json
import random
from dataclasses import dataclass, field
from typing import Any

WORDS = [
    *("caixa d'água", "copo d'água", "prazo: 5 dias", "a, b, c", "nota 4,5", "R$ 1.234,56"),
    *(
        "http://loja.com/a?b=1,2",
        "#1 em vendas",
        "ótimo",
        "não",
        "{campo}",
        "[x]",
        "fim }",
        ", e",
        "é",
        "50%",
    ),
    *(
        "a/b",
        "// nada",
        "😀",
        "linha",
        "São João",
        "c: d",
        "(ok)",
        "<b>oi</b>",
        "true",
        "null",
        "10-15",
    ),
    *('o "bom" dia', 'disse "sim, vou"', "e-mail: a@b.c"),
]
NAMES = [
    *(
        "nota",
        "valor_total",
        "cidade",
        "prazo",
        "recomenda",
        "tags",
        "itens",
        "obs",
        "preço",
        "risco",
        "data",
    ),
    *("url", "id", "estado", "pedido"),
]
KINDS = (
    "number",
    "integer",
    "string",
    "boolean",
    "null",
    "numbers",
    "strings",
    "object",
    "objects",
)

QUOTES = ['""'] * 4 + ["''", "“”", "``", "\"\"|''", "““"]
COLONS = [":"] * 6 + [": "] * 4 + [" : ", " = ", " => ", "：", ":\n"]
COMMAS = (
    [","] * 5
    + [", "] * 5
    + [",\n  ", " , ", ";", "\n", ', // nota, "x": 1\n', " /* {um} */, ", "，"]
)
BLANKS = [""] * 5 + [" ", "\n", "\t", "\u00a0", "\u200b", "\r\n"]
LITERALS = [["true", "false", "null"]] * 3 + [
    ["True", "False", "None"],
    ["verdadeiro", "falso", "nulo"],
    ["TRUE", "FALSE", "NULL"],
]
NUMBERS = ["json", "json", "comma", "comma", "money", "quoted", "thousands", "plus"]
HABITS = ["", "", "", "bare", "ellipsis", "twice", "words", "bracket", "nbsp"]


@dataclass
class Field:
    """What one member of a document is: its kind, and its own members where it is made of
    objects."""

    kind: str
    members: dict[str, "Field"] = field(default_factory=dict)

    def schema(self) -> dict[str, Any]:
        if self.kind in ("numbers", "strings"):
            return {"type": "array", "items": {"type": self.kind[:-1]}}
        if self.kind == "null":
            return {"type": ["string", "null"]}
        if not self.members:
            return {"type": self.kind}
        inner = {
            "type": "object",
            "properties": {key: one.schema() for key, one in self.members.items()},
        }
        return inner if self.kind == "object" else {"type": "array", "items": inner}

    def value(self, rng: random.Random) -> Any:
        match self.kind:
            case "number":
                return rng.choice(
                    [0.5, 4.5, 0.85, 12.25, 89.9, 1234.56, -0.75, 1e-05, 1234567.89, 3.0]
                )
            case "integer":
                return rng.choice([0, 1, 7, 12, 120, -3, 2024, 98765])
            case "string":
                return " ".join(rng.choice(WORDS) for _ in range(rng.randint(0, 4)))
            case "boolean":
                return rng.random() < 0.5
            case "null":
                return None
            case "numbers":
                return [rng.choice([1, 2, 10, 4.5, 0.25]) for _ in range(rng.randint(0, 4))]
            case "strings":
                return [rng.choice(WORDS) for _ in range(rng.randint(0, 3))]
            case "object":
                return {key: one.value(rng) for key, one in self.members.items()}
        return [
            {key: one.value(rng) for key, one in self.members.items()}
            for _ in range(rng.randint(0, 3))
        ]


def fields(rng: random.Random, depth: int = 0) -> dict[str, Field]:
    kinds = KINDS if depth < 2 else KINDS[:7]
    found = {
        name: Field(rng.choice(kinds)) for name in rng.sample(NAMES, rng.randint(1, 5 - depth))
    }
    for one in found.values():
        if one.kind.startswith("object"):
            one.members = fields(rng, depth + 1)
    return found


class Writer:
    """Writes a document with the habits that it drew."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.quotes = rng.choice(QUOTES).split("|")
        self.bare_keys = rng.random() < 0.25
        self.colon = rng.choice(COLONS)
        self.comma = rng.choice(COMMAS)
        self.last = rng.choice([""] * 4 + [",", " , ", "\n"])
        self.blank = rng.choice(BLANKS)
        self.literals = rng.choice(LITERALS)
        self.number = rng.choice(NUMBERS)
        self.habit = rng.choice(HABITS)
        self.escape = rng.choice(["json", "json", "ascii", "raw", "unescaped"])

    def write(self, value: Any, depth: int = 0, *, in_list: bool = False) -> str:
        if isinstance(value, str):
            bare = self.habit == "bare" and value.isalpha() and value not in ("true", "null", "não")
            return value if bare else self.text(value)
        if isinstance(value, bool) and self.habit == "words":
            return self.text(self.rng.choice(("sim", "Sim") if value else ("não", "NÃO")))
        if value is None or isinstance(value, bool):
            return self.literals[2 if value is None else 1 - value]
        if isinstance(value, int | float):
            return self.figure(value, in_list)
        return (
            self.elements(value, depth) if isinstance(value, list) else self.members(value, depth)
        )

    def text(self, text: str, *, key: bool = False) -> str:
        opening, closing = self.rng.choice(self.quotes)
        body = json.dumps(text, ensure_ascii=self.escape == "ascii")[1:-1]
        if closing != '"' or self.escape == "unescaped":
            body = body.replace('\\"', '"')
        if closing == "'" and self.escape != "unescaped":
            body = body.replace("'", "\\'")
        if closing == "`":
            body = body.replace("`", "'")
        return opening + body + closing

    def figure(self, value: float, in_list: bool) -> str:
        plain = json.dumps(value)
        if self.number == "plus":
            return "+" * (value > 0 and "e" not in plain) + plain
        if "e" in plain or isinstance(value, int) or in_list or self.number == "json":
            return plain
        brazilian = f"{value:,}".translate(str.maketrans(",.", ".,"))
        match self.number:
            case "comma":
                return plain.replace(".", ",")
            case "money":
                return ("R$\u00a0" if self.habit == "nbsp" else "R$ ") + brazilian
            case "thousands":
                return brazilian
        return self.text(brazilian)

    def elements(self, values: list[Any], depth: int) -> str:
        inner = [self.write(one, depth + 1, in_list=True) for one in values]
        if inner and self.habit == "ellipsis":
            inner.append("...")
        last = self.last if inner and "\n" not in self.comma else ""
        return "[" + self.blank + (self.comma + self.blank).join(inner) + last + self.blank + "]"

    def members(self, value: dict[str, Any], depth: int) -> str:
        names = {key: key if self.bare_keys else self.text(key, key=True) for key in value}
        inner = [
            names[key] + self.colon + self.blank + self.write(one, depth + 1)
            for key, one in value.items()
        ]
        if self.habit == "twice":  # the last value of a key counts
            inner.insert(0, next(iter(names.values())) + self.colon + self.blank + "0")
        end = "}]" if self.habit == "bracket" and depth == 0 else "}"
        return (
            "{" + self.blank + (self.comma + self.blank).join(inner) + self.last + self.blank + end
        )


WRAPPINGS = {
    "fence": "Segue:\n```json\n@\n```\nAbraços {fim}",
    "tilde": "~~~\n@\n~~~",
    "tick": "Resposta: ```@```",
    "unclosed": "```json\n@",
    "prose": "O formato {campo}, conforme [1]: @ (ver nota {2} e d'água) :}",
    "thought": '<think>Se {"nota": 1, o resto falta. Melhor {"nota": 0}.</think>\n@',
    "orphan": 'talvez {"nota": 0}?\n</think>\n\n@',
    "twice": "@\n\nOu, de novo:\n@",
    "tail": "@<|im_end|>\n",
    "tags": "<answer>@</answer>",
    "first": '{"outra": 1}\n@',
    "second": '@\n{"outra": 1}',
    "assign": "resultado = @;",
}


def document(rng: random.Random) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """A text, the document that it means, and its JSON schema."""
    whole = Field("object", fields(rng))
    value = whole.value(rng)
    text = Writer(rng).write(value)
    wrapping = rng.choice(["", "", "", "", "quoted", *WRAPPINGS])
    if wrapping == "quoted":
        text = json.dumps(text, ensure_ascii=False)
    elif wrapping:
        text = WRAPPINGS[wrapping].replace("@", text)
    return text, value, whole.schema()


def cut_document(rng: random.Random) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """The beginning of a text, the document that it would have meant, and its JSON schema."""
    whole = Field("object", fields(rng))
    value = whole.value(rng)
    writer = Writer(rng)
    # the first of two values is no beginning of the last
    writer.habit = writer.habit.replace("twice", "")
    text = writer.write(value)
    return text[: rng.randrange(1, len(text))], value, whole.schema()
