"""An audit of one task: what is tried, and what came of it."""

import io
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from plumbline.checks.audit.bench import Bench, Group, Hung, Verdict
from plumbline.checks.audit.cheats import cheapest_cheat
from plumbline.checks.audit.checks import check
from plumbline.checks.audit.elsewhere import elsewhere
from plumbline.checks.audit.probes import a_few, damaged
from plumbline.checks.audit.seen import Seen, mean, written
from plumbline.checks.audit.writings import writes_commas, writings
from plumbline.checks.diagnosis.finding import Finding
from plumbline.errors import DataError, RewardError
from plumbline.evaluation.statistics import mean_interval
from plumbline.records import Example
from plumbline.storage import read_object
from plumbline.tasks import Progress, silent
from plumbline.tasks.jsonl.task import JsonlTask
from plumbline.tasks.precheck import GOLD, HOSTILE, Case
from plumbline.tasks.task import Task

PROBED, STRUCK, POOL = 24, 4, 300
"""Examples whose gold answers are damaged and written otherwise; that hostile texts are answers to; that cheats are
sought among."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """What an audit found."""

    task: str
    rubric: str
    counts: Mapping[str, int]
    """Examples by split."""
    weights: Mapping[str, float]
    """The effective weight of each part, where the task says so; they add up to 1."""
    seen: Seen
    findings: tuple[Finding, ...]
    """The gravest first."""
    verdicts: int
    """How many texts were judged, those of the search and the second time included."""
    rate: float
    """Verdicts a second, one after the other."""
    seconds: float

    @property
    def fatal(self) -> bool:
        """Whether a fatal finding stands."""
        return any(finding.level == "fatal" for finding in self.findings)

    def plain(self) -> dict[str, Any]:
        """All figures, for JSON."""
        seen, cheat = self.seen, self.seen.cheat
        return {
            "task": self.task,
            "rubric": self.rubric,
            "effective_weights": dict(self.weights),
            "splits": dict(self.counts),
            "fatal": self.fatal,
            "findings": [asdict(finding) for finding in self.findings],
            "gold": {
                "n": len(seen.golds),
                "mean": seen.ceiling,
                "least": min((v.reward for v in seen.golds), default=0),
            }
            if seen.golds
            else None,
            "controls": {
                name: {"limit": seen.limits.get(name)} | {split: mean(found) for split, found in splits.items()}
                for name, splits in seen.controls.items()
            },
            "parts": {
                name: {"least": min(known), "most": max(known), "texts": len(known)}
                for name, values in seen.parts().items()
                if (known := [value for _, value in values if value is not None])
            },
            "writings": written(seen),
            "cheat": None
            if cheat is None
            else {
                "reward": asdict(mean_interval(cheat.rewards)),
                "rule": cheat.rule,
                "example": cheat.example,
                "text": cheat.text,
                "verdicts": cheat.verdicts,
            },
            "verdicts": self.verdicts,
            "verdicts_per_second": self.rate,
            "seconds": self.seconds,
        }


def audit(
    task: Task,
    splits: Sequence[str] = (),
    *,
    limit: int | None = None,
    seed: int = 0,
    quick: bool = False,
    progress: Progress = silent,
) -> Audit:
    """Try a task's verifier, without a model.

    Args:
        task: any.
        splits: whose gold answers and controls are judged; none is all of the task's.
        limit: of each split the first so many examples.
        seed: of what is drawn: which examples are damaged, and the search for cheats.
        quick: damage and write otherwise a third of the gold answers, and search for no cheat.
        progress: told what is judged.

    Raises:
        DataError: there is no such split, or its records are malformed.
    """
    began = time.monotonic()
    chosen = {split: task.examples(split)[:limit] for split in splits or task.splits}
    few = a_few(chosen, PROBED // 3 if quick else PROBED, seed)
    if not few:
        raise DataError(f"the task {task.name} has no examples", "give it some rows")
    printed = Printed()
    with redirect_stdout(printed):
        fitted = task.fitted() if isinstance(task, JsonlTask) else None
        bench = Bench(fitted or task, progress)
        seen = _seen(bench, chosen, few, seed, quick)
    seen = replace(seen, printed=(printed.lines, printed.first), ranges=fitted.declared() if fitted is not None else "")
    task = bench.task
    return Audit(
        task=task.name,
        rubric=task.rubric,
        counts={split: len(examples) for split, examples in chosen.items()},
        weights=task.shares if isinstance(task, JsonlTask) else {},
        seen=seen,
        findings=tuple(check(seen)),
        verdicts=bench.count + seen.repeated,
        rate=bench.count / bench.seconds if bench.seconds else 0.0,
        seconds=time.monotonic() - began,
    )


def _seen(
    bench: Bench, chosen: Mapping[str, Sequence[Example]], few: Sequence[Example], seed: int, quick: bool
) -> Seen:
    """Try everything, until it is done or verdicts do not come back."""
    task = bench.task
    users = task if isinstance(task, JsonlTask) else None
    cheat, again, other, repeated, labelled, misread = None, [], [], [], None, None
    try:
        _judge_all(bench, chosen, few, seed)
        if users is not None:
            strange = any(one.kind == RewardError.__name__ for one in _every(bench))
            misread = None if strange else users.misread(few)
            labelled = users.label(few) if misread is None else None
        if not quick and misread is None and not (labelled is not None and labelled.grave):
            cheat = cheapest_cheat(bench, a_few(chosen, POOL, seed), task.controls, seed)
        probed = {example.id for example in few}
        repeated = [one for one in _every(bench) if one.case.example.id in probed and one.score is not None]
        again = bench.again(repeated)
        if not again:
            bench.progress("on another thread, in another process", 0, 1)
            other = elsewhere(task, repeated)
    except Hung:
        pass  # which is a finding; what was judged until then is looked at
    headline = task.headline
    return Seen(
        golds=bench.kept.get(("gold",), ()),
        controls={
            name: {group[2]: found for group, found in bench.kept.items() if group[:2] == ("control", name)}
            for name in dict.fromkeys(group[1] for group in bench.kept if group[0] == "control")
        },
        damaged=bench.kept.get(("damaged",), ()),
        hostile=bench.kept.get(("hostile",), ()),
        writings={group[1]: found for group, found in bench.kept.items() if group[0] == "writing"},
        every=_every(bench),
        again=again,
        repeated=len(repeated),
        elsewhere=other,
        label=labelled,
        misread=misread,
        column="" if users is None else users.options.gold or "",
        cheat=cheat,
        limits=headline.limits if headline is not None else {},
        form=tuple(task.form),
        idle=() if users is None else [name for name, share in users.shares.items() if not share],
        commas=writes_commas(few),
    )


def is_audit(path: Path) -> bool:
    """Whether a file is what `plumbline audit --out` writes."""
    try:
        return "audits" in read_object(path)
    except DataError:
        return False


class Printed(io.StringIO):
    """Standard output of a verifier, which is no place for it: the audit's own figures stand there."""

    def __init__(self) -> None:
        super().__init__()
        self.lines, self.first = 0, ""

    def write(self, text: str) -> int:
        """Count lines, and keep the first."""
        if not self.lines:
            self.first = (self.first + text).split("\n")[0][:80]
        self.lines += text.count("\n")
        return len(text)


def _every(bench: Bench) -> list[Verdict]:
    return [verdict for kept in bench.kept.values() for verdict in kept]


def _judge_all(bench: Bench, splits: Mapping[str, Sequence[Example]], few: Sequence[Example], seed: int) -> None:
    """Judge hostile texts, gold answers, controls, damaged gold answers, and gold answers written otherwise.

    Raises:
        Hung: see `Bench.judge`.
    """
    bench.judge(
        "hostile texts", {("hostile",): [Case(one, "hostile text", t) for one in few[:STRUCK] for t in HOSTILE]}
    )
    every = {example.id: example for examples in splits.values() for example in examples}.values()
    golds = [Case(one, GOLD, one.gold) for one in every if one.gold is not None]
    if golds:
        bench.judge("gold answers", {("gold",): golds})
    answers: dict[Group, list[Case]] = {
        ("control", name, split): [
            Case(one, f"control {name}", text) for one, text in zip(examples, control(examples), strict=True)
        ]
        for split, examples in splits.items()
        for name, control in bench.task.controls.items()
    }
    bench.judge("controls", answers)
    if isinstance(bench.task, JsonlTask) and not golds:
        bench.judge("likely answers", {("likely",): bench.task.likely(few[: len(few) // 3 + 1])})
    golden = [one for one in few if one.gold is not None]
    worse = [
        Case(one, "damaged gold answer", text)
        for one, other in zip(golden, [*golden[1:], *golden[:1]], strict=True)
        for text in damaged(one, other, seed)
    ]
    bench.judge("damaged gold answers", {("damaged",): worse})
    ways: dict[Group, list[Case]] = defaultdict(list)
    language = "pt" if writes_commas(few) else "en"
    for one in golden:
        for way, text in writings(one, language):
            ways["writing", way].append(Case(one, f"gold answer ({way})", text))
    bench.judge("gold answers written otherwise", ways)
