"""The shape of a model, from its config or from a table of published ones: how many weights,
without loading any."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from plumbline.policies.opening import find_model_folder
from plumbline.recipe import TinySection
from plumbline.storage import read_object, read_text


@dataclass(frozen=True, slots=True, kw_only=True)
class Shapes:
    """Sizes of a decoder of the Llama family (Llama, Mistral, Qwen: attention, gated feed-forward,
    RMS norms)."""

    layers: int
    hidden: int
    inner: int
    heads: int
    kv_heads: int
    head_size: int
    vocabulary: int
    tied: bool
    """Whether the embedding is the head's matrix, too."""
    norms_of_heads: bool = False
    """Queries and keys have norms of their own (Qwen3)."""
    context: int | None = None
    dtype_bytes: int = 4
    """Of a weight in the model's files."""
    source: str = "its config.json"

    @property
    def parameters(self) -> int:
        """All weights."""
        queries, keys = self.heads * self.head_size, self.kv_heads * self.head_size
        matrices = self.hidden * (2 * queries + 2 * keys + 3 * self.inner)
        norms = 2 * self.hidden + (2 * self.head_size if self.norms_of_heads else 0)
        embeddings = self.vocabulary * self.hidden * (1 if self.tied else 2)
        return self.layers * (matrices + norms) + self.hidden + embeddings


def find_shapes(name: str) -> Shapes | None:
    """The shape of the model that a recipe names, from what is on disk or from the table; None
    where it is not known.

    Raises:
        ModelError, DataError: what is on disk is damaged.
    """
    folder = find_model_folder(name)
    if folder is not None and (folder / "config.json").is_file():
        return shapes_from_config(read_object(folder / "config.json"))
    return load_published().get(name.lower())


def shapes_from_config(config: Mapping[str, Any]) -> Shapes | None:
    """The shape that a config.json tells; None where it is of another kind of model."""
    values = config.get("text_config") or config
    keys = (
        "num_hidden_layers",
        "hidden_size",
        "intermediate_size",
        "num_attention_heads",
        "vocab_size",
    )
    if not all(isinstance(values.get(key), int) for key in keys):
        return None
    layers, hidden, inner, heads, vocabulary = (values[key] for key in keys)
    dtype = str(values.get("dtype") or values.get("torch_dtype") or "float32")
    return Shapes(
        layers=layers,
        hidden=hidden,
        inner=inner,
        heads=heads,
        kv_heads=values.get("num_key_value_heads") or heads,
        head_size=values.get("head_dim") or hidden // heads,
        vocabulary=vocabulary,
        tied=bool(values.get("tie_word_embeddings", config.get("tie_word_embeddings", False))),
        norms_of_heads=str(values.get("model_type")).startswith("qwen3"),
        context=values.get("max_position_embeddings"),
        dtype_bytes=2 if dtype.endswith("16") else 4,
    )


def shapes_from_tiny(tiny: TinySection) -> Shapes:
    """The shape of the model that is made on the spot."""
    heads, given = (
        tiny.heads,
        tiny.model_dump(include={"layers", "hidden", "heads", "vocabulary", "context"}),
    )
    size = tiny.hidden // heads
    return Shapes(
        **given, inner=tiny.inner, kv_heads=heads, head_size=size, tied=True, source="model.tiny"
    )


@cache
def load_published() -> Mapping[str, Shapes]:
    """The table, by name in small letters."""
    values = yaml.safe_load(read_text(Path(__file__).parent / "published.yaml"))
    return {name.lower(): Shapes(**each) for name, each in values.items()}
