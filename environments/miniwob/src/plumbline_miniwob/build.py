"""From pages and seeds to records: how each episode begins, and the plan that its oracle goes
through it with.

No prompt stands in two splits. Many pages come in few ways (one of them always says "Click Me!"),
so examples are dealt to what is held out first, and train gets those that are left; a page that has
fewer ways than a split has places fills fewer of them. A split is built when it is asked for, after
those that prompts are dealt to before it; train is last.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from plumbline.config.overrides import as_mapping
from plumbline.errors import DataError
from plumbline.records import Failure
from plumbline.runs import output_guard
from plumbline.storage import read_jsonl, read_object, sha256_of, write_json, write_jsonl
from plumbline.tasks import Progress, silent
from plumbline.tasks.task import EpisodeFailed
from plumbline_miniwob.actions import from_json, to_json
from plumbline_miniwob.browser.script import PARTS
from plumbline_miniwob.options import MiniwobOptions
from plumbline_miniwob.pages import is_reloaded, table
from plumbline_miniwob.reading import read_plan
from plumbline_miniwob.world import Played, Solved, World
from plumbline_miniwob.writing import by_name, write_steps

HELD_OUT_TASKS = "held-out-tasks"
DEALT = (HELD_OUT_TASKS, "test", "val", "train")
"""The splits in the order in which prompts are dealt to them."""
MANIFEST = "manifest.json"
RECORDS = "miniwob records"
NO_ORACLE = "there is no oracle"
PER_SEED = 100_000
"""Episodes of a page that a seed has for itself."""
_MORE, _TRIES = 2, 3
"""Episodes that are solved beyond those that are wanted, and how many times as many at most."""


MAX_FAILED = 0.5
"""Share of a page's episodes on which the browser may break down while records are built."""
_Found = Sequence[tuple[str, Solved | Failure]]


def pages_version() -> str:
    """The version of the pages and of what goes through them; with another, episodes may begin and
    end otherwise."""
    try:
        pages = version("miniwob")
    except PackageNotFoundError:
        pages = "of no known version"
    texts = [one.read_bytes() for one in PARTS]
    reloaded = " ".join(name for name in table() if is_reloaded(name)).encode()
    return f"miniwob {pages}+{hashlib.sha256(b''.join([*texts, reloaded])).hexdigest()[:6]}"


def splits_of(options: MiniwobOptions) -> tuple[str, ...]:
    """The splits that the options have."""
    return ("train", "val", "test", *((HELD_OUT_TASKS,) if options.held else ()))


def sizes_of(options: MiniwobOptions) -> dict[str, int]:
    """How many examples each split has at most."""
    return {split: sum(_wanted(options, split).values()) for split in splits_of(options)}


def has_records(options: MiniwobOptions, folder: Path, split: str = DEALT[-1]) -> bool:
    """Whether `folder` holds the records of a split already, by default of all; if not, they can be
    built there.

    Raises:
        DataError: they are of other options, or of other pages.
        StorageError: it holds what is not ours.
    """
    if (folder / output_guard.UNFINISHED).exists() or not (folder / MANIFEST).is_file():
        output_guard.check_folder(folder, RECORDS)
        return False
    there, wanted = (
        read_object(folder / MANIFEST),
        {"options": options.records(), "pages": pages_version()},
    )
    differing = [key for key, value in wanted.items() if there.get(key) != value]
    if differing:
        raise DataError(
            f"{folder} holds other records (their {' and '.join(differing)} differ)",
            "give another folder (of `plumbline eval` that is --data), or remove this one to build "
            "it again",
        )
    for name, digest in as_mapping(there.get("sha256")).items():
        if sha256_of(folder / f"{name}.jsonl") != digest:
            raise DataError(
                f"{folder} holds no whole records: {name}.jsonl is another file than was built "
                "with them",
                "remove the folder to build them again",
            )
    return split in as_mapping(there.get("splits"))


def build_records(
    options: MiniwobOptions,
    folder: Path,
    world: World,
    progress: Progress = silent,
    split: str = DEALT[-1],
) -> dict[str, Any]:
    """Write a file for a split, and for each that prompts are dealt to before it; and what was left
    out.

    What is there stays: the examples of a split are the same ones, whichever split is asked for
    first.

    Returns:
        The manifest: options, pages, rows of each split, and for each page why seeds of it were
            left out.

    Raises:
        DataError: a split comes out empty.
        EpisodeFailed: the browser broke down.
        StorageError: the disk is full, or the folder holds what is not ours.
    """
    output_guard.check_folder(folder, RECORDS)
    with output_guard.lock_folder(
        folder, partial(progress, f"waiting for another process, which builds {folder}", 0, 1)
    ):
        if has_records(options, folder, split):  # another process has built them
            return read_object(folder / MANIFEST)
        whole = (folder / MANIFEST).is_file() and not (folder / output_guard.UNFINISHED).exists()
        before = read_object(folder / MANIFEST) if whole else {}
        with output_guard.build_folder(folder, RECORDS, last=MANIFEST) as beside:
            return _write(
                options, beside, _Maker(options, world, progress, folder, before, split), before
            )


def _write(
    options: MiniwobOptions, folder: Path, maker: "_Maker", before: Mapping[str, Any]
) -> dict[str, Any]:
    """Write the splits that are lacking into an empty folder; returns the manifest of all."""
    rows = {split: maker.split(split) for split in maker.lacking}
    if empty := [split for split, members in rows.items() if not members]:
        reasons = [why for counts in maker.left_out.values() for why in counts]
        raise DataError(
            f"no example of {', '.join(empty)} could be built "
            f"({Counter(reasons).most_common(1)[0][0]})",
            "choose other pages in task.options.tasks",
        )
    for split, members in rows.items():
        write_jsonl(folder / f"{split}.jsonl", members)
    counts = {
        **before.get("splits", {}),
        **{split: len(members) for split, members in rows.items()},
    }
    digests = {
        **before.get("sha256", {}),
        **{split: sha256_of(folder / f"{split}.jsonl") for split in rows},
    }
    built = [split for split in splits_of(options) if split in counts]
    manifest = {
        "options": options.records(),
        "pages": pages_version(),
        "splits": {split: counts[split] for split in built},
        "sha256": {split: digests[split] for split in built},
        "left_out": {task: dict(counts) for task, counts in sorted(maker.left_out.items())},
    }
    write_json(folder / MANIFEST, manifest)
    return manifest


def _wanted(options: MiniwobOptions, split: str) -> dict[str, int]:
    """How many examples of each page a split wants."""
    counts = options.per_task.model_dump()
    count = counts[split.replace("-", "_")]
    return {
        name: count
        for name in options.chosen
        if (name in options.held) == (split == HELD_OUT_TASKS)
    }


class _Maker:
    """Solves episodes concurrently, and takes them in the order of their seeds.

    Args:
        options: of the task.
        world: where episodes are solved.
        progress: told about the examples.
        folder: with the records that are built already.
        before: their manifest; empty where there are none.
        last: the split that is wanted.
    """

    def __init__(
        self,
        options: MiniwobOptions,
        world: World,
        progress: Progress,
        folder: Path,
        before: Mapping[str, Any],
        last: str,
    ) -> None:
        self.options, self.world, self.progress = options, world, progress
        built = before.get("splits", {})
        paths = (folder / f"{split}.jsonl" for split in built)
        self.seen = {
            (row["utterance"], row["page"]) for path in paths for _, row in read_jsonl(path)
        }
        self.left_out = {
            task: Counter(counts) for task, counts in before.get("left_out", {}).items()
        }
        sizes = sizes_of(options)
        self.lacking = [
            split
            for split in DEALT[: DEALT.index(last) + 1]
            if split in sizes and split not in built
        ]
        self.done = 0
        self.total = sum(sizes[split] for split in self.lacking)

    def split(self, split: str) -> list[dict[str, Any]]:
        """The rows of a split, page after page."""
        wanted = _wanted(self.options, split)
        rows: list[dict[str, Any]] = []
        threads = ThreadPoolExecutor(max(1, self.world.at_once))
        try:
            first = threads.map(
                lambda task: self._solve(task, split, 0, wanted[task] + _MORE), wanted
            )
            for task, solved in zip(wanted, first, strict=True):
                more = partial(self._solve, task, split)
                rows += self._taken(task, wanted[task], _episodes(solved, wanted[task], more))
                self.done += wanted[task]  # or fewer, where the page comes in few ways
                self.progress(RECORDS, self.done, self.total)
        finally:  # after Ctrl-C, too, without the pages that have not begun
            threads.shutdown(cancel_futures=True)
        return rows

    def _solve(self, task: str, split: str, first: int, count: int) -> _Found:
        start = PER_SEED * self.options.seed + first
        seeds = [f"{split}-{number}" for number in range(start, start + count)]
        found = self.world.solve(task, seeds, turns=self.options.turns > 1)
        if self.options.naming == "names":
            found = [self._named(task, seed, one) for seed, one in zip(seeds, found, strict=True)]
        failures = [one for one in found if isinstance(one, Failure)]
        if len(failures) > MAX_FAILED * count:
            raise EpisodeFailed(
                f"{task}: {len(failures)} of {count} episodes broke down ({failures[0]})",
                "try again",
            )
        return list(zip(seeds, found, strict=True))

    def _named(self, task: str, seed: str, solved: Solved | Failure) -> Solved | Failure:
        """With a plan that says names, where it earns as much: a later page may have two that are
        called the same."""
        if isinstance(solved, Failure) or solved.why:
            return solved
        given = tuple(map(from_json, solved.acts))
        acts = by_name(given, solved.page)
        if acts == given:
            return solved
        (played,) = self.world.play(task, seed, [acts])
        earns = isinstance(played, Played) and played.answered and played.raw == 1
        return replace(solved, acts=tuple(map(to_json, acts))) if earns else solved

    def _taken(
        self, task: str, count: int, each: Iterator[tuple[str, Solved | Failure]]
    ) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = []
        for seed, solved in each:
            if isinstance(solved, Failure):
                self._leave_out(task, f"the browser broke down: {solved.cause}")
                continue
            prompt = (solved.utterance, solved.text)
            why = solved.why or (
                "" if _is_told(solved) else "the plan is not read as it was written"
            )
            if prompt in self.seen:
                why = "the same prompt again"
            elif why and "oracle" in table()[task]:
                why = ""
            if why:
                self._leave_out(task, why)
                continue
            self.seen.add(prompt)
            rows.append(_row(task, seed, solved))
            if len(rows) == count:
                break
        return rows

    def _leave_out(self, task: str, why: str) -> None:
        self.left_out.setdefault(task, Counter())[why.split("\n")[0][:100]] += 1


def _episodes(
    first: _Found, count: int, more: Callable[[int, int], _Found]
) -> Iterator[tuple[str, Solved | Failure]]:
    """The first episodes, and then further ones for as long as they are asked for and there may be
    something new."""
    yield from first
    whole = [solved for _, solved in first if isinstance(solved, Solved)]
    if (
        all(solved.why == NO_ORACLE for solved in whole)
        or len({(one.utterance, one.text) for one in whole}) == 1
    ):
        return
    at = len(first)
    while at < _TRIES * count + _MORE:
        yield from more(at, count)
        at += count


def _is_told(solved: Solved) -> bool:
    """Whether the plan, written and read, is the oracle's own."""
    acts = tuple(map(from_json, solved.acts))
    return read_plan(write_steps(acts), solved.page).acts == acts


def _row(task: str, seed: str, solved: Solved) -> dict[str, Any]:
    acts = None if solved.why else [to_json(from_json(act)) for act in solved.acts]
    turns = [
        {"page": one["page"], "act": to_json(from_json(one["act"]))} for one in solved.turns or ()
    ]
    return {
        "id": f"{task}-{seed}",
        "task": task,
        "seed": seed,
        "utterance": solved.utterance,
        "page": solved.text,
        "elements": [[one.role, one.name] for one in solved.page.elements],
        "acts": acts,
        "turns": turns,
    }
