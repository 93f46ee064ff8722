"""A tiny model and its tokenizer, made on the spot and saved in the standard format.

They stand in for a real model in demos and tests, and go through the same loading path as one. The
tokenizer is a byte-level BPE with single digits (a number is then spelled, not looked up) and the
ChatML template.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

import torch

from plumbline.policies.pretrained.causal_model import quieten_transformers
from plumbline.policies.pretrained.chat import CHATML
from plumbline.recipe import TinySection
from plumbline.storage import clear_os_errors

PAD, START, END, MASK = "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|mask|>"


def make_tiny(
    folder: Path,
    section: TinySection,
    texts: Iterable[str],
    seed: int,
    family: str = "autoregressive",
    attention: Literal["full", "prefix"] = "full",
) -> None:
    """Write an untrained model and a tokenizer trained on `texts` into `folder`.

    Args:
        folder: a directory; what is in it is overwritten.
        section: sizes.
        texts: what the tokenizer learns its merges from.
        seed: of the weights.
        family: the policy that will open it: a Llama, for slots a Qwen3 (both with a mask token),
            for flow its own network.
        attention: of a flow network, which is part of its config.
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    quieten_transformers()
    masks = family in {"masked", "slots"}
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=section.vocabulary,
        special_tokens=[PAD, START, END, *([MASK] if masks else [])],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=END,
        pad_token=PAD,
        **({"mask_token": MASK} if masks else {}),
        model_max_length=section.context,
        clean_up_tokenization_spaces=False,
    )
    fast.chat_template = CHATML
    with torch.random.fork_rng():  # models draw their start from the global generator
        torch.manual_seed(seed)
        model = (
            _flow(section, len(fast), attention)
            if family == "flow"
            else _causal(section, fast, family)
        )
    with clear_os_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        model.save_pretrained(folder)
        fast.save_pretrained(folder)


def _causal(section: TinySection, tokenizer: Any, family: str) -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM

    sizes = {
        "vocab_size": len(tokenizer),
        "hidden_size": section.hidden,
        "intermediate_size": section.inner,
        "num_hidden_layers": section.layers,
        "num_attention_heads": section.heads,
        "num_key_value_heads": section.heads,
        "max_position_embeddings": section.context,
        "tie_word_embeddings": True,
        "bos_token_id": None,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
    }
    if family == "slots":
        return Qwen3ForCausalLM(Qwen3Config(**sizes, head_dim=section.hidden // section.heads))
    return LlamaForCausalLM(LlamaConfig(**sizes))


def _flow(section: TinySection, vocabulary: int, attention: Literal["full", "prefix"]) -> Any:
    from plumbline.policies.flow.network import FlowConfig, FlowNetwork

    return FlowNetwork(
        FlowConfig(
            vocabulary=vocabulary,
            hidden=section.hidden,
            conditioning=section.hidden,
            layers=section.layers,
            heads=section.heads,
            context=section.context,
            attention=attention,
        )
    )
