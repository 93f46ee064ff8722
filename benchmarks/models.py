"""Random models of a given shape, saved in the standard format, with a tokenizer in which a word is
a token.

python benchmarks/models.py qwen3-8b models/random-8b    # 16 GB in bfloat16; on a GPU, where there is one, in seconds
"""

import argparse
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
    inner: int | None = None,
    head: int | None = None,
    dtype: torch.dtype = torch.float32,
) -> Path:
    """Write a random-init model (llama or qwen3) and its tokenizer; prompts of n words are n
    tokens.

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
        "intermediate_size": inner or hidden * 8 // 3 // 32 * 32,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "max_position_embeddings": 4096,
        "tie_word_embeddings": True,
        "bos_token_id": None,
        "eos_token_id": vocabulary - 1,
        "pad_token_id": vocabulary - 1,
    }
    config = (
        LlamaConfig(**sizes)
        if kind == "llama"
        else Qwen3Config(**sizes, head_dim=head or hidden // heads)
    )
    device = "cuda" if dtype != torch.float32 and torch.cuda.is_available() else "cpu"
    with torch.random.fork_rng(), torch.device(device):
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(config, dtype=dtype)
    model.save_pretrained(folder)
    fast.save_pretrained(folder)
    return folder


def prompts(count: int, length: int, vocabulary: int, seed: int = 0) -> list[list[dict[str, str]]]:
    """Chats of exactly `length` tokens."""
    generator = torch.Generator().manual_seed(seed)
    words = torch.randint(1, vocabulary - 2, (count, length), generator=generator)
    return [[{"role": "user", "content": " ".join(f"w{w}" for w in row)}] for row in words.tolist()]


SMALL = {"hidden": 256, "layers": 4, "heads": 4, "kv_heads": 4}
QWEN3 = {"vocabulary": 151_936, "kind": "qwen3"}
HALF_BILLION = {"hidden": 896, "layers": 24, "heads": 14, "kv_heads": 2, "inner": 4864, **QWEN3}
SIX_TENTHS = {
    "hidden": 1024,
    "layers": 28,
    "heads": 16,
    "kv_heads": 8,
    "inner": 3072,
    "head": 128,
    **QWEN3,
}
EIGHT_BILLION = {"hidden": 4096, "layers": 36, "heads": 32, "kv_heads": 8, "inner": 12_288, **QWEN3}
SHAPES = {"qwen3-0.5b": HALF_BILLION, "qwen3-0.6b": SIX_TENTHS, "qwen3-8b": EIGHT_BILLION}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("shape", choices=sorted(SHAPES))
    parser.add_argument("folder", type=Path)
    chosen = parser.parse_args()
    print(save_model(chosen.folder, **SHAPES[chosen.shape], dtype=torch.bfloat16))
