"""Expert iteration: supervised learning on the best of a model's own answers.

Rule. Of the G answers to a prompt the `kept` best are kept, each text once; loss = -mean of log p
over the choices of the kept answers. A step is a round: answers to `rl.prompts_per_step` prompts
are drawn, and the kept ones learnt for `rl.inner_epochs` epochs in steps of `rl.minibatch` prompts.
One round alone is called rejection sampling, too.

Reason. What the verifier says is used to choose and for nothing else, so there is no ratio to clip,
and no wrong answer to move away from. What GRPO adds is mainly that groups without a right answer
count nothing (Xiong et al. 2025, arXiv:2504.11343), and here they do not either.

Source. RFT: Yuan et al. 2023, arXiv:2308.01825; RAFT: Dong et al. 2023, arXiv:2304.06767; expert
iteration: Anthony et al. 2017, arXiv:1705.08439.

Assumption. Answers are drawn, and scored, at `sampling.temperature`; at 1 without filters the loss
is that of SFT.

Edge case. Ties go to the answer that was drawn first. A prompt without an answer that earns enough
teaches nothing (`train/frac_prompts_kept`). `unverified` keeps the first answers whatever they
earn: the control that tells what the verifier adds to training on one's own samples (Zhang et al.
2026, arXiv:2604.01193).
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field

from plumbline.algorithms.algorithm import TOLERANCE, Algorithm
from plumbline.algorithms.objective import Batch, Loss, Normaliser
from plumbline.config.section import PositiveInt
from plumbline.records import FloatArray, Group


class SubsetAlgorithm(Algorithm):
    """An algorithm that selects answers of each group, and raises or lowers their
    log-probabilities."""

    uses_ratio = False
    selects_subset = True

    def loss(self, batch: Batch) -> Loss:
        """See `Algorithm.loss`: -sum of weight * advantage * log p."""
        terms = batch.terms
        return Loss(-(batch.weight * terms.weight * batch.advantage * terms.logprobs).sum())


class Rft(SubsetAlgorithm):
    """Supervised learning on the best answers to each prompt."""

    title = "Expert iteration"

    name: Literal["rft"] = "rft"
    normaliser: Normaliser = "dapo"
    kept: PositiveInt = 1
    """The most answers that are kept of a prompt."""
    least: float | None = Field(default=None, gt=0)
    """What a kept answer earns at least; None: more than its group's mean."""
    unverified: bool = False
    """Keep the first answers, whatever they earn: a control."""

    def advantages(self, group: Group) -> FloatArray:
        """See `Algorithm.advantages`: 1 for a kept answer, 0 for the others."""
        rewards, kept = group.rewards(), np.zeros(len(group.rollouts))
        if self.unverified:
            order, enough = list(range(len(rewards))), np.ones(len(rewards), dtype=bool)
        else:
            judged = ~np.isnan(rewards)
            bar = (
                self.least
                if self.least is not None
                else np.mean(rewards[judged]) + TOLERANCE
                if judged.any()
                else 0
            )
            enough = judged & (rewards >= bar)
            order = sorted(range(len(rewards)), key=lambda index: -np.nan_to_num(rewards[index]))
        texts: set[str] = set()
        for index in order:
            if enough[index] and len(texts) < self.kept and group.rollouts[index].text not in texts:
                texts.add(group.rollouts[index].text)
                kept[index] = 1.0
        return kept
