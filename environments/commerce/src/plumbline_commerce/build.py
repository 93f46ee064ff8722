"""From a seed to a folder: `commerce.db`, and each job's prompts in a file for each split."""

from collections import Counter
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from plumbline.config.overrides import as_mapping
from plumbline.errors import DataError
from plumbline.runs import output_guard
from plumbline.runs.output_guard import UNFINISHED
from plumbline.storage import (
    read_bytes,
    read_jsonl,
    read_object,
    sha256_of,
    write_bytes,
    write_json,
    write_jsonl,
)
from plumbline.tasks import Progress, silent
from plumbline_commerce.database.build import build_database
from plumbline_commerce.job import Pair, Shop, find_job, too_few_error
from plumbline_commerce.olist.build import LOG, find_changed_files, import_olist
from plumbline_commerce.options import ASKED, COUNTS, CommerceOptions, read_options

SPLITS = ("train", "val", "test")
MANIFEST = "manifest.json"
RECORDS = "commerce records"
"""What the mark in a folder says (see `plumbline.runs.output_guard`)."""


def make_commerce(
    options: CommerceOptions, folder: Path, progress: Progress = silent
) -> dict[str, Any]:
    """Build the records in a folder of their own, or find the same ones there; what is there is
    never replaced.

    Returns:
        What stands in the folder: the options, and the number of prompts of each split, and by job
            of each (`jobs`).

    Raises:
        DataError: the folder holds records of other options.
        StorageError: it holds anything else.
    """
    output_guard.check_folder(folder, RECORDS)
    ensure_commerce(options, folder, progress)
    return {**read_object(folder / MANIFEST), "jobs": _prompts_there(folder)}


def ensure_commerce(options: CommerceOptions, folder: Path, progress: Progress = silent) -> None:
    """Build the records in `folder` unless it has some already: built before, or put there by the
    user.

    Raises:
        DataError: the folder holds records that were built with other options than those that the
            caller set.
    """
    if not has_records(options, folder):
        build_commerce(options, folder, progress)


def has_records(options: CommerceOptions, folder: Path) -> bool:
    """Whether `folder` holds records already, whole; if not, they can be built there.

    Raises:
        DataError: they are of other options than those that the caller set, or others than their
            manifest says.
        StorageError: it holds what is not ours.
    """
    whole = not (folder / UNFINISHED).exists()
    if whole and (folder / MANIFEST).is_file():
        check_as_built(options, folder)
        _check_files(folder)
        return True
    if whole and any((folder / f"{split}.jsonl").is_file() for split in SPLITS):
        return True
    output_guard.check_folder(folder, RECORDS)
    return False


def _check_files(folder: Path) -> None:
    """Compare the splits' files with what the manifest says of them.

    Raises:
        DataError: one is missing, or is another one than was built.
    """
    manifest = read_object(folder / MANIFEST)
    counts, hashes = as_mapping(manifest.get("splits")), as_mapping(manifest.get("sha256"))
    for split in counts:
        path = folder / f"{split}.jsonl"
        if sha256_of(path) != hashes.get(split):
            raise DataError(
                f"{folder} holds no whole records: {path} is another file than was built with them",
                f"remove the folder to build them again, or remove {folder / MANIFEST} to use the "
                "files as they are",
            )


def each_job(options: Mapping[str, Any], folder: Path) -> dict[str, Mapping[str, Any]]:
    """The options of each job that is meant where none is named: those that the records have, or
    would be built with.

    Args:
        options: of the task.
        folder: of the records, unless the options name another.

    Returns:
        Options by job; of one job, by "".

    Raises:
        RecipeError: an unknown option.
        DataError, StorageError: the records cannot be read.
    """
    checked = read_options(dict(options))
    if "job" in checked.model_fields_set:
        return {"": options}
    place = folder if checked.data is None else Path(checked.data)
    counts = _jobs_there(place) or count_prompts(options)
    if len(counts) == 1:
        return {"": {**options, "job": next(iter(counts))}}
    return {
        job: {**options, **(counts if checked.data is None else {}), "job": job} for job in counts
    }


def count_prompts(options: Mapping[str, Any]) -> dict[str, int]:
    """How many prompts of each job are built: of those whose number is given, else of all as the
    commerce log had."""
    return {job: options[job] for job in COUNTS if options.get(job) is not None} or dict(COUNTS)


def _jobs_there(folder: Path) -> dict[str, int]:
    """The jobs that records in a folder have, with how many prompts of each; none where there are
    no records."""
    if (folder / UNFINISHED).exists():
        return {}
    if (folder / MANIFEST).is_file():
        built = read_object(folder / MANIFEST).get("options")
        return (
            {job: built[job] for job in COUNTS if job in built} if isinstance(built, dict) else {}
        )
    return {job: sum(splits.values()) for job, splits in _prompts_there(folder).items()}


def _prompts_there(folder: Path) -> dict[str, dict[str, int]]:
    """How many prompts of each job each split's file has, of rows that say their job."""
    files = {split: path for split in SPLITS if (path := folder / f"{split}.jsonl").is_file()}
    found = {
        split: Counter(str(row.get("task")) for _, row in read_jsonl(path))
        for split, path in files.items()
    }
    jobs = [job for job in COUNTS if any(counts[job] for counts in found.values())]
    return {job: {split: counts[job] for split, counts in found.items()} for job in jobs}


def check_as_built(options: CommerceOptions, folder: Path) -> CommerceOptions:
    """Check that the records in `folder` are those that the options mean.

    An option that the caller left alone is whatever they were built with; where the caller named
    their folder (`data`), so are the shop and the numbers of prompts.

    Returns:
        The options with the records' keys, which are part of the rubric's identity.

    Raises:
        DataError: they are others.
    """
    manifest = read_object(folder / MANIFEST)
    there = manifest.get("options")
    if not isinstance(there, dict):
        raise DataError(
            f"{folder / MANIFEST} does not say with which options these records were built",
            "remove it to use the records as they are",
        )
    meant = options.model_fields_set if options.data is None else options.model_fields_set & ASKED
    wanted = {key: value for key, value in options.records().items() if key in meant}
    if "olist" in wanted and there.get("olist") is not None:
        # The same files may have moved, and others may have their names.
        del wanted["olist"]
        if others := find_changed_files(
            Path(str(options.olist)), as_mapping(as_mapping(manifest.get("olist")).get("sources"))
        ):
            raise DataError(
                f"{folder} holds records of other files ({', '.join(others)})",
                "give another folder, or remove this one to build it again",
            )
    differing = [
        f"{key}: {there.get(key)} there, {value} wanted"
        for key, value in wanted.items()
        if there.get(key) != value
    ]
    if differing:
        raise DataError(
            f"{folder} holds other records ({'; '.join(differing)})",
            "give another folder, or remove this one to build it again",
        )
    return options.model_copy(update={"keys": there.get("keys")})


def build_commerce(
    options: CommerceOptions, folder: Path, progress: Progress = silent
) -> dict[str, Any]:
    """Write `commerce.db`, `train.jsonl`, `val.jsonl`, `test.jsonl` and `manifest.json`.

    Returns:
        What was written: the options, and the number of prompts of each split.

    Raises:
        DataError: the database has too few reviews for so many prompts; what `import_olist`
            refuses.
        StorageError: the disk is full, or the folder holds what is not ours.
    """
    counts = {job: count for job in COUNTS if (count := options.count(job))}
    if options.olist is None and counts.get("extraction", 0) > options.orders:
        raise too_few_error(
            counts["extraction"], f"{options.orders} orders have at most a review each"
        )
    output_guard.check_folder(folder, RECORDS)
    wait = partial(progress, f"waiting for another process, which builds {folder}", 0, 1)
    with output_guard.lock_folder(folder, wait):
        if has_records(options, folder):  # the other process has built them
            return read_object(folder / MANIFEST)
        with output_guard.build_folder(folder, RECORDS, last=MANIFEST) as beside:
            try:
                manifest = _write(options, counts, beside, progress)
            except DataError as error:
                # what the error tells to look at stays, in a folder that is ours
                if (beside / LOG).is_file():
                    output_guard.claim_folder(folder, RECORDS)
                    write_bytes(folder / LOG, read_bytes(beside / LOG))
                cause, fix = (
                    text.replace(str(beside), str(folder)) for text in (error.cause, error.fix)
                )
                raise DataError(cause, fix) from error
            malformed = (beside / LOG).is_file()
        if not malformed:
            (folder / LOG).unlink(missing_ok=True)  # of an import that failed
    return manifest


def _write(
    options: CommerceOptions, counts: Mapping[str, int], folder: Path, progress: Progress
) -> dict[str, Any]:
    """Write everything into an empty folder; returns the manifest."""
    database = folder / "commerce.db"
    shop = Shop(database, folder, options, progress)
    rows: dict[str, list[dict[str, Any]]] = {split: [] for split in SPLITS}
    imported = _build_database(options, database, progress)
    for job in counts:
        for split, pairs in find_job(job).pairs(shop).items():
            rows[split] += [_record(job, pair) for pair in pairs]
    for split, members in rows.items():
        write_jsonl(folder / f"{split}.jsonl", members)
    manifest = {
        "options": options.records(),
        "splits": {name: len(members) for name, members in rows.items()},
        "sha256": {name: sha256_of(folder / f"{name}.jsonl") for name in rows},
        "files": ["commerce.db", LOG],
        **imported,
    }
    write_json(folder / MANIFEST, manifest)
    return manifest


def _build_database(options: CommerceOptions, database: Path, progress: Progress) -> dict[str, Any]:
    """Write `commerce.db`; returns what the manifest says of an import."""

    def tell(what: str, done: int, total: int) -> None:
        progress(f"commerce.db: {what}", done, total)

    if options.olist is not None:
        return {"olist": import_olist(database, Path(options.olist), tell)}
    build_database(database, orders=options.orders, seed=options.seed, progress=tell)
    return {}


def _record(job: str, pair: Pair) -> dict[str, Any]:
    """One line of a split's file."""
    return {
        "id": pair.id,
        "task": job,
        "messages": [*pair.prompt, {"role": "assistant", "content": pair.gold}],
        "reference": pair.reference,
        **pair.about,
    }
