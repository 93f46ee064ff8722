"""Checkpoints of others at tiny size, file by file as they are published, and a plain forward pass
over what they hold.

A layout is what public text says of it (docs/diffusion.md): the keys of config.json, the names of
the weights, the files of the tokenizer. The forward passes know nothing of the package, nor of
transformers.
"""

import json
from pathlib import Path

import torch
from safetensors.torch import save_file

QWEN = {
    "embed": "model.embed_tokens", "norm": "model.norm", "head": "lm_head", "before": "input_layernorm",
    "query": "self_attn.q_proj", "key": "self_attn.k_proj", "value": "self_attn.v_proj", "out": "self_attn.o_proj",
    "query_norm": "self_attn.q_norm", "key_norm": "self_attn.k_norm", "after": "post_attention_layernorm",
    "gate": "mlp.gate_proj", "up": "mlp.up_proj", "down": "mlp.down_proj", "layer": "model.layers",
}  # fmt: skip
LLADA = {
    "embed": "model.transformer.wte", "norm": "model.transformer.ln_f", "head": "model.transformer.ff_out",
    "before": "attn_norm", "query": "q_proj", "key": "k_proj", "value": "v_proj", "out": "attn_out",
    "after": "ff_norm", "gate": "ff_proj", "up": "up_proj", "down": "ff_out", "layer": "model.transformer.blocks",
}  # fmt: skip
WORDS = ["o produto chegou atrasado e com defeito", "nota 10, sim"] * 4
CHATML = (
    "{%- for m in messages %}{{- '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{%- "
    "endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}"
)
HEADERS = (
    "{%- for m in messages %}{{- '<|start_header_id|>' + m.role + '<|end_header_id|>\n\n' + "
    "m.content + '<|eot_id|>' }}"
    "{%- endfor %}{{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}"
)
"""As LLaDA's, it begins an answer whether one is asked for or not."""
QWEN_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
ROWS = 320
"""Of the embedding: more than there are tokens, as in all of them."""


def tokenizer(folder: Path, tokens, files, **config) -> dict[str, int]:
    """A byte-level BPE as a checkpoint has it, and its added tokens' ids: `files` are `json`,
    `vocab` or both."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    plain = Tokenizer(models.BPE())
    plain.pre_tokenizer, plain.decoder = (
        pre_tokenizers.ByteLevel(add_prefix_space=False),
        decoders.ByteLevel(),
    )
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    plain.train_from_iterator(
        WORDS, trainers.BpeTrainer(vocab_size=290, initial_alphabet=alphabet, show_progress=False)
    )
    ids = {token: plain.get_vocab_size() + index for index, token in enumerate(tokens)}
    flags = {"lstrip": False, "normalized": False, "rstrip": False, "single_word": False}
    if "vocab" in files:
        plain.model.save(str(folder))
        (folder / "added_tokens.json").write_text(json.dumps(ids))
    if "json" in files:
        plain.add_special_tokens(list(tokens))
        plain.save(str(folder / "tokenizer.json"))
    added = {
        str(number): {"content": token, **flags, "special": True} for token, number in ids.items()
    }
    config = {
        "eos_token": "<|endoftext|>",
        "pad_token": "<|endoftext|>",
        "chat_template": CHATML,
        **config,
    }
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"added_tokens_decoder": added, **config})
    )
    return ids


def weights_of(sizes, names, *, rows=ROWS, biases=False):
    """Random weights {published name: tensor}: none near 0 or 1, no two alike."""
    generator = torch.Generator().manual_seed(0)

    def random(*shape, around=0.0, spread=0.4):
        return around + spread * torch.randn(shape, generator=generator)

    hidden, inner, queries = sizes["hidden"], sizes["inner"], sizes["heads"] * sizes["head_size"]
    keys = sizes["kv_heads"] * sizes["head_size"]
    shapes = {
        "query": (queries, hidden), "key": (keys, hidden), "value": (keys, hidden), "out": (hidden, queries),
        "gate": (inner, hidden), "up": (inner, hidden), "down": (hidden, inner),
    }  # fmt: skip
    found = {f"{names['embed']}.weight": random(rows, hidden, spread=1.0)}
    for layer in range(sizes["layers"]):
        at = f"{names['layer']}.{layer}."
        for part, shape in shapes.items():
            found[f"{at}{names[part]}.weight"] = random(*shape)
            if biases and part in {"query", "key", "value"}:
                found[f"{at}{names[part]}.bias"] = random(shape[0])
        for part, size in (
            ("before", hidden),
            ("after", hidden),
            ("query_norm", None),
            ("key_norm", None),
        ):
            if part in names:
                found[f"{at}{names[part]}.weight"] = random(size or sizes["head_size"], around=1.0)
    found[f"{names['norm']}.weight"] = random(hidden, around=1.0)
    return found | {f"{names['head']}.weight": random(rows, hidden, spread=0.5)}


def write(folder: Path, config, weights) -> Path:
    """config.json and the weights; in two files with an index, as the larger ones are."""
    (folder / "config.json").write_text(json.dumps(config))
    parts = {"model-00001-of-00002.safetensors": {}, "model-00002-of-00002.safetensors": {}}
    for number, (name, weight) in enumerate(weights.items()):
        parts[sorted(parts)[number % 2]][name] = weight.to(torch.float32).contiguous()
    for file, part in parts.items():
        save_file(part, folder / file, metadata={"format": "pt"})
    index = {
        "metadata": {},
        "weight_map": {name: file for file, part in parts.items() for name in part},
    }
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder


def decode(weights, names, sizes, ids, allowed, positions=None):
    """Logits [T, V] of a Llama, Qwen2 or Qwen3 under a mask [T, T], from the weights as they are
    published."""

    def linear(states, name):
        made = states @ weights[f"{name}.weight"].double().T
        return made + weights[f"{name}.bias"].double() if f"{name}.bias" in weights else made

    def norm(states, name):
        made = states / (states.square().mean(-1, keepdim=True) + sizes["eps"]).sqrt()
        return made * weights[f"{name}.weight"].double()

    def split(states, heads):
        return states.view(len(ids), heads, sizes["head_size"]).transpose(0, 1)

    half = sizes["head_size"] // 2
    positions = torch.arange(len(ids)) if positions is None else torch.tensor(positions)
    angle = positions[:, None] * sizes["theta"] ** (-torch.arange(half).double() / half)

    def turn(states):
        first, second = states[..., :half], states[..., half:]
        return torch.cat(
            [
                first * angle.cos() - second * angle.sin(),
                second * angle.cos() + first * angle.sin(),
            ],
            dim=-1,
        )

    states = weights[f"{names['embed']}.weight"].double()[torch.tensor(ids)]
    for layer in range(sizes["layers"]):
        at = {part: f"{names['layer']}.{layer}.{name}" for part, name in names.items()}
        inner = norm(states, at["before"])
        query, key = (
            split(linear(inner, at["query"]), sizes["heads"]),
            split(linear(inner, at["key"]), sizes["kv_heads"]),
        )
        if f"{at.get('query_norm')}.weight" in weights:
            query, key = norm(query, at["query_norm"]), norm(key, at["key_norm"])
        group = sizes["heads"] // sizes["kv_heads"]
        key = turn(key).repeat_interleave(group, 0)
        value = split(linear(inner, at["value"]), sizes["kv_heads"]).repeat_interleave(group, 0)
        scores = turn(query) @ key.transpose(1, 2) / sizes["head_size"] ** 0.5
        mixed = scores.masked_fill(~allowed, float("-inf")).softmax(-1) @ value
        states = states + linear(mixed.transpose(0, 1).reshape(len(ids), -1), at["out"])
        inner = norm(states, at["after"])
        gate = linear(inner, at["gate"])
        states = states + linear(gate * gate.sigmoid() * linear(inner, at["up"]), at["down"])
    head = names["head"] if f"{names['head']}.weight" in weights else names["embed"]
    return norm(states, names["norm"]) @ weights[f"{head}.weight"].double().T
