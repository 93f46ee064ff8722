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

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

import numpy as np
from pydantic import Field

from plumbline.algorithms.algorithm import has_signal
from plumbline.algorithms.objective import Target
from plumbline.algorithms.rft import SubsetAlgorithm
from plumbline.records import FloatArray, Group

if TYPE_CHECKING:
    from torch import Tensor


class Dpo(SubsetAlgorithm):
    """Direct preference optimisation of the best against the worst answer to each prompt."""

    title = "DPO"
    uses_reference = True
    own_metrics = ("train/reward_margin",)

    name: Literal["dpo"] = "dpo"
    beta: float = Field(default=0.1, gt=0)
    """How little a pair may move from the reference."""

    def advantages(self, group: Group) -> FloatArray:
        """See `Algorithm.advantages`: 1 for the best, -1 for the worst."""
        rewards, signs = group.rewards(), np.zeros(len(group.rollouts))
        if has_signal(rewards):
            signs[np.nanargmax(rewards)], signs[np.nanargmin(rewards)] = 1.0, -1.0
        return signs

    def shuffle(
        self, advantages: Sequence[FloatArray], rng: np.random.Generator
    ) -> list[FloatArray]:
        """See `Algorithm.shuffle`: pairs stay pairs, and are turned round or not."""
        return [float(rng.choice([-1, 1])) * each for each in advantages]

    def weights(self, lengths: Sequence[int], max_tokens: int) -> FloatArray:  # noqa: ARG002
        """See `Algorithm.weights`: one over the pairs."""
        return np.full(len(lengths), 2 / max(int(np.count_nonzero(lengths)), 1))

    def prepare(
        self, targets: Sequence[Target], score: Callable[[], Sequence[Tensor]]
    ) -> tuple[Sequence[Target], Mapping[str, float]]:
        """See `Algorithm.prepare`: what each answer counts, by the margin of its pair.

        The k-th best answer belongs to the k-th worst.
        """
        rollouts = {id(target.rollout): target.rollout for target in targets}
        gained = dict.fromkeys(rollouts, 0.0)  # new - reference of whole answers [nats]
        for target, new in zip(targets, score(), strict=True):
            assert target.reference is not None
            gained[id(target.rollout)] += float((new - target.reference).sum())
        signs = np.sign([rollout.advantage for rollout in rollouts.values()])
        gains = np.array([gained[key] for key in rollouts])
        margins = self.beta * (gains[signs > 0] - gains[signs < 0])
        counts = np.zeros_like(gains)
        counts[signs > 0] = counts[signs < 0] = self.beta / (1 + np.exp(margins))
        paired = {
            key: replace(rollout, advantage=float(advantage))
            for (key, rollout), advantage in zip(rollouts.items(), signs * counts, strict=True)
        }
        return [replace(target, rollout=paired[id(target.rollout)]) for target in targets], {
            "train/loss": float(np.logaddexp(0, -margins).mean()),
            "train/reward_margin": float(margins.mean()),
        }
