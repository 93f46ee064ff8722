"""What stands in a model directory, and what it says about how its weights are used, without loading them."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from plumbline.errors import ModelError
from plumbline.imports import note_file
from plumbline.policies.options import PretrainedModel
from plumbline.policies.pretrained.gguf_file import header, is_gguf
from plumbline.recipe import LoraSection, ModelSection
from plumbline.remote import local_model
from plumbline.remote.nearest import instead_here
from plumbline.runs.cards import CARD
from plumbline.storage import read_object

ADAPTER = "adapter_config.json"


def is_adapter(source: str | Path) -> bool:
    """Whether a directory holds a LoRA adapter, and not the weights that it is for."""
    return (Path(source) / ADAPTER).is_file()


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
            advice = f"give the model itself: {inside}" if inside else instead_here(path)
            advice = advice or "give the model's directory"
            raise ModelError(f"{source} is a directory without a model (no config.json)", advice)
        base = adapter_base(source)
        saved_settings(source)
        if base is not None and adapter_base(base) is None:
            check_source(base)
    elif looks_like_path or path.exists() or not source.strip():
        raise ModelError(
            f"there is no model directory at {source}",
            instead_here(path)
            or "check the path, fetch a model (`plumbline get` lists them), or give a hub name such as org/model",
        )


def _is_model(path: Path) -> bool:
    return (path / "config.json").is_file() or is_adapter(path)


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
    config = Path(source) / ADAPTER
    if not is_adapter(source):
        return None
    base = read_object(config).get("base_model_name_or_path")
    if not isinstance(base, str) or not base:
        raise ModelError(f"{config} names no base model", "set base_model_name_or_path in it")
    return local_model(base)


def saved_settings(source: str) -> Mapping[str, Any]:
    """The keys of `ModelSection` that a model directory has settled, with their values; empty for any other model.

    A whole model says so in its config.json. An adapter has none: our `plumbline.json` beside it says how its weights
    are used, and its own configuration what they are (`lora`).

    Raises:
        ModelError: it is an adapter of another kind than LoRA, or its configuration is damaged.
    """
    if adapter_base(source) is not None:
        return {**_part(Path(source) / CARD, "model"), "lora": adapter_settings(source).model_dump()}
    return _part(Path(source) / "config.json", "plumbline")


def _part(path: Path, key: str) -> dict[str, Any]:
    """A mapping inside a JSON file; empty where either is not there."""
    found = read_object(path).get(key) if path.is_file() else None
    note_file(path, str(found))
    return found if isinstance(found, dict) else {}


def adapter_settings(source: str) -> LoraSection:
    """Rank, alpha and targets of the adapter in a directory.

    Raises:
        ModelError: it is an adapter of another kind than LoRA, or its configuration is damaged.
    """
    path = Path(source) / ADAPTER
    values = read_object(path)
    try:
        return LoraSection(rank=values["r"], alpha=values["lora_alpha"], targets=values["target_modules"])
    except (KeyError, TypeError, ValueError) as error:
        raise ModelError(
            f"{path} is damaged, or of an adapter that is no LoRA: {str(error).splitlines()[0]}",
            "give a LoRA adapter's directory, or merge the adapter into its base (peft: merge_and_unload)",
        ) from error


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
        lora = section.lora
        if lora is None or (lora.rank, lora.alpha) != (own.rank, own.alpha):
            wanted = "all weights" if lora is None else f"one of rank {lora.rank} and alpha {lora.alpha}"
            raise ModelError(
                f"{source} is a LoRA adapter of rank {own.rank} and alpha {own.alpha}, and the recipe trains {wanted}",
                f"set model.lora to {{rank: {own.rank}, alpha: {own.alpha}}}; to train something else, merge the "
                "adapter into its base first (peft: merge_and_unload)",
            )
