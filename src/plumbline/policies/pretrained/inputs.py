"""Token ids and attention masks as models take them.

Letters in shapes: R rows, T tokens of the longest row.
"""

from collections.abc import Sequence
from itertools import chain
from typing import Any

import torch
from torch import Tensor

from plumbline.errors import ModelError


def by_onednn(model: Any) -> bool:
    """Whether oneDNN multiplies a model's matrices, as it does in 16 bits on a CPU; lengths are then rounded up.

    It makes code for every shape that it has not met, and keeps 0.6 MB of it, half of them for good; the passes of a
    run have hundreds of lengths, and 30 products each.
    """
    return bool(model.device.type == "cpu" and model.dtype != torch.float32)


LANES = 32
"""Positions that a row of attention is rounded up to: what a softmax adds up side by side, so that the sum of a row is
the same to the bit however much padding there is."""


def round_up(length: int, unit: int) -> int:
    """The least multiple of `unit` that is not below `length`."""
    return -(-length // unit) * unit


def padded(
    rows: Sequence[Sequence[int]], fill: int = 0, *, left: bool = False, rounded: bool = False
) -> tuple[Tensor, Tensor]:
    """Rows as a rectangle [R, T] (int64, on the CPU), `fill` behind or `left` of each, and which entries are theirs.

    With `rounded` T is a multiple of `LANES`.
    """
    lengths = torch.tensor([len(row) for row in rows], dtype=torch.long)
    longest = max(map(len, rows), default=0)
    longest = round_up(longest, LANES) if rounded else longest
    column = torch.arange(longest)
    there_rt = column >= (longest - lengths).unsqueeze(1) if left else column < lengths.unsqueeze(1)
    ids_rt = torch.full(there_rt.shape, fill, dtype=torch.long)
    ids_rt[there_rt] = torch.tensor([*chain.from_iterable(rows)], dtype=torch.long)
    return ids_rt, there_rt


def additive(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """A bool mask (may attend) as the additive one that every attention of transformers takes."""
    return torch.zeros_like(mask, dtype=dtype).masked_fill(~mask, torch.finfo(dtype).min)


def mask_token(model: Any, tokenizer: Any, source: str) -> int:
    """The id of the mask token of an open model (see `find_mask`).

    Raises:
        ModelError: see `find_mask`; or the model has no embedding for it.
    """
    token = find_mask(tokenizer, getattr(model.config.get_text_config(), "mask_token_id", None), source)
    rows = model.get_input_embeddings().weight.shape[0]
    if not 0 <= token < rows:
        raise ModelError(
            f"the mask token of {source} is {token}, but the model has embeddings for {rows} tokens",
            "use the tokenizer that was saved with this model, correct mask_token_id in its config.json, or resize the "
            "model's embeddings",
        )
    return token


def find_mask(tokenizer: Any, own: int | None, source: str) -> int:
    """The id of the mask token, as the tokenizer or else the model's config names it (`own`).

    Raises:
        ModelError: neither names one, they name two, or the config names a word of the vocabulary.
    """
    named = tokenizer.mask_token_id
    if named is not None and own is not None and named != own:
        raise ModelError(
            f"the tokenizer's mask token is {named} ({tokenizer.mask_token}), and that of config.json is {own}",
            "correct mask_token_id in config.json, or mask_token in tokenizer_config.json",
        )
    if named is None and own is not None and own < len(tokenizer) and own not in tokenizer.added_tokens_decoder:
        raise ModelError(
            f"mask_token_id in config.json is {own}, which is no token of its own but the word "
            f"{tokenizer.convert_ids_to_tokens(own)!r}",
            "correct it, or name the mask in tokenizer_config.json (mask_token)",
        )
    token = own if named is None else int(named)
    if token is None:
        raise ModelError(
            f"the model in {source} has no mask token: neither the tokenizer nor the config names one",
            "use a checkpoint that has one, name a token of its that no text has (model.mask_token), or add one: "
            "tokenizer.add_special_tokens({'mask_token': '<|mask|>'}), "
            "model.resize_token_embeddings(len(tokenizer)), and save both",
        )
    return token
