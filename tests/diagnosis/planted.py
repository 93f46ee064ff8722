"""Run directories made with the real writers that realise what they are asked to: levels by task
and step.

`python -m tests.diagnosis.planted FOLDER` writes the log's scenarios, one that is not decided, and
two models.
"""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from plumbline.recipe import Recipe, load_recipe
from plumbline.records import Evaluation, Judged
from plumbline.runs.evaluations import EvaluationKey
from plumbline.runs.run import Run

TASKS = ("extraction", "sql_qa", "insights", "push")
SAMPLING = {"temperature": 0.0, "top_k": 0, "top_p": 1.0, "max_tokens": 512, "steps": None}
Levels = Mapping[int, float]


def evaluation(
    task: str, mean: float, n: int, key: str, *, rubric: str = "r@1", strict: float = 0.0
) -> Evaluation:
    """Answers whose mean reward is exactly `mean`: each example has its own difficulty, each step a
    little chance.

    `strict` is how much less json.loads would have paid.
    """
    own = np.random.default_rng(abs(hash_of(task))).normal(0, 0.1, n)
    chance = np.random.default_rng(abs(hash_of(key))).normal(0, 0.03, n)
    rewards = own + chance
    rewards = np.clip(mean + (rewards - rewards.mean()), 0, 1)
    rows = tuple(
        Judged(
            id=f"{task}-{i}",
            stratum=task,
            completion="{}",
            reward=float(reward),
            parts={"parse": 1.0},
            readings={"lenient": float(reward), "strict": float(max(0.0, reward - strict))},
            how="strict",
        )
        for i, reward in enumerate(rewards)
    )
    return Evaluation(
        source=key,
        task="commerce",
        split="fixed",
        rubric=rubric,
        sampling=SAMPLING,
        seed=0,
        rows=rows,
        form=(),
        unjudged=(),
    )


def hash_of(text: str) -> int:
    return int.from_bytes(text.encode()[-8:], "big")


def planted(
    folder: Path,
    levels: Mapping[str, Levels],
    *,
    recipe: Recipe | None = None,
    n: int | Mapping[str, int] = 150,
    metrics: Mapping[str, Sequence[float]] | None = None,
    **how: Any,
) -> Path:
    """A run of commerce-v4.1 (or another recipe) whose evaluations have these levels, and metrics
    these values."""
    recipe = recipe or load_recipe("commerce-v4.1")
    with Run.start(recipe, folder) as run:
        for task, points in levels.items():
            size = n if isinstance(n, int) else n[task]
            for step, mean in points.items():
                key = EvaluationKey("rl", recipe.evaluation.split, "greedy", step, task)
                run.evaluation(key, evaluation(task, mean, size, f"{folder.name}@{step}", **how))
        columns = metrics or {}
        for i in range(max((len(values) for values in columns.values()), default=0)):
            run.metrics(
                "rl",
                i + 1,
                {name: values[i] for name, values in columns.items() if i < len(values)},
            )
    return folder


def at(early: float, middle: float, end: float) -> Levels:
    """The evaluations that the log's tree looks at."""
    return {0: early, 10: early, 130: middle, 600: end}


SCENARIOS: Mapping[str, Mapping[str, Levels]] = {
    "A": {task: at(0.36, 0.5, 0.62) for task in TASKS},
    "B": {"extraction": at(0.12, 0.12, 0.12), **{task: at(0.4, 0.58, 0.58) for task in TASKS[1:]}},
    "C-extraction": {
        "extraction": at(0.12, 0.15, 0.18),
        **{task: at(0.4, 0.5, 0.6) for task in TASKS[1:]},
    },
    "C-sql_qa": {
        task: at(0.05, 0.08, 0.12) if task == "sql_qa" else at(0.4, 0.5, 0.6) for task in TASKS
    },
    "C-insights": {
        task: at(0.05, 0.08, 0.12) if task == "insights" else at(0.4, 0.5, 0.6) for task in TASKS
    },
}
SMALL = {"extraction": 0.6, "sql_qa": 0.1, "insights": 0.3, "push": 0.5}
LARGE = {"extraction": 0.5, "sql_qa": 0.4, "insights": 0.302, "push": 0.8}
"""What two models earn at the four jobs."""


def finished(folder: Path, levels: Mapping[str, float], n: int = 100) -> Path:
    """A run of commerce-smollm2 that was evaluated after SFT and after RL."""
    with Run.start(load_recipe("commerce-smollm2"), folder) as run:
        for task, mean in levels.items():
            run.evaluation(
                EvaluationKey("sft", "test", "greedy", None, task), evaluation(task, 0.1, n, "sft")
            )
            run.evaluation(
                EvaluationKey("rl", "test", "greedy", None, task),
                evaluation(task, mean, n, folder.name),
            )
    return folder


if __name__ == "__main__":
    finished(Path(sys.argv[1]) / "small", SMALL)
    finished(Path(sys.argv[1]) / "large", LARGE)
    for name, scenario in SCENARIOS.items():
        planted(Path(sys.argv[1]) / name, scenario)
    planted(Path(sys.argv[1]) / "undecided", {task: at(0.36, 0.5, 0.56) for task in TASKS}, n=20)
