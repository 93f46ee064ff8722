"""Advantages within a group: how much better than its siblings a rollout was.

Letters in shapes: G rollouts of one group.

The advantage is the reward minus the group's mean (Liu et al. 2025, "Understanding R1-Zero-Like
Training", Dr. GRPO, arXiv:2503.20783): dividing by the group's standard deviation, as GRPO first
did (Shao et al. 2024, arXiv:2402.03300), gives easy and hard prompts more weight than the ones in
between, so it is an option and not the default.
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Scale = Literal["none", "group"]
TOLERANCE = 1e-6
"""Rewards closer than this are equal: the standard deviation of eight equal float32 rewards is not
0 but 1e-8."""


def has_signal(rewards: NDArray[np.float64]) -> bool:
    """Whether the judged rewards [G] (NaN: not judged) differ, so that the group says anything at
    all."""
    judged = rewards[~np.isnan(rewards)]
    return bool(len(judged) > 1 and judged.max() - judged.min() > TOLERANCE)


def advantages(rewards: NDArray[np.float64], scale: Scale = "none") -> NDArray[np.float64]:
    """Advantages [G] of one group.

    They sum to 0 over the judged rollouts. A group without signal, and a rollout that could not be
    judged (NaN), get exactly 0: an answer that nobody judged is neither good nor bad.

    Args:
        rewards: [G], NaN where a rollout could not be judged.
        scale: "group" divides by the standard deviation (with Bessel's correction, as TRL does).
    """
    if not has_signal(rewards):
        return np.zeros_like(rewards)
    centred = rewards - np.nanmean(rewards)
    if scale == "group":
        centred = centred / (np.nanstd(rewards, ddof=1) + 1e-4)
    return np.nan_to_num(centred)


def shuffle_advantages(
    groups: Sequence[NDArray[np.float64]], rng: np.random.Generator
) -> list[NDArray[np.float64]]:
    """Advantages [G], shuffled over all rollouts of the batch: a control that cannot learn."""
    flat = rng.permutation(np.concatenate(list(groups)))
    return list(np.split(flat, np.cumsum([len(group) for group in groups])[:-1]))
