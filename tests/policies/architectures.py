"""A tiny model of any causal architecture of the installed transformers, with random weights: what
it gives here against transformers' own forward pass of one sequence at a time.

A model is made, opened, asked for three answers each of two prompts (rows end at different times),
scored, and given one batch of supervised training; then the same with LoRA, which is saved, opened
again and merged. All numbers are of float32.
"""

import dataclasses
from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from torch import Tensor
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from plumbline.errors import PlumblineError
from plumbline.policies import open_policy
from plumbline.policies.autoregressive.options import AutoregressiveModel
from plumbline.policies.opening import adapter_settings
from plumbline.policies.pretrained.adapters import write_full
from plumbline.policies.pretrained.chat import CHATML
from plumbline.policies.sampling_distribution import noises
from plumbline.recipe import LoraSection
from plumbline.records import Request, Sampling, Trajectory

MOST = 30_000_000
"""Weights of a model that is tried."""
VOCABULARY, WIDTH, LAYERS, HEADS, WINDOW = 320, 64, 4, 4, 32

ALIKE = 1e-3
"""Nats, and share of a gradient, up to which two numbers are called equal here; most are below
1e-5."""
SIZES: dict[str, Any] = {
    **dict.fromkeys(("vocab_size", "unpadded_vocab_size", "vocab_size_per_layer_input"), VOCABULARY),
    **dict.fromkeys(("hidden_size", "n_embd", "d_model", "emb_dim", "embedding_size", "lru_width"), WIDTH),
    **dict.fromkeys(("intermediate_size", "n_inner", "ffn_dim", "decoder_ffn_dim", "d_inner", "dim_ff", "dff"), 128),
    **dict.fromkeys(("ffn_hidden_size", "feed_forward_size", "dense_intermediate_size", "intermediate_size_mlp"), 128),
    **dict.fromkeys(("num_hidden_layers", "n_layer", "n_layers", "num_layers", "decoder_layers"), LAYERS),
    **dict.fromkeys(("num_attention_heads", "n_head", "n_heads", "num_heads", "attention_heads"), HEADS),
    **dict.fromkeys(("decoder_attention_heads", "num_decoder_attention_heads", "swa_num_attention_heads"), HEADS),
    **dict.fromkeys(("encoder_layers", "num_encoder_layers"), 1),
    **dict.fromkeys(("num_key_value_heads", "num_kv_heads", "swa_num_key_value_heads"), 2),
    **dict.fromkeys(("head_dim", "swa_head_dim", "global_head_dim", "linear_head_dim", "attention_head_dim"), 16),
    **dict.fromkeys(("linear_key_head_dim", "linear_value_head_dim", "kv_channels", "dim_head"), 16),
    **dict.fromkeys(("mamba_head_dim", "mamba_d_head", "mamba_headdim", "index_head_dim", "indexer_head_dim"), 16),
    **dict.fromkeys(("kv_lora_rank", "q_lora_rank"), 16),
    **dict.fromkeys(("qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim", "rotary_dim"), 8),
    **dict.fromkeys(("max_position_embeddings", "n_positions", "max_seq_len", "n_ctx", "context_length"), 512),
    **dict.fromkeys(("sliding_window", "sliding_window_size", "window_size", "attention_window_size"), WINDOW),
    **dict.fromkeys(("attention_chunk_size", "local_attention", "keep_window_size"), WINDOW),
    **dict.fromkeys(("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"), 4),
    **dict.fromkeys(("num_experts_per_tok", "moe_topk", "moe_k", "top_k_experts"), 2),
    **dict.fromkeys(("moe_intermediate_size", "shared_expert_intermediate_size", "expert_ffn_hidden_size"), 32),
    **dict.fromkeys(("shared_intermediate_size", "shared_experts_intermediate_size"), 32),
    **dict.fromkeys(("n_group", "topk_group", "n_groups", "mamba_n_groups", "mamba_ngroups", "num_mem_blocks"), 1),
    **dict.fromkeys(("mamba_n_heads", "n_mamba_heads", "mamba_num_heads"), 8),
    **dict.fromkeys(("mamba_d_state", "state_size", "ssm_state_size", "chunk_size", "mamba_chunk_size"), 16),
    **dict.fromkeys(("linear_num_key_heads", "linear_num_heads"), 2),
    **dict.fromkeys(("n_shared_experts", "moe_num_shared_experts", "num_shared_experts", "first_k_dense_replace"), 1),
    "linear_num_value_heads": 4, "num_dense_layers": 1, "mamba_d_ssm": 128, "bos_token_id": 1,
    "eos_token_id": 2, "pad_token_id": 0, "tie_word_embeddings": False, "query_pre_attn_scalar": 16, "index_topk": 16,
    "index_n_heads": 2, "hidden_size_per_layer_input": 32, "router_hidden_size": 32, "block_size": 16, "laurel_rank": 8,
}  # fmt: skip
"""A setting is given where a config has that name."""
STRETCHED = {"rope_theta": 10000.0, "factor": 4.0}

FAMILIES: dict[str, dict[str, Any]] = {
    "bailing_hybrid": {"layer_group_size": 2},
    "bamba": {"attn_layer_indices": [1]},
    "bert": {"is_decoder": True},
    "cohere_compass_text": {"layer_types": ["sliding_attention", "full_attention"] * 2},
    "dbrx": {
        "attn_config": {"kv_n_heads": 2, "rope_theta": 10000.0, "clip_qkv": 8.0},
        "ffn_config": {"ffn_hidden_size": 32, "moe_num_experts": 4, "moe_top_k": 2, "hidden_size": WIDTH},
    },
    "exaone4": {"sliding_window_pattern": 2},
    "gemma2": {"attn_logit_softcapping": 2.0, "final_logit_softcapping": 5.0, "tie_word_embeddings": True},
    "gemma3n_text": {
        "intermediate_size": [128] * LAYERS, "activation_sparsity_pattern": [0.0] * LAYERS, "num_kv_shared_layers": 1,
        "layer_types": ["sliding_attention", "full_attention"] * 2, "tie_word_embeddings": True,
    },
    "gemma3": {
        "vision_config": {
            "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2,
            "image_size": 28, "patch_size": 14,
        },
        "mm_tokens_per_image": 4,
    },
    "gpt_neo": {"attention_types": [[["global", "local"], 2]]},
    "granitemoehybrid": {"layer_types": ["mamba", "attention"] * 2},
    "hyperclovax": {"attention_multiplier": 0.2},
    "jamba": {
        "attn_layer_period": 2, "attn_layer_offset": 1, "expert_layer_period": 2, "expert_layer_offset": 1,
        "use_mamba_kernels": False, "mamba_d_state": 8,
    },
    "kimi_linear": {"layer_types": ["linear_attention", "full_attention"] * 2},
    "lfm2": {"layer_types": ["conv", "conv", "full_attention", "conv"], "block_auto_adjust_ff_dim": False},
    "lfm2_moe": {"layer_types": ["conv", "full_attention", "conv", "conv"]},
    "mamba2": {"num_heads": 8, "head_dim": 16},
    "minimax": {"layer_types": ["full_attention", "linear_attention"] * 2},
    "ministral": {"layer_types": ["sliding_attention", "full_attention"] * 2},
    "nemotron_h": {"layers_block_type": ["mamba", "attention", "mamba", "mlp"]},
    "opt": {"word_embed_proj_dim": WIDTH},
    "phi": {"partial_rotary_factor": 0.5},
    "qwen4_exp_text": {
        "indexer_n_heads": 2, "indexer_kv_heads": 1, "indexer_budget": 16, "indexer_compress_ratio": 2,
        "ngram_vocab_size_base": 100, "split_ngram_parts": 1, "make_ngram_vocab_size_divisible_by": 1,
    },
    "recurrent_gemma": {"num_hidden_layers": 3, "num_key_value_heads": 1},
    "reformer": {"is_decoder": True, "axial_pos_shape": [16, 32], "axial_pos_embds_dim": [32, 32]},
    "zaya": {"num_experts_per_tok": 1},
    "zamba2": {"layers_block_type": ["mamba", "hybrid", "mamba", "mamba"]},
    "llama, yarn": {"rope_parameters": {**STRETCHED, "rope_type": "yarn", "original_max_position_embeddings": 64}},
    "llama, LongRoPE": {
        "rope_parameters": {
            **STRETCHED, "rope_type": "longrope", "long_factor": [4.0] * 8, "short_factor": [1.0] * 8,
            "original_max_position_embeddings": 256,
        },
    },
    "phi3, LongRoPE": {
        "original_max_position_embeddings": 256, "sliding_window": None,
        "rope_parameters": {
            "rope_theta": 10000.0, "rope_type": "longrope", "long_factor": [4.0] * 8, "short_factor": [1.0] * 8,
            "original_max_position_embeddings": 256,
        },
    },
    "llama, dynamic": {"max_position_embeddings": 256, "rope_parameters": {**STRETCHED, "rope_type": "dynamic"}},
    "falcon, ALiBi": {"alibi": True},
    "mistral, no window": {"sliding_window": None},
    "qwen2, window": {"use_sliding_window": True, "max_window_layers": 2},
}  # fmt: skip
"""What a family, or a variant of one, needs beside; every family of transformers is tried without
an entry, too."""
PROMPTS = [
    "abc " * 6,
    "Write about the many things that you did today, and do not forget one of them: yes",
]

SAMPLING = Sampling(max_tokens=40)

STOPS = [2, *range(30, 42)]
"""Tokens that end an answer: enough of them that rows end at different times."""


def config_of(model_type: str, changes: dict[str, Any]) -> Any:
    """A config of that type at tiny size."""
    kind = CONFIG_MAPPING[model_type]
    known = {field.name for field in dataclasses.fields(kind)}
    known |= {name for name, there in getattr(kind, "attribute_map", {}).items() if there in known}
    sizes = {name: size for name, size in SIZES.items() if name in known}
    if "kv_lora_rank" in known:  # latent attention has as many keys as queries
        sizes["num_key_value_heads"] = HEADS
    for name, inner in getattr(kind, "sub_configs", {}).items():
        if name in known and "text" in name and hasattr(inner, "model_type"):
            sizes[name] = config_of(inner.model_type, FAMILIES.get(inner.model_type, {})).to_dict()
        elif name in known and hasattr(inner, "model_type") and inner.model_type in CONFIG_MAPPING:
            sizes[name] = {
                **config_of(inner.model_type, {}).to_dict(),
                "image_size": 28,
                "patch_size": 14,
            }
    return kind(**{**sizes, **changes})


def check_size(config: Any) -> None:
    """Raise ValueError where a model of that config would not be tiny, whatever the sizes above
    are."""
    with torch.device("meta"):
        count = sum(
            weight.numel() for weight in AutoModelForCausalLM.from_config(config).parameters()
        )
    if count > MOST:
        raise ValueError(f"{count:,} weights, because its parts have sizes of their own")


def make(folder: Path, config: Any) -> None:
    """Write a model of random weights, far from even, and a byte-level tokenizer."""
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config).eval()
    inner, outer = model.get_input_embeddings().weight, model.get_output_embeddings()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight is inner or (outer is not None and weight is outer.weight):
                weight.copy_(
                    torch.randn(weight.shape) * (1 if weight is inner else 2.5 / WIDTH**0.5)
                )
            elif weight.dim() >= 2 and "A_log" not in name:
                weight.copy_(torch.randn(weight.shape) * (1.3 / weight.shape[-1] ** 0.5))
            elif "norm" in name or name.endswith(".bias") or "sinks" in name:
                weight.add_(torch.randn(weight.shape) * 0.2)
        if outer is not None and outer.weight is inner:
            inner.mul_(2.5 / WIDTH**0.5)
    model.generation_config = transformers.GenerationConfig(eos_token_id=STOPS)
    model.save_pretrained(folder)
    tokens = [
        "<|endoftext|>",
        "<|im_start|>",
        "<|im_end|>",
        *sorted(pre_tokenizers.ByteLevel.alphabet()),
    ]
    plain = Tokenizer(
        models.BPE(vocab={token: index for index, token in enumerate(tokens)}, merges=[])
    )
    plain.pre_tokenizer, plain.decoder = (
        pre_tokenizers.ByteLevel(add_prefix_space=False),
        decoders.ByteLevel(),
    )
    plain.add_special_tokens(tokens[:3])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=plain, eos_token=tokens[2], pad_token=tokens[0]
    )
    tokenizer.chat_template = CHATML
    tokenizer.save_pretrained(folder)


def by_transformers(model: Any, trajectories: list[Trajectory]) -> Tensor:
    """Log-probabilities [N] of the drawn tokens, by a forward pass of each sequence alone."""
    found = []
    with torch.no_grad():
        for each in trajectories:
            ids = torch.tensor([[*each.prompt.tolist(), *each.tokens.tolist()]])
            logprobs = (
                model(ids, use_cache=False)
                .logits[0, len(each.prompt) - 1 : -1]
                .float()
                .log_softmax(-1)
            )
            found.append(logprobs.gather(-1, ids[0, len(each.prompt) :, None])[:, 0])
    return torch.cat(found)


def largest(one: Tensor, other: Tensor) -> float:
    """The largest difference."""
    return float((one.detach() - other.detach()).abs().max())


def measure(name: str, root: Path) -> dict[str, Any]:
    """One line of the results."""
    try:
        check_size(config := config_of(name.partition(",")[0], FAMILIES.get(name, {})))
        make(root / "base", config)
        theirs = AutoModelForCausalLM.from_pretrained(root / "base", dtype=torch.float32).eval()
        theirs(torch.tensor([[5, 6, 7]]), use_cache=False)
    except Exception as error:  # noqa: BLE001 - the config is ours, and is not what is tried
        return {"not_tried": f"{type(error).__name__}: {error}"[:300]}
    try:
        return compare(root, theirs)
    except PlumblineError as error:
        return {"refused": error.cause}


def drawn(policy: Any) -> list[Trajectory]:
    """Three answers to each prompt."""
    requests = [
        Request(("k", p, c), [{"role": "user", "content": PROMPTS[p]}], SAMPLING)
        for p in (0, 1)
        for c in range(3)
    ]
    got = {request.key: trajectory for request, trajectory in policy.sample(requests)}
    return [got[request.key] for request in requests]


def recorded(trajectories: list[Trajectory]) -> Tensor:
    """Log-probabilities [N] as the sampler has recorded them."""
    return torch.cat([torch.from_numpy(each.logprobs) for each in trajectories])


def compare(root: Path, theirs: Any) -> dict[str, Any]:
    """An opened model against transformers."""
    section = AutoregressiveModel(name=str(root / "base"), dtype="float32")
    policy = open_policy(section, section.name)
    row = {key: policy.engine[key] for key in ("decoder", "scoring", "head")} | {
        "context": policy.context
    }
    answers = drawn(policy)
    wanted = by_transformers(theirs, answers)
    row["sampler"] = largest(recorded(answers), wanted)
    passes = policy.batches(answers, 512)
    scored = torch.cat(
        [policy.score([answers[index] for index in part]).logprobs.detach() for part in passes]
    )
    row["scorer"] = max(largest(scored, wanted), largest(policy.score(answers).logprobs, wanted))
    row["gradient"] = supervised(policy, theirs)
    return row | adapted(root, section, answers)


def supervised(policy: Any, theirs: Any) -> float:
    """How far the gradient of one batch is from transformers', as a share of it."""
    chats = [
        [
            {"role": "user", "content": text},
            {"role": "assistant", "content": "and so it was, " * times},
        ]
        for text in PROMPTS
        for times in (1, 2)
    ]
    batch = [policy.demonstrate(chat) for chat in chats]
    policy.supervised_loss(batch, noises(len(batch), 0)).backward()
    for each in batch:
        ids = torch.tensor([each.tokens])
        logprobs = theirs(ids, use_cache=False).logits[0, :-1].float().log_softmax(-1)
        chosen = logprobs.gather(-1, ids[0, 1:, None])[:, 0][torch.tensor(each.is_target[1:])]
        (-chosen.sum()).backward()
    ours = dict(policy.model.named_parameters())
    off = whole = 0.0
    for name, weight in theirs.named_parameters():
        if weight.grad is not None:
            mine = ours[name].grad if ours[name].grad is not None else torch.zeros_like(weight.grad)
            off += float((mine - weight.grad).square().sum())
            whole += float(weight.grad.square().sum())
    return (off / whole) ** 0.5


def adapted(root: Path, section: AutoregressiveModel, answers: list[Trajectory]) -> dict[str, Any]:
    """LoRA of all linear layers: drawn and scored, saved and opened again, merged."""
    row: dict[str, Any] = {}
    section = section.model_copy(update={"lora": LoraSection(rank=4, alpha=8)})
    try:
        policy = open_policy(section, section.name, 1)
        with torch.no_grad():
            for name, weight in policy.trainable().items():
                if "lora_B" in name:
                    weight.copy_(torch.randn(weight.shape) * 0.05)
        with_adapters = drawn(policy)
        row["lora"] = largest(policy.score(with_adapters).logprobs, recorded(with_adapters))
        scores = policy.score(answers).logprobs
        policy.save(root / "lora", {})
        saved = {"name": str(root / "lora"), "lora": adapter_settings(str(root / "lora"))}
        again = open_policy(section.model_copy(update=saved), str(root / "lora"))
        row["reload"] = largest(again.score(answers).logprobs, scores)
    except PlumblineError as error:
        return row | {"lora_refused": error.cause}
    try:
        write_full(policy, root / "merged", torch.float32)
        merged = AutoModelForCausalLM.from_pretrained(root / "merged", dtype=torch.float32).eval()
        row["merged"] = largest(by_transformers(merged, answers), scores)
    except PlumblineError as error:
        row["merged_refused"] = error.cause
    return row


def verdict(row: dict[str, Any]) -> str:
    """In a word: ok, refused, not tried, WRONG (it disagrees with transformers) or CRASH."""
    if kind := next((kind for kind in ("not_tried", "refused") if kind in row), None):
        return kind.replace("_", " ")
    if "crash" in row:
        return "CRASH"
    keys = ("sampler", "scorer", "gradient", "lora", "reload", "merged")
    return "ok" if all(row.get(key, 0.0) <= ALIKE for key in keys) else "WRONG"
