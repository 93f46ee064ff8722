"""Columns of people's rows: which ones a question is made of, which may hold its answer, and how
they become texts.

A template of columns stands for a text: `{name}`, or `{name.key.0}` for what a column of JSON
holds, and a form behind a colon: `{choices:options}` writes choices as `A. ...`, a line each;
`{answer:letter}` an index as a letter; `{choices:of answer}` the choice that another column names;
`{answer:####}` what follows the last `####`; `{answer:str}` what Python writes.
"""

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from string import Formatter, ascii_uppercase
from typing import Any

from plumbline.config.overrides import read_package_yaml
from plumbline.records import Example, Row
from plumbline.tasks.jsonl.files import Foreign

QUESTIONS, BEFORE, AFTER, PAIRS, SYSTEMS, GOLDS, LABELS = read_package_yaml(
    Path(__file__).with_suffix(".yaml")
).values()
ONE_OF = re.compile(r"(?:(?:option|choice|ending|op|sol)[_ ]?)?([a-f]|(?<=.)[0-9])", re.IGNORECASE)
"""Columns that hold a choice each: `A`, `option_b`, `ending0`."""
NOT_ASKED = frozenset({*GOLDS, *LABELS, "rejected", "reward_model", "data_source", "extra_info"})
"""Columns that hold answers, or what only a reward is for."""
LEAVES, DEEP = 8, 3
"""Values inside of one column of JSON that are tried as the answer, and how deep they lie."""
CODE = "```python\n{}\n```"


# -- templates -------------------------------------------------------------------------------------


def template_columns(template: str) -> list[str]:
    """The columns that a template names.

    Raises:
        ValueError: it is no template: a name, and a form behind it, are all that may stand in its
            braces.
    """
    how = (
        "write {column} for a column of the rows, {{ and }} for braces, so \\boxed{{{answer}}} for "
        "\\boxed{42}"
    )
    try:
        fields = [field for field in Formatter().parse(template) if field[1] is not None]
    except ValueError as error:
        raise ValueError(f"{template!r} is no template: {error}; {how}") from error
    well = [
        name
        for _, name, form, conversion in fields
        if name
        and conversion is None
        and re.fullmatch("|options|letter|str|####|of .+", form or "")
    ]
    if not fields or len(well) < len(fields) or any(set(name) & set("[]{}!") for name in well):
        raise ValueError(f"{template!r} is no template; {how}")
    others = [
        form.removeprefix("of ") for _, _, form, _ in fields if form and form.startswith("of ")
    ]
    return [*well, *others]


def as_template(expression: str, row: Row) -> str:
    """A column, or a template, as a template."""
    return expression if "{" in expression and expression not in row else f"{{{expression}}}"


def columns_of(expression: str, row: Row) -> list[str]:
    """The columns of a row that a column's name or a template reads."""
    names = (
        [expression] if "{" not in expression or expression in row else template_columns(expression)
    )
    return [name if name in row else name.partition(".")[0] for name in names]


def value_of(row: Row, name: str) -> Any:
    """A column, or what stands in one of JSON: `label.value`, `answers.text.0`.

    Raises:
        KeyError: there is none.
    """
    if name in row:
        return row[name]
    value: Any = row
    for key in name.split("."):
        if isinstance(value, list) and re.fullmatch("[0-9]{1,6}", key) and int(key) < len(value):
            value = value[int(key)]
        elif isinstance(value, Mapping) and key in value:
            value = value[key]
        else:
            raise KeyError(name)
    return value


def fill_template(template: str, row: Row) -> str:
    """A template of a question with a row's columns. A paragraph whose columns are all empty is
    left out.

    Raises:
        ValueError: a column is not what its form is for.
    """
    paragraphs = []
    for paragraph in template.split("\n\n"):
        fields = [*Formatter().parse(paragraph)]
        texts = [
            "" if name is None else field_text(row, name, form or "") for _, name, form, _ in fields
        ]
        if any(texts) or all(name is None for _, name, _, _ in fields):
            paragraphs.append(
                "".join(literal + text for (literal, *_), text in zip(fields, texts, strict=True))
            )
    return "\n\n".join(paragraphs)


def field_text(row: Row, name: str, form: str = "") -> str:
    """One column as a text; one that the row lacks is empty.

    Raises:
        ValueError: it is not what its form is for.
    """
    try:
        value = value_of(row, name)
    except KeyError:
        return ""
    if form == "options":
        return "\n".join(f"{label}. {text}" for label, text in choices_of(value).items())
    if form == "str":
        return str(value)
    if form == "letter":
        if not re.fullmatch("[0-9]|1[0-9]|2[0-5]", text := as_text(value)):
            raise ValueError(f"{name} is {text[:40]!r}, and no index of a choice")
        return ascii_uppercase[int(text)]
    if form == "####":
        return as_text(value).rpartition("####")[2].strip()
    if form.startswith("of "):
        choices, key = choices_of(value), field_text(row, form.removeprefix("of "))
        if key not in choices and re.fullmatch("[0-9]{1,2}", key):
            key = [*choices, *[""] * 100][int(key)]
        if key not in choices:
            raise ValueError(f"{name} has no choice {key[:40]!r}")
        return choices[key]
    return as_text(value)


def choices_of(value: Any) -> dict[str, str]:
    """The choices of a question by their labels; letters where a list has none."""
    match value:
        case {"text": list(texts), "label": list(labels)}:
            pairs: Iterable[tuple[Any, Any]] = zip(labels, texts, strict=False)
        case [{"label": _, "text": _}, *_]:
            pairs = ((one.get("label"), one.get("text")) for one in value if isinstance(one, dict))
        case list():
            pairs = zip(
                ascii_uppercase if len(value) <= len(ascii_uppercase) else range(len(value)),
                value,
                strict=False,
            )
        case dict():
            pairs = value.items()
        case _:
            raise ValueError(f"{as_text(value)[:40]!r} is no list of choices")
    return {str(label): as_text(text) for label, text in pairs}


def as_text(value: Any) -> str:
    """A value as a question has it: JSON, where it is no text and no list of texts."""
    if isinstance(value, list) and all(isinstance(one, str) for one in value):
        return "\n".join(value)
    return (
        ""
        if value is None
        else value
        if isinstance(value, str)
        else json.dumps(value, ensure_ascii=False)
    )


# -- guesses ---------------------------------------------------------------------------------------


def guess_prompt(rows: Sequence[Row]) -> dict[str, str]:
    """The options `prompt` and `system` for rows; nothing where no column is called as a question
    is.

    A column that stands in the question already is not added to it.
    """
    names = {
        name.lower(): name
        for row in reversed(rows)
        for name in row
        if not set(name) & set("{}[]!:")
    }
    asked = [names[name] for name in QUESTIONS if name in names and _has_text(rows, names[name])]
    main = next(
        (name for name in asked if len({str(row.get(name)) for row in rows}) > 1),
        "".join(asked[:1]),
    )
    same = asked[: asked.index(main)] if main else []  # one instruction for all rows
    if not main or main.lower() not in QUESTIONS[:10]:
        for pair in PAIRS:
            if names.keys() >= set(pair):
                return {
                    "prompt": "\n\n".join(
                        f"{name.capitalize()}: {{{names[name]}}}" for name in pair
                    )
                }
    if not main:
        return {}
    systems = [names[name] for name in SYSTEMS if name in names and _has_text(rows, names[name])]
    found = {"system": f"{{{systems[0]}}}"} if systems else {}
    if any(isinstance(row.get(main), list) for row in rows):
        return {"prompt": main, **found}

    def extra(*group: str) -> list[str]:
        """Those of some columns that are there, unless all that they hold stands in the
        question."""
        held = [names[name] for name in group if name in names and names[name] != main]
        return held if any(not _is_contained(rows, name, f"{{{main}}}") for name in held) else []

    before = [f"{{{name}}}" for name in (*same, *(name for each in BEFORE for name in extra(each)))]
    after = [
        f"{{{name}{_form(rows, name)}}}"
        for each in AFTER
        for name in extra(each)
        if name not in same
    ]
    single = sorted(name for name in names if ONE_OF.fullmatch(name))
    if len(single) > 1 and len({re.sub("[a-f0-9]$", "", name) for name in single}) == 1:
        lines = zip(ascii_uppercase, extra(*single), strict=False)
        after += filter(None, ["\n".join(f"{letter}. {{{name}}}" for letter, name in lines)])
    return {
        "prompt": "\n\n".join([*before, f"{{{main}}}", *after]) if before or after else main,
        **found,
    }


def _has_text(rows: Sequence[Row], name: str) -> bool:
    """Whether a column may be a question: texts, or messages; `chosen` and its like only as
    messages."""
    values = [value for row in rows if (value := row.get(name))]
    messages = any(
        isinstance(value, list) and value and isinstance(value[0], dict) for value in values
    )
    return messages or (
        name.lower() != "chosen" and any(isinstance(value, str) for value in values)
    )


def _form(rows: Sequence[Row], name: str) -> str:
    return (
        ":options"
        if name.lower() != "input" and all(isinstance(row.get(name), list | dict) for row in rows)
        else ""
    )


def _is_contained(rows: Sequence[Row], name: str, asked: str) -> bool:
    """Whether all that a column holds stands in the question already."""
    for row in rows:
        value, question = row.get(name), fill_template(asked, row)
        texts = choices_of(value).values() if isinstance(value, list | dict) else [as_text(value)]
        if any(text.strip() not in question for text in texts):
            return False
    return True


def find_unasked_columns(
    rows: Sequence[Row], options: Mapping[str, Any], known: Collection[str]
) -> list[str]:
    """Columns that stand in no prompt, system message or gold answer, but for the id and those that
    are known."""
    read = [options[key] for key in ("prompt", "gold") if options.get(key)]
    read += [
        system[1:-1]
        for system in [options.get("system") or ""]
        if re.fullmatch(r"\{[^{}]+\}", system)
    ]
    found = {name for each in read for name in columns_of(each, rows[0])} | {
        *known,
        "reward_model",
        "id",
        "",
    }
    names = dict.fromkeys(name for row in rows for name in row if name not in found)
    return [
        name
        for name in names
        if not _is_contained(rows, name, as_template(options["prompt"], rows[0]))
    ]


def find_media(row: Row, prompt: str) -> list[str]:
    """Where a row has images or sounds: columns that are called so, and the prompt."""
    named = [
        name
        for name, value in row.items()
        if _MEDIA.fullmatch(name)
        and (isinstance(value, Foreign | list | dict) or " " not in str(value or " "))
    ]
    parts = [
        name
        for name, value in row.items()
        if isinstance(value, list) and _PARTS.search(json.dumps(value[-1:]))
    ]
    return [*named, *parts, *(["the prompt"] if _MARKS.search(prompt) else [])]


_MEDIA = re.compile(
    "(.*_)?(image|img|photo|picture|video|audio)s?(_(bytes|path|url|file)s?)?", re.IGNORECASE
)
_PARTS = re.compile(r'"type": "(image|video|audio|input_audio)')
_MARKS = re.compile(r"<\|?(image|video|audio|image_pad|video_pad)(_\d+)?\|?>", re.IGNORECASE)


def is_given(example: Example, name: str) -> bool:
    """Whether a column's numbers stand in the question, and those of a list do: a countdown's
    target is no answer."""
    lists = re.findall(r"\[\d+(?:, \d+)+\]", json.dumps(example.reference))
    numbers = re.findall(r"\d+", as_text(example.reference.get(name)))
    asked = {*re.findall(r"\d+", example.messages[-1]["content"])}
    return bool(lists and numbers) and asked.issuperset(numbers + re.findall(r"\d+", lists[0]))


def gold_columns(rows: Sequence[Row], needs: Collection[str], prompt: str) -> list[str]:
    """Columns that may hold gold answers, the likeliest first."""
    names = {name.lower(): name for row in rows for name in row}
    found = [*(names[name] for name in GOLDS if name in names), *sorted(needs)]
    found += [names[name] for name in LABELS if name in names]
    asked = columns_of(prompt, rows[0])
    return [
        name
        for name in dict.fromkeys(found)
        if any(name in row for row in rows) and name not in asked
    ]


def gold_expressions(rows: Sequence[Row], name: str) -> list[str]:
    """What of a column may be a whole answer: itself, what stands behind `####`, a choice, code,
    values of JSON."""
    if set(name) & set("{}[]!:"):
        return [name]
    values = [value for row in rows if (value := row.get(name)) not in (None, "", [], {})]
    match values:
        case []:
            return []
        case [[{"role": _} | {"from": _}, *_], *_]:
            return [name]
        case [list() | dict() as first, *_]:
            whole = [name] if isinstance(first, dict) or isinstance(first[0], dict) else []
            leaves = [*dict.fromkeys(leaf for value in values for leaf in _leaves(value, DEEP))][
                :LEAVES
            ]
            return [*whole, *(f"{{{name}.{leaf}}}" for leaf in leaves), f"{{{name}:str}}"]
        case [bool(), *_]:
            return [name, f"{{{name}:str}}"]
    texts, found = [*map(as_text, values)], [name]
    if all("####" in text for text in texts):
        found.append(f"{{{name}:####}}")
    if any("\n" in text for text in texts):
        found.append(CODE.replace("{}", f"{{{name}}}"))
    if all(re.fullmatch("[0-9]|1[0-9]|2[0-5]", text) for text in texts):
        found.append(f"{{{name}:letter}}")
    held = [key for key in rows[0] if key.lower() in AFTER[1:4] and _form(rows, key)]
    return [*found, *(f"{{{key}:of {name}}}" for key in held)]


def _leaves(value: Any, deep: int) -> list[str]:
    """Paths to the plain values in one of JSON, of lists to the first."""
    inner = (
        value.items()
        if isinstance(value, dict)
        else [*enumerate(value)][:1]
        if isinstance(value, list)
        else []
    )
    if not inner:
        return []
    found = []
    for key, one in inner:
        if isinstance(one, str | int | float):
            found.append(str(key))
        elif deep > 1:
            found += [f"{key}.{path}" for path in _leaves(one, deep - 1)]
    return [path for path in found if not set(path) & set("{}[]!:")]
