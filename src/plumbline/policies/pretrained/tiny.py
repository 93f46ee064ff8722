"""A tiny Llama and its tokenizer, made on the spot and saved in the standard format.

They stand in for a real model in demos and tests, and go through the same loading path as one. The tokenizer is a
byte-level BPE with single digits (a number is then spelled, not looked up) and the ChatML template.
"""

from collections.abc import Iterable
from pathlib import Path

import torch

from plumbline.policies.pretrained.chat import CHATML
from plumbline.policies.pretrained.quiet import quieten
from plumbline.recipe import TinySection
from plumbline.storage import clear_os_errors

PAD, START, END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"


def make_tiny(folder: Path, section: TinySection, texts: Iterable[str], seed: int) -> None:
    """Write an untrained model and a tokenizer trained on `texts` into `folder`.

    Args:
        folder: a directory; what is in it is overwritten.
        section: sizes.
        texts: what the tokenizer learns its merges from.
        seed: of the weights.
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    quieten()
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=section.vocabulary,
        special_tokens=[PAD, START, END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=END,
        pad_token=PAD,
        model_max_length=section.context,
        clean_up_tokenization_spaces=False,
    )
    fast.chat_template = CHATML
    config = LlamaConfig(
        vocab_size=len(fast),
        hidden_size=section.hidden,
        intermediate_size=-(-section.hidden * 8 // 3 // 32) * 32,
        num_hidden_layers=section.layers,
        num_attention_heads=section.heads,
        num_key_value_heads=section.heads,
        max_position_embeddings=section.context,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=fast.eos_token_id,
        pad_token_id=fast.pad_token_id,
    )
    with torch.random.fork_rng():  # transformers draws its start from the global generator
        torch.manual_seed(seed)
        model = LlamaForCausalLM(config)
    with clear_os_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        model.save_pretrained(folder)
        fast.save_pretrained(folder)
