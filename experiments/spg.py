"""SPG: a bound from below where an answer is to become more likely, one from above where it is to
become less so.

Rule. loss = -sum of w A B, with B the lower bound (the ELBO of `bound`) where A >= 0, and where A <
0 the mixture MIX
* upper + (1 - MIX) * lower. The upper bound is, for each place of the answer, log(sum over draws of
  w p^b) / b with b
= ORDER (a draw in which the place was not hidden adds 0), summed over places. There is no ratio.

Reason. To lower a lower bound need not lower the likelihood: it may only become looser. The mixture
keeps the variance of the upper bound down.

Source. Wang et al. 2025, arXiv:2510.09541.

Assumption. The rollouts are of the weights that are trained: no ratio corrects for old ones, so
there is one inner epoch, and no KL.

Edge case. With one draw of `espo` a place is hidden in one mask sample or its complement, once:
upper and lower bound then differ by that sample's weight alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np

from plumbline.algorithms import espo, gdpo
from plumbline.algorithms.algorithm import Algorithm, MaskSampler
from plumbline.algorithms.objective import Batch, Loss
from plumbline.config.section import PositiveInt

if TYPE_CHECKING:
    from torch import Tensor

MASK_SAMPLERS = {"espo": espo.sample_masks, "gdpo": gdpo.sample_masks}
ORDER = 1.5
"""The exponent b of the upper bound (1 makes it the log of a mean; larger is tighter where draws
differ)."""
MIX = 0.5
"""Share of the upper bound in the mixture."""


class Spg(Algorithm):
    """Sandwiched policy gradient."""

    families = ("masked",)
    likelihood = "spg"
    uses_ratio = False
    name: Literal["spg"] = "spg"
    bound: Literal["espo", "gdpo"] = "espo"
    """Whose mask samples."""
    mask_samples: PositiveInt = 1

    @property
    def masks(self) -> tuple[MaskSampler, int]:
        """See `Algorithm.masks`."""
        return MASK_SAMPLERS[self.bound], self.mask_samples

    def loss(self, batch: Batch) -> Loss:
        """See `Algorithm.loss`."""
        terms, place = batch.terms, _number_positions(batch)
        return Loss(
            sandwich_loss(terms.logprobs, terms.weight, place, batch.advantage, batch.weight)
        )


def _number_positions(batch: Batch) -> Tensor:
    """A number [N] for each term, equal where the same token of the same rollout was looked at."""
    import torch

    positions = np.concatenate(
        [step.positions for target in batch.targets for step in target.trajectory.transitions]
    )
    longest = int(positions.max()) + 1
    owner = batch.terms.owner
    return owner * longest + torch.from_numpy(positions).to(owner.device)


def sandwich_loss(
    logprobs: Tensor, transition_weight: Tensor, place: Tensor, advantages: Tensor, weight: Tensor
) -> Tensor:
    """The loss, a scalar.

    Args:
        logprobs: [N], of single tokens in single draws, with gradient.
        transition_weight: [N], the weight of the draw that a term belongs to (draw weights sum to 1
            over a hidden token's chances of being seen).
        place: [N], int64: equal for terms of the same token of the same rollout.
        advantages: [N], equal within a rollout.
        weight: [N], equal within a rollout.
    """
    import torch

    lower = -(logprobs * transition_weight * advantages * weight)
    kinds, of_term = torch.unique(place, return_inverse=True)
    # log(sum w p^b) of each place, stably: shifted by the place's largest exponent.
    exponent = transition_weight.log().to(logprobs.dtype) + ORDER * logprobs
    largest = logprobs.new_full((len(kinds),), -torch.inf)
    largest = largest.scatter_reduce(0, of_term, exponent.detach(), "amax")
    total = torch.zeros_like(largest).index_add(0, of_term, (exponent - largest[of_term]).exp())
    upper = (total.log() + largest) / ORDER
    first = torch.zeros_like(kinds).scatter_(
        0, of_term, torch.arange(len(place), device=place.device)
    )
    raising = -(upper * advantages[first] * weight[first])
    negative = advantages < 0
    mixed = torch.where(negative, (1 - MIX) * lower, lower).sum()
    return mixed + MIX * torch.where(negative[first], raising, torch.zeros_like(raising)).sum()
