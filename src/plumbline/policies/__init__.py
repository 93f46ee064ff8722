"""Models that sample trajectories and score them by one sampling distribution. `open_policy` opens
one by its family's name.

What a family reads of a recipe stands in its `options.py`, and which families there are in
`plumbline.recipe.families`.
"""

from contextlib import nullcontext
from typing import TYPE_CHECKING

from plumbline.config.imports import check_consent, check_installed, import_named, import_own
from plumbline.errors import ModelError
from plumbline.policies.memory import clear_memory_errors, keep_pages
from plumbline.policies.opening import clear_opening_errors
from plumbline.policies.options import PretrainedModel
from plumbline.policies.pretrained.chat import read_template
from plumbline.policies.pretrained.gguf_file import is_gguf
from plumbline.policies.saved import check_settings, check_source, reach_hub
from plumbline.recipe import ModelSection, options_of
from plumbline.runs.remote import check_named, local_model

if TYPE_CHECKING:
    from plumbline.policies.policy import Policy

NEEDED = ("torch", "transformers", "tokenizers", "safetensors", "jinja2")
"""What a model of our families needs; one of yours may need torch only."""


def open_policy(section: ModelSection, source: str, seed: int = 0) -> "Policy":
    """Load the model at `source` (a directory, address or hub name) as a policy of the section's
    family.

    Raises:
        RecipeError: there is no such family.
        ModelError: a package is not installed, the model cannot be loaded, its directory says that
            its weights are used otherwise (see `saved.check_settings`), or what a family of the
            user's opens is no `Policy`.
        DeviceMemoryError: the model does not fit into the device's memory.
    """
    options = options_of(section.family)
    if type(section) is ModelSection:  # the family's own options have their defaults
        section = options.model.model_validate(section.model_dump(exclude_unset=True))
    assert isinstance(section, options.model), "a section of another family's class"
    source = local_model(source)
    check_model(section, source)
    if options.policy:
        reach_hub(source)
    family = (import_own if options.policy else import_named)(
        options.policy or section.family, "policy family"
    )
    advice = (
        "use a device with more of it (model.device: cpu, too), a smaller model, or a new run with "
        "model.quantize: 4bit"
    )
    keep_pages()
    what, fix = (
        f"the model in {source} cannot be used here",
        "use another model, or the files that were published with it",
    )
    # A family of the user's own shows its own errors, with where they came from.
    with (
        clear_memory_errors(advice),
        clear_opening_errors(what, fix) if options.policy else nullcontext(),
    ):
        policy = family.open(section, source, seed)
    from plumbline.policies.policy import Policy

    if not isinstance(policy, Policy):
        raise ModelError(
            f"{section.family} opened a {type(policy).__name__}, which is no subclass of Policy",
            "inherit plumbline.policies.policy.Policy, whose defaults are what a family need not "
            "write",
        )
    return policy


def check_model(section: ModelSection, source: str | None) -> None:
    """Refuse what can be known of a model before it is opened, so that nothing is built for it in
    vain.

    Args:
        section: how it is to be opened.
        source: a directory, a GGUF file, an address (which is fetched), or a hub name (which is not
            asked for); None for one made on the spot.

    Raises:
        RecipeError: there is no such family (see `recipe.families.options_of`).
        ModelError: there is nothing at `source`, or a model of another family; a package or the
            device is missing.
    """
    ours = bool(options_of(section.family).policy)
    if source is not None:
        check_named(source, "a model")
        source = local_model(source)
        if section.trust_remote_code:
            check_consent(
                "trust_remote_code=", "model.trust_remote_code", "trust_remote_code", source
            )
        if ours:
            check_source(source)
        check_settings(section, source)
        if (
            isinstance(section, PretrainedModel)
            and section.quantize is not None
            and is_gguf(source)
        ):
            raise ModelError(
                "model.quantize: 4bit does not go with a GGUF file, which is dequantised as it is "
                "read",
                "leave out model.quantize, or give a model directory",
            )
    if section.chat_template not in {None, "chatml"}:
        read_template(str(section.chat_template))
    further = []
    if isinstance(section, PretrainedModel):
        further = [
            name
            for name, wanted in (("peft", section.lora), ("bitsandbytes", section.quantize))
            if wanted
        ]
    check_installed("a model", [*(NEEDED if ours else ("torch",)), *further])
    if section.device not in {"auto", "cpu"}:
        from plumbline.policies.pretrained.loading import choose_device

        choose_device(section)
