"""Checkpoints whose files name classes that only their own code has, as what transformers has. No such code is run."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from plumbline.errors import ModelError
from plumbline.policies.pretrained.gguf_file import is_gguf

FOREIGN = (
    "model_type",
    "architectures",
    "auto_map",
    "transformers_version",
    "dtype",
    "torch_dtype",
    "attn_implementation",
    "_name_or_path",
)
"""Keys of a config.json that name code, or say how it is run; a model saved from here is one that transformers has."""
HARMLESS = frozenset({
    *("rope_scaling", "rope_theta", "use_sliding_window", "max_window_layers", "use_mrope", "bos_token_id"),
    *("eos_token_id", "pad_token_id", "mask_token_id", "block_size", "debug", "ep_size", "fuse_cross_entropy"),
    *("micro_forward", "skip_checkpoint", "use_deepep", "plumbline", "predicts_next", "writes_blocks", "use_cache"),
    *("tie_word_embeddings", "torch_dtype", "attn_implementation", "_attn_implementation", "_name_or_path"),
})  # fmt: skip
"""Keys beyond those of the stock classes that are read elsewhere, or say how a model was trained or is run."""
TOKENIZERS = {"DreamTokenizer": "Qwen2Tokenizer"}
"""Classes of tokenizers that only a checkpoint's own code has, and those of transformers that read the same files."""


def stock_config(kind: Any, values: Mapping[str, Any], **more: Any) -> Any:
    """A config of the transformers class `kind` from a config.json of a model that is one under another name.

    Raises:
        ModelError: it has keys that `kind` does not know and that are not known to change nothing.
    """
    own = {key: value for key, value in values.items() if key not in FOREIGN}
    if own.get("rope_scaling", ...) is None:  # which transformers has under another key now
        del own["rope_scaling"]
    config = kind(**own, **more)
    refuse_unread(own.keys() - kind().to_dict().keys() - HARMLESS - more.keys(), str(values.get("model_type")))
    return config


def refuse_unread(keys: Iterable[str], model_type: str) -> None:
    """Refuse a config.json with keys that nobody here reads: one of them may decide the logits.

    Raises:
        ModelError: names them.
    """
    if unread := sorted(keys):
        raise ModelError(
            f"the config.json of this {model_type} checkpoint says {', '.join(unread[:5])}, which is not read here and "
            "may change what the model computes",
            "use the config.json that was published with these weights, or delete the keys that change nothing",
        )


def stock_tokenizer(source: str) -> Any:
    """The transformers class for a tokenizer of `TOKENIZERS`; None where its files name one that transformers has.

    Raises:
        OSError, ValueError: its tokenizer_config.json cannot be read.
    """
    import transformers
    from transformers.models.auto.tokenization_auto import get_tokenizer_config

    if is_gguf(source):
        return None
    name = TOKENIZERS.get(
        str(get_tokenizer_config(source, local_files_only=Path(source).is_dir()).get("tokenizer_class"))
    )
    return None if name is None else getattr(transformers, name)
