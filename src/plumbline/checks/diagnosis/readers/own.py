"""Runs of Plumbline: each stage that left metrics, with the run's evaluations.

The recipe is read as plain values, so that a run of another version can be looked at, too.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from plumbline.checks.diagnosis.history import Final, History, Kind, Sample
from plumbline.checks.diagnosis.readers.rows import as_number, collect_series, find_series_name
from plumbline.errors import DataError
from plumbline.recipe import walk_leaves
from plumbline.records import Row, Rows
from plumbline.runs.evaluations import REFERENCE
from plumbline.runs.record import STAGES, RunRecord, read_plain_recipe


def find(path: Path) -> Path | None:
    """See `Reader.find`."""
    folder = path.parent if path.name == "metrics.jsonl" else path
    return folder if (folder / "recipe.yaml").is_file() else None


def read(path: Path) -> list[History]:
    """See `Reader.read`."""
    run, recipe = RunRecord(path), read_plain_recipe(path)
    finals = [
        Final(
            stage=key.stage,
            split=key.split,
            mode=key.mode,
            task=key.task,
            evaluation=run.read_evaluation(key),
        )
        for key in run.evaluation_paths
        if key.step is None
    ]
    rows, samples = run.metrics, [parse_sample(row) for row in run.samples]
    stages = [stage for stage in STAGES if stage in rows]
    if not stages:
        raise DataError(
            f"{path} has recorded no step of training yet", "look at it again after its first step"
        )
    of = {stage: [*rows[stage], *run.timings.get(stage, ())] for stage in stages}
    return [
        replace(
            start_history(recipe, stage, of[stage]),
            series=collect_series(of[stage], metric_namer(recipe)),
            samples=samples if stage == "rl" else (),
            finals=[
                final
                for final in finals
                if final.stage in {REFERENCE, *STAGES[: STAGES.index(stage) + 1]}
            ],
            finished=run.model(stage).is_dir(),
        )
        for stage in stages
    ]


def start_history(recipe: Mapping[str, Any], stage: str, rows: Rows = ()) -> History:
    """A stage with its settings: the recipe's keys, and the steps that it was planned to have,
    where that is known.

    A budget of seconds ends a stage before its steps do: its rows say how many they will be at the
    pace so far.

    Args:
        recipe: as plain values.
        stage: base, sft or rl.
        rows: what was recorded of it.
    """
    settings = dict(walk_leaves(recipe))
    budgeted = settings.get(f"{stage}.seconds")
    planned = (
        None
        if budgeted
        else settings.get("model.tiny.steps" if stage == "base" else f"{stage}.steps")
    )
    steps = next(
        (row["train/expected_steps"] for row in reversed(rows) if "train/expected_steps" in row),
        planned,
    )
    if steps is not None:
        settings["steps"] = steps
    kind: Kind = "rl" if stage == "rl" else "sft"
    return History(origin="plumbline", name=stage, kind=kind, series={}, settings=settings)


def metric_namer(recipe: Mapping[str, Any]) -> Callable[[str], str | None]:
    """Our name of a metric of a run of a recipe: of several tasks, parts stand under their task's
    name."""
    tasks = recipe.get("tasks") or {}

    def named(key: str) -> str | None:
        words = key.split("/")
        if words[:2] == ["train", "reward"] and len(words) > 2:
            return (
                f"task/{words[2]}"
                if len(words) == 3 and words[2] in tasks
                else f"reward/{'/'.join(words[2:])}"
            )
        if words[:2] == ["train", "reading"]:
            return f"reading/{'/'.join(words[2:])}"
        if words[0] == "eval" and key not in {"eval/mean_reward", "eval/reward"}:
            return None if words[-1].endswith(("_low", "_high")) else f"eval/{'/'.join(words[1:])}"
        if words[:2] == ["train", "epoch"] and len(words) == 3:
            return f"epoch/{words[2]}"
        return find_series_name(key)

    return named


def parse_sample(row: Row) -> Sample:
    """A row of samples.jsonl."""
    finish = row.get("finish")
    return Sample(
        step=row["step"],
        prompt=row["id"],
        text=row["text"],
        reward=as_number(row["reward"]),
        truncated=None if finish is None else finish == "length",
        parts={name: as_number(value) for name, value in row["parts"].items()},
    )
