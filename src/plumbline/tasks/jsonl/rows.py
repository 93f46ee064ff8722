"""Rows of the user's files as examples, dealt to train, val and test.

A prompt is in one split only. Where a split is a share of `train`, equal prompts go to it together, and which ones do
depends on their text and the seed and not on their order in the file.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from plumbline.errors import DataError
from plumbline.records import Example, Message
from plumbline.seeds import derive
from plumbline.storage import clear_read_errors, dumps, read_jsonl
from plumbline.tasks.jsonl.options import JsonlOptions, template_columns

SPLITS: tuple[str, ...] = ("train", "val", "test")
_ROLES = get_args(Message.__annotations__["role"])


@dataclass(frozen=True, slots=True)
class Records:
    """The examples by split, and what the user should know of them."""

    splits: Mapping[str, Sequence[Example]]
    has_gold: bool
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Row:
    """An example, and the file and line that it is from."""

    where: str
    example: Example


def read_records(options: JsonlOptions, needs: frozenset[str]) -> Records:
    """Read the files that the options name.

    Args:
        options: of the task.
        needs: columns that the scoring functions cannot do without.

    Raises:
        DataError: a file is missing or empty, a row is malformed (with its file and line), an id comes twice, a prompt
            stands in two files, or there are too few prompts to hold any out.
    """
    files = {"train": options.train, "val": options.val, "test": options.test}
    rows = {split: _read(split, path, options, needs) for split, path in files.items() if isinstance(path, str)}
    every = [row for found in rows.values() for row in found]
    _check_ids(every)
    _check_disjoint(rows)
    golden = [row.example.gold is not None for row in every]
    if len(set(golden)) > 1:
        raise DataError(
            f"{every[golden.index(False)].where} has no gold answer, and {every[golden.index(True)].where} has one",
            "give all rows one, or none",
        )
    shares = {split: share for split, share in files.items() if not isinstance(share, str)}
    if shares:
        rows |= _deal(rows["train"], shares, options)
    splits = {split: [row.example for row in rows[split]] for split in SPLITS}
    return Records(splits=splits, has_gold=golden[0], notes=tuple(_notes(splits)))


def _read(split: str, path: str, options: JsonlOptions, needs: frozenset[str]) -> list[_Row]:
    prefix = "row" if split == "train" else split
    rows = []
    for number, row in read_jsonl(Path(path)):
        where = f"{path}:{number}"
        if isinstance(verl := row.get("reward_model"), dict) and "ground_truth" in verl:
            row = {"ground_truth": verl["ground_truth"], **row}
        if missing := sorted(needs - row.keys()):
            raise DataError(
                f"{where}: the scoring function takes {', '.join(missing)}, and this row has no such column "
                f"(it has {', '.join(row)})",
                "name its parameters as the columns are named, or give the missing ones a default",
            )
        rows.append(_Row(where, _example(row, where, f"{prefix}-{number}", options)))
    if not rows:
        raise DataError(f"{path} has no rows", "write a JSON object a line")
    return rows


def _example(row: dict[str, Any], where: str, name: str, options: JsonlOptions) -> Example:
    """Check and type one row.

    Raises:
        DataError: a column is missing or of the wrong kind; the message has file and line.
    """
    with clear_read_errors(where):  # NaN and Infinity, which json reads, and which no record can hold
        dumps(row)
    given = _column(row, options.prompt, "prompt", where)
    messages = _messages(given, f"{where}: {options.prompt}")
    gold = None
    if messages[-1]["role"] == "assistant":
        gold = messages.pop()["content"]
    if options.gold is not None:
        if gold is not None:
            raise DataError(f"{where}: the messages end with an answer", "leave out task.options.gold")
        gold = _gold(row, options.gold, where)
    if not messages or messages[-1]["role"] != "user":
        raise DataError(f"{where}: the prompt does not end with a message of the user", "end it with one")
    if options.system is not None and messages[0]["role"] != "system":
        messages.insert(0, {"role": "system", "content": options.system})
    identity, stratum = row.get("id", name), ""
    if options.stratum is not None:
        stratum = str(_column(row, options.stratum, "stratum", where))
    if isinstance(identity, bool) or not isinstance(identity, str | int) or identity == "":
        raise DataError(f"{where}: the id is {json.dumps(identity)[:40]}", "give a text or a whole number")
    return Example(id=str(identity), messages=messages, gold=gold, reference=row, stratum=stratum)


def _gold(row: Mapping[str, Any], gold: str, where: str) -> str:
    """The gold answer out of its column, or out of a template of columns."""
    if "{" in gold and gold not in row:
        names = template_columns(gold)
        return gold.format_map({name: _text(_column(row, name, "gold", where), where) for name in names})
    return _text(_column(row, gold, "gold", where), where)


def _text(value: Any, where: str) -> str:
    """A value of a column as the text of an answer; a list of one message of the assistant's is its content."""
    if (
        isinstance(value, list)
        and len(value) == 1
        and isinstance(value[0], dict)
        and value[0].get("role") == "assistant"
    ):
        value = value[0].get("content")
    if not isinstance(value, str | int | float) or value == "":
        raise DataError(f"{where}: the gold answer is {json.dumps(value)[:40]}", "give a text or a number")
    return value if isinstance(value, str) else json.dumps(value)


def _column(row: Mapping[str, Any], name: str, option: str, where: str) -> Any:
    if name not in row:
        raise DataError(
            f"{where}: there is no column {name!r} (it has {', '.join(row) or 'none'})",
            f"set task.options.{option} to the column that is meant",
        )
    return row[name]


def _messages(value: Any, where: str) -> list[Message]:
    """A prompt as messages: a text is one of the user's."""
    if isinstance(value, str) and value.strip():
        return [{"role": "user", "content": value}]
    well_formed = isinstance(value, list) and all(
        isinstance(one, dict) and one.get("role") in _ROLES and isinstance(one.get("content"), str) for one in value
    )
    if not well_formed or not value:
        raise DataError(
            f"{where} is {json.dumps(value)[:60]}",
            'give a text, or messages: [{"role": "user", "content": "..."}], with the roles ' + ", ".join(_ROLES),
        )
    return [{"role": one["role"], "content": one["content"]} for one in value]


def _check_ids(rows: Sequence[_Row]) -> None:
    seen: dict[str, str] = {}
    for row in rows:
        if row.example.id in seen:
            raise DataError(
                f"{row.where}: the id {row.example.id} stands at {seen[row.example.id]} already",
                "give every row an id of its own, in all files together, or none",
            )
        seen[row.example.id] = row.where


def _check_disjoint(rows: Mapping[str, Sequence[_Row]]) -> None:
    """Refuse a prompt that stands in two files: one of the figures would be of memory."""
    seen: dict[str, tuple[str, str]] = {}
    for split, found in rows.items():
        for row in found:
            other, where = seen.setdefault(row.example.fingerprint(), (split, row.where))
            if other != split:
                raise DataError(
                    f"{row.where} ({split}) has the prompt of {where} ({other})",
                    "remove it from one of them; or give one file, and shares for val and test",
                )


def _deal(rows: Sequence[_Row], shares: Mapping[str, float], options: JsonlOptions) -> dict[str, list[_Row]]:
    prompts = {row.example.fingerprint() for row in rows}
    order = sorted(prompts, key=lambda prompt: derive(options.seed, "split", prompt))
    counts = {split: max(1, round(share * len(order))) for split, share in shares.items()}
    if sum(counts.values()) >= len(order):
        raise DataError(
            f"{options.train} has {len(order)} prompts, of which {sum(counts.values())} would be held out",
            "give more rows, or smaller shares in task.options.val and test",
        )
    split_of: dict[str, str] = {}
    for split, count in counts.items():
        held, order = order[:count], order[count:]
        split_of |= dict.fromkeys(held, split)
    dealt: dict[str, list[_Row]] = {split: [] for split in ("train", *shares)}
    for row in rows:
        dealt[split_of.get(row.example.fingerprint(), "train")].append(row)
    return dealt


def _notes(splits: Mapping[str, Sequence[Example]]) -> list[str]:
    notes = []
    for split, examples in splits.items():
        copies = sum(count - 1 for count in Counter(one.fingerprint() for one in examples).values())
        if copies:
            notes.append(f"{copies} of {len(examples)} rows of {split} repeat a prompt of that split")
    return notes
