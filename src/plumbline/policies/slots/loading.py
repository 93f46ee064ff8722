"""What a causal model needs beyond its weights to be a slot policy: attention as it is told.

A ReFusion checkpoint (Li et al. 2025, arXiv:2512.13586) holds plain Qwen3 weights, but its config.json may name
classes that only its own code has. It is opened as the Qwen3 that it is; none of that code is run.
"""

from pathlib import Path
from typing import Any

import torch
from torch import nn

from plumbline.errors import ModelError
from plumbline.policies.pretrained.adapters import fuse_if_right
from plumbline.policies.pretrained.stock import stock_config
from plumbline.policies.pretrained.trial import Trial
from plumbline.policies.slots.attention import ALL, Context, read_packed


def plain_config(source: str) -> Any:
    """A Qwen3Config for a ReFusion checkpoint; None for every other model, whose own config serves."""
    from transformers import PreTrainedConfig, Qwen3Config

    try:
        values, _ = PreTrainedConfig.get_config_dict(source, local_files_only=Path(source).is_dir())
    except (OSError, ValueError):  # the loader says what is wrong with it
        return None
    named = (values.get("model_type"), values.get("architectures"), values.get("auto_map"))
    if "refusion" not in str(named).lower():
        return None
    return stock_config(Qwen3Config, values)


SEQUENCES = 5
"""That are tried; see `Trial`."""


@torch.no_grad()
def check_attention(model: Any, source: str, context: int) -> None:
    """Try on a few tokens what packed scoring and the cache rely on.

    A sequence laid out of order, with a mask and positions that say its order, must give the logits of the sequence in
    order; so must one read in two parts through the cache; and the logits must be linear in the hidden states. Adapters
    are tried first, and run in fewer products from then on where these give the same.

    Raises:
        ModelError: they differ (a window, a recurrent state, positions that are ignored, a capped head).
    """
    config = model.config.get_text_config()
    window = getattr(config, "sliding_window", None)
    if window is not None and window < context:
        raise ModelError(
            f"the model in {source} attends within a window of {window} tokens, which packed slots cannot keep to",
            f"set model.context to at most {window}, or use a model with full attention",
        )
    length, device = 16, model.device
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(0, config.vocab_size, (SEQUENCES, length), generator=generator).to(device)
    order = torch.randperm(length, generator=generator).to(device)
    positions = torch.arange(length, device=device)
    head = model.get_output_embeddings()
    exact = type(head) is nn.Linear and head.weight.dtype.is_floating_point
    fuse_if_right(model, lambda: model(ids, use_cache=False).logits.flatten(0, 1), SEQUENCES)
    try:
        trial = Trial.of(model, lambda: model(ids, use_cache=False).logits.flatten(0, 1), SEQUENCES)
        body = model.get_decoder()(ids, use_cache=False).last_hidden_state
        shuffled = read_packed(model, ids[:, order], positions[None, order], (order.unsqueeze(1) >= order)[None, None])
        cached = Context(model, SEQUENCES)
        tags = torch.full_like(ids, ALL)
        parts = [cached.read(ids[:, at], positions[None, at], tags[:, at]) for at in (slice(0, 9), slice(9, None))]
        found = (body, shuffled[:, order.argsort()], torch.cat(parts, 1))
        exact = exact and all(trial.agrees(head(hidden.flatten(0, 1))) for hidden in found)
    except (TypeError, ValueError, RuntimeError, IndexError, AttributeError):  # no masks, positions or cache to give
        exact = False
    if not exact:
        raise ModelError(
            f"the model in {source} does not follow an explicit attention mask and explicit positions exactly",
            "slots need a causal model with full attention and a linear head, such as Qwen3 or Llama",
        )
