"""Keys of recipes that have another name: refused, with the name to write instead."""

from collections.abc import Mapping
from typing import Any

RENAMED: Mapping[str, str] = {
    "model.explore": "model.learned_temperature",
    "sft.tokens_per_pass": "sft.tokens_per_microbatch",
    "rl.tokens_per_pass": "rl.tokens_per_microbatch",
    "rl.lag": "rl.off_policy_steps",
    "rl.algorithm.draws": "rl.algorithm.mask_samples",
}
"""The key to write by the one that was, both with their path: `rl.old_name` to `rl.new_name`."""


def check_renamed(values: Any) -> None:
    """Refuse plain values of a recipe that set a key by the name that it had.

    Raises:
        ValueError: names every such key, and the one to write.
    """
    if found := [key for key in RENAMED if _is_set(values, key)]:
        raise ValueError(
            "; ".join(f"{key} has another name: write {RENAMED[key]}" for key in found)
        )


def _is_set(values: Any, key: str) -> bool:
    """Whether plain values have a key, by its path."""
    for part in key.split("."):
        if not isinstance(values, Mapping) or part not in values:
            return False
        values = values[part]
    return True
