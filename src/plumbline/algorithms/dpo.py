"""DPO of the best against the worst of G answers, drawn by the model itself.

Rule. loss = mean over pairs of -log sigmoid(m), m = beta * [(new - reference)(best) - (new -
reference)(worst)], with log-probabilities of whole answers. Its gradient is that of -sum of w A log
p with A = beta * sigmoid(-m) for the best and -A for the worst. So once their log-probabilities are
known, the two answers may stand in different micro-batches.

Reason. A verifier gives pairs for nothing, and a pair needs no scale of the reward.

Source. Rafailov et al. 2023, arXiv:2305.18290, equation 7; of its own samples: Guo et al. 2024,
arXiv:2402.04792.

Assumption. The reference is the model that the stage began with. Answers are scored at
`sampling.temperature`.

Edge case. A group whose rewards are all equal makes no pair; ties go to the answer that was drawn
first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from plumbline.algorithms.advantages import has_signal
from plumbline.algorithms.rft import Picking
from plumbline.records import Group


class Dpo(Picking):
    """Direct preference optimisation of the best against the worst answer to each prompt."""

    title: ClassVar[str] = "DPO"
    paired: ClassVar[bool] = True

    name: Literal["dpo"] = "dpo"
    beta: float = Field(default=0.1, gt=0)
    """How little a pair may move from the reference."""

    def credit(self, group: Group) -> NDArray[np.float64]:
        """See `Algorithm.credit`: 1 for the best, -1 for the worst."""
        rewards, signs = group.rewards(), np.zeros(len(group.rollouts))
        if has_signal(rewards):
            signs[np.nanargmax(rewards)], signs[np.nanargmin(rewards)] = 1.0, -1.0
        return signs

    def weights(self, lengths: Sequence[int], max_tokens: int) -> NDArray[np.float64]:  # noqa: ARG002
        """See `Algorithm.weights`: one over the pairs."""
        return np.full(len(lengths), 2 / max(int(np.count_nonzero(lengths)), 1))

    def pair(
        self, signs: NDArray[np.float64], gained: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], float, float]:
        """What each answer counts, as above.

        Args:
            signs: [n] 1 for the best and -1 for the worst of a pair; the k-th best belongs to the
                k-th worst.
            gained: [n] new - reference of whole answers [nats].

        Returns:
            Advantages [n], the loss, and the mean of m.
        """
        margins = self.beta * (gained[signs > 0] - gained[signs < 0])
        weights = np.zeros_like(gained)
        weights[signs > 0] = weights[signs < 0] = self.beta / (1 + np.exp(margins))
        return signs * weights, float(np.logaddexp(0, -margins).mean()), float(margins.mean())
