"""What another doctor says of runs: runs in that doctor's environment, and imports nothing of ours.

    TOOLS/NAME/bin/python benchmarks/doctors/ask.py NAME < RUNS

Reads a line of JSON a run, and writes one: `{"name": ..., "found": [[kind, level, step, text], ...]}`
in the doctor's own order of severity; null for found where it can read no such run, and in its place
`crash` where it broke down. Of a run it is told the folder, and its kind (rl or sft): there are
trainer_state.json in TRL's names, with the settings that are known, and completions.jsonl (step,
prompt, text, reward, true). A run that the doctor itself made lies in `own`, in its own format.

Each doctor gets all that it can read, under its own names: texts of findings are its sentences with
its advice. What only a user could measure (how repetitive texts are, how many are empty) is measured
for those that ask for it.
"""

import hashlib
import json
import math
import sys
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable
from importlib.metadata import metadata
from pathlib import Path
from typing import Any

LEVELS = {
    **dict.fromkeys(("critical", "high", "CRITICAL"), "fatal"),
    **dict.fromkeys(("warning", "medium", "warn", "WARNING"), "warning"),
    **dict.fromkeys(("info", "low", "INFO"), "note"),
}
ORDER = ("fatal", "warning", "note")
Row = dict[str, Any]
Finding = tuple[str, str, Any, str]
"""Its kind, its level in our words, its step, its text."""


class Told:
    """What is known of a run."""

    def __init__(self, told: Row) -> None:
        self.kind = told["kind"]
        self.folder = Path(told["folder"])
        self.own = Path(told["own"]) if "own" in told else None
        self.path = self.folder / "trainer_state.json"
        state = json.loads(self.path.read_text())
        self.settings = {
            name: one for name, one in state.items() if not isinstance(one, list | dict)
        }
        self.rows = [row for row in state["log_history"] if "train_runtime" not in row]

    def completions(self) -> dict[int, list[Row]]:
        """By step."""
        path, found = self.folder / "completions.jsonl", defaultdict(list)
        for line in path.read_text().splitlines() if path.is_file() else ():
            row = json.loads(line)
            found[row["step"]].append(row)
        return found


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _sorted(found: Iterable[Finding]) -> list[Finding]:
    return sorted(found, key=lambda one: ORDER.index(one[1]))


def _repetition(texts: list[str]) -> float:
    """Share of the runs of four words that came before in their text."""
    shares = []
    for text in texts:
        words = text.split()
        pieces = [tuple(words[at : at + 4]) for at in range(len(words) - 3)]
        shares.append(1 - len(set(pieces)) / len(pieces) if pieces else 0.0)
    return sum(shares) / len(shares)


def _measured(told: Told) -> dict[int, Row]:
    """What a user could measure of the texts of each step."""
    return {
        step: {
            "repetition_rate": _repetition([row["text"] for row in rows]),
            "empty_response_rate": sum(not row["text"].strip() for row in rows) / len(rows),
            "response_diversity": len({row["text"] for row in rows}) / len(rows),
        }
        for step, rows in told.completions().items()
    }


def ask_runmedic(told: Told) -> list[Finding]:
    """The file, as its command does."""
    from runmedic import loaders, roles
    from runmedic.checks import run_checks

    return [
        (
            one.check,
            LEVELS[one.severity],
            one.step,
            ". ".join([one.title, *one.evidence, *one.causes, *one.fixes]),
        )
        for run in loaders.load(str(told.path))
        for one in run_checks(run, roles.detect(run, {}))
    ]


TOOLKIT_NAMES = {  # its own, which its callback does not find in a log of TRL 1.16, and TRL's
    "reward_std": "reward_std",
    "group_reward_std": "reward_std",
    "output_length_mean": "completions/mean_length",
    "completion_length": "completions/mean_length",
    "truncation_rate": "completions/clipped_ratio",
    "clip_fraction": "clip_ratio/region_mean",
    "grad_norm": "grad_norm",
    "importance_sampling_ratio": "sampling/importance_sampling_ratio/mean",
}


def ask_toolkit(told: Told) -> list[Finding]:
    """Metrics as its callback finds them, and under its own names."""
    import pandas as pd
    from post_training_toolkit.integrations.trl import DiagnosticsCallback
    from post_training_toolkit.models.engine import compute_derived_metrics, recommended_actions
    from post_training_toolkit.models.heuristics import run_heuristics

    pairs = any("rewards/margins" in row for row in told.rows)
    trainer = "grpo" if told.kind == "rl" else "dpo" if pairs else "sft"
    callback = DiagnosticsCallback.__new__(DiagnosticsCallback)
    callback._metric_mappings = callback._build_metric_mappings(trainer)
    table: list[Row] = []
    found: list[Finding] = []
    measured = _measured(told)
    for row in told.rows:
        metrics = {name: callback._find_metric(row, name) for name in callback._metric_mappings}
        metrics = {name: value for name, value in metrics.items() if value is not None}
        metrics |= {ours: row[theirs] for ours, theirs in TOOLKIT_NAMES.items() if theirs in row}
        if not metrics:
            continue
        if (reason := callback._check_critical_failure(metrics)) and not found:
            found.append((f"critical: {reason}", "fatal", row["step"], reason))
        table.append({"step": row["step"], **metrics, **measured.get(row["step"], {})})
    frame = pd.DataFrame(table).groupby("step", as_index=False).last()
    for one in run_heuristics(compute_derived_metrics(frame, trainer), trainer):
        advice = recommended_actions([one], trainer)
        text = ". ".join([one.message, *advice, one.reference or ""])
        found.append((one.type, LEVELS[one.severity], one.steps[0] if one.steps else None, text))
    return found


def ask_provenir(told: Told) -> list[Finding] | None:
    """Its flight recorder a call a step, its detector of hacking on the last 200 completions, and
    the advice of its doctor. That one itself is for loops that are known to stand still."""
    from provenir.loop.doctor import _ALGORITHM_ACTIONS, DoctorConfig, LoopDoctor, LoopSignals
    from provenir.observability.flight_recorder import FlightRecorder, RLStepMetrics
    from provenir.observability.reward_hacking import RewardHackingDetector

    if told.kind != "rl":
        return None
    recorder, found = FlightRecorder(), dict[str, Finding]()
    for row in told.rows:
        if "reward" not in row:
            continue
        spread = row.get("reward_std", 0.0)
        # advantages are divided by the group's spread, so theirs is 1 wherever a group has one
        varied = spread > 1e-6 and row.get("frac_reward_zero_std", 0.0) < 1
        metrics = RLStepMetrics(
            step=row["step"],
            kl=row.get("kl", 0.0),
            entropy=row.get("entropy", 0.0),
            reward_mean=row["reward"],
            reward_std=spread if "reward_std" in row else 1.0,
            response_length_mean=row.get("completions/mean_length", 0.0),
            advantage_std=1.0 if varied or "reward_std" not in row else 0.0,
            grad_norm=row.get("grad_norm", 0.0),
            learning_rate=row.get("learning_rate", 0.0),
        )
        for one in recorder.log_step(metrics):
            text = f"{one.detail}. {_ALGORITHM_ACTIONS.get(one.kind, '')}"
            found.setdefault(one.kind, (one.kind, LEVELS[one.severity], one.step, text))
    last = [row for rows in told.completions().values() for row in rows][-200:]
    batch = [
        {"response": row["text"], "proxy_reward": row["reward"]}
        | ({"true_reward": row["true"]} if _number(row.get("true")) else {})
        for row in last
        if _number(row["reward"])
    ]
    report = RewardHackingDetector().detect_batch(batch)
    if report.hacking_rate > DoctorConfig().hacking_rate_max:
        signals = LoopSignals.from_reports([], hacking_report=report)
        advice = next(
            one for one in LoopDoctor().diagnose(signals).findings if one.category == "reward"
        )
        for kind in report.by_kind():
            level = LEVELS[next(one.severity for one in report.signals if one.kind == kind)]
            text = f"{kind}: {advice.evidence}. {advice.recommended_action}"
            found[f"hacking: {kind}"] = (f"hacking: {kind}", level, None, text)
    return _sorted(found.values())


def ask_rldoctor(told: Told) -> list[Finding] | None:
    """The file, as its command does."""
    from rl_doctor.diagnosis import diagnose
    from rl_doctor.ingest.base import load_run

    if told.kind != "rl":
        return None
    problems = diagnose(load_run(str(told.own or told.path))).problems
    return [
        (
            ":".join(filter(None, (one.detector, one.metrics.get("regime", "")))),
            LEVELS[one.severity.name],
            None,
            ". ".join([one.title, one.summary, *one.evidence, *one.prescription]),
        )
        for one in problems
    ]


def ask_rlprobe(told: Told) -> list[Finding] | None:
    """Its recording as its callback for TRL makes it, with what else it has a name for."""
    from rlprobe.doctor.engine import diagnose, diagnose_view
    from rlprobe.doctor.runview import RunView
    from rlprobe.integrations.trl import _map_logs
    from rlprobe.schemas import RunManifest, SampleRecord, StepRecord

    if told.kind != "rl":
        return None
    if told.own:
        found = diagnose(told.own)
    else:
        measured, records = _measured(told), []
        for row in told.rows:
            known = _map_logs({name: one for name, one in row.items() if name != "step"})
            known |= {
                name: row[name]
                for name in StepRecord.model_fields
                if _number(row.get(name)) and name != "step"
            }
            if "zero_variance_group_frac" in known and "reward_std" in known:
                known["group_reward_std_mean"] = known["reward_std"]
            broken = (row[name] for name in ("loss", "grad_norm") if name in row)
            known["nan_count"] = sum(not _number(one) for one in broken)
            if row["step"] in measured and "reward" in row:
                known["repetition_rate"] = measured[row["step"]]["repetition_rate"]
            records.append(StepRecord(step=row["step"], **known))
        samples = [
            SampleRecord(
                step=step,
                sample_id=f"{step}_{place}",
                prompt_text=row["prompt"],
                completion_text=row["text"],
                reward_total=row["reward"] if _number(row["reward"]) else None,
                completion_len=len(row["text"]),
            )
            for step, rows in told.completions().items()
            for place, row in enumerate(rows)
        ]
        manifest = RunManifest(run_id="run", created_at="2026-01-01", algorithm="grpo")
        found = diagnose_view(RunView(manifest, records, samples_provider=lambda: samples))
    return [
        (
            one.signature_id,
            LEVELS[one.severity],
            one.first_step,
            ". ".join([one.explanation, *one.suggested_actions]),
        )
        for one in found
    ]


def ask_rlwatch(told: Told) -> list[Finding] | None:
    """Its detectors a call a step with what its callback for TRL finds; the first alert of each
    level."""
    from rlwatch.config import RLWatchConfig
    from rlwatch.detectors import DetectorSuite

    if told.kind != "rl":
        return None
    suite = DetectorSuite(RLWatchConfig())
    found = dict[tuple[str, str], Finding]()
    for row in told.rows:
        alerts = suite.check_step(
            row["step"],
            entropy=row.get("entropy"),
            kl_divergence=row.get("kl"),
            reward_mean=row.get("reward"),
            reward_std=row.get("reward_std"),
            advantage_std=row.get("adv_std"),
            loss=row.get("loss"),
            grad_norm=row.get("grad_norm"),
        )
        for one in alerts:
            kind = ":".join(filter(None, (one.detector, one.metric_values.get("direction", ""))))
            text = f"{one.message} {one.recommendation}"
            found.setdefault((kind, one.severity), (kind, LEVELS[one.severity], one.step, text))
    return _sorted(found.values())


def ask_rlvr_audit(told: Told) -> list[Finding] | None:
    """Rewards by prompt. It has no levels: the verdict on most prompts counts as a warning, others
    as notes. The sentences are those of its manual. It takes rewards for chances: those above 1 are
    divided by the largest."""
    import numpy as np
    from rlvr_audit.core import audit_portfolio

    if told.own:
        records = [json.loads(line) for line in told.own.read_text().splitlines()]
        size = 8
    else:
        groups = defaultdict[tuple[int, str], list[Row]](list)
        for step, rows in told.completions().items():
            for row in rows:
                if _number(row["reward"]):
                    groups[step, row["prompt"]].append(row)
        sizes = [len(rows) for rows in groups.values()]
        size = max(set(sizes), key=sizes.count) if sizes else 0
        if size < 2:
            return None
        largest = max(1.0, *(row["reward"] for rows in groups.values() for row in rows))
        prompts = defaultdict[str, list[Row]](list)
        for (_, prompt), rows in groups.items():
            prompts[prompt] += rows[: len(rows) // size * size]
        records = [
            {
                "prompt_id": prompt,
                "rewards": [row["reward"] / largest for row in rows],
                "trajectory_hashes": [
                    hashlib.md5(row["text"].encode()).hexdigest() for row in rows
                ],
                "prompt_hashes": [prompt],
            }
            for prompt, rows in prompts.items()
            if rows
        ]
    with np.errstate(all="ignore"):
        counts = audit_portfolio(records, G=size)["verdict_histogram"]
    manual = metadata("rlvr-audit").get_payload().splitlines()
    says = {
        verdict: next(one for one in manual if one.startswith(f"| `{verdict}`"))
        for verdict in counts
    }
    return _sorted(
        (verdict, "warning" if count > len(records) / 2 else "note", None, says[verdict])
        for verdict, count in counts.items()
        if verdict != "HEALTHY"
    )


DOCTORS: dict[str, Callable[[Told], list[Finding] | None]] = {
    "post-training-toolkit": ask_toolkit,
    "runmedic": ask_runmedic,
    "provenir": ask_provenir,
    "rldoctor": ask_rldoctor,
    "rlprobe": ask_rlprobe,
    "rlwatch": ask_rlwatch,
    "rlvr-audit": ask_rlvr_audit,
}


def main() -> None:
    """See the module."""
    warnings.simplefilter("ignore")
    answers, sys.stdout = sys.stdout, sys.stderr  # what a doctor prints is no answer
    for line in sys.stdin:
        told = json.loads(line)
        answer: Row = {"name": told["name"]}
        try:
            answer["found"] = DOCTORS[sys.argv[1]](Told(told))
        except Exception as error:  # noqa: BLE001 - a doctor that breaks down is a column of the table
            answer |= {"found": [], "crash": f"{type(error).__name__}: {error}"[:200]}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
