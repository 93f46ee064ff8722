"""The log-probabilities of recorded rounds, by one packed forward pass; or, to compare with, by one pass a round.

Letters in shapes: N terms, T packed tokens, H hidden size.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from plumbline.policies import plackett_luce
from plumbline.policies.places import Places, divergence, largest_log_prob
from plumbline.policies.pretrained.head import head_log_prob
from plumbline.policies.slots.attention import read_packed
from plumbline.policies.slots.grid import Grid
from plumbline.policies.slots.options import SlotSampling
from plumbline.policies.slots.packing import Pack, pack
from plumbline.records import Trajectory


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


def by_rounds(
    model: Any, trajectories: Sequence[Trajectory], grid: Grid, mask_id: int, law: SlotSampling
) -> list[Tensor]:
    """Log-probabilities of each trajectory's terms by a forward pass for every round.

    The packed pass gives the same numbers with one pass for all rounds. Tests compare the two, and
    `benchmarks/slots.py` times them.

    Args:
        model: a causal transformers model.
        trajectories: of one prompt, or with equal prompts side by side; each pass holds one round of all of them.
        grid: how their canvases are cut.
        mask_id: the mask token.
        law: the law that they carry.
    """
    parts: list[list[Tensor]] = [[] for _ in trajectories]
    for number in range(max(len(trajectory.steps) for trajectory in trajectories)):
        rows = [row for row, trajectory in enumerate(trajectories) if number < len(trajectory.steps)]
        single = [replace(trajectories[row], steps=(trajectories[row].steps[number],)) for row in rows]
        packed = pack(single, grid, mask_id, model.device)
        terms = log_probs(packed, laws_of(model, mask_id, packed), law)
        for row, part in zip(rows, terms.split([len(one.logprobs) for one in single]), strict=True):
            parts[row].append(part)
    return [torch.cat(each) for each in parts]
