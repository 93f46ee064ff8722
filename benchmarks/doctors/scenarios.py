"""What other doctors publish as runs that they know: runs in such a doctor's environment, and imports
nothing of ours.

    TOOLS/NAME/bin/python benchmarks/doctors/scenarios.py NAME FOLDER

Each is written twice: to FOLDER/SCENARIO-SEED/own in its maker's format, and beside it in TRL's
names; what TRL has no name for keeps its own. They are curves that their authors drew, not training.
"""

import json
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

SEEDS = (0, 1, 2)
Row = dict[str, Any]


def _write(folder: Path, rows: Iterable[Row], settings: Row) -> None:
    state = json.dumps({**settings, "log_history": list(rows)})
    (folder / "trainer_state.json").write_text(state)


def write_rldoctor(folder: Path) -> None:
    """Twelve, in TRL's names from the start."""
    from rl_doctor.simulate import SCENARIOS, simulate

    for name in SCENARIOS:
        for seed in SEEDS:
            rows, settings = simulate(name, seed=seed)
            made = folder / f"{name}-{seed}"
            made.mkdir(parents=True)
            lines = [{"config": settings}, *rows]
            (made / "own.jsonl").write_text("".join(json.dumps(row) + "\n" for row in lines))
            _write(made, rows, settings)


def write_rlprobe(folder: Path) -> None:
    """All but those of a critic and of slow steps. Its texts are fillers, so they are left out."""
    from rlprobe.integrations.trl import _SCALAR_MAP
    from rlprobe.storage import RunReader
    from rlprobe.testing.synth import PATHOLOGIES, generate_run

    names = {ours: trl for trl, ours in reversed(_SCALAR_MAP.items())}
    names["clip_fraction"] = "clip_ratio/region_mean"
    for name in ["healthy", *PATHOLOGIES]:
        if name in ("value_divergence", "throughput_rot"):
            continue
        for seed in SEEDS:
            made = folder / f"{name}-{seed}"
            generate_run(made / "own", None if name == "healthy" else name, seed=seed)
            reader = RunReader(made / "own")
            rows = []
            for one in reader.steps():
                row = {
                    names.get(key, key): value
                    for key, value in one.model_dump().items()
                    if isinstance(value, int | float) and key not in ("rank", "timestamp")
                }
                parts = one.reward_components.items()
                rows.append(row | {f"rewards/{part}/mean": value for part, value in parts})
            _write(made, rows, {"num_generations": reader.manifest.trainer_config["group_size"]})


def write_rlvr_audit(folder: Path) -> None:
    """Its four kinds of prompts, of each 60 groups: a group a step."""
    import numpy as np
    from rlvr_audit.cli import main

    folder.mkdir(parents=True)
    main(["make-fixture", "--out", str(folder / "all.jsonl"), "--n-groups", "60"])
    for line in (folder / "all.jsonl").read_text().splitlines():
        record = json.loads(line)
        made = folder / f"{record['prompt_id']}-0"
        made.mkdir()
        (made / "own.jsonl").write_text(line + "\n")
        groups = np.array(record["rewards"]).reshape(-1, 8)
        rows = [
            {
                "step": step,
                "reward": float(group.mean()),
                "reward_std": float(group.std(ddof=1)),
                "frac_reward_zero_std": float(group.std() == 0),
            }
            for step, group in enumerate(groups, 1)
        ]
        _write(made, rows, {"num_generations": 8})


MAKERS: dict[str, Callable[[Path], None]] = {
    "rldoctor": write_rldoctor,
    "rlprobe": write_rlprobe,
    "rlvr-audit": write_rlvr_audit,
}

if __name__ == "__main__":
    MAKERS[sys.argv[1]](Path(sys.argv[2]))
