"""The log-probabilities of recorded rounds, by one packed forward pass; or, to compare with, by one pass a round.

Letters in shapes: N terms, T packed tokens, H hidden size.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from plumbline.policies.slots import selection
from plumbline.policies.slots.attention import read_packed
from plumbline.policies.slots.grid import Grid
from plumbline.policies.slots.head import Head
from plumbline.policies.slots.options import SlotSampling
from plumbline.policies.slots.packing import Pack, pack
from plumbline.records import Trajectory


@dataclass(frozen=True, slots=True, eq=False)
class Looked:
    """What weights say about a pack: hidden states at its predictors and queries, and the head that reads them."""

    head: Head
    predicting: Tensor  # [N, H]
    asked: Tensor  # [B, m, H]


def look(model: Any, mask_id: int, packed: Pack) -> Looked:
    """One forward pass over a pack."""
    hidden = read_packed(model, packed.ids, packed.positions, packed.mask)[0]
    return Looked(Head.of(model, mask_id), hidden[packed.predictors], hidden[packed.queries])


def log_probs(packed: Pack, looked: Looked, law: SlotSampling) -> Tensor:
    """Log-probabilities [N + B] of a pack's terms, in the order of `Trajectory.logprobs`."""
    tokens = looked.head.log_prob(looked.predicting, packed.targets, law)
    if len(packed.queries) == 0:
        return tokens[packed.order]
    chosen = selection.log_prob(_scores(packed, looked, law), packed.chosen, packed.there)
    return torch.cat([tokens, chosen.to(tokens.dtype)])[packed.order]


def divergences(packed: Pack, looked: Looked, other: Looked, law: SlotSampling) -> Tensor:
    """KL [steps] from the law of `looked` to that of `other`, in closed form at the states that were visited.

    A round's KL is the sum over its drawn tokens of the KL of their laws, given the tokens before them in their slot,
    and over its picks of slots, given the picks before them. The mean over trajectories of the sum over rounds is the
    KL of the trajectories (the chain rule; a test enumerates it).
    """
    each = looked.head.divergence(looked.predicting, other.head, other.predicting, law)
    if len(packed.queries):
        scores, others = _scores(packed, looked, law), _scores(packed, other, law)
        of_choice = selection.divergence(scores, others, packed.chosen, packed.there)
        each = torch.cat([each, of_choice.to(each.dtype)])
    return each.new_zeros(packed.num_steps).index_add(0, packed.step, each)


def _scores(packed: Pack, looked: Looked, law: SlotSampling) -> Tensor:
    """Scores [B, m] of open slots; something finite where there is none."""
    confidence = looked.head.confidence(looked.asked.flatten(0, 1), law)
    return confidence.view(packed.queries.shape) / law.position_temperature


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
        terms = log_probs(packed, look(model, mask_id, packed), law)
        for row, part in zip(rows, terms.split([len(one.logprobs) for one in single]), strict=True):
            parts[row].append(part)
    return [torch.cat(each) for each in parts]
