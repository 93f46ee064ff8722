"""Where the texts of an audit are judged, in bounded time, and what came of them, by what they were
tried for."""

import itertools
import re
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from plumbline.checks.check import Context
from plumbline.errors import DataError, RewardError
from plumbline.evaluation.statistics import Clusters, Interval
from plumbline.records import Failure, Outcome, Score, Verdict, clusters_of, group_by_key
from plumbline.rollouts.reward_workers import RewardWorkers
from plumbline.tasks import Progress
from plumbline.tasks.cases import Case, Label, NoAnswer, count_turned, judge_case, limit_time
from plumbline.tasks.task import Task

Depth = Literal["load", "run", "audit"]
"""How much is tried: before every run, where a run is checked, and in an audit."""
LIMIT = 10.0
"""Seconds that one verdict may take. A step of 64 answers would wait ten minutes for such ones."""
HANGS = 3
"""Verdicts over the limit, after which nothing more is judged; before a run one is enough."""

Group = tuple[str, ...]
"""What verdicts are kept by: what the texts are, such as ("gold",) or ("baseline", NAME, SPLIT)."""
DAMAGED, HOSTILE, ANYTHING = ("damaged",), ("hostile",), ("anything",)


@dataclass(frozen=True, slots=True)
class CaseVerdict:
    """A text, and its score or why it has none."""

    case: Case
    score: Score | None
    seconds: float
    failure: str = ""
    fix: str = ""
    kind: str = ""
    """Of the failure: the type of what was raised."""
    code: str = ""
    """Of the failure's cause."""
    hung: bool = False

    @property
    def reward(self) -> float:
        """The total; 0 where there is none."""
        return 0.0 if self.score is None else self.score.total


AGAIN = "again"
FORM = re.compile(r"form|tag|xml|mark|struct|layout|think", re.IGNORECASE)
"""Names of parts that pay for form."""
Found = tuple[float, Mapping[str, float | None]] | str
"""Total and parts, or why there are none."""


@dataclass(frozen=True, slots=True)
class ChangedVerdicts:
    """Verdicts that came out otherwise under one condition."""

    where: str
    """`AGAIN`, or a condition of `other_conditions`."""
    verdicts: Sequence[CaseVerdict]
    """As they were at first."""
    then: str
    """What the first of them was then."""
    of: int
    alarm: bool = False
    """Whether the verifier sets an alarm."""


@dataclass(frozen=True, slots=True)
class Cheat:
    """The best answer that knows nothing."""

    rewards: tuple[float, ...]
    """On examples that were not sought on."""
    interval: Interval
    """Of their mean, by the examples' clusters."""
    rule: str
    """The text; what is made of the prompt stands in angle brackets."""
    example: str
    """The id of the first of them, and the text that the rule gives for it."""
    text: str
    verdicts: int
    """That the search took."""

    @property
    def reward(self) -> float:
        """The mean."""
        return float(np.mean(self.rewards))


@dataclass(slots=True)
class ScoringRunner(Context):
    """Judges texts, and keeps the verdicts; nothing that a verifier raises goes further."""

    task: Task
    progress: Progress
    depth: Depth = "audit"
    planned: int = 0
    """Verdicts that a run will ask for."""
    kept: dict[Group, list[CaseVerdict]] = field(default_factory=dict)
    seconds: float = 0.0
    """Of judging."""
    count: int = 0
    """Verdicts that came, those of the search included."""
    hangs: int = 0
    repeated: int = 0
    """How many were judged twice."""
    changed: list[ChangedVerdicts] = field(default_factory=list)
    label: Label | None = None
    """What is wrong with gold answers that are labels."""
    misread: tuple[str, str] | None = None
    """What is wrong, and what to do, where a function takes completions in another form than it
    gets."""
    notes: Sequence[str] = ()
    """On the rows."""
    printed: str = ""
    """By the verifier."""
    cheat: Cheat | None = None
    commas: bool = False
    """Whether the prompts' language writes decimal commas."""

    def judge(self, what: str, groups: Mapping[Group, Sequence[Case]]) -> None:
        """Judge groups of texts and keep their verdicts, until too many do not come in time;
        `what` is what the progress calls them all."""
        done, total = 0, sum(map(len, groups.values()))
        for group, cases in groups.items():
            for case in cases:
                if self.ended:
                    return
                self.progress(what, done, total)
                self.kept.setdefault(group, []).append(self.judge_once(case))
                done += 1

    def judge_once(self, case: Case) -> CaseVerdict:
        """Judge a text and forget it."""
        began = time.perf_counter()
        try:
            score = judge_case(self.task, case, None if self.depth == "load" else LIMIT)
        except DataError as error:
            seconds = time.perf_counter() - began
            hung = error.__cause__ is None
            self.hangs += hung
            kind = "" if hung else type(error.__cause__).__name__
            return CaseVerdict(
                case, None, seconds, error.cause, error.fix, kind, error.code, hung=hung
            )
        seconds = time.perf_counter() - began
        self.seconds += seconds
        self.count += 1
        return CaseVerdict(case, score, seconds)

    def repeat(self, verdicts: Sequence[CaseVerdict]) -> None:
        """Judge what had a score a second time, as training does: on the task's threads, an
        example's texts together, and the last first."""
        self.repeated = len(verdicts)
        by_example = group_by_key((one.case.example.id, one) for one in verdicts)
        groups = [group[::-1] for group in by_example.values()][::-1]
        told = [
            (place, copy, one)
            for place, group in enumerate(groups)
            for copy, one in enumerate(group)
        ]
        workers = RewardWorkers(self.task, [group[0].case.example for group in groups])
        try:
            with limit_time(LIMIT * len(groups) + 2 * self.seconds), workers:
                for done, (place, copy, verdict) in enumerate(told):
                    self.progress("all a second time", done, len(told))
                    workers.submit(place, copy, verdict.case.text)
            results = [workers.result(place, copy) for place, copy, _ in told]
        except NoAnswer:
            lost = Verdict(Outcome(how="failed"), None, Failure(cause="no verdict"))
            results = [lost] * len(told)
        now: list[Found] = [
            f"no reward ({failure})" if score is None else (score.total, dict(score.parts))
            for _, score, failure in results
        ]
        self.compare(AGAIN, [verdict for _, _, verdict in told], now)

    def compare(
        self, where: str, verdicts: Sequence[CaseVerdict], now: Sequence[Found], alarm: bool = False
    ) -> None:
        """Keep the verdicts that came out otherwise."""
        found = [
            (one, then if isinstance(then, str) else f"{then[0]:.4f}")
            for one, then in zip(verdicts, now, strict=True)
            if one.score is not None and then != (one.score.total, dict(one.score.parts))
        ]
        if found:
            some = [one for one, _ in found]
            self.changed.append(ChangedVerdicts(where, some, found[0][1], len(verdicts), alarm))

    # -- what was judged ---------------------------------------------------------------------------

    def has(self, need: str) -> bool:
        """Whether the task has a method `need` of its own."""
        return getattr(getattr(self.task, need), "__func__", None) is not getattr(Task, need)

    @property
    def ended(self) -> bool:
        """Whether too many verdicts did not come in time."""
        return self.hangs >= (1 if self.depth == "load" else HANGS)

    @property
    def out_of_range(self) -> bool:
        """Whether some text was given what is no reward."""
        return any(one.kind == RewardError.__name__ for one in self.all_verdicts)

    @property
    def failed(self) -> bool:
        """Whether some text has no verdict."""
        return any(one.score is None for one in self.all_verdicts)

    def is_broken(self) -> bool:
        """Whether verdicts do not come or do not last, or gold answers are paid next to nothing."""
        grave = self.label is not None and self.label.grave
        return bool(self.failed or self.changed or grave or self.ceiling == 0 or self.turned)

    @property
    def all_verdicts(self) -> list[CaseVerdict]:
        """All verdicts."""
        return [verdict for kept in self.kept.values() for verdict in kept]

    @property
    def golds(self) -> Sequence[CaseVerdict]:
        """Of gold answers."""
        return self.kept.get(("gold",), ())

    @property
    def gold_rewards(self) -> dict[str, float]:
        """What gold answers earn, by example."""
        return {one.case.example.id: one.reward for one in self.golds}

    def verdicts_by_way(self, what: str) -> Mapping[str, Sequence[CaseVerdict]]:
        """By the way in which they were made: "writing" of gold answers written otherwise, "wrong"
        of wrong answers that name the gold one, "marks" of gold answers whose marks are damaged."""
        return {group[1]: found for group, found in self.kept.items() if group[0] == what}

    @property
    def turned(self) -> int:
        """See `tasks.cases.count_turned`."""
        shuffled = self.baselines.get("shuffled-gold", {}).values()
        wrong = {one.case.example.id: one.reward for found in shuffled for one in found}
        return count_turned(self.gold_rewards, wrong)

    @property
    def baselines(self) -> Mapping[str, Mapping[str, Sequence[CaseVerdict]]]:
        """By baseline and split."""
        found: dict[str, dict[str, Sequence[CaseVerdict]]] = defaultdict(dict)
        for group, verdicts in self.kept.items():
            if group[0] == "baseline":
                found[group[1]][group[2]] = verdicts
        return found

    @property
    def scored(self) -> list[tuple[CaseVerdict, Score]]:
        """Those that have a score."""
        return [
            (verdict, verdict.score) for verdict in self.all_verdicts if verdict.score is not None
        ]

    @property
    def ceiling(self) -> float:
        """What gold answers earn; 1 where there are none."""
        return mean_reward(self.golds) if self.golds else 1.0

    @property
    def floor(self) -> float:
        """The least that any text earned; no less than what is left to a text that no penalty is
        taken from."""
        least = min((score.total for _, score in self.scored), default=0.0)
        return max(
            least, sum(self.task.effective_weights.get(part, 0.0) for part in self.task.penalties)
        )

    @property
    def limits(self) -> Mapping[str, float]:
        """Of baselines, where the task has them."""
        headline = self.task.headline
        return headline.limits if headline is not None else {}

    @property
    def unweighted_parts(self) -> Sequence[str]:
        """Parts of weight 0."""
        return [name for name, share in self.task.effective_weights.items() if not share]

    def parts(self) -> dict[str, list[tuple[CaseVerdict, float | None]]]:
        """The values of every part that pays; a score without parts has one, its total."""
        idle = self.unweighted_parts
        return group_by_key(
            (name, (verdict, value))
            for verdict, score in self.scored
            for name, value in (score.parts or {"reward": score.total}).items()
            if name not in idle
        )

    def values(self) -> dict[str, list[float]]:
        """The same without verdicts that a part has no value for, and parts without any value."""
        known = {
            part: [value for _, value in pairs if value is not None]
            for part, pairs in self.parts().items()
        }
        return {part: values for part, values in known.items() if values}

    @property
    def lost_form(self) -> set[int]:
        """Ids of verdicts on gold answers written otherwise that lost parts of form alone."""
        golds = {one.case.example.id: one.score.parts for one in self.golds if one.score}
        found = set[int]()
        for one in itertools.chain(*self.verdicts_by_way("writing").values()):
            gold = golds.get(one.case.example.id, {})
            parts = one.score.parts if one.score else {}
            less = [name for name in gold if (parts.get(name) or 0) < (gold[name] or 0)]
            if less and all(map(FORM.search, less)) and not all(map(FORM.search, gold)):
                found.add(id(one))
        return found

    def measure_writings(self) -> dict[str, dict[str, Any]]:
        """Of each way to write a gold answer: how many were tried, the mean share of its reward
        that is lost, and the mean total under each reading, where the task has readings."""
        whole = {key: reward for key, reward in self.gold_rewards.items() if reward}
        form = self.lost_form
        found = {}
        for way, verdicts in self.verdicts_by_way("writing").items():
            scores = [
                (whole.get(one.case.example.id), one.score, id(one) in form)
                for one in verdicts
                if one.score is not None
            ]
            shares = [
                0.0 if of_form else 1 - score.total / gold
                for gold, score, of_form in scores
                if gold is not None
            ]
            if shares:
                names = scores[0][1].readings
                totals = {
                    name: float(np.mean([score.readings[name] for _, score, _ in scores]))
                    for name in names
                }
                found[way] = {"n": len(shares), "loss": float(np.mean(shares)), "readings": totals}
        return found


def mean_reward(verdicts: Iterable[CaseVerdict]) -> float:
    """The mean reward of those that have one."""
    rewards = [one.score.total for one in verdicts if one.score is not None]
    return float(np.mean(rewards)) if rewards else 0.0


def scored_rewards(verdicts: Iterable[CaseVerdict]) -> tuple[list[float], Clusters]:
    """The totals of those that have a score, and the examples' clusters."""
    having = [one for one in verdicts if one.score is not None]
    return [one.reward for one in having], clusters_of([one.case.example for one in having])


def list_ids(verdicts: Sequence[CaseVerdict]) -> tuple[str, ...]:
    """The first few examples."""
    return tuple(dict.fromkeys(one.case.example.id for one in verdicts))[:5]


def quote_text(text: str, most: int = 60) -> str:
    """A text in one line, cut."""
    quoted = repr(text)
    return quoted if len(quoted) <= most else f"{quoted[: most - 4]}...{quoted[-1]}"
