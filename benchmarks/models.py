"""Random models of a given shape, saved in the standard format, with a tokenizer in which a word is a token."""

from pathlib import Path

import torch


def save_model(
    folder: Path,
    *,
    hidden: int,
    layers: int,
    heads: int,
    kv_heads: int,
    vocabulary: int,
    kind: str = "llama",
    masks: bool = False,
) -> Path:
    """Write a random-init model (llama or qwen3) and its tokenizer; prompts of n words are n tokens.

    With `masks` the last word but one is the mask token of a diffusion model.
    """
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedTokenizerFast, Qwen3Config

    vocab = {f"w{index}": index for index in range(vocabulary - 1)} | {"<eos>": vocabulary - 1}
    if masks:
        vocab["<mask>"] = vocab.pop(f"w{vocabulary - 2}")
    tokenizer = Tokenizer(models.WordLevel(vocab, unk_token="w0"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<eos>", pad_token="<eos>")
    if masks:
        fast.mask_token = "<mask>"
    fast.chat_template = "{% for message in messages %}{{ message['content'] }} {% endfor %}"
    sizes = {
        "vocab_size": vocabulary,
        "hidden_size": hidden,
        "intermediate_size": 4864 if hidden == 896 else hidden * 8 // 3 // 32 * 32,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "max_position_embeddings": 4096,
        "tie_word_embeddings": True,
        "bos_token_id": None,
        "eos_token_id": vocabulary - 1,
        "pad_token_id": vocabulary - 1,
    }
    config = LlamaConfig(**sizes) if kind == "llama" else Qwen3Config(**sizes, head_dim=hidden // heads)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(config)
    model.save_pretrained(folder)
    fast.save_pretrained(folder)
    return folder


def prompts(count: int, length: int, vocabulary: int, seed: int = 0) -> list[list[dict[str, str]]]:
    """Chats of exactly `length` tokens."""
    generator = torch.Generator().manual_seed(seed)
    words = torch.randint(1, vocabulary - 2, (count, length), generator=generator)
    return [[{"role": "user", "content": " ".join(f"w{w}" for w in row)}] for row in words.tolist()]


SMALL = {"hidden": 256, "layers": 4, "heads": 4, "kv_heads": 4}
HALF_BILLION = {"hidden": 896, "layers": 24, "heads": 14, "kv_heads": 2, "vocabulary": 151_936, "kind": "qwen3"}
