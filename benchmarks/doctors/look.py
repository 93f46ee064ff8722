"""Runs whose state is known, what our checks say of them, and what the other doctors are told."""

import json
import math
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from plumbline.checks.check import examine
from plumbline.checks.diagnosis import readers
from plumbline.checks.diagnosis.history import History, Sample, Series
from plumbline.checks.diagnosis.readers import read_histories
from plumbline.checks.diagnosis.rules import CHECKS
from plumbline.evaluation.statistics import Interval, t_quantile

NAMES = yaml.safe_load((Path(readers.__file__).parent / "names.yaml").read_text())["series"]
TRL_NAMES = {ours: trl for trl, ours in reversed(NAMES.items()) if isinstance(ours, str)}
"""The first name of each series that the readers know is TRL's, where TRL has one."""
SETTINGS = {
    "rl.group_size": "num_generations",
    "rl.beta": "beta",
    "sampling.max_tokens": "max_completion_length",
    "rl.optimiser.learning_rate": "learning_rate",
}
TRUTH = "correct"
"""What is right, as a column."""


@dataclass(frozen=True)
class Case:
    """A run whose state is known."""

    group: str
    """planted, stranger, hacked, ..."""
    name: str
    kind: str
    """rl or sft."""
    path: Path
    """Its records, for us."""
    label: Mapping[str, Any]
    """what, symptoms and cause of its fault; empty of a sound one."""
    stage: str = ""
    """Which of its stages is looked at."""
    state: Path | None = None
    """Its trainer_state.json, where it has one."""
    truth: Path | None = None
    """What is right of each completion, where that is told."""
    maker: str = ""
    """The doctor that published it."""
    known: bool = True
    """Whether it is known to be sound or not; else it counts as neither."""
    must_learn: bool = False
    """Whether a sound run counts only where it learnt."""

    @property
    def key(self) -> str:
        """Its name among all."""
        return f"{self.group}/{self.name}"


@dataclass(frozen=True)
class Seen:
    """What was read of a run, and what we say of it."""

    answer: Mapping[str, Any]
    """As those of `ask.py`."""
    learnt: bool


def look(case: Case, told: Path) -> Seen:
    """Examine a run, and write what the others are told of it."""
    answer: dict[str, Any] = {"name": case.key, "found": []}
    try:
        history = read(case)
        if not told.is_dir():
            half = told.with_name(f"{told.name}.half")
            tell(case, history, half)
            half.rename(told)
        answer["found"] = [
            [
                f"{one.check}:{one.code}",
                one.level,
                one.since,
                ". ".join([one.what, *one.explain_causes(), one.fix, *map(str, one.change)]),
            ]
            for one in examine(history, CHECKS).findings
        ]
    except Exception as error:  # noqa: BLE001 - a breakdown is a column of the table
        return Seen(answer | {"crash": f"{type(error).__name__}: {error}"[:200]}, learnt=True)
    values = history["reward" if case.kind == "rl" else "loss"].values
    change = measure_change(values[np.isfinite(values)])
    return Seen(answer, change.low > 0 if case.kind == "rl" else change.high < 0)


def read(case: Case) -> History:
    """The stage of a run that a case is about, with what is right where that is told."""
    histories = read_histories(case.path)
    history = next((one for one in histories if one.name == case.stage), histories[-1])
    if case.truth is None:
        return history
    right = [json.loads(line)["right"] for line in case.truth.read_text().splitlines()]
    told = zip(history.samples, right, strict=True)
    samples = [replace(one, others={**one.others, TRUTH: value}) for one, value in told]
    steps = sorted({one.step for one in samples})
    means = [np.mean([one.others[TRUTH] for one in samples if one.step == step]) for step in steps]
    series = {**history.series, f"correctness/{TRUTH}": Series(np.array(steps), np.array(means))}
    return replace(history, series=series, samples=samples)


def measure_change(values: np.ndarray) -> Interval:
    """The last third's mean less the first's, with Welch's interval."""
    third = len(values) // 3
    if third < 3:
        return Interval(math.nan, math.nan, math.nan, len(values))
    parts = values[:third], values[-third:]
    errors = [float(part.var(ddof=1)) / third for part in parts]
    freedom = sum(errors) ** 2 / max(sum(error**2 for error in errors) / (third - 1), 1e-300)
    reach = t_quantile(max(1, int(freedom))) * sum(errors) ** 0.5
    mean = float(parts[1].mean() - parts[0].mean())
    return Interval(mean, mean - reach, mean + reach, len(values))


def tell(case: Case, history: History, folder: Path) -> None:
    """Write a run in TRL's names for the doctors that read those only."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "completions.jsonl").open("w") as file:
        file.writelines(json.dumps(_completion(one)) + "\n" for one in history.samples)
    path = folder / "trainer_state.json"
    if case.state is not None and case.truth is None:
        shutil.copyfile(case.state, path)
        return
    rows: dict[int, dict[str, Any]] = {}
    if case.state is not None:
        for row in json.loads(case.state.read_text())["log_history"]:
            rows.setdefault(row["step"], {}).update(row if "train_runtime" not in row else {})
        history = replace(history, series={f"reward/{TRUTH}": history[f"correctness/{TRUTH}"]})
    for name, series in history.series.items():
        for step, value in zip(series.steps.tolist(), series.values.tolist(), strict=True):
            rows.setdefault(step, {"step": step})[_trl_name(name)] = value
    settings = {SETTINGS[name]: one for name, one in history.settings.items() if name in SETTINGS}
    ordered = [rows[step] for step in sorted(rows)]
    path.write_text(json.dumps({**settings, "log_history": ordered}))


def _completion(one: Sample) -> dict[str, Any]:
    found = {"step": one.step, "prompt": one.prompt, "text": one.text, "reward": one.reward}
    return found | ({"true": one.others[TRUTH]} if TRUTH in one.others else {})


def _trl_name(name: str) -> str:
    if name.startswith("reward/"):
        return f"rewards/{name.removeprefix('reward/')}/mean"
    if name.startswith("preference/"):
        short = {"margin": "margins", "accuracy": "accuracies"}
        return f"rewards/{short.get(name[11:], name[11:])}"
    return TRL_NAMES.get(name) or name.removeprefix("correctness/").replace("eval/", "eval_")


def list_told(case: Case, told: Path) -> dict[str, str]:
    """What `ask.py` is told of a case."""
    return {"name": case.key, "kind": case.kind, "folder": str(told)}


def list_scenarios(maker: str, folder: Path, labels: Mapping[str, Any]) -> Iterator[Case]:
    """What a doctor publishes, as `scenarios.py` wrote it."""
    for path in sorted(folder.iterdir()):
        name = path.name.rpartition("-")[0]
        if name in labels:
            label = {"what": f"{maker}: {name}", "symptoms": labels[name]} if labels[name] else {}
            state = path / "trainer_state.json"
            yield Case(
                "scenarios", f"{maker}/{path.name}", "rl", state, label, state=state, maker=maker
            )
