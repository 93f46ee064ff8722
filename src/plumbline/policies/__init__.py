"""Models that sample trajectories and score them by one law. `open_policy` opens one by its family's name.

`FAMILIES` lists the families that come with Plumbline; `module:Class` opens one of yours.
"""

from typing import TYPE_CHECKING

from plumbline.errors import ModelError, RecipeError
from plumbline.imports import check_installed, named
from plumbline.policies.memory import clear_memory_errors
from plumbline.policies.pretrained.chat import read_template
from plumbline.policies.pretrained.gguf_file import is_gguf
from plumbline.policies.saved import check_settings, check_source
from plumbline.recipe import ModelSection

if TYPE_CHECKING:
    from plumbline.policies.policy import Policy

FAMILIES = {
    "autoregressive": "plumbline.policies.autoregressive.policy:AutoregressivePolicy",
    "masked": "plumbline.policies.masked.policy:MaskedPolicy",
    "slots": "plumbline.policies.slots.policy:SlotPolicy",
    "flow": "plumbline.policies.flow.policy:FlowPolicy",
}


NEEDED = ("torch", "transformers", "tokenizers", "safetensors", "jinja2")
"""What a model of our families needs; one of yours may need torch only."""


def open_policy(section: ModelSection, source: str, seed: int = 0) -> "Policy":
    """Load the model at `source` (a directory or hub name) as a policy of the section's family.

    Raises:
        RecipeError: there is no such family.
        ModelError: a package is not installed, the model cannot be loaded, or its directory says that its weights are
            used otherwise (see `saved.check_settings`).
        DeviceMemoryError: the model does not fit into the device's memory.
    """
    check_model(section, source)
    family = named(FAMILIES.get(section.family, section.family), "policy family")
    advice = (
        "use a device with more of it (model.device: cpu, too), a smaller model, or a new run with model.quantize: 4bit"
    )
    with clear_memory_errors(advice):
        policy: Policy = family.open(section, source, seed)
    return policy


def check_model(section: ModelSection, source: str | None) -> None:
    """Refuse what can be known of a model before it is opened, so that nothing is built for it in vain.

    Args:
        section: how it is to be opened.
        source: a directory, a GGUF file, or a hub name (which is not asked for); None for one made on the spot.

    Raises:
        RecipeError: there is no such family.
        ModelError: there is nothing at `source`, or a model of another family; a package or the device is missing.
    """
    if section.family not in FAMILIES and not section.family.partition(":")[2]:
        known = ", ".join(FAMILIES)
        raise RecipeError(f"there is no policy family {section.family}", f"there are {known}; yours is module:Class")
    ours = section.family in FAMILIES
    if source is not None:
        if ours:
            check_source(source)
        check_settings(section, source)
        if section.quantize is not None and is_gguf(source):
            raise ModelError(
                "model.quantize: 4bit does not go with a GGUF file, which is dequantised as it is read",
                "leave out model.quantize, or give a model directory",
            )
    if section.chat_template not in {None, "chatml"}:
        read_template(str(section.chat_template))
    further = [name for name, wanted in (("peft", section.lora), ("bitsandbytes", section.quantize)) if wanted]
    check_installed("a model", [*(NEEDED if ours else ("torch",)), *further])
    if not ours and not hasattr(named(section.family, "policy family"), "open"):
        raise RecipeError(
            f"{section.family} is no policy family: it has no open(section, source, seed)",
            "see docs/new-family.md for what a family has",
        )
    if section.device not in {"auto", "cpu"}:
        from plumbline.policies.pretrained.loading import choose_device

        choose_device(section)
