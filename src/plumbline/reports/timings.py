"""Where a run's seconds went, from its rows of timings."""

from collections.abc import Iterable, Mapping
from typing import Any

from plumbline.reports.view import ordered

WORK = {
    "time/rollouts": "rollouts",
    "time/update": "update",
    "time/rest": "records and evaluations",
    "time/step": "steps",
}


def seconds_by(rows: Iterable[Mapping[str, Any]]) -> dict[tuple[str, str], float]:
    """Seconds by (stage, work), in the order of training."""
    found: dict[str, dict[str, float]] = {}
    for row in rows:
        stage = found.setdefault(str(row.get("stage", "")), {})
        for key, value in row.items():
            if key.startswith("time/") and isinstance(value, (int, float)):
                work = WORK.get(key, key.removeprefix("time/"))
                stage[work] = stage.get(work, 0.0) + float(value)
    return {(stage, work): seconds for stage in ordered(found) for work, seconds in found[stage].items()}
