"""From a seed to a folder: `commerce.db`, and the prompts of each split.

The splits share no order, no customer and no review: of each customer one order is taken, of each review text one.
The complaint categories are as even as the database allows, because at their natural rates most reviews say that all
is well, and an answer that always says so would earn most of the reward.
"""

import sqlite3
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from plumbline import claims
from plumbline.errors import DataError
from plumbline.seeds import generator
from plumbline.storage import read_object, write_json, write_jsonl, write_text
from plumbline.tasks import Progress, silent
from plumbline.tasks.commerce.database.build import build_database
from plumbline.tasks.commerce.extraction import prompt
from plumbline.tasks.commerce.extraction.schema import KEYS
from plumbline.tasks.commerce.options import CommerceOptions

SPLITS = ("train", "val", "test")
SHARES = {"val": 0.1, "test": 0.1}
"""The rest is train."""
NO_COMPLAINT = "nenhum"
NO_COMPLAINT_SHARE = 0.25
"""Of the prompts, where the database has enough complaints."""
MANIFEST = "manifest.json"
UNFINISHED = ".building"
"""There while the folder is being written, so that a build that was killed is not taken for records."""


RECORDS = "commerce records"
"""What the mark in a folder says (see `plumbline.claims`)."""


def _was_built(folder: Path) -> bool:
    """Whether a folder without our mark holds records that we built, or began to."""
    return (folder / UNFINISHED).is_file() or ((folder / MANIFEST).is_file() and (folder / "commerce.db").is_file())


def make_commerce(options: CommerceOptions, folder: Path, progress: Progress = silent) -> dict[str, Any]:
    """Build the records in a folder of their own, or find the same ones there; what is there is never replaced.

    Returns:
        What stands in the folder: the options, and the number of prompts of each split.

    Raises:
        DataError: the folder holds records of other options.
        StorageError: it holds anything else.
    """
    claims.check(folder, RECORDS, _was_built)
    ensure_commerce(options, folder, progress)
    return read_object(folder / MANIFEST)


def ensure_commerce(options: CommerceOptions, folder: Path, progress: Progress = silent) -> None:
    """Build the records in `folder` unless it has some already: built before, or put there by the user.

    Raises:
        DataError: the folder holds records that were built with other options than those that the caller set.
    """
    if not has_records(options, folder):
        build_commerce(options, folder, progress)


def has_records(options: CommerceOptions, folder: Path) -> bool:
    """Whether `folder` holds records already, whole; if not, they can be built there.

    Raises:
        DataError: they are of other options than those that the caller set.
        StorageError: it holds what is not ours.
    """
    whole = not (folder / UNFINISHED).exists()
    if whole and (folder / MANIFEST).is_file():
        _check_options(options, folder)
        return True
    if whole and any((folder / f"{split}.jsonl").is_file() for split in SPLITS):
        return True
    claims.check(folder, RECORDS, _was_built)
    return False


def _check_options(options: CommerceOptions, folder: Path) -> None:
    """An option that the caller left alone is whatever the records were built with."""
    there = read_object(folder / MANIFEST).get("options")
    if not isinstance(there, dict):
        raise DataError(
            f"{folder / MANIFEST} does not say with which options these records were built",
            "remove it to use the records as they are",
        )
    wanted = {key: value for key, value in options.records().items() if key in options.model_fields_set}
    differing = [
        f"{key}: {there.get(key)} there, {value} wanted" for key, value in wanted.items() if there.get(key) != value
    ]
    if differing:
        raise DataError(
            f"{folder} holds other records ({'; '.join(differing)})",
            "give another folder, or remove this one to build it anew",
        )


def build_commerce(options: CommerceOptions, folder: Path, progress: Progress = silent) -> dict[str, Any]:
    """Write `commerce.db`, `train.jsonl`, `val.jsonl`, `test.jsonl` and `manifest.json`.

    Returns:
        What was written: the options, and the number of prompts of each split.

    Raises:
        DataError: the database has too few reviews for so many prompts.
        StorageError: the disk is full, or the folder holds what is not ours.
    """
    if options.extraction > options.orders:
        raise _too_few(options.extraction, f"{options.orders} orders have at most a review each")
    began_empty = not folder.exists() or not any(folder.iterdir())
    claims.claim(folder, RECORDS, _was_built)
    write_text(folder / UNFINISHED, "")
    database = folder / "commerce.db"
    build_database(
        database,
        orders=options.orders,
        seed=options.seed,
        progress=lambda what, done, total: progress(f"commerce.db: {what}", done, total),
    )
    rows = _eligible(database, options.seed)
    try:
        chosen = _choose(rows, options.extraction, generator(options.seed, "extraction", "choose"))
    except DataError:
        if began_empty:  # leave nothing that a later command would go on with
            for written in (database, folder / UNFINISHED, folder / claims.MARK):
                written.unlink(missing_ok=True)
            with suppress(OSError):
                folder.rmdir()
        raise
    splits = _split(chosen, generator(options.seed, "extraction", "split"))
    for name, members in splits.items():
        write_jsonl(folder / f"{name}.jsonl", [_record(row, options) for row in members])
    manifest = {"options": options.records(), "splits": {name: len(members) for name, members in splits.items()}}
    write_json(folder / MANIFEST, manifest)
    (folder / UNFINISHED).unlink()
    return manifest


def _eligible(database: Path, seed: int) -> list[dict[str, Any]]:
    """Orders with a review text; one for each customer, review and text, in a seeded order."""
    connection = sqlite3.connect(f"{database.resolve().as_uri()}?mode=ro&immutable=1", uri=True)
    connection.row_factory = sqlite3.Row
    try:
        reviews = connection.execute(
            "SELECT * FROM orders_enriched WHERE review_text IS NOT NULL AND sentiment IS NOT NULL ORDER BY order_id"
        ).fetchall()
    finally:
        connection.close()
    order = generator(seed, "extraction", "order").permutation(len(reviews))
    rows = []
    seen: set[tuple[str, str]] = set()
    for index in order:
        row = dict(reviews[index])
        marks = {
            ("customer", row["customer_unique_id"]),
            ("review", row["review_id"]),
            ("text", " ".join(row["review_text"].casefold().split())),
        }
        if seen.isdisjoint(marks):
            seen |= marks
            rows.append(row)
    return rows


def _too_few(wanted: int, there: str) -> DataError:
    return DataError(
        f"{wanted} prompts were asked for, but {there}",
        "build more orders (about four for each prompt), or ask for fewer prompts",
    )


def _choose(rows: Sequence[Mapping[str, Any]], count: int, rng: np.random.Generator) -> list[Mapping[str, Any]]:
    """So many rows, their complaint categories as even as there are rows."""
    if len(rows) < count:
        raise _too_few(count, f"the database has {len(rows)} different reviews with a text")
    by_category: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for row in rows:
        by_category[row["complaint_category"]].append(row)
    quota = _quotas({name: len(members) for name, members in by_category.items()}, count)
    chosen = [row for name in sorted(by_category) for row in by_category[name][: quota[name]]]
    return [chosen[index] for index in rng.permutation(len(chosen))]


def _quotas(available: Mapping[str, int], count: int) -> dict[str, int]:
    """How many of each category: complaints evenly, each up to what there is; the rest says that nothing is wrong."""
    quota = dict.fromkeys(available, 0)
    complaints = sorted((name for name in available if name != NO_COMPLAINT), key=lambda name: (available[name], name))
    left = count - min(available.get(NO_COMPLAINT, 0), round(NO_COMPLAINT_SHARE * count))
    for position, name in enumerate(complaints):  # the rarest first, so that the others can make up for it
        quota[name] = min(available[name], left // (len(complaints) - position))
        left -= quota[name]
    quota[NO_COMPLAINT] = count - sum(quota.values())
    return quota


def _split(rows: Sequence[Mapping[str, Any]], rng: np.random.Generator) -> dict[str, list[Mapping[str, Any]]]:
    """Deal the rows to the splits, each category in the same shares, then shuffle each split."""
    n = len(rows)
    by_category = sorted(range(n), key=lambda index: (rows[index]["complaint_category"], index))
    sizes = {name: max(1, round(share * n)) for name, share in SHARES.items()}
    # Every k-th row of the list sorted by category: each split gets its share of each category, within one row.
    place = rng.random()
    members: dict[str, list[int]] = {}
    left = by_category
    for name, size in sizes.items():
        positions = {int((step + place) * len(left) / size) for step in range(size)}
        members[name] = [index for position, index in enumerate(left) if position in positions]
        left = [index for position, index in enumerate(left) if position not in positions]
    members = {"train": left, **members}
    return {name: [rows[index] for index in rng.permutation(indices)] for name, indices in members.items()}


def _record(row: Mapping[str, Any], options: CommerceOptions) -> dict[str, Any]:
    """One line of a split's file."""
    keys = options.keys or KEYS
    reference = prompt.reference(row, keys)
    chat = prompt.messages(row, options.instructions, keys)
    return {
        "id": f"extraction-{row['order_id'][:16]}",
        "task": "extraction",
        "messages": [*chat, {"role": "assistant", "content": prompt.gold(reference)}],
        "reference": {**reference, "review": row["review_text"]},
        "order_id": row["order_id"],
        "customer_id": row["customer_id"],
        "customer_unique_id": row["customer_unique_id"],
        "review_id": row["review_id"],
    }
