"""The log-probabilities of recorded rounds, by one packed forward pass.

Letters in shapes: N terms, T packed tokens, H hidden size.
"""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from plumbline.policies import plackett_luce
from plumbline.policies.places import Places, divergence, largest_log_prob
from plumbline.policies.pretrained.head import head_log_prob
from plumbline.policies.slots.attention import read_packed
from plumbline.policies.slots.options import SlotSampling
from plumbline.policies.slots.packing import Pack


@dataclass(frozen=True, slots=True, eq=False)
class PackLaws:
    """What weights say about a pack."""

    tokens: Places  # [N], at the predictors
    slots: Places  # [B m], at the queries, choice by choice


def laws_of(model: Any, mask_id: int, packed: Pack) -> PackLaws:
    """One forward pass over a pack."""
    hidden = read_packed(model, packed.ids, packed.positions, packed.mask)[0]
    tokens = Places(model.get_output_embeddings(), mask_id, hidden[packed.predictors])
    return PackLaws(tokens, replace(tokens, hidden=hidden[packed.queries].flatten(0, 1)))


def log_probs(packed: Pack, laws: PackLaws, law: SlotSampling) -> Tensor:
    """Log-probabilities [N + B] of a pack's terms, in the order of `Trajectory.logprobs`."""
    of = laws.tokens
    tokens = head_log_prob(of.hidden, of.head.weight, of.bias, packed.targets, law)
    if len(packed.queries) == 0:
        return tokens[packed.order]
    chosen = plackett_luce.log_prob(_scores(packed, laws, law), packed.chosen)
    return torch.cat([tokens, chosen.to(tokens.dtype)])[packed.order]


def divergences(packed: Pack, laws: PackLaws, other: PackLaws, law: SlotSampling) -> Tensor:
    """KL [steps] from the law of `laws` to that of `other`, in closed form at the states that were visited.

    A round's KL is the sum over its drawn tokens of the KL of their laws, given the tokens before them in their slot,
    and over its picks of slots, given the picks before them. The mean over trajectories of the sum over rounds is the
    KL of the trajectories (the chain rule; a test enumerates it).
    """
    each = divergence(laws.tokens, other.tokens, law)
    if len(packed.queries):
        scores, others = _scores(packed, laws, law), _scores(packed, other, law)
        of_choice = plackett_luce.divergence(scores, others, packed.chosen)
        each = torch.cat([each, of_choice.to(each.dtype)])
    return each.new_zeros(packed.num_steps).index_add(0, packed.step, each)


def _scores(packed: Pack, laws: PackLaws, law: SlotSampling) -> Tensor:
    """Scores [B, m] of open slots; minus infinity where there is none."""
    scores = largest_log_prob(laws.slots, law).view(packed.queries.shape) / law.position_temperature
    return scores.masked_fill(~packed.there, float("-inf"))
