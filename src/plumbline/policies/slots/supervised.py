"""The training loss of ReFusion (Li et al. 2025, arXiv:2512.13586): slots in any order, masks filled from them.

Letters: L places of a canvas, k tokens of a slot, B demonstrations, T tokens of a row.

Every demonstration has a time t (`Noise.time`, even in [0, 1)), p = (1 - 1e-3) t + 1e-3, and each slot is masked with
probability p. The model reads

    [prompt] [slots that are not masked, in random order] [masked slots, in their order]

causally, every token at its own position. A token of a clean slot predicts the next one of its slot, and a mask the
token that it hides:

    loss = mean over the clean slots' targets of -log p   +   (1/L) sum over masked places of -log p / p_mask

The published code takes the first mean over all targets of a batch at once, so what a slot counts depends on how
much was masked elsewhere, and it is 0/0 where every slot of the batch is masked. Here the mean is each
demonstration's own, and 0 where it has no target, so a batch may be cut into any passes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from plumbline.policies.draws import Noise
from plumbline.policies.policy import Demonstration
from plumbline.policies.pretrained.head import head_log_prob
from plumbline.policies.pretrained.inputs import padded
from plumbline.policies.slots.attention import read_packed
from plumbline.records import Sampling

PLAIN = Sampling()
"""The law of supervised training: temperature 1, no filter."""
LEAST = 1e-3
"""The smallest probability of a mask, which bounds its weight."""


@dataclass(frozen=True, slots=True, eq=False)
class Noised:
    """A demonstration as the model reads it; indices count from the row's first token."""

    ids: Tensor  # [T]
    positions: Tensor  # [T]
    predictors: Tensor  # [N]
    targets: Tensor  # [N]
    weights: Tensor  # [N]: what each target's -log p counts; the sum is L times the mean


def noised(demonstration: Demonstration, width: int, mask_id: int, noise: Noise) -> Noised:
    """Draw masked slots and the order of the others."""
    prompt = len(demonstration.tokens) - demonstration.num_targets
    tokens = torch.tensor(demonstration.tokens)
    canvas = tokens[prompt:]
    slots = len(canvas) // width
    probability = (1 - LEAST) * noise.time + LEAST
    masked = torch.rand(slots, generator=noise.generator, dtype=torch.float64) < probability
    order = torch.randperm(slots, generator=noise.generator)
    places = torch.arange(len(canvas)).view(slots, width)
    clean, hidden = places[order[~masked[order]]], places[masked].flatten()
    at = prompt + torch.arange(clean.numel()).view(clean.shape)  # where a clean token stands in the row
    predictors = torch.cat([at[:, :-1].flatten(), prompt + clean.numel() + torch.arange(len(hidden))])
    following = clean[:, 1:].flatten()
    weights = torch.full((len(predictors),), 1 / probability, dtype=torch.float64)
    weights[: len(following)] = len(canvas) / max(len(following), 1)
    return Noised(
        ids=torch.cat([tokens[:prompt], canvas[clean.flatten()], torch.full_like(hidden, mask_id)]),
        positions=torch.cat([torch.arange(prompt), prompt + clean.flatten(), prompt + hidden]),
        predictors=predictors,
        targets=canvas[torch.cat([following, hidden])],
        weights=weights,
    )


def summed_loss(model: Any, batch: Sequence[Demonstration], width: int, mask_id: int, noise: Sequence[Noise]) -> Tensor:
    """The loss above, summed over the batch and times L: divided by the batch's targets it is the mean.

    Args:
        model: a causal transformers model.
        batch: B demonstrations whose targets are the canvas, at their end.
        width: k.
        mask_id: the mask token.
        noise: of each demonstration, the only source of randomness.
    """
    rows = [noised(each, width, mask_id, own) for each, own in zip(batch, noise, strict=True)]
    # Padded on the right, where nothing that counts looks.
    ids, positions = (
        padded([part.tolist() for part in parts])[0]
        for parts in zip(*((one.ids, one.positions) for one in rows), strict=True)
    )
    longest, device = ids.shape[1], model.device
    causal = torch.ones((1, 1, longest, longest), dtype=torch.bool, device=device).tril_()
    hidden = read_packed(model, ids.to(device), positions.to(device), causal).flatten(0, 1)
    predictors = torch.cat([row * longest + one.predictors for row, one in enumerate(rows)]).to(device)
    targets = torch.cat([one.targets for one in rows]).to(device)
    weights = torch.cat([one.weights for one in rows]).to(device)
    head = model.get_output_embeddings()
    logprobs = head_log_prob(hidden[predictors], head.weight, head.bias, targets, PLAIN)
    return -(logprobs * weights.to(logprobs.dtype)).sum()
