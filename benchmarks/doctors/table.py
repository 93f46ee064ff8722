"""Who named what: judged by the words of tools.yaml and of each fault, and by nothing else."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from benchmarks.doctors.look import Case
from plumbline.evaluation.statistics import rate_interval

FOLDER = Path(__file__).parent
TOLD = yaml.safe_load((FOLDER / "tools.yaml").read_text())
TOOLS: Mapping[str, Mapping[str, Any]] = TOLD["tools"]
OURS = "plumbline"
Answer = Mapping[str, Any]
"""Of a tool on a run: found, [[kind, level, step, text], ...] or None, and crash where it broke down."""


@dataclass(frozen=True)
class Verdict:
    """What a tool's answer is worth."""

    named: bool
    """A finding above a note has a word of the fault's."""
    cause: bool
    """The first finding above a note says the fault's cause."""
    level: str
    """Of its worst finding above a note; empty for none."""
    accused: bool
    """A finding above a note says that the reward is hacked."""
    first: str
    """The kind of its first finding above a note."""
    read: bool
    crashed: bool


def judge(tool: str, label: Mapping[str, Any], answer: Answer) -> Verdict:
    """An answer by a label (symptoms and cause; of a sound run none)."""
    found = answer["found"] or []
    loud = [one for one in found if one[1] != "note"]
    words = {word for kind, *_ in loud for word in list_words(tool, kind)}
    said = loud[0][3] if loud else ""
    return Verdict(
        named=bool(words & set(label.get("symptoms", ()))),
        cause=bool(loud)
        and any(re.search(one, said, re.I) for one in flatten(label.get("cause", ()))),
        level=min((one[1] for one in loud), default=""),  # fatal stands before warning
        accused="hacking" in words,
        first=loud[0][0] if loud else "",
        read=answer["found"] is not None,
        crashed="crash" in answer,
    )


def list_words(tool: str, kind: str) -> Sequence[str]:
    """The words of a kind of finding, by the longest entry of tools.yaml that it is of."""
    known = TOOLS[tool]["findings"]
    parts = kind.split(":")
    names = [":".join(parts[:end]) for end in range(len(parts), 0, -1)]
    for name in names:
        if name in known:
            return list(known[name])
    starred = [one for one in known if one.endswith("*") and kind.startswith(one[:-1])]
    if not starred:
        raise KeyError(f"tools.yaml has no words for {kind} of {tool}")
    return list(known[max(starred, key=len)])


def flatten(cause: Any) -> list[str]:
    """Expressions, one or several or several of several."""
    return [cause] if isinstance(cause, str) else [each for one in cause for each in flatten(one)]


# -- the table -------------------------------------------------------------------------------------

Answers = Mapping[str, Mapping[str, Answer]]
"""By tool and run."""
VIEWS = {
    "planted": "planted",
    "planted, other seeds": "seeds",
    "a stranger's": "stranger",
    "a stranger's, other seeds": "stranger-seeds",
    "hacked": "hacked",
    "hacked, told what is right": "hacked, told",
    "others' scenarios": "scenarios",
    "scenarios, with its own": "scenarios",
    "public logs": "public",
}
"""Sets of the table, and which runs each is of."""
OTHERS, OWN = "others' scenarios", "scenarios, with its own"
"""Of the one what a tool published itself is left out; the other is of those that published some."""
COLUMNS = ("named", "cause", "fatal", "warned", "accused")
HEADS = (
    "of those with a fault: named",
    "first cause",
    "of sound ones: fatal",
    "warned, nothing fatal",
    "accused of hacking",
    "unread, crashed",
)
MARKS = "<!-- doctors: made by python -m benchmarks.doctors -->", "<!-- doctors: end -->"


def write_table(cases: Sequence[Case], answers: Answers) -> Iterator[str]:
    """Markdown, line by line: a row for each set and tool."""
    yield f"| runs | tool | {' | '.join(HEADS)} |"
    yield "|---|---|" + "---|" * len(HEADS)
    for view, group in VIEWS.items():
        for tool in answers:
            among = [
                (case, judge(tool, case.label, answers[tool][case.key]))
                for case in cases
                if case.group == group and not (view == OTHERS and case.maker == tool)
            ]
            if among and (view != OWN or any(case.maker == tool for case, _ in among)):
                shares = measure(among)
                cells = [_share(shares[column]) for column in COLUMNS]
                unread = sum(not one.read for _, one in among)
                crashed = sum(one.crashed for _, one in among)
                yield f"| {view} | {tool} | {' | '.join(cells)} | {unread}, {crashed} |"


def write_rows(cases: Sequence[Case], answers: Answers) -> Iterator[str]:
    """Markdown, line by line: each run with a fault or of an unknown state, then what stood on sound
    ones."""
    yield f"| run | what | {' | '.join(answers)} | first of {OURS} |"
    yield "|---|---|" + "---|" * (len(answers) + 1)
    for case in cases:
        if case.label:
            mine = [judge(tool, case.label, answers[tool][case.key]) for tool in answers]
            cells = [_mark(one, case.known) for one in mine]
            first = f"{mine[0].first} {mine[0].level}"
            yield f"| {case.key} | {case.label['what']} | {' | '.join(cells)} | {first} |"
    yield ""
    yield from _alarms(cases, answers)


def put_into_page(table: Sequence[str], page: Path) -> None:
    """Put the table between the marks of a page.

    Raises:
        ValueError: the page has not both.
    """
    text = page.read_text()
    begin, end = MARKS
    before, found, rest = text.partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise ValueError(f"{page} has no line {begin if not found else end}")
    page.write_text("\n".join((f"{before}{begin}", "", *table, "", f"{end}{after}")))


def measure(among: Sequence[tuple[Case, Verdict]]) -> dict[str, list[bool]]:
    """What a tool got right of runs with a fault, and wrong of sound ones. Those of an unknown state
    and those that it cannot read count as neither."""
    among = [(case, one) for case, one in among if case.known and one.read]
    broken = [one for case, one in among if case.label]
    sound = [one for case, one in among if not case.label]
    return {
        "named": [one.named for one in broken],
        "cause": [one.cause for case, one in among if case.label and "cause" in case.label],
        "fatal": [one.level == "fatal" for one in sound],
        "warned": [one.level == "warning" for one in sound],
        "accused": [one.accused for one in sound],
    }


def _share(flags: Sequence[bool]) -> str:
    if not flags:
        return "–"
    rate = rate_interval(flags)
    return f"{sum(flags)}/{len(flags)}: {rate.mean:.2f} [{rate.low:.2f}, {rate.high:.2f}]"


def _mark(one: Verdict, known: bool) -> str:
    if one.crashed:
        return "crashed"
    if not known:
        return f"unknown: {one.level or 'nothing'}" if one.read else "unread"
    words = [word for word in ("named", "cause") if getattr(one, word)]
    return ", ".join(words) or ("–" if one.read else "unread")


def _alarms(cases: Sequence[Case], answers: Answers) -> Iterator[str]:
    """What stood on sound runs, and what ours was to say of planted ones by the older count."""
    for tool in answers:
        found = Counter(
            f"{kind} ({level})"
            for case in cases
            if not case.label
            for kind, level in {
                (one[0], one[1])
                for one in answers[tool][case.key]["found"] or ()
                if one[1] != "note"
            }
        )
        listed = ", ".join(f"{name} {count}" for name, count in found.most_common())
        yield f"{tool} on sound runs: {listed or 'nothing'}"
    kept = [
        {
            kind.split(":")[0]
            for kind, level, *_ in answers[OURS][case.key]["found"]
            if level != "note"
        }
        & set(case.label["ours"])
        for case in cases
        if "ours" in case.label
    ]
    if kept:
        yield f"{OURS}, by the checks that were to name each planted fault: {sum(map(bool, kept))} of {len(kept)}"
