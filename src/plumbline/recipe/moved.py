"""Keys of recipes before algorithms had options of their own: refused, with what to write instead."""

import json
from collections.abc import Mapping
from typing import Any

from plumbline.algorithms import ALGORITHMS
from plumbline.overrides import as_mapping

OPTIONS = ("ratio", "objective", "clip_low", "clip_high", "scale_advantages", "normaliser")
NAMES = {"trajectory": "grpo", "diffu": "diffu_grpo", "coupled": "coupled_grpo"}
CONTROLS = {"tokens_only": "tokens_only", "temperature": "score_temperature"}


def check_moved(values: Any) -> None:
    """Refuse plain values of a recipe in which keys stand under rl that are options of an algorithm, or controls.

    Raises:
        ValueError: names the keys, and the new ones with their values.
    """
    rl = as_mapping(as_mapping(values).get("rl"))
    likelihood = as_mapping(rl.get("likelihood"))
    old = [f"rl.{key}" for key in ("likelihood", *OPTIONS, "shuffle_advantages") if key in rl]
    if not old:
        return
    options = {key: rl[key] for key in OPTIONS if key in rl}
    options |= {key: value for key, value in likelihood.items() if key not in CONTROLS}
    controls = {new: likelihood[key] for key, new in CONTROLS.items() if likelihood.get(key)}
    if rl.get("shuffle_advantages"):
        controls["shuffle_advantages"] = rl["shuffle_advantages"]
    new = [f"rl.algorithm: {_flow(_algorithm(options))}"] if options else []
    new += [f"controls: {_flow(controls)} beside rl"] if controls else []
    raise ValueError(f"{', '.join(old)} moved: write {' and '.join(new) or 'nothing'} instead")


def _algorithm(options: Mapping[str, Any]) -> dict[str, Any]:
    """The algorithm that old options meant, with those of its own that are not the default."""
    kind, objective = str(options.get("kind", "trajectory")), str(options.get("objective", "ppo"))
    name = NAMES.get(kind, kind) if objective == "ppo" else objective
    if name == "grpo" and options.get("ratio") == "sequence":
        name = "gspo"
    known = ALGORITHMS[name].model_fields if name in ALGORITHMS else {}
    given = {key: value for key, value in {**options, "bound": kind}.items() if key in known}
    return {"name": name, **{key: value for key, value in given.items() if value != known[key].default}}


def _flow(values: Mapping[str, Any]) -> str:
    """Values as YAML on one line."""
    said = [f"{key}: {json.dumps(value, default=str).strip(chr(34))}" for key, value in values.items()]
    return f"{{{', '.join(said)}}}"
