"""The table: what was planted, when we name it, and who else does."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from benchmarks.doctors.look import Seen

FAULTS: Mapping[str, Mapping[str, Any]] = yaml.safe_load(
    Path(__file__).with_name("faults.yaml").read_text()
)
OTHERS = ("ptt", "runmedic", "provenir")
TITLES = {"ptt": "post-training-toolkit", "runmedic": "runmedic", "provenir": "provenir"}
COMMON = 1 / 3
"""A finding on more than this share of the healthy runs says nothing."""
Said = Mapping[str, Mapping[str, Sequence[Sequence[Any]]]]
"""Of each run and doctor its findings: name, level, step."""


def table(seen: Sequence[Seen], said: Said, trainers: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Markdown, line by line.

    Args:
        seen: what we saw, of all runs.
        said: what the others said.
        trainers: lines of the run's trainer that none of a healthy run has.
    """
    healthy = [one for one in seen if not one.job.fault and one.learnt]
    idle = [one for one in seen if not one.job.fault and not one.learnt]
    broken = [one for one in seen if one.job.fault]
    common = {name: _common(healthy, said, name) for name in OTHERS}
    yield f"{len(broken)} broken runs, {len(healthy)} healthy ones" + (
        f"; {len(idle)} without a planted fault did not learn and count as neither: {_names(idle)}"
        if idle
        else ""
    )
    yield ""
    yield (
        f"| planted | plumbline: finding, from step | the trainer | {' | '.join(TITLES.values())} |"
    )
    yield "|---|---|---|" + "---|" * len(OTHERS)
    counts, strict = Counter[str](), Counter[str]()
    for one in broken:
        fault = FAULTS[one.job.fault]
        cells = [
            f"{fault['what']} ({one.job.trainer}, {one.steps} steps)",
            _ours(one, fault["ours"]),
        ]
        counts["plumbline"] += bool(set(one.found) & set(fault["ours"]))
        lines = trainers[one.job.name]
        counts["trainer"] += bool(lines)
        cells.append("; ".join(lines)[:120].replace("|", "/") or "–")
        for name in OTHERS:
            named = [
                each
                for each in said[one.job.name][name]
                if each[1] != "note" and _meant(each[0], fault[name])
            ]
            counts[name] += bool(named)
            strict[name] += any(each[0] not in common[name] for each in named)
            cells.append(_theirs(named, common[name], said[one.job.name][name]))
        yield f"| {' | '.join(cells)} |"
    yield ""
    yield "| | plumbline | " + " | ".join(TITLES.values()) + " |"
    yield "|---|---|" + "---|" * len(OTHERS)
    n = len(broken)
    yield (
        f"| faults named, of {n} | {counts['plumbline']} | "
        + " | ".join(str(counts[name]) for name in OTHERS)
        + " |"
    )
    yield (
        f"| of them by a finding that healthy runs do not have as well | {counts['plumbline']} | "
        + " | ".join(str(strict[name]) for name in OTHERS)
        + " |"
    )
    for level, words in (
        ("fatal", "a fatal (critical, high) finding"),
        ("warning", "a warning, nothing fatal"),
    ):
        ours = sum(
            bool(one.worst(level)) and (level == "fatal" or not one.worst("fatal"))
            for one in healthy
        )
        theirs = [
            sum(_worst(said[one.job.name][name]) == level for one in healthy) for name in OTHERS
        ]
        yield (
            f"| healthy runs with {words}, of {len(healthy)} | {ours} | "
            f"{' | '.join(map(str, theirs))} |"
        )
    yield ""
    yield from _details(healthy, broken, said)


def _ours(one: Seen, wanted: Sequence[str]) -> str:
    named = {name: found for name, found in one.found.items() if name in wanted}
    others = [f"{name} ({level})" for name, (level, _) in one.found.items() if name not in wanted]
    cell = ", ".join(
        f"**{name}** ({level}), {'at the end' if step is None else step}"
        for name, (level, step) in named.items()
    )
    noted = [name for name in wanted if name in one.notes]
    missed = f"not named{' above a note (' + ', '.join(noted) + ')' if noted else ''}"
    return (cell or missed) + (f"; also {', '.join(others)}" if others else "")


def _theirs(
    named: Sequence[Sequence[Any]], common: Mapping[str, int], everything: Sequence[Sequence[Any]]
) -> str:
    crash = [each[0] for each in everything if each[1] == "crash"]
    cells = [each[0] + (r"\*" if each[0] in common else "") for each in named]
    return ", ".join(dict.fromkeys(cells)) or (crash[0] if crash else "–")


def _meant(finding: str, wanted: Sequence[str]) -> bool:
    return any(
        finding.startswith(("yaml_" + one, one)) or (one == "NaN" and "NaN" in finding)
        for one in wanted
    )


def _common(healthy: Sequence[Seen], said: Said, name: str) -> dict[str, int]:
    found = Counter(
        kind
        for one in healthy
        for kind in {each[0] for each in said[one.job.name][name] if each[1] != "note"}
    )
    return {kind: count for kind, count in found.items() if count > COMMON * len(healthy)}


def _worst(findings: Sequence[Sequence[Any]]) -> str:
    levels = {each[1] for each in findings}
    return "fatal" if levels & {"fatal", "crash"} else "warning" if "warning" in levels else ""


def _details(healthy: Sequence[Seen], broken: Sequence[Seen], said: Said) -> Iterator[str]:
    """What stood on healthy runs, and what else was fatal on broken ones."""
    ours = Counter(f"{name} ({level})" for one in healthy for name, (level, _) in one.found.items())
    yield f"plumbline on healthy runs: {_counted(ours)}"
    early = Counter(f"{name} ({level})" for one in healthy for name, level in one.passing)
    yield (
        "plumbline on healthy runs at some step before the end, and not at the end: "
        f"{_counted(early)}"
    )
    for name in (*OTHERS, "ptt, by its callback"):
        theirs = Counter(
            f"{kind} ({level})"
            for one in healthy
            for kind, level in {
                (each[0], each[1]) for each in said[one.job.name][name] if each[1] != "note"
            }
        )
        runs = sum(bool(_worst(said[one.job.name][name])) for one in healthy)
        wanted = {one.job.name: FAULTS[one.job.fault][name.partition(",")[0]] for one in broken}
        named = sum(
            any(
                level != "note" and _meant(kind, wanted[one.job.name])
                for kind, level, _ in said[one.job.name][name]
            )
            for one in broken
        )
        yield (
            f"{name}: {runs} of {len(healthy)} healthy runs, {named} of {len(broken)} faults; "
            f"{_counted(theirs)}"
        )
    second = [
        one.job.name
        for one in broken
        if set(one.worst("fatal")) - set(FAULTS[one.job.fault]["ours"])
    ]
    yield f"broken runs with a fatal finding of another name: {', '.join(second) or 'none'}"


def _counted(found: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in found.most_common()) or "nothing"


def _names(found: Sequence[Seen]) -> str:
    return ", ".join(f"{one.job.name} ({one.change:+.3f})" for one in found)
