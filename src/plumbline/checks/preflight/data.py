"""The reward, tried before a run; and what is too little: examples, prompts, kinds of prompts,
answers of a group."""

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from plumbline.checks.audit.trial import try_reward
from plumbline.checks.check import Finding, Level, check, describe_refusal
from plumbline.checks.diagnosis.rules.evaluations import FEW
from plumbline.checks.preflight.before import BeforeRun, TaskPrompts
from plumbline.errors import PlumblineError, UntrustedCodeError
from plumbline.evaluation.statistics import QUANTILE, Interval, detectable_difference
from plumbline.records import Evaluation, clusters_of
from plumbline.runs.evaluations import EvaluationKey, read_evaluation
from plumbline.tasks.task_data import TaskData

# -- the reward ------------------------------------------------------------------------------------


@check("before", name="reward", quick=False)
def find_reward_faults(before: BeforeRun) -> Iterator[Finding]:
    """What a trial of the reward finds on a few examples of each split, without a search for
    cheats."""
    for name, one in before.tasks.items():
        splits = [split for split, examples in one.splits.items() if examples]
        try:
            found = try_reward(one.task, "run", splits).findings
        except UntrustedCodeError:
            if len(before.tasks) == 1:
                raise
            continue  # which is said beside this check
        except PlumblineError as error:
            yield describe_refusal(error, task=one.name)
            continue
        strict = before.recipe.each_task[name].options.get("reading") == "strict"
        lenient = {f"{f'tasks.{name}' if name else 'task'}.options.reading": "lenient"}
        for finding in found:
            if finding.check != "part-silent":  # a part that the task's options leave out
                change = lenient if strict and finding.check == "writing" else {}
                yield replace(finding, task=one.name, change=change)


# -- too few examples, prompts, kinds of prompts, answers of a group -------------------------------

SCATTER = 0.3
"""Standard deviation of the difference of two answers' rewards to one prompt: one team's single
rewards had 0.31, and differences of answers that are alike by half scatter as much."""
FEW_INSIDE = 30
"""Examples of an evaluation inside RL, which shows a course and decides nothing."""
HALF, LITTLE, FEW_PROMPTS = 0.5, 0.2, 50
"""Epochs of a task's prompts that RL draws, under which it is noted and, in a long run, warned of;
and prompts in all. One team's log plateaued at 0.135 epochs and under 50 prompts a task, another
team's log trained on 25 of 992."""
LONG = 100
"""Steps from which on nobody takes a run for a trial."""
FEW_OF_KIND = 5
FEW_ANSWERS = 4
EQUAL = 0.5
"""Share of groups with equal rewards, one team's limit."""


@check("before", name="evaluation-size")
def find_small_evaluations(before: BeforeRun) -> Iterator[Finding]:
    """How small a gain each evaluation could show."""

    def noticeable(n: int) -> float:
        """The least difference that n examples show four times in five, where differences scatter
        by `SCATTER`."""
        half = QUANTILE * SCATTER / math.sqrt(n)
        return detectable_difference(Interval(0.0, -half, half, n))

    def enough(gain: float) -> int:
        return math.ceil((noticeable(1) / gain) ** 2)

    limited = before.recipe.evaluation.limit
    splits = [examples for one in before.tasks.values() for examples in one.splits.values()]
    clusters = any(map(clusters_of, splits))
    finals = {
        f"{p.name or p.task} {split}": p.sizes[split] for p in before.prompts for split in p.finals
    }
    inside = {p.name or p.task: p.inside for p in before.prompts if p.inside}
    told = math.inf
    for code, sizes, limit in (("after-a-stage", finals, FEW), ("inside-rl", inside, FEW_INSIDE)):
        small = {name: n for name, n in sizes.items() if n < min(limit, told)}
        told = min(small.values(), default=limit)
        if not small:
            continue
        least = min(small.values())
        yield Finding(
            "warning",
            code,
            evidence={
                name: {"n": n, "detectable": round(noticeable(n), 3)} for name, n in small.items()
            }
            | {
                "sizes": [f"{name} {n}" for name, n in small.items()],
                "least": least,
                "detectable": round(noticeable(least), 3),
                "for 0.1": enough(0.1),
                "for 0.05": enough(0.05),
                "clusters": clusters,
            },
            causes=("few-records", "limited"),
            change={"evaluation.limit": 64} if code == "inside-rl" and least == limited else {},
        )


@check("before", name="coverage")
def find_low_coverage(before: BeforeRun) -> Iterator[Finding]:
    """How much of each task's data RL will have seen."""
    rl = before.recipe.rl
    if rl is None:
        return
    by_level: dict[Level, list[TaskPrompts]] = {"warning": [], "note": []}
    for one in before.prompts:
        few = one.drawn < min(FEW_PROMPTS, one.sizes["train"])
        if few or (one.coverage < LITTLE and rl.steps >= LONG):
            by_level["warning"].append(one)
        elif one.coverage < HALF:
            by_level["note"].append(one)
    for level, tasks in by_level.items():
        if not tasks:
            continue
        steps = max(
            math.ceil(one.sizes["train"] / (one.share * rl.prompts_per_step)) for one in tasks
        )
        shares = [
            f"{p.name and p.name + ' '}{p.drawn:.0f} of {p.sizes['train']} ({p.coverage:.0%})"
            for p in tasks
        ]
        yield Finding(
            level,
            "draws-few",
            evidence={
                one.name or one.task: {"drawn": round(one.drawn), "epochs": one.coverage}
                for one in tasks
            }
            | {"drawn": shares, "steps for an epoch": steps},
            causes=("few-steps",),
            change={"rl.steps": steps},
        )


@check("before", name="strata")
def find_one_sided_strata(before: BeforeRun) -> Iterator[Finding]:
    """Kinds of prompts that are in one split only, and evaluations that stop before they come to
    all kinds."""
    for one in before.tasks.values():
        if not one.built:
            continue
        kinds = Counter(example.stratum for example in one.train)
        for split, examples in one.held_out.items():
            there = Counter(example.stratum for example in examples)
            if split in {"val", "test"} and len(kinds | there) > 1:
                yield from _compare_strata(one, split, kinds, there)
        yield from _find_sorted_split(before, one)


def _compare_strata(
    one: TaskData, split: str, kinds: Counter[str], there: Counter[str]
) -> Iterator[Finding]:
    kinds_of = {"train": kinds, split: there}
    both = kinds.keys() | there.keys()
    for where, lacking in (("train", split), (split, "train")):
        if names := sorted(kinds_of[where].keys() - kinds_of[lacking].keys()):
            yield Finding(
                "warning" if 2 * len(names) >= len(both) else "note",
                "one-sided",
                task=one.name,
                evidence={name: dict(counts) for name, counts in kinds_of.items()}
                | {
                    "kinds": len(names),
                    "of": len(both),
                    "in": where,
                    "not in": lacking,
                    "example": names[0],
                },
                causes=("split-by-order",),
            )
    few = {name: n for name, n in there.items() if n < FEW_OF_KIND}
    if few and 2 * len(few) >= len(there):
        evidence = few | {
            "kinds": len(few),
            "of": len(there),
            "split": split,
            "under": FEW_OF_KIND,
        }
        yield Finding("note", "few-of-a-kind", task=one.name, evidence=evidence)


def _find_sorted_split(before: BeforeRun, one: TaskData) -> Iterator[Finding]:
    """The first examples of a split, which are all that an evaluation inside RL asks, against the
    whole of it."""
    section = before.recipe.evaluation
    examples = one.splits.get(section.split, ())
    first = examples[: section.limit]
    if before.recipe.rl is None or not section.every or len(first) == len(examples):
        return
    seen, whole = Counter(e.stratum for e in first), Counter(e.stratum for e in examples)
    share = sum(n for name, n in whole.items() if name not in seen) / len(examples)
    if len(whole) > 1 and share > FEW_OF_KIND / 100:
        yield Finding(
            "warning",
            "sorted",
            task=one.name,
            evidence={
                "split": section.split,
                "asked": len(first),
                "examples": len(examples),
                "kinds": len(whole) - len(seen),
                "of": len(whole),
                "share": share,
                "first": dict(seen),
                "all": dict(whole),
            },
            causes=("file-sorted",),
            change={"evaluation.limit": None},
        )


@check("before", name="groups")
def find_equal_groups(before: BeforeRun) -> Iterator[Finding]:
    """Whether groups will often have equal rewards: by their size, and by what the same model
    earned before."""
    rl = before.recipe.rl
    if rl is None or not rl.algorithm.uses_group_baseline:
        return
    size = rl.group_size
    if size < FEW_ANSWERS:
        yield Finding(
            "warning",
            "small-groups",
            evidence={"group_size": size},
            causes=("memory",),
            change={"rl.group_size": 8},
        )
    for key, evaluation in _sampled_evaluations(before).items():
        counts, rows = (
            Counter(round(reward, 6) for reward in evaluation.rewards()),
            len(evaluation.rows),
        )
        equal = sum((count / rows) ** size for count in counts.values())
        if equal > EQUAL:
            (earned, most), *_ = counts.most_common(1)
            yield Finding(
                "warning",
                "equal-rewards",
                evidence={
                    "least share": equal,
                    "group_size": size,
                    "stage": key.stage,
                    "split": key.split,
                    "earned": earned,
                    "times": most,
                    "of": rows,
                    "levels": {str(k): n for k, n in counts.most_common(5)},
                },
                causes=("few-levels", "too-hard-or-solved"),
                change={"rl.group_size": 2 * size},
            )


def _sampled_evaluations(before: BeforeRun) -> dict[EvaluationKey, Evaluation]:
    """Sampled evaluations of the model that RL begins from: of the run that made it, or of this one
    at an earlier time.

    With the mean shares p_k of the reward's values, at least the sum of p_k to the power G of
    groups have equal rewards: x to the power G is convex, so prompts that differ make it more
    (Jensen).
    """
    recipe, folder, stage = before.recipe, before.folder, "base"
    if recipe.sft is not None:
        stage = "sft"
    elif (
        recipe.model.name is not None and (made := Path(recipe.model.name)).parent.name == "models"
    ):
        folder, stage = made.parent.parent, made.name
    files = {
        EvaluationKey.parse(path.stem): path
        for path in sorted((folder / "evaluations").glob(f"{stage}*.json"))
    }
    wanted = {
        key: path
        for key, path in files.items()
        if (key.stage, key.mode, key.step) == (stage, "sampled", None)
    }
    found = {key: read_evaluation(path) for key, path in wanted.items()}
    return {key: evaluation for key, evaluation in found.items() if evaluation.rows}


CHECKS = (
    find_reward_faults,
    find_small_evaluations,
    find_low_coverage,
    find_one_sided_strata,
    find_equal_groups,
)
