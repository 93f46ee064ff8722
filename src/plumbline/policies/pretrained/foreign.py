"""Checkpoints whose files name classes that only their own code has, as what transformers has; no
code of theirs is run.

LLaDA (Nie et al. 2025, arXiv:2502.09992) is a Llama without causal mask under other names. Dream
(Ye et al. 2025, arXiv:2508.15487) keeps Qwen2's names and predicts place i at place i - 1,
because it was made from a causal model. The models of dllm (arXiv:2602.22661) are Qwen3, Qwen2
and Llama without causal mask. SDAR (arXiv:2510.06303) is a Qwen3 that writes block after block,
and ReFusion (arXiv:2512.13586) one that writes slots. docs/diffusion.md says where each layout
is from.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import transformers
from transformers.utils import cached_file

from plumbline.config.overrides import read_package_yaml
from plumbline.errors import ModelError
from plumbline.storage import read_object

LAYOUTS = read_package_yaml(Path(__file__).with_name("foreign.yaml"))
"""What is known of these checkpoints: see the file."""
LLADA = LAYOUTS["llada"]
LLADA_NAMES: Mapping[str, str] = LLADA["names"]
BLOCKWISE = "writes_blocks"
"""What the config of a model says here that attends block by block; `block_size` in it says how
long a block is."""


def _stock_config(name: str, values: Mapping[str, Any], **more: Any) -> Any:
    """A config of the transformers class `name` from a config.json of a model that is one under
    another name.

    Raises:
        ModelError: it has keys that the class does not know and that are not known to change
            nothing.
    """
    kind = getattr(transformers, name)
    own = {key: value for key, value in values.items() if key not in LAYOUTS["foreign"]}
    if own.get("rope_scaling", ...) is None:  # which transformers has under another key now
        del own["rope_scaling"]
    config = kind(**own, **more)
    known = {*kind().to_dict(), *LAYOUTS["harmless"], *more}
    _refuse_unread(own.keys() - known, str(values.get("model_type")))
    return config


def _refuse_unread(keys: Iterable[str], model_type: str) -> None:
    """Refuse a config.json with keys that nobody here reads: one of them may decide the logits.

    Raises:
        ModelError: names them.
    """
    if unread := sorted(keys):
        raise ModelError(
            f"the config.json of this {model_type} checkpoint says {', '.join(unread[:5])}, which "
            "is not read here and "
            "may change what the model computes",
            "use the config.json that was published with these weights, or delete the keys that "
            "change nothing",
        )


def masked_config(source: str) -> Any:
    """A stock config for a masked-diffusion checkpoint at `source` (a directory or a hub name);
    None for one that transformers has.

    Raises:
        ModelError: its config.json lacks what such a checkpoint has, or asks for a network that no
            stock model is.
    """
    values = _read_config(source)
    model_type = str(values.get("model_type"))
    if model_type in LAYOUTS["stock"]:
        return _stock_config(values=values, **LAYOUTS["stock"][model_type])
    try:
        return _llada_config(values) if model_type == "llada" else None
    except KeyError as error:
        raise ModelError(
            f"the config.json of {source} says model_type {model_type}, but lacks {error}",
            "use the config.json that was published with these weights",
        ) from error


def slot_config(source: str) -> Any:
    """A Qwen3Config for a ReFusion checkpoint; None for every other model."""
    values = _read_config(source)
    named = [values.get(key) for key in ("model_type", "architectures", "auto_map")]
    return _stock_config("Qwen3Config", values) if "refusion" in str(named).lower() else None


def _read_config(source: str) -> Mapping[str, Any]:
    path = cached_file(
        source,
        "config.json",
        _raise_exceptions_for_missing_entries=False,
        local_files_only=Path(source).is_dir(),
    )
    return {} if path is None else read_object(Path(path))


def _llada_config(values: Mapping[str, Any]) -> Any:
    odd = {
        key: values[key]
        for key, is_ in LLADA["is"].items()
        if key in values and (values[key] or False) != is_
    }
    if odd:
        raise ModelError(
            "this LLaDA checkpoint is no Llama: its config.json says "
            + ", ".join(f"{key}: {value}" for key, value in odd.items()),
            "use LLaDA-8B-Base, LLaDA-8B-Instruct or LLaDA-1.5, whose layout is known here",
        )
    known = {*LLADA["is"], *LLADA["reads"], *LLADA["harmless"], *LAYOUTS["foreign"]}
    _refuse_unread(values.keys() - known, "llada")
    scaling = dict(values.get("rope_scaling") or {})
    kind = scaling.pop("type", scaling.pop("rope_type", "default"))
    return transformers.LlamaConfig(
        vocab_size=values.get("embedding_size") or values["vocab_size"],
        hidden_size=values["d_model"],
        intermediate_size=values["mlp_hidden_size"],
        num_hidden_layers=values["n_layers"],
        num_attention_heads=values["n_heads"],
        num_key_value_heads=values.get("n_kv_heads") or values["n_heads"],
        max_position_embeddings=values.get("max_sequence_length", 4096),
        rms_norm_eps=values["rms_norm_eps"],
        rope_parameters={"rope_type": kind, "rope_theta": values["rope_theta"], **scaling},
        tie_word_embeddings=values["weight_tying"],
        bos_token_id=None,
        eos_token_id=values.get("eos_token_id"),
        pad_token_id=values.get("pad_token_id"),
        mask_token_id=values.get("mask_token_id"),
    )
