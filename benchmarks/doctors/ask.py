"""What three other doctors say of runs: runs in their own environment, and imports nothing of ours.

    DOCTORS/bin/python benchmarks/doctors/ask.py < [{"name": ..., "kind": "rl" | "sft", "state": PATH}, ...]

Every state is a trainer_state.json in TRL's names (`look.py` writes our runs so), beside it
completions.jsonl. Each doctor gets all that it can read: runmedic the file, as its command does;
post-training-toolkit the metrics under its own names, because its callback does not know those of
TRL 1.16 for a spread, a length, a clip or a truncation; provenir's flight recorder a call a step,
and its detector of reward hacking the last completions. Findings are [name, level, step], levels in
our words.
"""

import json
import math
import sys
import warnings
from pathlib import Path
from typing import Any

import pandas as pd
from post_training_toolkit.integrations.trl import DiagnosticsCallback
from post_training_toolkit.models.engine import compute_derived_metrics
from post_training_toolkit.models.heuristics import run_heuristics
from provenir.observability.flight_recorder import FlightRecorder, RLStepMetrics
from provenir.observability.reward_hacking import RewardHackingDetector
from runmedic import loaders, roles
from runmedic.checks import run_checks

LEVELS = {
    "critical": "fatal",
    "warning": "warning",
    "info": "note",
    "high": "fatal",
    "medium": "warning",
    "low": "note",
}
LEVELS |= {"warn": "warning"}
HACKED = 0.1
"""provenir's DoctorConfig.hacking_rate_max."""
OWN_NAMES = {  # post-training-toolkit's, and TRL's
    "reward_std": "reward_std",
    "group_reward_std": "reward_std",
    "output_length_mean": "completions/mean_length",
    "completion_length": "completions/mean_length",
    "truncation_rate": "completions/clipped_ratio",
    "clip_fraction": "clip_ratio/region_mean",
    "grad_norm": "grad_norm",
    "importance_sampling_ratio": "sampling/importance_sampling_ratio/mean",
}
Finding = tuple[str, str, Any]


def main() -> None:
    warnings.simplefilter("ignore")
    said = {}
    for run in json.load(sys.stdin):
        state = Path(run["state"])
        rows = [
            row
            for row in json.loads(state.read_text())["log_history"]
            if "train_runtime" not in row
        ]
        said[run["name"]] = {
            "runmedic": _tried(_runmedic, state),
            "ptt": _tried(_toolkit, rows, run["kind"], True),
            "ptt, by its callback": _tried(_toolkit, rows, run["kind"], False),
            "provenir": _tried(_provenir, rows, state) if run["kind"] == "rl" else [],
        }
    json.dump(said, sys.stdout)


def _tried(ask: Any, *arguments: Any) -> list[Finding]:
    try:
        return ask(*arguments)
    except Exception as error:  # noqa: BLE001 - a doctor that breaks down on a run is a row of the table
        return [(f"crash: {type(error).__name__}", "crash", None)]


def _runmedic(state: Path) -> list[Finding]:
    found = []
    for run in loaders.load(str(state)):
        found += [
            (one.check, LEVELS[one.severity], one.step)
            for one in run_checks(run, roles.detect(run, {}))
        ]
    return found


def _toolkit(rows: list[dict[str, Any]], kind: str, by_hand: bool) -> list[Finding]:
    trainer = "grpo" if kind == "rl" else "sft"
    callback = DiagnosticsCallback.__new__(DiagnosticsCallback)
    callback._metric_mappings = callback._build_metric_mappings(trainer)
    table: list[dict[str, Any]] = []
    found: list[Finding] = []
    for row in rows:
        metrics = {name: callback._find_metric(row, name) for name in callback._metric_mappings}
        metrics = {name: value for name, value in metrics.items() if value is not None}
        if by_hand:
            metrics |= {ours: row[theirs] for ours, theirs in OWN_NAMES.items() if theirs in row}
        if not metrics:
            continue
        if (reason := callback._check_critical_failure(metrics)) and not found:
            found.append((f"critical: {reason}", "fatal", row["step"]))
        table.append({"step": row["step"], **metrics})
    frame = compute_derived_metrics(
        pd.DataFrame(table).groupby("step", as_index=False).last(), trainer
    )
    return found + [
        (one.type, LEVELS[one.severity], one.steps[0] if one.steps else None)
        for one in run_heuristics(frame, trainer)
    ]


def _provenir(rows: list[dict[str, Any]], state: Path) -> list[Finding]:
    recorder, found = FlightRecorder(), dict[str, Finding]()
    for row in rows:
        if "reward" not in row:
            continue
        spread = row.get("reward_std", 0.0)
        metrics = RLStepMetrics(
            step=row["step"],
            kl=row.get("kl", 0.0),
            entropy=row.get("entropy", 0.0),
            reward_mean=row["reward"],
            reward_std=spread,
            response_length_mean=row.get("completions/mean_length", 0.0),
            # Advantages are divided by the group's spread, so theirs is 1 wherever a group has one.
            advantage_std=1.0
            if spread > 1e-6 and row.get("frac_reward_zero_std", 0.0) < 1
            else 0.0,
            grad_norm=row.get("grad_norm", 0.0),
            learning_rate=row.get("learning_rate", 0.0),
        )
        for one in recorder.log_step(metrics):
            found.setdefault(one.kind, (one.kind, LEVELS[one.severity], one.step))
    path = state.with_name("completions.jsonl")
    if path.is_file():
        last = [json.loads(line) for line in path.read_text().splitlines()][-200:]
        report = RewardHackingDetector().detect_batch(
            [
                {"response": row["text"], "proxy_reward": row["reward"]}
                for row in last
                if _number(row["reward"])
            ]
        )
        if report.hacking_rate > HACKED:
            found |= {
                f"hacking: {kind}": (f"hacking: {kind}", "warning", None)
                for kind in report.by_kind()
            }
    return list(found.values())


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


if __name__ == "__main__":
    main()
