"""From a model's name to a policy, or to an error with cause and fix.

A name is a directory with weights, a LoRA adapter's directory, a GGUF file, an address or a hub
name. A saved model says in its files how it is used; the family's class loads its weights. What a
family reads of a recipe stands in its `options.py`, and which families there are in
`plumbline.recipe.families`.
"""

import math
import warnings
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from os import environ
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from plumbline.config.imports import (
    check_consent,
    check_installed,
    import_named,
    import_own,
    note_file_text,
)
from plumbline.errors import ModelError, RecipeError, UntrustedCodeError
from plumbline.policies.library_errors import clear_opening_errors
from plumbline.policies.memory import clear_memory_errors, keep_pages
from plumbline.policies.model_files import (
    ADAPTER,
    AGAIN,
    ONE_SET,
    SIZES,
    check_config,
    check_files,
    find_fault,
    find_unread,
    is_adapter,
    is_gguf,
    is_here,
    is_model,
    looks_like_path,
    models_in,
)
from plumbline.policies.options import PretrainedModel
from plumbline.policies.pretrained.chat import read_template
from plumbline.policies.pretrained.gguf_file import read_header
from plumbline.recipe import LoraSection, ModelSection, explain_foreign_key, options_of, section
from plumbline.records import Sampling
from plumbline.runs.hub import check_hub, is_cached
from plumbline.runs.metadata import METADATA, ModelMetadata
from plumbline.runs.remote import (
    check_named,
    is_address,
    is_known,
    list_alternatives,
    local_model,
    portable_path,
)
from plumbline.storage import find_object, read_object

if TYPE_CHECKING:
    from plumbline.policies.policy import Policy

NEEDED = ("torch", "transformers", "tokenizers", "safetensors", "jinja2")
"""What a model of our families needs; one of yours may need torch only."""


class LargeGgufWarning(UserWarning):
    """A file is slow to open, and can be converted."""


LARGE_GGUF = 50_000_000
"""Bytes of a GGUF file from which on reading it takes longer than ten seconds."""
KINDS: Mapping[str, Any] = {
    "family": str,
    **dict.fromkeys(("attention", "quantize"), str | None),
    "canvas": int | None,
    "predicts_next": bool | None,
}
"""Settings of ours in a model's files that are read before the family's own section checks them
all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelOptions:
    """How a model is opened and decoded by `plumbline eval` and `plumbline.evaluate`."""

    # how the keywords of `plumbline.evaluate` are checked
    __pydantic_config__: ClassVar = {"extra": "forbid"}

    temperature: float | None = None
    """None is 0."""
    greedy: bool = False
    """Says once more that the temperature is 0, so that a command line that asks for both is
    refused."""
    max_tokens: int | None = None
    """None takes what the model's own run evaluated with, else 256."""
    steps: int | None = None
    """Denoising steps; None takes what the model's own run evaluated with."""
    family: str | None = None
    """None takes what the model's directory says, else autoregressive."""
    seed: int = 0
    device: str = "auto"
    dtype: str | None = None
    """None takes that of the model's own run, else auto."""
    rows_at_once: int | None = None
    """Answers drawn at once; None leaves it to the policy."""
    chat_template: str | None = None
    allow_overlap: bool = False
    engine: str | None = None
    """vllm draws through a server that is started for it; an address asks an OpenAI-compatible
    endpoint for a model of that name; None draws in this process."""

    def __post_init__(self) -> None:
        """Refuse what contradicts itself, and what no model could be opened or sampled with.

        Raises:
            RecipeError: says which.
        """
        if self.temperature is not None and not 0 <= self.temperature < math.inf:
            raise RecipeError(
                f"the temperature is {self.temperature}", "give a number from 0 on, and not inf"
            )
        if self.engine not in {None, "vllm"} and not self.is_remote:
            raise RecipeError(
                f"there is no engine {self.engine}",
                "give vllm, or an address such as http://host:8000",
            )
        section(
            ModelSection,
            {"name": "x", "device": self.device, "dtype": self.dtype or "auto"},
            "the model's options",
        )
        if self.greedy and self.temperature:
            raise RecipeError(
                f"greedy answers have the temperature 0, not {self.temperature}",
                "leave out --greedy or --temperature",
            )

    @property
    def is_remote(self) -> bool:
        """Whether an endpoint is asked, and the model is what it calls one."""
        return self.engine is not None and self.engine.startswith(("http://", "https://"))


def options_as_trained(model: str, options: ModelOptions) -> tuple[ModelSection, Sampling]:
    """How to open a model and how to decode: as its own run did, but for what the command line
    says."""
    metadata = ModelMetadata.read(model)
    saved = {**(metadata.model if metadata is not None else {}), **saved_settings(model)}
    if "lora" not in saved:  # merged, or never quantised: 4 bits are for the base of an adapter
        saved.pop("quantize", None)
    opening = ("family", "device", "dtype", "rows_at_once", "chat_template")
    given = {key: value for key in opening if (value := getattr(options, key)) is not None}
    sampling = {**metadata.sampling} if metadata is not None else {}
    if given.get("family", saved.get("family")) != saved.get("family"):
        # what was saved is another family's; a model that says so itself is refused
        saved, sampling = {}, {}
    family = options_of({"family": "autoregressive", **saved, **given}["family"])
    opened = {**saved, **given, "name": model}
    limits = {
        "temperature": options.temperature or 0.0,
        "max_tokens": options.max_tokens,
        "steps": options.steps,
    }
    if not options.temperature:
        limits |= {"top_k": 0, "top_p": 1.0}
    sampling |= {key: value for key, value in limits.items() if value is not None}
    # more blocks than --max-tokens has tokens; a family without steps
    advice = "leave out --max-tokens or --steps"
    where = f"{model} cannot be sampled like this"
    return (
        section(
            family.model, opened, "the model's options", inside="model.", hint=explain_foreign_key
        ),
        section(
            family.sampling,
            sampling,
            where,
            inside="sampling.",
            advice=advice,
            hint=explain_foreign_key,
        ),
    )


def settled_keys(model: str) -> dict[str, Any]:
    """What a recipe that begins with a model says of it: the keys of `model` that its directory has
    settled."""
    opened, _ = options_as_trained(model, ModelOptions())
    settled = opened.model_dump(exclude_defaults=True, exclude={"name", *opened.how})
    return settled if opened.family == "autoregressive" else {"family": opened.family, **settled}


def open_policy(section: ModelSection, source: str, seed: int = 0) -> "Policy":
    """Load the model at `source` (a directory, address or hub name) as a policy of the section's
    family.

    Raises:
        RecipeError: there is no such family.
        ModelError: see `check_model`; the model cannot be loaded, or what a family of the user's
            opens is no `Policy`.
        DeviceMemoryError: the model does not fit into the device's memory.
    """
    options = options_of(section.family)
    if type(section) is ModelSection:  # the family's own options have their defaults
        section = options.model.model_validate(section.model_dump(exclude_unset=True))
    assert isinstance(section, options.model), "a section of another family's class"
    source = local_model(source)
    check_model(section, source, hub=True)
    if is_gguf(source) and (size := Path(source).stat().st_size) >= LARGE_GGUF:
        warnings.warn(
            f"{source} ({size / 1e6:.0f} MB) is dequantised whenever it is opened: `plumbline "
            f"export {source} --out models/{Path(source).stem}` makes a model directory of it once",
            LargeGgufWarning,
            stacklevel=2,
        )
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


# -- what is refused before anything is loaded -----------------------------------------------------


def check_model(section: ModelSection, source: str | None, *, hub: bool = False) -> None:
    """Refuse what can be known of a model before it is opened, so that nothing is built for it in
    vain.

    Args:
        section: how it is to be opened.
        source: a directory, a GGUF file, an address (which is fetched), or a hub name; None for one
            made on the spot.
        hub: whether the hub must answer where the model would come from it.

    Raises:
        RecipeError: there is no such family (see `recipe.families.options_of`).
        ModelError: there is nothing at `source`, or a model of another family, or one that was
            trained otherwise (see `check_settings`); a package or the device is missing.
    """
    ours = bool(options_of(section.family).policy)
    if source is not None:
        check_named(source, "a model")
        source = local_model(source)
        check_code_consent(section, source)
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
    check_installed("a model", needed_packages(section))
    if section.device not in {"auto", "cpu"}:
        from plumbline.policies.pretrained.causal_model import choose_device

        choose_device(section)
    if hub and ours and source is not None:
        reach_hub(source)


def needed_packages(section: ModelSection) -> list[str]:
    """What must be installed to open a model."""
    needed = [*(NEEDED if options_of(section.family).policy else ("torch",))]
    if isinstance(section, PretrainedModel):
        further = {"peft": section.lora, "bitsandbytes": section.quantize}
        needed += [name for name, wanted in further.items() if wanted]
    return needed


def check_code_consent(section: ModelSection, source: str) -> None:
    """Refuse a model's own code without consent to run it; see `check_consent`."""
    if section.trust_remote_code:
        check_consent("trust_remote_code=", "model.trust_remote_code", "trust_remote_code", source)


def check_source(source: str, *, whole: bool = True) -> None:
    """A path that is not there would be taken for a hub name, and fail with a message about the
    network.

    Args:
        source: a directory, a GGUF file or a hub name.
        whole: whether all its files must be there; else they may be those of a tokenizer alone.

    Raises:
        ModelError: a directory without a model, or whose files are not whole; sizes that no model
            has; no such path; no whole GGUF file; an adapter of an adapter.
        DataError: its config is not JSON.
    """
    if is_gguf(source):
        read_header(source)
        return
    path = Path(source).expanduser()
    if path.is_dir():
        if not is_model(path):
            inside = next(models_in(path), None)
            advice = f"give the model itself: {inside}" if inside else list_alternatives(path)
            advice = advice or "give the model's directory"
            raise ModelError(f"{source} is a directory without a model (no config.json)", advice)
        check_files(path)
        base = adapter_base(source)
        saved_settings(source)
        if whole and (fault := find_fault(path)):
            raise ModelError(fault, AGAIN)
        if whole and (unread := find_unread(path)):
            warnings.warn(f"{unread}: {ONE_SET}", stacklevel=1)
        if base is None:
            check_config(read_object(path / "config.json"), str(path / "config.json"))
        elif is_adapter(base):
            raise ModelError(
                f"the base of the adapter in {source} is an adapter itself ({base})",
                "merge that one into its own base first (peft: merge_and_unload)",
            )
        else:
            check_source(base)
    elif looks_like_path(source) or path.exists() or not source.strip():
        raise ModelError(
            f"there is no model directory at {source}",
            list_alternatives(path)
            or (
                "check the path, fetch a model (`plumbline get` lists them), or give a hub name "
                "such as org/model"
            ),
        )


def reach_hub(source: str) -> None:
    """See that the hub answers where a model, or the base of an adapter, would come from it; see
    `plumbline.runs.hub.check_hub`.

    Raises:
        ModelError: it does not, and the model is not in the hub's cache.
    """
    name = adapter_base(source) or source
    if not is_here(name):
        check_hub(name, cached=is_cached(name))


def check_settings(section: ModelSection, source: str) -> None:
    """Refuse a section that asks for other uses of the weights than their directory says.

    What an adapter's targets are can only be told on the model itself: the loader compares them.

    Raises:
        ModelError: names the first key that differs, and the value to set.
    """
    saved = saved_settings(source)
    if saved.get("family", section.family) != section.family:
        raise ModelError(
            f"the model in {source} is of family {saved['family']}, not {section.family}",
            f"set model.family to {saved['family']}",
        )
    values = section.model_dump(include={"attention", "quantize", "predicts_next"})
    for key, value in values.items():
        if saved.get(key, value) != value:
            raise ModelError(
                f"the model in {source} was trained with {key}: {saved[key]}, not {value}",
                f"set model.{key} to {saved[key] or 'null'}",
            )
    if is_adapter(source) and isinstance(section, PretrainedModel):
        own = adapter_settings(source)
        what = f"the adapter in {source} is of another model"
        with clear_opening_errors(what, f"check its {ADAPTER}"):
            _check_adapter(read_object(Path(source) / ADAPTER), source)
        lora = section.lora
        if lora is None or (lora.rank, lora.alpha) != (own.rank, own.alpha):
            wanted = (
                "all weights" if lora is None else f"one of rank {lora.rank} and alpha {lora.alpha}"
            )
            raise ModelError(
                f"{source} is a LoRA adapter of rank {own.rank} and alpha {own.alpha}, and the "
                f"recipe trains {wanted}",
                f"set model.lora to {{rank: {own.rank}, alpha: {own.alpha}}}; to train something "
                "else, merge the "
                "adapter into its base first (peft: merge_and_unload)",
            )


BEGINNINGS = ("gaussian", "eva", "orthogonal", "mica")
"""What may stand in init_lora_weights: the others change the base as well, to what no file
holds."""
MOST_RANK = 2**15
"""Of an adapter: as many as the states of the largest models have elements."""


def _check_adapter(config: Mapping[str, Any], folder: str) -> None:
    """Refuse an adapter that needs another base than the one it names, or sizes that none has.

    Raises:
        ModelError: names the key.
    """
    begun = config.get("init_lora_weights")
    if not isinstance(begun, bool | None) and begun not in BEGINNINGS:
        raise ModelError(
            f"the adapter in {folder} began with init_lora_weights {str(begun)[:80]!r}, which "
            "changes its base as well",
            "save it as a plain LoRA adapter (peft: save_pretrained with "
            "path_initial_model_for_weight_conversion)",
        )
    layers = sum(end - start for start, end in config.get("layer_replication") or ())
    ranks = [
        rank
        for rank in (config["r"], *(config.get("rank_pattern") or {}).values())
        if rank > MOST_RANK
    ]
    if layers > SIZES["num_hidden_layers"] or ranks:
        what = f"has a rank of {max(ranks):,}" if ranks else f"repeats {layers:,} layers"
        raise ModelError(
            f"the adapter in {folder} {what}, which is no size", f"use the {ADAPTER} saved with it"
        )


# -- where a model is ------------------------------------------------------------------------------


def find_model_path(name: str) -> Path | None:
    """Where a model is on this machine; None where it lies at an address that may not be asked (see
    `check_named`)."""
    try:
        check_named(name, "a model")
    except UntrustedCodeError:  # which is said of the checkpoint
        return None
    return Path(local_model(name)).expanduser()


def find_model_folder(name: str) -> Path | None:
    """The directory with a model's weights: itself, an adapter's base, or transformers' cache; None
    without one."""
    path = None if is_gguf(name) else find_model_path(name)
    if path is None:
        return None
    if path.is_dir():
        base = adapter_base(str(path))
        return path if base is None else find_model_folder(base)
    hub = Path(
        environ.get("HF_HUB_CACHE") or f"{environ.get('HF_HOME') or '~/.cache/huggingface'}/hub"
    ).expanduser()
    snapshots = hub / f"models--{name.replace('/', '--')}" / "snapshots"
    whole = [found for found in sorted(snapshots.glob("*")) if (found / "config.json").is_file()]
    return whole[-1] if whole else None


def is_hub_name(name: str) -> bool:
    """Whether a name is one of the hub's, and no path."""
    return name.count("/") == 1 and not looks_like_path(name) and not Path(name).exists()


def find_run(model: str) -> Path | None:
    """The folder of the run among whose models a model lies."""
    place = Path(model).absolute()
    ours = place.parent.name == "models" and (place.parents[1] / "recipe.yaml").is_file()
    return place.parents[1] if ours else None


# -- what a saved model says of itself -------------------------------------------------------------


def adapter_base(source: str) -> str | None:
    """The model that the LoRA adapter in a directory belongs to; None where there is no adapter.

    Raises:
        ModelError: its adapter_config.json names none, or an address that this machine was not told
            of.
    """
    config = Path(source) / ADAPTER
    if not is_adapter(source):
        return None
    base = read_object(config).get("base_model_name_or_path")
    if not isinstance(base, str) or not base:
        raise ModelError(f"{config} names no base model", "set base_model_name_or_path in it")
    if is_address(base) and not _is_trusted(base, source):
        raise ModelError(
            f"{config} names a base model at the address {base}, and nothing is fetched because a "
            "file says so",
            "where you trust it, fetch that model yourself, and set base_model_name_or_path to its "
            "folder",
        )
    return local_model(base)


def _is_trusted(base: str, adapter: str) -> bool:
    """Whether an adapter is from the same store as its base, or this machine has fetched from that
    address before."""
    return portable_path(str(Path(adapter).resolve())).split("/", 3)[:3] == base.split("/", 3)[
        :3
    ] or is_known(base)


def saved_settings(source: str) -> Mapping[str, Any]:
    """The keys of `ModelSection` that a model directory has settled, with their values; empty for
    any other model.

    A whole model says so in its config.json. An adapter has none: our `plumbline.json` beside it
    says how its weights are used, and its own configuration what they are (`lora`).

    Raises:
        ModelError: it is an adapter of another kind than LoRA, or its configuration is damaged.
    """
    if adapter_base(source) is not None:
        return {
            **_read_mapping(Path(source) / METADATA, "model"),
            "lora": adapter_settings(source).model_dump(),
        }
    return _read_mapping(Path(source) / "config.json", "plumbline")


def _read_mapping(path: Path, key: str) -> dict[str, Any]:
    """A mapping inside a JSON file, of settings as a recipe has them; empty where either is not
    there.

    Raises:
        ModelError: it is no mapping, or one of them is of another type.
    """
    found = find_object(path).get(key)
    note_file_text(path, str(found))
    for name, value in (
        found.items() if isinstance(found, dict) else [(key, found)] if found is not None else ()
    ):
        if not isinstance(found, dict) or not isinstance(value, KINDS.get(name, object)):
            raise ModelError(
                f"{path} says {name}: {str(value)[:80]!r}, which is no {name}",
                f"correct {key} in it",
            )
    return found or {}


def adapter_settings(source: str) -> LoraSection:
    """Rank, alpha and targets of the adapter in a directory.

    Raises:
        ModelError: it is an adapter of another kind than LoRA, or its configuration is damaged.
    """
    path = Path(source) / ADAPTER
    values = read_object(path)
    try:
        targets = values["target_modules"]  # none where it has target_parameters alone
        return LoraSection(
            rank=values["r"], alpha=values["lora_alpha"], targets=[] if targets is None else targets
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ModelError(
            f"{path} is damaged, or of an adapter that is no LoRA: {str(error).splitlines()[0]}",
            "give a LoRA adapter's directory, or merge the adapter into its base (peft: "
            "merge_and_unload)",
        ) from error
