"""A Qwen3 of a few thousand weights whose vocabulary is three tokens and a mask, so that everything
can be listed."""

from pathlib import Path

import torch

from plumbline.policies import open_policy
from plumbline.policies.slots.options import SlotModel

A, B, END, MASK = range(4)
PROMPT = [{"role": "user", "content": "a b"}]
LONGER = [{"role": "user", "content": "b b a b a"}]


def save_mini(folder: Path, seed: int = 0, *, model_type: str = "qwen3", **config) -> Path:
    """Weights far from uniform and unlike each other, with a tokenizer in which a word is a
    token."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import (
        LlamaConfig,
        LlamaForCausalLM,
        PreTrainedTokenizerFast,
        Qwen3Config,
        Qwen3ForCausalLM,
    )

    tokenizer = Tokenizer(
        models.WordLevel({"a": A, "b": B, "<end>": END, "<mask>": MASK}, unk_token="a")
    )
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="<end>", mask_token="<mask>"
    )
    fast.chat_template = "{% for message in messages %}{{ message['content'] }} {% endfor %}"
    sizes = {
        "vocab_size": 4, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2,
        "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 8, "max_position_embeddings": 64,
        "tie_word_embeddings": False, "bos_token_id": None, "eos_token_id": END, "pad_token_id": None,
        "initializer_range": 0.4,
    }  # fmt: skip
    kind = {"qwen3": (Qwen3Config, Qwen3ForCausalLM), "llama": (LlamaConfig, LlamaForCausalLM)}[
        model_type
    ]
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = kind[1](kind[0](**{**sizes, **config}))
    model.save_pretrained(folder)
    fast.save_pretrained(folder)
    return folder


def save_outlier(folder: Path) -> Path:
    """One whose channel 0 is 100 times as large as any other from beginning to end, and says
    nothing."""
    from transformers import Qwen3ForCausalLM

    sizes = {
        "hidden_size": 128,
        "intermediate_size": 256,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
    }
    save_mini(folder, **sizes, head_dim=32, num_hidden_layers=3, initializer_range=0.1)
    model, large = Qwen3ForCausalLM.from_pretrained(folder), 100.0
    with torch.no_grad():
        model.model.embed_tokens.weight[:, 0] = large
        model.lm_head.weight[:, 0] = 0.0
        model.model.norm.weight.mul_(large / 128**0.5)[0] = large
        for layer in model.model.layers:
            for norm in (layer.input_layernorm, layer.post_attention_layernorm):
                norm.weight.mul_(large / 128**0.5)[0] = 0.0
            layer.self_attn.o_proj.weight[0] = layer.mlp.down_proj.weight[0] = 0.0
    model.save_pretrained(folder)
    return folder


def in_double(model) -> None:
    """transformers' own norms round to single precision whatever the weights are."""
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if type(child).__name__.endswith("RMSNorm"):
                norm = torch.nn.RMSNorm(child.weight.shape[0], eps=child.variance_epsilon)
                norm.weight = child.weight
                setattr(module, name, norm)
    model.double()


def opened(folder: Path, *, double: bool = False, **options):
    policy = open_policy(SlotModel(name=str(folder), **{"slot": 2, **options}), str(folder))
    if double:
        in_double(policy.model)
    return policy
