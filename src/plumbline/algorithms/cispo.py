"""CISPO: REINFORCE with a truncated importance weight, so no token loses its gradient.

Rule. loss = sum over tokens of w * -stop(min(r, 1 + clip_high)) * A * log p, with r = exp(new -
old) and stop() a constant for the gradient. The denominator is the number of tokens of the batch
(`dapo`).

Reason. PPO's clip takes the whole gradient from a token whose ratio left the interval in the
direction of its advantage. Those are often the rare tokens at which an answer turns ("However",
"Wait"), and after the first update on a batch they are gone. Truncating the weight instead bounds
its variance and keeps every token.

Source. MiniMax 2025, MiniMax-M1, arXiv:2506.13585, equations 4 and 5; as there, no lower bound.
TRL's `cispo` takes the bound itself where we take what is above 1 (its epsilon_high of 5 is a
clip_high of 4).

Assumption. The weight is a constant, so the gradient is biased where it is truncated: more
off-policy data, more bias.

Edge case. With one inner epoch all ratios are 1 and this is `grpo` with the normaliser dapo. The
value of the loss is no measure of anything: only its gradient is meant.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from plumbline.algorithms.algorithm import Algorithm, group_terms
from plumbline.algorithms.objective import Batch, Loss, Normaliser, sum_over_units

if TYPE_CHECKING:
    from torch import Tensor


class Cispo(Algorithm):
    """Clipped importance weights times log-probabilities."""

    name: Literal["cispo"] = "cispo"
    normaliser: Normaliser = "dapo"
    clip_high: float = Field(default=0.2, gt=0)
    """The weight of a token rises to 1 + clip_high and no further."""

    def loss(self, batch: Batch) -> Loss:
        """See `Algorithm.loss`."""

        def truncated(new: Tensor, ratio: Tensor, advantages: Tensor) -> tuple[Tensor, Tensor]:
            bound = 1 + self.clip_high
            return -ratio.detach().clamp(max=bound) * advantages * new, ratio.detach() > bound

        return sum_over_units(truncated, batch, group_terms(batch, "token", exact=True))
