"""What a report shows, read from a run once: stages, splits, evaluations, floor and ceiling,
metrics, events.

Nothing here is rendered, and nothing is computed that `evaluation.summary` does not define.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from plumbline.checks.check import Examination, examine
from plumbline.checks.diagnosis.conditions import Evidence, RunFigures
from plumbline.checks.diagnosis.decide import Decision, decide
from plumbline.checks.diagnosis.history import History
from plumbline.checks.diagnosis.readers import own
from plumbline.checks.diagnosis.rules import CHECKS
from plumbline.checks.diagnosis.watch import RuleHistory, replay_rules
from plumbline.errors import IncomparableError
from plumbline.evaluation.comparison import (
    Comparison,
    compare_stages,
    read_references,
    restrict_to_examples,
)
from plumbline.evaluation.evaluate import ORACLE
from plumbline.evaluation.statistics import TIE, Interval
from plumbline.evaluation.summary import reward_interval, summarise
from plumbline.records import Evaluation, Headline, Values, group_by_key
from plumbline.runs.evaluations import INDEX, REFERENCE, EvaluationKey, Replay, read_replays
from plumbline.runs.record import STAGES, RunRecord, order_stages
from plumbline.runs.run import QUIET
from plumbline.storage import read_jsonl

NAMES = {"base": "Base", "sft": "SFT"}
EXAMPLES = "examples.jsonl"
"""Held-out prompts and gold answers, as reports show them."""
_RL = ContextVar("what the stage of RL is called", default="GRPO")
WORK = {
    "time/rollouts": "rollouts",
    "time/update": "update",
    "time/rest": "records and evaluations",
    "time/step": "steps",
}
"""What people call a kind of work whose seconds are recorded."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What the baselines and the oracle earn on the same examples."""

    floor: tuple[str, Interval] | None
    """The best baseline."""
    oracle: Interval | None


@dataclass
class RunView:
    """A run as a report sees it. Everything is computed once, when it is first asked for."""

    run: RunRecord
    task: str = ""
    """What the recipe calls the task that is looked at; empty for the only one, and for what
    several have in common."""
    whole: "RunView | None" = None
    """The run that this is one task of."""
    _summaries: dict[EvaluationKey, Values] = field(default_factory=dict)
    _compared: dict[tuple[str, ...], Comparison | IncomparableError] = field(default_factory=dict)

    @cached_property
    def tasks(self) -> "list[RunView]":
        """A run of several tasks, task by task: each as if the run were of this one alone, as far
        as evaluations, rewards and samples go. Empty for a run of one task, and inside such a
        view."""
        names = self.run.recipe.tasks if self.whole is None else None
        return [RunView(self.run, name, self) for name in names or ()]

    @cached_property
    def texts(self) -> dict[str, tuple[str, str | None]]:
        """Prompt and gold answer of the task's held-out examples by id; without a file of them the
        oracle's answers, and no prompts."""
        found: dict[str, tuple[str, str | None]] = {
            row.id: ("", row.completion)
            for key, one in self.evaluations.items()
            if (key.stage, key.mode) == (REFERENCE, ORACLE)
            for row in one.rows
        }
        path = self.run.folder / EXAMPLES
        for _, row in read_jsonl(path) if path.is_file() else ():
            if row.get("task") == self.task:
                name, gold = str(row.get("id")), row.get("gold")
                found[name] = (str(row.get("prompt", "")), None if gold is None else str(gold))
        return found

    # -- records -----------------------------------------------------------------------------------

    @cached_property
    def evaluations(self) -> dict[EvaluationKey, Evaluation]:
        """Every evaluation of the task; none where there are several."""
        return {
            replace(key, task=""): found
            for key, found in self.run.evaluations().items()
            if key.task == self.task
        }

    @cached_property
    def metrics(self) -> dict[str, list[Values]]:
        """The metrics rows of each stage that has any, in the order of training; of one of several
        tasks, its own."""
        if self.whole is not None:
            return {
                "rl": [_task_metrics(row, self.task) for row in self.whole.metrics.get("rl", [])]
            }
        return self.run.metrics

    @cached_property
    def seconds(self) -> dict[tuple[str, str], float]:
        """Where the recorded seconds went: by (stage, kind of work), in the order of training."""
        spent: dict[tuple[str, str], float] = {}
        for stage, rows in self.run.timings.items():
            for row in rows:
                for key, value in row.items():
                    if key.startswith("time/") and value is not None:
                        work = stage, WORK.get(key, key.removeprefix("time/"))
                        spent[work] = spent.get(work, 0.0) + float(value)
        return spent

    @cached_property
    def samples(self) -> list[Values]:
        """The rollouts of training."""
        if self.whole is not None:
            return [row for row in self.whole.samples if row.get("task") == self.task]
        return self.run.samples

    @cached_property
    def warnings(self) -> list[Values]:
        """The events that say that something is amiss."""
        return [event for event in self.run.events if event["kind"] not in QUIET]

    @cached_property
    def watch_outcomes(self) -> list[RuleHistory]:
        """What became of the recipe's watch rules; of several tasks, those of the run stand with
        the run alone."""
        return replay_rules(self.run) if self.whole is None else []

    @cached_property
    def decision(self) -> Decision | None:
        """What the recipe's tree makes of this run alone; None where it has none."""
        tree = self.run.recipe.decide
        return (
            decide(Evidence((RunFigures(self.run),)), tree)
            if tree is not None and self.whole is None
            else None
        )

    @cached_property
    def examinations(self) -> list[Examination[History]]:
        """What the checks say of each stage that has recorded steps (`plumbline check`); of a task
        alone, nothing."""
        return (
            [examine(one, CHECKS) for one in own.read(self.run.folder)]
            if self.metrics and not self.whole
            else []
        )

    @cached_property
    def finished(self) -> bool:
        """Whether the run has its outcome."""
        return self.run.result() is not None

    @cached_property
    def replays(self) -> dict[EvaluationKey, tuple[Replay, ...]]:
        """Replayed episodes, by evaluation."""
        folders = sorted(path.parent for path in self.run.folder.glob(f"replays/*/{INDEX}"))
        keys = {EvaluationKey.parse(folder.name): folder for folder in folders}
        return {
            replace(key, task=""): read_replays(keys[key]) for key in keys if key.task == self.task
        }

    @cached_property
    def task_headline(self) -> Headline | None:
        """What the run's task puts first; None where it says nothing about that."""
        return next(
            (one.headline for one in self.evaluations.values() if one.headline is not None), None
        )

    # -- evaluations -------------------------------------------------------------------------------

    @cached_property
    def final_evaluations(self) -> list[EvaluationKey]:
        """The evaluations after the stages."""
        return [key for key in self.evaluations if key.step is None and key.stage != REFERENCE]

    @cached_property
    def stages(self) -> list[str]:
        """Stages that were evaluated after their end, in the order of training."""
        return order_stages({key.stage for key in self.final_evaluations})

    @cached_property
    def splits(self) -> list[str]:
        """Splits of those evaluations, as the recipe orders them."""
        section, present = (
            self.run.recipe.evaluation,
            sorted({key.split for key in self.final_evaluations}),
        )
        return [
            split
            for split in dict.fromkeys([*section.final, section.split, *present])
            if split in present
        ]

    @cached_property
    def extra_splits(self) -> list[str]:
        """Splits that the recipe does not name: those that the task has beside."""
        section = self.run.recipe.evaluation
        return [split for split in self.splits if split not in {*section.final, section.split}]

    def modes(self, split: str) -> list[str]:
        """How models were decoded on a split, greedy first."""
        return sorted(
            {key.mode for key in self.final_evaluations if key.split == split}, key=_mode_order
        )

    def final(self, stage: str, split: str, mode: str) -> Evaluation | None:
        """The evaluation after a stage."""
        return self.evaluations.get(EvaluationKey(stage, split, mode))

    def final_keys(self, split: str) -> list[EvaluationKey]:
        """The evaluations after each stage on a split, in the order of training, greedy first."""
        keys = [
            EvaluationKey(stage, split, mode) for stage in self.stages for mode in self.modes(split)
        ]
        return [key for key in keys if key in self.evaluations]

    def summary(self, key: EvaluationKey) -> Values:
        """`summarise` of an evaluation, with floor, ceiling and skill where references stand beside
        it."""
        if key not in self._summaries:
            beside = {} if key.stage == REFERENCE else self._references(self.evaluations[key])
            self._summaries[key] = summarise(self.evaluations[key], beside or None)
        return self._summaries[key]

    def _references(self, evaluation: Evaluation) -> dict[str, Evaluation]:
        return read_references(self.run, self.task, evaluation)

    def bounds(self, evaluation: Evaluation) -> Bounds:
        """Floor and ceiling on the examples of an evaluation."""
        means = {name: self.reward(one) for name, one in self._references(evaluation).items()}
        oracle = means.pop(ORACLE, None)
        return Bounds(max(means.items(), key=lambda item: item[1].mean) if means else None, oracle)

    @cached_property
    def levels(self) -> dict[str, Interval]:
        """What the best baseline and the oracle earn, by "floor" and "oracle", as far as known: on
        the examples that are evaluated in training, else on those of the verdict."""
        inside = [points[-1][1] for points in self.training_evaluations().values()]
        last = [self.evaluations[key] for key in self.headline_keys[-1:]]
        bounds = self.bounds((inside + last)[0]) if inside + last else Bounds(None, None)
        named = {"oracle": bounds.oracle, "floor": bounds.floor and bounds.floor[1]}
        return {name: one for name, one in named.items() if one}

    def reference_keys(self, split: str) -> list[EvaluationKey]:
        """The baselines from the worst to the best, then the oracle."""
        keys = [key for key in self.evaluations if key.stage == REFERENCE and key.split == split]
        return sorted(
            keys, key=lambda key: (key.mode == ORACLE, self.evaluations[key].mean_reward, key.mode)
        )

    def training_evaluations(self) -> dict[tuple[str, str], list[tuple[int, Evaluation]]]:
        """Evaluations during training: (split, mode) to (step, evaluation), in the order of the
        steps."""
        series = group_by_key(
            ((key.split, key.mode), (key.step, evaluation))
            for key, evaluation in self.evaluations.items()
            if key.step is not None
        )
        order = sorted(series, key=lambda name: (name[0], _mode_order(name[1])))
        return {name: sorted(series[name], key=lambda point: point[0]) for name in order}

    def reward(self, evaluation: Evaluation) -> Interval:
        """The mean reward with its interval; that the oracle earns everything is no chance."""
        reward = reward_interval(evaluation)
        return oracle_interval(reward) if evaluation.source == ORACLE else reward

    # -- comparisons -------------------------------------------------------------------------------

    def compare(
        self, split: str, mode: str, before: str, after: str
    ) -> Comparison | IncomparableError | None:
        """Two stages on a split; None where one of them was not evaluated there."""
        name = (split, mode, before, after)
        if name not in self._compared:
            first, second = self.final(before, split, mode), self.final(after, split, mode)
            if first is None or second is None:
                return None
            second = restrict_to_examples(second, first) if before == STAGES[0] else second
            self._compared[name] = compare_stages(split, mode, (before, first), (after, second))
        return self._compared[name]

    def evaluated_stages(self, split: str, mode: str) -> list[str]:
        """The stages that were evaluated on a split in a mode."""
        return [stage for stage in self.stages if self.final(stage, split, mode) is not None]

    def compare_last(
        self, split: str, mode: str, first: int = -2
    ) -> Comparison | IncomparableError | None:
        """The last stage against the one before; against the first (`first=0`) it is what all of
        the training did."""
        stages = self.evaluated_stages(split, mode)
        return self.compare(split, mode, stages[first], stages[-1]) if len(stages) > 1 else None

    @cached_property
    def headline(self) -> tuple[str, str] | None:
        """The split and the mode that the verdict speaks of: the recipe's last final split, by
        greedy decoding."""
        named = [split for split in self.splits if split not in self.extra_splits]
        order = [*reversed(named), *self.extra_splits]
        for least in (2, 1):
            for split in order:
                for mode in self.modes(split):
                    if len(self.evaluated_stages(split, mode)) >= least:
                        return split, mode
        return None

    def headline_comparison(self) -> Comparison | None:
        """The comparison that the verdict speaks of, if there is one."""
        found = self.compare_last(*self.headline) if self.headline else None
        return found if isinstance(found, Comparison) else None

    @cached_property
    def headline_keys(self) -> list[EvaluationKey]:
        """The evaluations of the last two stages that the verdict compares."""
        headline = self.headline
        return (
            [EvaluationKey(stage, *headline) for stage in self.evaluated_stages(*headline)[-2:]]
            if headline
            else []
        )

    def compare_on_each_split(self, first: int = -2) -> list[Comparison]:
        """What `compare_last` finds on every split, decoded as the verdict's answers were."""
        mode = self.headline[1] if self.headline else "greedy"
        found = (self.compare_last(split, mode, first) for split in self.splits)
        return [one for one in found if isinstance(one, Comparison)]

    @cached_property
    def rises(self) -> list[Comparison]:
        """The first stage against the last on every split."""
        return self.compare_on_each_split(first=0)

    @property
    def has_breakdown(self) -> bool:
        """Whether there is more to say than every run has: figures of the task's own, or splits of
        its own."""
        return self.task_headline is not None or bool(self.extra_splits)

    @property
    def negative_control(self) -> bool:
        """Whether RL deals its advantages at random."""
        return self.run.recipe.controls.shuffle_advantages


def _task_metrics(row: Mapping[str, Any], task: str) -> Values:
    """What a row of metrics says of one of several tasks, under the names that the metrics of a
    single one have."""
    kept = {"stage": row["stage"], "step": row["step"]}
    for kind in ("train/reward", "train/reading"):
        inside = f"{kind}/{task}"
        kept |= {
            f"{kind}{key.removeprefix(inside)}": row[key]
            for key in row
            if f"{key}/".startswith(f"{inside}/")
        }
    return kept


def oracle_interval(interval: Interval) -> Interval:
    """What the oracle earns: exact where it is everything on every example."""
    return replace(interval, low=interval.mean) if interval.mean >= 1 - TIE else interval


def _mode_order(mode: str) -> tuple[bool, str]:
    """Greedy, sampled, then others by name."""
    return mode not in {"greedy", "sampled"}, mode


def stage_name(stage: str) -> str:
    """What people call a stage."""
    return _RL.get() if stage == "rl" else NAMES.get(stage, stage)


@contextmanager
def use_stage_names(run: RunRecord) -> Iterator[None]:
    """A context in which a run's stage of RL is called by its algorithm."""
    before = _RL.set(run.recipe.rl.algorithm.title if run.recipe.rl is not None else _RL.get())
    try:
        yield
    finally:
        _RL.reset(before)
