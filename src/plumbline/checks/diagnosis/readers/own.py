"""Runs of Plumbline: each stage that left metrics, with the run's evaluations.

The recipe is read as plain values, so that a run of another version can be looked at, too.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from plumbline.checks.diagnosis.history import Final, History, Kind, Sample
from plumbline.checks.diagnosis.readers.rows import FAR, as_number, collect_series, our_name
from plumbline.config.overrides import read_yaml
from plumbline.errors import DataError, RecipeError
from plumbline.recipe import leaves
from plumbline.runs.evaluations import REFERENCE, EvaluationKey, read_evaluation
from plumbline.runs.record import STAGES
from plumbline.storage import SMALL, JsonLines, clear_read_errors, read_text


def find(path: Path) -> Path | None:
    """See `Reader.find`."""
    folder = path.parent if path.name == "metrics.jsonl" else path
    return folder if (folder / "recipe.yaml").is_file() else None


def read(path: Path) -> list[History]:
    """See `Reader.read`."""
    recipe = _recipe(path / "recipe.yaml")
    finals = [
        Final(stage=key.stage, split=key.split, mode=key.mode, task=key.task, evaluation=read_evaluation(file))
        for file in sorted((path / "evaluations").glob("*.json"))
        if (key := EvaluationKey.parse(file.stem)).step is None
    ]
    rows = JsonLines(path / "metrics.jsonl").rows()
    samples = []
    for number, row in enumerate(JsonLines(path / "samples.jsonl").rows(), 1):
        with clear_read_errors(f"{path / 'samples.jsonl'}:{number}"):
            samples.append(sample(row))
    stages = [stage for stage in STAGES if any(row.get("stage") == stage for row in rows)]
    if not stages:
        raise DataError(f"{path} has recorded no step of training yet", "look at it again after its first step")
    rows += JsonLines(path / "timings.jsonl").rows()
    of = {stage: [row for row in rows if row.get("stage") == stage] for stage in stages}
    return [
        History(
            origin="plumbline",
            name=stage,
            kind="rl" if stage == "rl" else "sft",
            series=collect_series(of[stage], names(recipe)),
            settings=_settings(recipe, stage, of[stage]),
            samples=samples if stage == "rl" else (),
            finals=[one for one in finals if one.stage in {REFERENCE, *STAGES[: STAGES.index(stage) + 1]}],
            finished=(path / "models" / stage).is_dir(),
        )
        for stage in stages
    ]


def _recipe(path: Path) -> dict[str, Any]:
    try:
        values = read_yaml(read_text(path, limit=SMALL), str(path), strict=False)
    except RecipeError as error:
        raise DataError(error.cause, error.fix) from error
    if not isinstance(values, dict):
        raise DataError(f"{path} holds no recipe", "give the folder of a run")
    return values


def begun(recipe: Mapping[str, Any], stage: str) -> History:
    """A stage of which nothing was recorded yet.

    Args:
        recipe: as plain values.
        stage: base, sft or rl.
    """
    kind: Kind = "rl" if stage == "rl" else "sft"
    return History(origin="plumbline", name=stage, kind=kind, series={}, settings=_settings(recipe, stage, ()))


def names(recipe: Mapping[str, Any]) -> Callable[[str], str | None]:
    """Our name of a metric of a run of a recipe: of several tasks, parts stand under their task's name."""
    tasks = recipe.get("tasks") or {}

    def named(key: str) -> str | None:
        words = key.split("/")
        if words[:2] == ["train", "reward"] and len(words) > 2:
            return f"task/{words[2]}" if len(words) == 3 and words[2] in tasks else f"part/{'/'.join(words[2:])}"
        if words[:2] == ["train", "reading"]:
            return f"reading/{'/'.join(words[2:])}"
        if words[0] == "eval" and key not in {"eval/mean_reward", "eval/reward"}:
            return None if words[-1].endswith(("_low", "_high")) else f"eval/{'/'.join(words[1:])}"
        if words[:2] == ["train", "epoch"] and len(words) == 3:
            return f"epoch/{words[2]}"
        return our_name(key)

    return named


def _settings(recipe: Mapping[str, Any], stage: str, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The recipe's keys with their values, and the steps that the stage was planned to have, where that is known.

    A budget of seconds ends a stage before its steps do: its rows say how many they will be at the pace so far.
    """
    keys = dict(leaves(recipe))
    budgeted = keys.get(f"{stage}.seconds")
    planned = None if budgeted else keys.get("model.tiny.steps" if stage == "base" else f"{stage}.steps")
    steps = next((row["train/expected_steps"] for row in reversed(rows) if "train/expected_steps" in row), planned)
    return {**keys, **({"steps": steps} if steps is not None else {})}


def sample(row: Mapping[str, Any]) -> Sample:
    """A row of samples.jsonl.

    Raises:
        ValueError: a reward or a part of it is no number.
    """
    finish, parts = row.get("finish"), row.get("parts")
    parts = parts if isinstance(parts, dict) else {}
    for name, value in (("reward", row.get("reward")), *parts.items()):
        if value is not None and (isinstance(value, str) or as_number(value) is None):
            raise ValueError(f"{name} is {value!r}, and no number")
    if (step := as_number(row.get("step", 0))) is None or not abs(step) < FAR:
        raise ValueError(f"step is {row['step']!r}, and no number of a step")
    return Sample(
        step=int(step),
        prompt=str(row.get("id", "")),
        text=str(row.get("text", "")),
        reward=as_number(row.get("reward")),
        truncated=None if finish is None else finish == "length",
        parts={name: as_number(value) for name, value in parts.items()},
    )
