"""Where the texts of an audit are judged: in bounded time, and nothing that a verifier raises goes further."""

import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from plumbline.errors import DataError
from plumbline.records import Score
from plumbline.tasks import Progress
from plumbline.tasks.precheck import Case, judge_case
from plumbline.tasks.task import Task
from plumbline.training.judging import Judging

LIMIT = 10.0
"""Seconds that one verdict may take. A step of 64 answers would wait ten minutes for such ones."""
HANGS = 3
"""Verdicts over the limit, after which nothing more is judged."""


Group = tuple[str, ...]
"""What verdicts are kept by: what the texts are, such as ("gold",) or ("control", NAME, SPLIT)."""


class Hung(Exception):  # noqa: N818 - it says what happened
    """Too many verdicts did not come in time."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """A text, and its score or why it has none."""

    case: Case
    score: Score | None
    seconds: float
    failure: str = ""
    fix: str = ""
    kind: str = ""
    """Of the failure: the type of what was raised."""
    hung: bool = False

    @property
    def reward(self) -> float:
        """The total; 0 where there is none."""
        return 0.0 if self.score is None else self.score.total


@dataclass(slots=True)
class Bench:
    """Judges, and keeps the verdicts."""

    task: Task
    progress: Progress
    kept: dict[Group, list[Verdict]] = field(default_factory=dict)
    seconds: float = 0.0
    """Of judging."""
    count: int = 0
    """Verdicts that came, those of the search included."""
    hangs: int = 0

    def judge(self, what: str, groups: Mapping[Group, Sequence[Case]]) -> None:
        """Judge groups of texts and keep their verdicts; `what` is what the progress calls them all.

        Raises:
            Hung: see `HANGS`. What was judged is kept.
        """
        done, total = 0, sum(map(len, groups.values()))
        for group, cases in groups.items():
            kept = self.kept.setdefault(group, [])
            for case in cases:
                self.progress(what, done, total)
                kept.append(self.one(case))
                done += 1
                if self.hangs >= HANGS:
                    raise Hung

    def one(self, case: Case) -> Verdict:
        """Judge a text and forget it."""
        began = time.perf_counter()
        try:
            score = judge_case(self.task, case, LIMIT)
        except DataError as error:
            seconds = time.perf_counter() - began
            hung = error.__cause__ is None
            self.hangs += hung
            kind = "" if hung else type(error.__cause__).__name__
            return Verdict(case, None, seconds, error.cause, error.fix, kind, hung)
        seconds = time.perf_counter() - began
        self.seconds += seconds
        self.count += 1
        return Verdict(case, score, seconds)

    def again(self, verdicts: Iterable[Verdict]) -> list[tuple[Verdict, Score | None]]:
        """Judge what had a score a second time, as training does: on the task's threads, an example's texts together,
        and the last first. Returns those that came out otherwise, with what they got."""
        by_example: dict[str, list[Verdict]] = defaultdict(list)
        for verdict in verdicts:
            if verdict.score is not None:
                by_example[verdict.case.example.id].append(verdict)
        groups = [group[::-1] for group in by_example.values()][::-1]
        examples = [group[0].case.example for group in groups]
        other, done, total = [], 0, sum(map(len, groups))
        with Judging(self.task, examples) as judging:
            for place, group in enumerate(groups):
                for copy, verdict in enumerate(group):
                    self.progress("all a second time", done, total)
                    judging.tell(place, copy, verdict.case.text)
                    done += 1
        for place, group in enumerate(groups):
            for copy, verdict in enumerate(group):
                _, score, _ = judging.verdict(place, copy)
                assert verdict.score is not None
                same = score is not None and (score.total, score.parts) == (verdict.score.total, verdict.score.parts)
                if not same:
                    other.append((verdict, score))
        return other
