"""Models that sample trajectories and score them by one law. `open_policy` opens one by its family's name.

`FAMILIES` lists the families that come with Plumbline; `module:Class` opens one of yours.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plumbline.errors import ModelError, RecipeError
from plumbline.imports import check_installed, named
from plumbline.policies.pretrained.gguf_file import header, is_gguf
from plumbline.recipe import ModelSection
from plumbline.storage import read_object, read_text

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
        ModelError: torch is not installed, the model cannot be loaded, or its directory says that it is of another
            family.
    """
    check_model(section, source)
    policy: Policy = named(FAMILIES.get(section.family, section.family), "policy family").open(section, source, seed)
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
        _check_meaning(section, source)
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


def check_source(source: str) -> None:
    """A path that is not there would be taken for a hub name, and fail with a message about the network.

    Raises:
        ModelError: a directory without a model, no such path, or no whole GGUF file.
        DataError: its config is not JSON.
    """
    if is_gguf(source):
        header(source)
        return
    path = Path(source).expanduser()
    # `models/` is where `plumbline get` puts what it fetches, and `runs/` where runs are: no hub is asked for those.
    looks_like_path = source.startswith((".", "/", "~", "models/", "runs/")) or source.count("/") > 1
    if path.is_dir():
        if not _is_model(path):
            inside = next(_models_in(path), None)
            advice = f"give the model itself: {inside}" if inside else "give the model's directory"
            raise ModelError(f"{source} is a directory without a model (no config.json)", advice)
        _saved(source)
        base = adapter_base(source)
        if base is not None and adapter_base(base) is None:
            check_source(base)
    elif looks_like_path or path.exists() or not source.strip():
        raise ModelError(
            f"there is no model directory at {source}",
            "check the path, fetch a model (`plumbline get` lists them), or give a hub name such as org/model",
        )


def _is_model(path: Path) -> bool:
    return (path / "config.json").is_file() or (path / "adapter_config.json").is_file()


def _models_in(path: Path) -> Iterator[Path]:
    """Models that somebody may mean who names this folder: of a run its last stage's, then any in it."""
    for place in (path / "models", path):
        yield from (found for stage in ("rl", "sft", "base") if _is_model(found := place / stage))
    yield from sorted(path.glob("*.gguf"))
    yield from sorted(found for found in path.glob("*") if _is_model(found))


def adapter_base(source: str) -> str | None:
    """The model that the LoRA adapter in a directory belongs to; None where there is no adapter.

    Raises:
        ModelError: its adapter_config.json names none.
    """
    config = Path(source) / "adapter_config.json"
    if not config.is_file():
        return None
    base = read_object(config).get("base_model_name_or_path")
    if not isinstance(base, str) or not base:
        raise ModelError(f"{config} names no base model", "set base_model_name_or_path in it")
    return base


def read_template(path: str) -> str:
    """A chat template from its file.

    Raises:
        ModelError: it cannot be read.
    """
    if not Path(path).is_file():
        raise ModelError(
            f"cannot read the chat template {path}: there is no such file", "give chatml, or the path of a Jinja file"
        )
    return read_text(Path(path), ModelError)


def _check_meaning(section: ModelSection, source: str) -> None:
    """Refuse a model of ours whose weights mean something else than the section says."""
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


def saved_family(source: str) -> str | None:
    """The family that a model directory of ours says it is of; None for any other model."""
    family = _saved(source).get("family")
    return family if isinstance(family, str) else None


def _saved(source: str) -> dict[str, Any]:
    """What a model directory says about how its weights are used."""
    config = Path(source) / "config.json"
    saved = read_object(config).get("plumbline") if config.is_file() else None
    return saved if isinstance(saved, dict) else {}
