"""What a run has in place of a checkpoint or a model that is asked for and is not there, on disk or at an address."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

_STEP = re.compile(r"step-0*(\d+)")
NEAREST = 2
"""Checkpoints that are named where one is missing."""


def instead(models: Sequence[str], steps: Mapping[str, Sequence[int]], asked: str) -> str:
    """What is there, in words.

    Args:
        models: the stages that are finished.
        steps: those of the checkpoints, by stage.
        asked: the path inside the run; of the checkpoint that it names the nearest ones are said first.
    """
    said = []
    found = _STEP.search(asked)
    stage = next((one for one in steps if f"/{one}/" in f"/{asked}/"), None)
    if found and stage is not None and steps[stage]:
        wanted = int(found[1])
        near = sorted(sorted(steps[stage], key=lambda step: (abs(step - wanted), step))[:NEAREST])
        said.append(f"the nearest to step {wanted} of {stage}: step {', step '.join(map(str, near))}")
    else:
        said += [f"{name} has checkpoints: step {', step '.join(map(str, of))}" for name, of in steps.items() if of]
    said.append(f"models of finished stages: {', '.join(models) or 'none'}")
    return f"{'; '.join(said)}. A checkpoint is no model: --resume of its run goes on from the last one to a model"


def instead_here(path: Path) -> str | None:
    """The same for a path in a run's folder; None where it is in none, or names no checkpoint and no model."""
    run = next((one for one in path.parents if (one / "recipe.yaml").is_file()), None)
    if run is None:
        return None
    inside = path.relative_to(run).as_posix()
    if not inside.startswith(("checkpoints", "models")):
        return None
    steps: dict[str, list[int]] = {}
    for place in sorted(run.glob("checkpoints/*/step-*/state.json")):
        if found := _STEP.fullmatch(place.parent.name):
            steps.setdefault(place.parts[-3], []).append(int(found[1]))
    models = sorted(place.parent.name for place in run.glob("models/*/plumbline.json"))
    return instead(models, steps, inside)
