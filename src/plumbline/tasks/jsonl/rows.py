"""What a recipe says about the task jsonl, and the rows of the user's files as examples, dealt to
train, val and test.

A prompt is in one split only. Where a split is a share of `train`, equal prompts go to it together,
and which ones do depends on their text and the seed and not on their order in the file.
"""

import json
import re
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from string import Formatter
from typing import Annotated, Any, Self, get_args

from pydantic import Field, ValidationInfo, field_validator, model_validator

from plumbline.config.imports import module_names
from plumbline.errors import DataError
from plumbline.recipe import Section, section
from plumbline.records import Example, Message, Row, Rows, Values
from plumbline.seeds import derive
from plumbline.storage import clear_read_errors, dumps
from plumbline.tasks.jsonl.columns import (
    columns_of,
    field_text,
    fill_template,
    find_media,
    template_columns,
    value_of,
)
from plumbline.tasks.jsonl.files import Foreign, is_western, read_rows

SPLITS: tuple[str, ...] = ("train", "val", "test")
_ROLES = get_args(Message.__annotations__["role"])
Range = tuple[float, float]
Weight = Annotated[float, Field(allow_inf_nan=False)]


class JsonlOptions(Section):
    """Options of the task jsonl. Paths are relative to the working directory, as all paths of a
    recipe are."""

    train: str
    """A file of JSON lines (an object a row), CSV or Parquet; or `hf://OWNER/NAME/CONFIG:SPLIT`
    (see `read_rows`)."""
    val: str | float = 0.1
    """A file of its own, or a share of the prompts of `train`, which are then held out."""
    test: str | float = 0.1
    """As `val`; what a run reports at its end."""
    seed: int = 0
    """Of the shares: which prompts are held out."""
    prompt: str = "prompt"
    """The column with the prompt (text or messages), or a template such as
    `{question}\\n\\n{choices:options}`. Messages that end with the assistant's hold the gold
    answer, too."""
    gold: str | None = None
    """The gold answer, which earns everything: a column, or a template such as
    `#### {answer}`; None without one."""
    system: str | None = None
    """A system message before every prompt that has none; `{column}` is that column's."""
    stratum: str | None = None
    """The column that evaluations break down by."""
    cluster: str | None = None
    """The column with what rows share that are alike (a customer, a document): intervals count it
    once."""
    score: str | list[str]
    """`module:function` or `file.py:function`, one or several (see
    `plumbline.tasks.jsonl.reward_functions`)."""
    weights: dict[str, Weight] | None = Field(default=None, min_length=1)
    """Of the named parts, or a list in the order of the functions. A negative weight pays for low
    numbers; a part of weight 0 is measured and pays nothing. None: the functions themselves are the
    parts, each with the weight 1."""
    range: Range | dict[str, Range] | None = None
    """What a function returns lies between these two, which become 0 and 1; or such a pair for each
    part. None: [0, 1] for every part."""
    judges: int = Field(default=0, ge=0, le=256)
    """Threads that score while the model samples, for functions that wait (for a network, for a
    process); 0: none."""

    @field_validator("val", "test")
    @classmethod
    def _file_or_share(cls, value: str | float) -> str | float:
        if not isinstance(value, str) and not 0 < value < 1:
            raise ValueError(f"give a file, or a share between 0 and 1, not {value:g}")
        return value

    @field_validator("prompt", "gold")
    @classmethod
    def _template(cls, value: str | None) -> str | None:
        if value is not None and "{" in value:
            template_columns(value)
        return value

    @field_validator("score")
    @classmethod
    def _functions(cls, value: str | list[str]) -> str | list[str]:
        value = list(map(module_names, [value] if isinstance(value, str) else value))
        names = [name.partition(":")[2] for name in value]
        if not names or not all(names):
            raise ValueError("name a function as module:function, or several")
        if len(set(names)) < len(names):
            raise ValueError(
                f"two functions have one name ({', '.join(names)}), which is the name of their part"
            )
        return value

    @field_validator("weights", mode="before")
    @classmethod
    def _in_order(cls, value: Any, known: ValidationInfo) -> Any:
        if not isinstance(value, list) or (score := known.data.get("score")) is None:
            return value
        names = [name.partition(":")[2] for name in score]
        if len(value) != len(names):
            raise ValueError(
                f"weights are {len(value)} for {len(names)} functions; give each one, or name the "
                "parts"
            )
        return dict(zip(names, value, strict=True))

    @model_validator(mode="after")
    def _check_consistent(self) -> Self:
        if sum(share for share in (self.val, self.test) if not isinstance(share, str)) >= 1:
            raise ValueError("val and test hold out all of train")
        if not any(self.parts().values()):
            raise ValueError(
                "weights are all 0, so no answer earns anything; give one part another weight"
            )
        pairs = (
            self.range.values()
            if isinstance(self.range, dict)
            else []
            if self.range is None
            else [self.range]
        )
        for low, high in pairs:
            if not low < high:
                raise ValueError(
                    f"range goes from the lowest reward to the highest, not from {low:g} to "
                    f"{high:g}"
                )
        if isinstance(self.range, dict) and (unknown := self.range.keys() - set(self.parts())):
            raise ValueError(
                f"range names {', '.join(sorted(unknown))}; the parts are {', '.join(self.parts())}"
            )
        return self

    def functions(self) -> list[str]:
        """Each scoring function as `module:function`."""
        return list(self.score)

    def parts(self) -> dict[str, float]:
        """The weight of every part by its name."""
        return self.weights or {name.partition(":")[2]: 1.0 for name in self.functions()}

    def range_of(self, part: str) -> Range:
        """What the functions' numbers for a part lie between."""
        return (
            self.range.get(part, (0.0, 1.0))
            if isinstance(self.range, dict)
            else self.range or (0.0, 1.0)
        )


def read_options(values: Mapping[str, Any]) -> JsonlOptions:
    """Check a recipe's `task.options`.

    Raises:
        RecipeError: an unknown key, one that is missing, or a value out of range.
    """
    known = ", ".join(JsonlOptions.model_fields)
    advice = f"the task jsonl needs train and score, and knows {known}"
    return section(JsonlOptions, values, inside="task.options.", advice=advice)


# -- rows ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Records:
    """The examples by split, and what the user should know of them."""

    splits: Mapping[str, Sequence[Example]]
    has_gold: bool
    notes: Sequence[str] = ()
    without_gold: Sequence[Example] = ()
    """Of no split, because others have a gold answer."""


@dataclass(frozen=True, slots=True)
class _Row:
    """An example, the file and line that it is from, its prompt's hash, and why it has no gold
    answer."""

    where: str
    example: Example
    prompt: str
    lacks: str


def read_records(options: JsonlOptions, needs: frozenset[str], limit: int | None = None) -> Records:
    """Read the files that the options name.

    Args:
        options: of the task.
        needs: columns that the scoring functions cannot do without.
        limit: of each file the first so many rows.

    Raises:
        DataError: a file is missing or empty, a row is malformed (with its file and line), an id
            comes twice, a prompt stands in two files, or there are too few prompts to hold any out.
    """
    files = {"train": options.train, "val": options.val, "test": options.test}
    read = {
        split: _read(split, path, options, needs, limit)
        for split, path in files.items()
        if isinstance(path, str)
    }
    rows = {split: found for split, (found, _) in read.items()}
    notes = [*dict.fromkeys(note for _, found in read.values() for note in found)]
    ids: dict[str, str] = {}
    for row in chain(*rows.values()):
        if (before := ids.setdefault(row.example.id, row.where)) != row.where:
            raise DataError(
                f"{row.where}: the id {row.example.id} stands at {before} already",
                "give every row an id of its own, in all files together, or none",
            )
    prompts: dict[str, tuple[str, str]] = {}
    for split, found in rows.items():
        for row in found:
            other, where = prompts.setdefault(row.prompt, (split, row.where))
            if other != split:  # one of the figures would be of memory
                raise DataError(
                    f"{row.where} ({split}) has the prompt of {where} ({other})",
                    "remove it from one of them; or give one file, and shares for val and test",
                )
    every = [*chain(*rows.values())]
    lacking = [row for row in every if row.lacks]
    has_gold = options.gold is not None or len(lacking) < len(every)
    if has_gold and lacking:
        what = f"{len(lacking)} of {len(every)} rows have no gold answer"
        if 2 * len(lacking) >= len(every):
            raise DataError(
                f"{what}, such as {lacking[0].lacks}",
                "give each row one, or none: leave the others out",
            )
        notes.append(f"{what} and are left out, such as {lacking[0].lacks}")
        rows = {split: [row for row in found if not row.lacks] for split, found in rows.items()}
    shares = {split: share for split, share in files.items() if not isinstance(share, str)}
    if shares:
        rows |= _split_rows(rows["train"], shares, options)
    for split in SPLITS:
        answers: dict[str, dict[str | None, str]] = {}
        for row in rows[split]:
            answers.setdefault(row.prompt, {}).setdefault(row.example.gold, row.where)
        if copies := len(rows[split]) - len(answers):
            notes.append(
                f"{copies} of {len(rows[split])} rows of {split} repeat a prompt of that split"
            )
        if several := [[*found.values()] for found in answers.values() if len(found) > 1]:
            notes.append(
                f"{len(several)} of {len(answers)} prompts of {split} have several different gold "
                "answers, such as "
                f"{' and '.join(several[0][:2])}: is a column of the question in no prompt?"
            )
    splits = {split: [row.example for row in rows[split]] for split in SPLITS}
    return Records(splits, has_gold, notes, [row.example for row in lacking] if has_gold else ())


def _read(
    split: str, path: str, options: JsonlOptions, needs: frozenset[str], limit: int | None
) -> tuple[list[_Row], list[str]]:
    """The rows of a file, and what is said of it."""
    prefix, table = "row" if split == "train" else split, path.endswith((".csv", ".tsv"))
    rows, foreign, media, notes = [], dict[str, str](), set[str](), list[str]()
    numbered = [*islice(read_rows(path), limit)]
    if not numbered:
        raise DataError(f"{path} has no rows", "write a JSON object a line")
    known, whole = scorer_rows([row for _, row in numbered], texts=table)
    columns = {name for row in known for name in row}
    for (number, raw), given in zip(numbered, known, strict=True):
        row = given | dict.fromkeys(sorted((needs & columns) - given.keys()))
        where = f"{path}:{number}"
        strange = {name: value.kind for name, value in raw.items() if isinstance(value, Foreign)}
        if strange and (wrong := sorted(_used_columns(options, needs, raw) & strange.keys())):
            raise DataError(
                f"{where}: the column {wrong[0]} holds {strange[wrong[0]]}, which no record can "
                "hold",
                "write that column as text, or use another one",
            )
        if missing := sorted(needs - row.keys()):
            raise DataError(
                f"{where}: the scoring function takes {', '.join(missing)}, and this row has no "
                "such column "
                f"(it has {', '.join(row)})",
                "name its parameters as the columns are named, or give the missing ones a default",
            )
        if absent := [
            name
            for name in columns_of(options.prompt, row)
            if "{" in options.prompt and name not in columns
        ]:
            _column(row, absent[0], "prompt", where)
        example, lacks = _example(row, where, f"{prefix}-{number}", options, columns)
        rows.append(_Row(where, example, example.fingerprint(), lacks))
        foreign |= strange
        media |= {*find_media(raw, example.messages[-1]["content"])}
    if table and is_western(Path(path)):
        notes.append(
            f"{path} is no UTF-8 and is read as cp1252, the encoding of Windows in Western Europe"
        )
    if media:
        notes.append(
            "the model sees texts alone: left out are images or sounds of "
            f"{', '.join(sorted(media))}"
        )
    if foreign:
        kinds = ", ".join(f"{name} ({kind})" for name, kind in sorted(foreign.items()))
        notes.append(f"left out, as no record can hold it: {kinds}")
    if whole:
        notes.append(
            f"whole numbers that are floats (9.0) are read as such (9): {', '.join(whole)}"
        )
    return rows, notes


def scorer_rows(rows: Rows, *, texts: bool) -> tuple[list[Values], list[str]]:
    """Rows as scoring functions get them, and the columns of whole numbers that came as floats.

    Those become whole: nulls in a table make floats of all, and nobody answers `9.0`. What is
    `Foreign` is left out, and verl's rows have their `ground_truth`. `texts`: numbers are texts, as
    in CSV.
    """
    plain: list[Values] = []
    mixed: set[str] = set()
    floats: set[str] = set()
    for row in rows:
        kept = {name: value for name, value in row.items() if not isinstance(value, Foreign)}
        if isinstance(verl := row.get("reward_model"), dict) and "ground_truth" in verl:
            kept = {"ground_truth": verl["ground_truth"], **kept}
        plain.append(kept)
        for name, value in kept.items():
            if _is_whole_float(value, texts):
                floats.add(name)
            elif (
                value is not None
                and value != ""
                and (isinstance(value, bool) or not isinstance(value, int))
            ):
                mixed.add(name)
    for name in floats - mixed:
        for row in plain:
            if _is_whole_float(row.get(name), texts):
                row[name] = row[name].removesuffix(".0") if texts else int(row[name])
    return plain, sorted(floats - mixed)


def _is_whole_float(value: Any, texts: bool) -> bool:
    if texts:
        return isinstance(value, str) and re.fullmatch(r"-?[0-9]+\.0", value) is not None
    return isinstance(value, float) and value.is_integer()


def _used_columns(options: JsonlOptions, needs: frozenset[str], row: Row) -> frozenset[str]:
    """Columns that are read, whatever the functions take besides."""
    read = [columns_of(each, row) for each in (options.prompt, options.gold) if each]
    return needs.union({options.stratum or "", options.cluster or "", "id"}, *read)


def _example(
    row: Values, where: str, name: str, options: JsonlOptions, columns: Set[str]
) -> tuple[Example, str]:
    """Check and type one row of a file with these columns; and why it has no gold answer, if so.

    Raises:
        DataError: a column is missing or of the wrong kind; the message has file and line.
    """
    # NaN and Infinity, which json reads, and which no record can hold
    with clear_read_errors(where):
        dumps(row)
    with clear_read_errors(where):
        asked = (
            fill_template(options.prompt, row)
            if "{" in options.prompt and options.prompt not in row
            else _column(row, options.prompt, "prompt", where)
        )
        messages = read_messages(asked, f"{where}: {options.prompt}")
        gold, lacks = None, f"{where}, which has none"
        if messages[-1]["role"] == "assistant":
            gold = messages.pop()["content"] or None
            if options.gold is not None:
                raise DataError(
                    f"{where}: the messages end with an answer", "leave out task.options.gold"
                )
    if options.gold is not None:
        plain = options.gold in row or "{" not in options.gold
        fields = [("", options.gold, None, None)] if plain else Formatter().parse(options.gold)
        try:
            with clear_read_errors(where):
                gold = "".join(
                    text + _gold(row, name, where, form) for text, name, form, _ in fields
                )
        except DataError as error:
            lacks = error.cause
    if not messages or messages[-1]["role"] != "user":
        raise DataError(
            f"{where}: the prompt does not end with a message of the user", "end it with one"
        )
    if options.system is not None and messages[0]["role"] != "system":
        named = re.fullmatch(r"\{([^{}]+)\}", options.system)
        if system := field_text(row, named[1]) if named and named[1] in columns else options.system:
            messages.insert(0, {"role": "system", "content": system})
    stratum, cluster = (
        "" if name is None else str(_column(row, name, what, where))
        for name, what in ((options.stratum, "stratum"), (options.cluster, "cluster"))
    )
    identity = row.get("id", name)
    if isinstance(identity, bool) or not isinstance(identity, str | int) or identity == "":
        raise DataError(
            f"{where}: the id is {json.dumps(identity)[:40]}", "give a text or a whole number"
        )
    example = Example(
        id=str(identity),
        messages=messages,
        gold=gold,
        reference=row,
        stratum=stratum,
        cluster=cluster,
    )
    return example, "" if gold is not None else lacks


def _column(row: Row, name: str, option: str, where: str) -> Any:
    try:
        return value_of(row, name)
    except KeyError:
        raise DataError(
            f"{where}: there is no column {name!r} (it has {', '.join(row) or 'none'})",
            f"set task.options.{option} to the column that is meant",
        ) from None


def _gold(row: Row, name: str | None, where: str, form: str | None = None) -> str:
    """A column as the text of an answer; of messages that end with the assistant's the last."""
    if name is None:
        return ""
    value = _column(row, name, "gold", where)
    if form:
        value = field_text(row, name, form)
    match value:
        case [*_, {"role": "assistant", **message}]:
            value = message.get("content")
        case dict() | [dict(), *_]:
            value = json.dumps(value, ensure_ascii=False)
    if not isinstance(value, str | int | float) or value == "":
        raise DataError(
            f"{where}: the gold answer is {json.dumps(value)[:40]}", "give a text or a number"
        )
    return value if isinstance(value, str) else json.dumps(value)


_SHAREGPT = {
    "human": "user",
    "gpt": "assistant",
    "chatgpt": "assistant",
    "model": "assistant",
    "bot": "assistant",
}


def read_messages(value: Any, where: str) -> list[Message]:
    """A prompt as messages: a text is one of the user's. Those of ShareGPT, and contents of parts,
    are read, too.

    Raises:
        DataError: it is something else.
    """
    if isinstance(value, str) and value.strip():
        return [{"role": "user", "content": value}]
    messages: list[Message] = [*map(_message, value)] if isinstance(value, list) else []
    if not messages or None in messages:
        wrong = value[messages.index(None)] if messages else value  # type: ignore[arg-type]
        raise DataError(
            f"{where} {'has the message' if messages else 'is'} {json.dumps(wrong)[:80]}",
            'give a text, or messages: [{"role": "user", "content": "..."}], with the roles '
            + ", ".join(_ROLES),
        )
    return messages


def _message(value: Any) -> Any:
    """One message; None where it is none."""
    match value:
        case {"role": str(role), "content": content}:
            pass
        case {"from": str(role), "value": content}:
            role = _SHAREGPT.get(role, role)
        case _:
            return None
    match content:
        case [{"type": _}, *_]:  # of images and sounds the notes say that they are left out
            content = "".join(part["text"] for part in content if isinstance(part.get("text"), str))
    return (
        {"role": role, "content": content} if role in _ROLES and isinstance(content, str) else None
    )


def _split_rows(
    rows: Sequence[_Row], shares: Mapping[str, float], options: JsonlOptions
) -> dict[str, list[_Row]]:
    """The rows of `train` by split, a share of the prompts held out for each of the others."""
    order = sorted(
        {row.prompt for row in rows}, key=lambda prompt: derive(options.seed, "split", prompt)
    )
    counts = {split: max(1, round(share * len(order))) for split, share in shares.items()}
    if sum(counts.values()) >= len(order):
        raise DataError(
            f"{options.train} has {len(order)} prompts, of which {sum(counts.values())} would be "
            "held out",
            "give more rows, or smaller shares in task.options.val and test",
        )
    split_of: dict[str, str] = {}
    for split, count in counts.items():
        held, order = order[:count], order[count:]
        split_of |= dict.fromkeys(held, split)
    dealt: dict[str, list[_Row]] = {split: [] for split in ("train", *shares)}
    for row in rows:
        dealt[split_of.get(row.prompt, "train")].append(row)
    return dealt
