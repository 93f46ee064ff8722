"""Keys of recipes that moved or are gone: refused, with what to write instead."""

import copy
import json
from collections.abc import Mapping
from typing import Any

from plumbline.algorithms import ALGORITHMS
from plumbline.config.overrides import as_mapping

OPTIONS = ("ratio", "objective", "clip_low", "clip_high", "scale_advantages", "normaliser")
NAMES = {"trajectory": "grpo", "diffu": "diffu_grpo", "coupled": "coupled_grpo"}
CONTROLS = {"temperature": "score_temperature"}
GONE = {
    "rl.credit": (
        "every token of an answer has the answer's advantage; credit by values was no better on a "
        "real model"
    ),
    "rl.kl_target": "rl.beta is the weight of the KL in every step",
    "rl.mask_truncated": (
        "sampling.max_tokens is the longest answer, and `check` says when it is too short"
    ),
    "controls.tokens_only": (
        "controls.score_temperature scores at another temperature than was sampled at"
    ),
    "sampling.scaffold": (
        "a server reads JSON leniently and checks it, and RL reaches the same share of valid JSON"
    ),
    "evaluation.votes": "greedy answers earned as much as a vote of eight",
    "engine.in_flight": "the run asks for 256 answers at once",
}
"""What does the job of a key that is gone."""


def check_gone(values: Any) -> None:
    """Refuse plain values of a recipe that set keys which are gone.

    Raises:
        ValueError: names each key, and what does its job.
    """
    if found := [key for key in GONE if _parent(values, key) is not None]:
        raise ValueError("; ".join(f"{key} is gone: {GONE[key]}" for key in found))


def without_gone(values: Mapping[str, Any]) -> dict[str, Any]:
    """Plain values of a run's recipe without keys that are gone, which runs of earlier versions
    hold."""
    kept = copy.deepcopy(dict(values))
    for key in GONE:
        if (parent := _parent(kept, key)) is not None:
            del parent[key.rpartition(".")[2]]
    return kept


def _parent(values: Any, key: str) -> Any:
    """The mapping that holds a key, or None."""
    *path, last = key.split(".")
    for part in path:
        values = values.get(part) if isinstance(values, Mapping) else None
    return values if isinstance(values, Mapping) and last in values else None


def check_moved(values: Any) -> None:
    """Refuse plain values of a recipe in which keys stand under rl that are options of an
    algorithm, or controls.

    Raises:
        ValueError: names the keys, and the new ones with their values.
    """
    rl = as_mapping(as_mapping(values).get("rl"))
    likelihood = as_mapping(rl.get("likelihood"))
    old = [f"rl.{key}" for key in ("likelihood", *OPTIONS, "shuffle_advantages") if key in rl]
    if not old:
        return
    options = {key: rl[key] for key in OPTIONS if key in rl}
    options |= {
        {"draws": "mask_samples"}.get(key, key): value
        for key, value in likelihood.items()
        if key not in CONTROLS
    }
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
    return {
        "name": name,
        **{key: value for key, value in given.items() if value != known[key].default},
    }


def _flow(values: Mapping[str, Any]) -> str:
    """Values as YAML on one line."""
    said = [
        f"{key}: {json.dumps(value, default=str).strip(chr(34))}" for key, value in values.items()
    ]
    return f"{{{', '.join(said)}}}"
