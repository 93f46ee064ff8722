"""What our checks say of a run, when they could first say it, whether it learnt, and what its
trainer said."""

import json
import math
import re
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.doctors.job import Job
from plumbline.checks.check import examine
from plumbline.checks.diagnosis.history import History, Series
from plumbline.checks.diagnosis.readers import read_histories
from plumbline.checks.diagnosis.rules import CHECKS
from plumbline.evaluation.statistics import Interval, t_quantile

SAID = "said.txt"
"""What the trainer wrote to the terminal; there once the run is done."""
TRL_NAMES = {
    "train/reward": "reward",
    "train/reward_std": "reward_std",
    "train/frac_reward_zero_std": "frac_reward_zero_std",
    "train/completion_length": "completions/mean_length",
    "train/frac_truncated": "completions/clipped_ratio",
    "train/entropy": "entropy",
    "train/kl": "kl",
    "train/clip_fraction": "clip_ratio/region_mean",
    "train/sampler_scorer_gap": "sampling/sampling_logp_difference/mean",
    "train/loss": "loss",
    "train/grad_norm": "grad_norm",
    "train/learning_rate": "learning_rate",
    "train/epoch": "epoch",
    "eval/mean_reward": "eval_reward",
}


@dataclass(frozen=True)
class Seen:
    """What we saw of a run."""

    job: Job
    steps: int
    found: dict[str, tuple[str, int | None]]
    """Checks with a fatal finding or a warning at the end: the level, and the first step at which
    the records so far gave one; None where only the evaluation at the end shows it."""
    passing: frozenset[tuple[str, str]]
    """Findings and their levels that the records so far gave at some step, and not at the end."""
    notes: tuple[str, ...]
    change: Interval
    """Of the reward, or of the loss, from the first third of the steps to the last."""

    @property
    def learnt(self) -> bool:
        return self.change.low > 0 if self.job.stage == "rl" else self.change.high < 0

    def worst(self, level: str) -> list[str]:
        return [name for name, (of, _) in self.found.items() if of == level]


def look(job: Job, folder: Path) -> Seen:
    """Examine a finished run, and its records up to each of its steps."""
    history = read(job, folder)
    findings = examine(history, CHECKS).findings
    loud = {one.check: one.level for one in reversed(findings) if one.level != "note"}
    first: dict[str, int] = {}
    before: set[tuple[str, str]] = set()
    for step in sorted({int(step) for series in history.series.values() for step in series.steps})[
        :-1
    ]:
        for one in examine(_up_to(history, step), CHECKS).findings:
            if one.level != "note":
                first.setdefault(one.check, step)
                before.add((one.check, one.level))
    last = replace(history, finals=())
    seen_at_the_end = {one.check for one in examine(last, CHECKS).findings if one.level != "note"}
    steps = {
        name: first.get(name, history.last_step if name in seen_at_the_end else None)
        for name in loud
    }
    values = history["reward" if job.stage == "rl" else "loss"].values
    return Seen(
        job=job,
        steps=history.logged_steps,
        found={name: (level, steps[name]) for name, level in loud.items()},
        passing=frozenset((name, level) for name, level in before if name not in loud),
        notes=tuple(one.check for one in findings if one.level == "note"),
        change=_change(values[np.isfinite(values)]),
    )


def read(job: Job, folder: Path) -> History:
    """The stage of a run that a job is about."""
    return next(history for history in read_histories(folder) if history.name == job.stage)


def _up_to(history: History, step: int) -> History:
    series = {
        name: Series(one.steps[one.steps <= step], one.values[one.steps <= step])
        for name, one in history.series.items()
    }
    samples = [one for one in history.samples if one.step <= step]
    # those are there before the first step
    references = [one for one in history.finals if one.stage == "reference"]
    return replace(history, series=series, samples=samples, finals=references, finished=None)


def _change(values: np.ndarray) -> Interval:
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


def as_trainer_state(job: Job, run: Path, folder: Path) -> dict[str, str]:
    """The run in TRL's names for the doctors that read those only; returns what `ask.py` is told of
    it."""
    folder.mkdir(parents=True, exist_ok=True)
    state = folder / "trainer_state.json"
    if job.trainer == "trl":
        state.write_text((run / "trainer_state.json").read_text())
    else:
        rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        rows = [dict(_translated(row)) for row in rows if row["stage"] == job.stage]
        state.write_text(json.dumps({"log_history": rows, "global_step": rows[-1]["step"]}))
    with (folder / "completions.jsonl").open("w") as file:
        for one in read(job, run).samples:
            file.write(
                json.dumps({"step": one.step, "text": one.text, "reward": one.reward}) + "\n"
            )
    return {"name": job.name, "kind": "rl" if job.stage == "rl" else "sft", "state": str(state)}


def _translated(row: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    yield "step", row["step"]
    for name, value in row.items():
        words = name.split("/")
        if value is None:
            continue
        if name in TRL_NAMES:
            yield TRL_NAMES[name], value
        elif words[:2] == ["train", "reward"] and len(words) == 3:
            yield f"rewards/{words[2]}/mean", value


def said(job: Job, folder: Path) -> list[str]:
    """The lines of a trainer's output, numbers and paths left out; of our own its events and why it
    stopped."""
    lines = (folder / SAID).read_text(errors="replace").splitlines()
    if job.trainer == "trl":
        return [
            _bare(line)
            for line in lines
            if line.strip() and not line.startswith("{'") and "%|" not in line
        ]
    events = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    stopped = [line for line in lines if line.startswith("STOPPED")]
    return [f"{one['kind']}: {_bare(one['message'])}" for one in events] + [
        _bare(line) for line in stopped
    ]


def _bare(line: str) -> str:
    return re.sub(r"\d[\d.e+-]*", "#", re.sub(r"/\S+/", "", line)).strip()[:160]


def unusual(lines: Collection[str], healthy: Collection[str]) -> list[str]:
    """What a healthy run of the trainer never said, once each."""
    known = set(healthy)
    return list(Counter(line for line in lines if line not in known))
