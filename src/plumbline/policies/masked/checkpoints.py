"""Published masked-diffusion checkpoints as stock Llama, Qwen2 and Qwen3 weights; no code of theirs is run.

LLaDA (Nie et al. 2025, arXiv:2502.09992) is a Llama without causal mask under other names. Dream (Ye et al. 2025,
arXiv:2508.15487) keeps Qwen2's names and predicts place i at place i - 1, because it was made from a causal model. The
models of dllm (arXiv:2602.22661) are Qwen3, Qwen2 and Llama without causal mask. SDAR (arXiv:2510.06303) is a Qwen3
that writes block after block. docs/checkpoints.md says where each layout is from.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from plumbline.errors import ModelError
from plumbline.policies.pretrained.stock import FOREIGN, refuse_unread, stock_config
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
LLADA_IS = {
    "block_type": "llama",
    "activation_type": "silu",
    "layer_norm_type": "rms",
    "rope": True,
    "alibi": False,
    "attention_layer_norm": False,
    "input_emb_norm": False,
    "scale_logits": False,
    "include_bias": False,
    "include_qkv_bias": False,
    "bias_for_layer_norm": False,
    "multi_query_attention": False,
    "layer_norm_with_affine": True,
}
"""What the switches of a LLaDA config say where the network is a Llama; null stands for false there."""
LLADA_READS = frozenset({
    *("vocab_size", "embedding_size", "d_model", "mlp_hidden_size", "n_layers", "n_heads", "n_kv_heads"),
    *("max_sequence_length", "rms_norm_eps", "rope_theta", "rope_scaling", "weight_tying", "eos_token_id"),
    *("pad_token_id", "mask_token_id"),
})  # fmt: skip
LLADA_HARMLESS = frozenset({
    *("alibi_bias_max", "attention_dropout", "attention_layer_norm_with_affine", "block_group_size", "plumbline"),
    *("embedding_dropout", "flash_attention", "init_cutoff_factor", "init_device", "init_fn", "init_std"),
    *("mlp_ratio", "precision", "residual_dropout", "rope_full_precision", "use_cache", "bos_token_id"),
})  # fmt: skip
"""Keys of a LLaDA config that decide no logits where the switches are as above: dropout is off, and `mlp_hidden_size`
stands for `mlp_ratio`."""


def config_of(source: str) -> Any:
    """A stock config for one of the checkpoints above at `source` (a directory or a hub name); None for any other.

    Raises:
        ModelError: its config.json lacks what such a checkpoint has, or asks for a network that no stock model is.
    """
    from transformers.utils import cached_file

    path = cached_file(
        source, "config.json", _raise_exceptions_for_missing_entries=False, local_files_only=Path(source).is_dir()
    )
    if path is None:
        return None
    values = read_object(Path(path))
    build = KINDS.get(str(values.get("model_type")))
    try:
        return None if build is None else build(values)
    except KeyError as error:
        raise ModelError(
            f"the config.json of {source} says model_type {values['model_type']}, but lacks {error}",
            "use the config.json that was published with these weights",
        ) from error


def _llada(values: Mapping[str, Any]) -> Any:
    from transformers import LlamaConfig

    odd = {key: values[key] for key, is_ in LLADA_IS.items() if key in values and (values[key] or False) != is_}
    if odd:
        raise ModelError(
            "this LLaDA checkpoint is no Llama: its config.json says "
            + ", ".join(f"{key}: {value}" for key, value in odd.items()),
            "use LLaDA-8B-Base, LLaDA-8B-Instruct or LLaDA-1.5, whose layout is known here",
        )
    refuse_unread(values.keys() - LLADA_IS.keys() - LLADA_READS - LLADA_HARMLESS - {*FOREIGN}, "llada")
    scaling = dict(values.get("rope_scaling") or {})
    kind = scaling.pop("type", scaling.pop("rope_type", "default"))
    return LlamaConfig(
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


def _dream(values: Mapping[str, Any]) -> Any:
    from transformers import Qwen2Config

    return stock_config(Qwen2Config, values, predicts_next=True)


def _a2d(values: Mapping[str, Any]) -> Any:
    from transformers import LlamaConfig, Qwen2Config, Qwen3Config

    kinds = {"a2d-qwen3": Qwen3Config, "a2d-qwen2": Qwen2Config, "a2d-llama": LlamaConfig}
    return stock_config(kinds[values["model_type"]], values)


def _sdar(values: Mapping[str, Any]) -> Any:
    from transformers import Qwen3Config

    return stock_config(Qwen3Config, values, **{BLOCKWISE: True})


BLOCKWISE = "writes_blocks"
"""What the config of a model says here that attends block by block; `block_size` in it says how long a block is."""
KINDS: Mapping[str, Callable[[Mapping[str, Any]], Any]] = {
    "llada": _llada,
    "Dream": _dream,
    "a2d-qwen3": _a2d,
    "a2d-qwen2": _a2d,
    "a2d-llama": _a2d,
    "sdar": _sdar,
}
"""By a config's model_type, what makes a stock config of it."""
