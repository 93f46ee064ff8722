"""What a model directory says about how its weights are used, without loading them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from plumbline.errors import ModelError
from plumbline.recipe import LoraSection, ModelSection
from plumbline.runs.cards import CARD
from plumbline.storage import read_json

ADAPTER = "adapter_config.json"


def is_adapter(source: str | Path) -> bool:
    """Whether a directory holds a LoRA adapter, and not the weights that it is for."""
    return (Path(source) / ADAPTER).is_file()


def saved_settings(source: str) -> Mapping[str, Any]:
    """The keys of `ModelSection` that a model directory has settled, with their values; empty for any other model.

    A whole model says so in its config.json. An adapter has none: our `plumbline.json` beside it says how its weights
    are used, and its own configuration what they are (`lora`).

    Raises:
        ModelError: it is an adapter of another kind than LoRA, or its configuration is damaged.
    """
    if is_adapter(source):
        return {**_part(Path(source) / CARD, "model"), "lora": adapter_settings(source).model_dump()}
    return _part(Path(source) / "config.json", "plumbline")


def _part(path: Path, key: str) -> dict[str, Any]:
    """A mapping inside a JSON file; empty where either is not there."""
    values = read_json(path) if path.is_file() else None
    found = values.get(key) if isinstance(values, dict) else None
    return found if isinstance(found, dict) else {}


def adapter_settings(source: str) -> LoraSection:
    """Rank, alpha and targets of the adapter in a directory.

    Raises:
        ModelError: it is an adapter of another kind than LoRA, or its configuration is damaged.
    """
    path = Path(source) / ADAPTER
    values = read_json(path)
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
    if saved.get("attention", section.attention) != section.attention:
        raise ModelError(
            f"the model in {source} was trained with {saved['attention']} attention, not {section.attention}",
            f"set model.attention to {saved['attention']}",
        )
    if saved.get("quantize", section.quantize) != section.quantize:
        raise ModelError(
            f"the adapter in {source} was trained on a base with quantize: {saved['quantize']}, not {section.quantize}",
            f"set model.quantize to {saved['quantize'] or 'null'}",
        )
    if is_adapter(source):
        own = adapter_settings(source)
        lora = section.lora
        if lora is None or (lora.rank, lora.alpha) != (own.rank, own.alpha):
            wanted = "all weights" if lora is None else f"one of rank {lora.rank} and alpha {lora.alpha}"
            raise ModelError(
                f"{source} is a LoRA adapter of rank {own.rank} and alpha {own.alpha}, and the recipe trains {wanted}",
                f"set model.lora to {{rank: {own.rank}, alpha: {own.alpha}}}; to train something else, merge the "
                "adapter into its base first (peft: merge_and_unload)",
            )
