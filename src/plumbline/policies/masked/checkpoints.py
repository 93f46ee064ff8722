"""Checkpoints in the style of LLaDA and Dream as stock Llama and Qwen2 weights; no code of theirs is run.

LLaDA (Nie et al. 2025, arXiv:2502.09992) is a Llama without causal mask under other names. Dream (Ye et al. 2025,
arXiv:2508.15487) keeps Qwen2's names and predicts place i at place i - 1, because it was made from a causal model.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from plumbline.errors import ModelError
from plumbline.storage import read_object

LLADA_NAMES = {
    r"^model\.transformer\.wte\.": "model.embed_tokens.",
    r"^model\.transformer\.ln_f\.": "model.norm.",
    r"^model\.transformer\.ff_out\.": "lm_head.",
    r"^model\.transformer\.blocks\.(\d+)\.attn_norm\.": r"model.layers.\1.input_layernorm.",
    r"^model\.transformer\.blocks\.(\d+)\.q_proj\.": r"model.layers.\1.self_attn.q_proj.",
    r"^model\.transformer\.blocks\.(\d+)\.k_proj\.": r"model.layers.\1.self_attn.k_proj.",
    r"^model\.transformer\.blocks\.(\d+)\.v_proj\.": r"model.layers.\1.self_attn.v_proj.",
    r"^model\.transformer\.blocks\.(\d+)\.attn_out\.": r"model.layers.\1.self_attn.o_proj.",
    r"^model\.transformer\.blocks\.(\d+)\.ff_norm\.": r"model.layers.\1.post_attention_layernorm.",
    r"^model\.transformer\.blocks\.(\d+)\.ff_proj\.": r"model.layers.\1.mlp.gate_proj.",
    r"^model\.transformer\.blocks\.(\d+)\.up_proj\.": r"model.layers.\1.mlp.up_proj.",
    r"^model\.transformer\.blocks\.(\d+)\.ff_out\.": r"model.layers.\1.mlp.down_proj.",
}
"""LLaDA's names of weights and Llama's."""


def config_of(source: str) -> Any:
    """A stock config for a LLaDA or Dream checkpoint at `source` (a directory or a hub name); None for any other.

    Raises:
        ModelError: its config.json lacks what such a checkpoint has.
    """
    from transformers.utils import cached_file

    path = cached_file(source, "config.json", _raise_exceptions_for_missing_entries=False)
    if path is None:
        return None
    values = read_object(Path(path))
    build = {"llada": _llada, "Dream": _dream}.get(str(values.get("model_type")))
    try:
        return None if build is None else build(values)
    except KeyError as error:
        raise ModelError(
            f"the config.json of {source} says model_type {values['model_type']}, but lacks {error}",
            "use the config.json that was published with these weights",
        ) from error


def _llada(values: Mapping[str, Any]) -> Any:
    from transformers import LlamaConfig

    return LlamaConfig(
        vocab_size=values.get("embedding_size") or values["vocab_size"],
        hidden_size=values["d_model"],
        intermediate_size=values["mlp_hidden_size"],
        num_hidden_layers=values["n_layers"],
        num_attention_heads=values["n_heads"],
        num_key_value_heads=values.get("n_kv_heads") or values["n_heads"],
        max_position_embeddings=values.get("max_sequence_length", 4096),
        rms_norm_eps=values.get("rms_norm_eps", 1e-5),
        rope_parameters={"rope_type": "default", "rope_theta": values.get("rope_theta", 10000.0)},
        tie_word_embeddings=values.get("weight_tying", False),
        bos_token_id=None,
        eos_token_id=values.get("eos_token_id"),
        pad_token_id=values.get("pad_token_id"),
        mask_token_id=values.get("mask_token_id"),
    )


def _dream(values: Mapping[str, Any]) -> Any:
    from transformers import Qwen2Config

    kept: tuple[str, ...] = (
        "vocab_size",
        "hidden_size",
        "intermediate_size",
        "num_hidden_layers",
        "num_attention_heads",
    )
    kept += ("num_key_value_heads", "max_position_embeddings", "rms_norm_eps", "tie_word_embeddings")
    kept += ("bos_token_id", "eos_token_id", "pad_token_id", "mask_token_id")
    return Qwen2Config(
        **{key: values[key] for key in kept if key in values},
        rope_parameters={"rope_type": "default", "rope_theta": values.get("rope_theta", 10000.0)},
        use_sliding_window=False,
        predicts_next=True,
    )
