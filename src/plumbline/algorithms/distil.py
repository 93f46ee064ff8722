"""On-policy distillation: a model's own answers, and at each token of them what a teacher would
have said.

Rule. loss = beta * mean over tokens of the KL between the policy and the teacher, on answers that
the policy drew. Rewards are watched and teach nothing. `rl.teacher` says who teaches: a larger
model of the same vocabulary, or the model that the stage began with, with a hint such as the gold
answer in its prompt. `rl.kl` is closed (KL of the policy to the teacher, summed over the
vocabulary), forward (of the teacher to the policy), or sampled (estimated).

Reason. A reward says a number an answer, a teacher a distribution a token, so one answer a prompt
is enough.

Source. GKD: Agarwal et al. 2024, arXiv:2306.13649; Lu et al. 2025, "On-policy distillation"; with
the answer in the prompt: Shenfeld et al. 2026, arXiv:2601.19897, and arXiv:2601.18734.

Assumption. Both have one vocabulary (checked by name of every token).

Edge case. The gradient through what was drawn is left out, as in GKD: the KL is that of each token
given its past.
"""

from typing import Literal

import numpy as np

from plumbline.algorithms.algorithm import Clipped
from plumbline.algorithms.objective import Normaliser
from plumbline.records import FloatArray, Group


class Distil(Clipped):
    """The KL to a teacher, on the policy's own answers."""

    title = "Distillation"
    uses_group_baseline = False
    needs_teacher = True

    name: Literal["distil"] = "distil"
    normaliser: Normaliser = "dapo"

    def advantages(self, group: Group) -> FloatArray:
        """See `Algorithm.advantages`: none."""
        return np.zeros(len(group.rollouts))
