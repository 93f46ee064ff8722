"""Values that a command line sets: `key.subkey=value`, the value read as YAML."""

from collections.abc import Sequence
from typing import Any

import yaml

from plumbline.errors import RecipeError


def task_options(overrides: Sequence[str]) -> dict[str, Any]:
    """The task's options out of `task.options.a=value` each, for commands that have no recipe.

    Raises:
        RecipeError: an override that is not of the task's options, or cannot be read.
    """
    values: dict[str, Any] = {}
    for override in overrides:
        if not override.strip().startswith("task.options."):
            raise RecipeError(
                f"{override!r} is not an option of the task", "this command takes --set task.options.KEY=VALUE only"
            )
        set_value(values, override)
    options: dict[str, Any] = values.get("task", {}).get("options", {})
    return options


def set_value(values: dict[str, Any], override: str) -> None:
    """Set one value in nested mappings; what is not a mapping on the way becomes one.

    Raises:
        RecipeError: there is no key, or the value is not YAML.
    """
    key, equals, text = override.partition("=")
    if not equals or not key.strip():
        raise RecipeError(f"cannot read the override {override!r}", "write --set key.subkey=value")
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise RecipeError(f"the value in {override!r} is not YAML: {error}") from error
    if isinstance(value, str):
        value = _number(value)
    *folders, leaf = key.strip().split(".")
    target = values
    for folder in folders:
        if not isinstance(target.get(folder), dict):
            target[folder] = {}
        target = target[folder]
    target[leaf] = value


def _number(text: str) -> str | float:
    """YAML 1.1 reads `5e-6` as text; people mean the number."""
    try:
        return float(text) if "e" in text.lower() else text
    except ValueError:
        return text
