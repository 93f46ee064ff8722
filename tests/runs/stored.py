"""Small stored runs, made with the real writers in milliseconds, as a training would have left
them."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from plumbline.evaluation.summary import summarise
from plumbline.records import Evaluation, Judged
from plumbline.runs.evaluations import EvaluationKey
from plumbline.runs.run import Run
from plumbline.storage import write_jsonl
from tests.reports.building import recipe

RUBRIC = "toy/1+abc123"


def rewards(mean: float, n: int = 60, seed: int = 0) -> list[float]:
    """Rewards whose mean is about that, some 0 and some 1 as real ones are."""
    return np.random.default_rng([seed, n]).binomial(1, mean, n).astype(float).tolist()


def evaluation(
    values: Sequence[float], *, rubric: str = RUBRIC, ids: str = "row", split: str = "test"
) -> Evaluation:
    rows = tuple(
        Judged(
            id=f"{ids}-{at}",
            stratum="",
            completion="x",
            reward=value,
            parts={},
            readings={},
            how="strict",
        )
        for at, value in enumerate(values)
    )
    return Evaluation(
        source="rl",
        task="toy",
        split=split,
        rubric=rubric,
        sampling={"temperature": 0.0},
        seed=0,
        rows=rows,
    )


def stored(
    folder: Path,
    evaluations: Mapping[str, Evaluation | Sequence[float]] | None = None,
    *,
    began: str = "2026-02-17T12:00:00+00:00",
    steps: int = 60,
    finished: bool = True,
    **over: Any,
) -> Run:
    """A run of RL whose evaluations, by key (`rl.test.greedy`), are given, or their rewards.

    Args:
        folder: its place.
        evaluations: by key.
        began: when, as its event says.
        steps: of RL that were done, of 60.
        finished: whether it has its outcome.
        over: keys of the recipe.
    """
    found = {}
    for name, one in (evaluations or {}).items():
        key = EvaluationKey.parse(name)
        found[key] = one if isinstance(one, Evaluation) else evaluation(one, split=key.split)
    values = {"sft": None, "model": {"name": "models/small"}, "task": {"name": "forms"}, **over}
    with Run.start(recipe(**values), folder) as run:
        write_jsonl(
            folder / "events.jsonl",
            [{"time": began, "kind": "started", "message": "the run begins"}],
        )
        for step in range(1, steps + 1):
            run.metrics("rl", step, {"train/reward": 0.5})
            run.timings("rl", step, {"time/step": 2.0})
        for key, one in found.items():
            run.evaluation(key, one)
        if finished:
            beside = {"oracle": evaluation([1.0] * 60), "blank": evaluation([0.0] * 60)}
            summaries = {
                str(key): summarise(one, beside)
                for key, one in found.items()
                if key.stage != "reference"
            }
            run.finish(
                {"status": "finished", "model": str(run.model("rl")), "evaluations": summaries}
            )
    return run
