"""Checkpoints whose files name classes that only their own code has, as what transformers has. No such code is run."""

from collections.abc import Mapping
from typing import Any

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
TOKENIZERS = {"DreamTokenizer": "Qwen2Tokenizer"}
"""Classes of tokenizers that only a checkpoint's own code has, and those of transformers that read the same files."""


def stock_config(kind: Any, values: Mapping[str, Any], **more: Any) -> Any:
    """A config of the transformers class `kind` from a config.json of a model that is one under another name.

    Nothing else is left out: what `kind` does not know stays on the config as it was read.
    """
    own = {key: value for key, value in values.items() if key not in FOREIGN}
    if own.get("rope_scaling", ...) is None:  # which transformers has under another key now
        del own["rope_scaling"]
    return kind(**own, **more)


def stock_tokenizer(source: str) -> Any:
    """The transformers class for a tokenizer of `TOKENIZERS`; None where its files name one that transformers has.

    Raises:
        OSError, ValueError: its tokenizer_config.json cannot be read.
    """
    import transformers
    from transformers.models.auto.tokenization_auto import get_tokenizer_config

    if is_gguf(source):
        return None
    name = TOKENIZERS.get(str(get_tokenizer_config(source).get("tokenizer_class")))
    return None if name is None else getattr(transformers, name)
