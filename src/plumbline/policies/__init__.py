"""Models that sample trajectories and score them by one law. `open_policy` opens one by its family's name.

`FAMILIES` lists the families that come with Plumbline; `module:Class` opens one of yours.
"""

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plumbline.errors import ModelError, RecipeError
from plumbline.policies.memory import clear_memory_errors
from plumbline.recipe import ModelSection
from plumbline.storage import read_json

if TYPE_CHECKING:
    from plumbline.policies.policy import Policy

FAMILIES = {
    "autoregressive": "plumbline.policies.autoregressive.policy:AutoregressivePolicy",
    "masked": "plumbline.policies.masked.policy:MaskedPolicy",
    "slots": "plumbline.policies.slots.policy:SlotPolicy",
    "flow": "plumbline.policies.flow.policy:FlowPolicy",
}


def open_policy(section: ModelSection, source: str, seed: int = 0) -> "Policy":
    """Load the model at `source` (a directory or hub name) as a policy of the section's family.

    Raises:
        RecipeError: there is no such family.
        ModelError: torch is not installed, the model cannot be loaded, or its directory says that it is of another
            family.
        DeviceMemoryError: the model does not fit into the device's memory.
    """
    try:
        import torch  # noqa: F401 - asked first, because the families import it at the top
    except ImportError as error:
        raise ModelError("a model needs torch, which is not installed", "pip install 'plumbline[train]'") from error
    module, _, name = FAMILIES.get(section.family, section.family).partition(":")
    if not name:
        known = ", ".join(FAMILIES)
        raise RecipeError(f"there is no policy family {section.family}", f"there are {known}; yours is module:Class")
    try:
        family = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise RecipeError(
            f"cannot open the policy family {section.family}: {error}", "write it as module:Class, both importable"
        ) from error
    saved = _saved(source)
    if saved.get("family", section.family) != section.family:
        raise ModelError(
            f"the model in {source} is of family {saved['family']}, not {section.family}",
            f"set model.family to {saved['family']}",
        )
    if saved.get("attention", section.attention) != section.attention:
        raise ModelError(
            f"the model in {source} was trained with {saved['attention']} attention, not {section.attention}",
            f"set model.attention to {saved['attention']}",
        )
    advice = (
        "use a device with more of it (model.device: cpu, too), a smaller model, or a new run with model.quantize: 4bit"
    )
    with clear_memory_errors(advice):
        policy: Policy = family.open(section, source, seed)
    return policy


def saved_family(source: str) -> str | None:
    """The family that a model directory of ours says it is of; None for any other model."""
    family = _saved(source).get("family")
    return family if isinstance(family, str) else None


def _saved(source: str) -> dict[str, Any]:
    """What a model directory says about how its weights are used."""
    config = Path(source) / "config.json"
    saved = read_json(config).get("plumbline") if config.is_file() else None
    return saved if isinstance(saved, dict) else {}
