"""Models that sample trajectories and score them by one law. `open_policy` opens one by its family's name.

`FAMILIES` lists the families that come with Plumbline; `module:Class` opens one of yours.
"""

import importlib
from typing import TYPE_CHECKING

from plumbline.errors import ModelError, RecipeError, install_extra
from plumbline.policies.memory import clear_memory_errors
from plumbline.policies.saved import check_settings
from plumbline.recipe import ModelSection

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
        ModelError: torch is not installed, the model cannot be loaded, or its directory says that its weights are used
            otherwise (see `saved.check_settings`).
        DeviceMemoryError: the model does not fit into the device's memory.
    """
    try:
        import torch  # noqa: F401 - asked first, because the families import it at the top
    except ImportError as error:
        raise ModelError("a model needs torch, which is not installed", install_extra("train")) from error
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
    check_settings(section, source)
    advice = (
        "use a device with more of it (model.device: cpu, too), a smaller model, or a new run with model.quantize: 4bit"
    )
    with clear_memory_errors(advice):
        policy: Policy = family.open(section, source, seed)
    return policy
