"""The exact log-probability of a trajectory, from all of its steps or an unbiased estimate from K of them.

The surrogate is a sum over steps, so scoring K of T steps with weights whose expectation is 1 gives its gradient
without bias: an even draw of K steps weighs each T/K, and one step from each of K equal stretches weighs each by its
stretch's length, with less variance. A ratio of whole sequences is no such sum, and refuses K < T.

This is not what Flow-GRPO (Liu et al. 2025, arXiv:2505.05470) calls denoising reduction, which is sampling training
rollouts in fewer steps than evaluations have: `sampling.steps` against `evaluation.steps`.
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np

from plumbline.algorithms.likelihood.views import View
from plumbline.records import Step, Trajectory

Pick = Literal["stratified", "uniform"]


def trajectory_views(
    trajectories: Sequence[Trajectory], keep: int | None, pick: Pick, rng: np.random.Generator, *, split: bool
) -> list[View]:
    """Views of every trajectory.

    A trajectory that ended in fewer than K steps, though its law allows K, is scored whole.

    Args:
        trajectories: what was sampled.
        keep: K; None scores all steps.
        pick: how K steps are drawn.
        rng: draws them.
        split: a view for each step (a policy that scores each in a forward pass of its own can then put any of them
            into a pass); else one view holds all.

    Raises:
        ValueError: K exceeds the steps that a trajectory's law allows.
    """
    views = []
    for owner, trajectory in enumerate(trajectories):
        steps = trajectory.steps
        if keep is not None and not len(steps) < keep <= (trajectory.sampling.most_steps or 0):
            steps = tuple(_some(steps, keep, pick, rng))
        for part in ([step] for step in steps) if split else [steps]:
            views.append(View(owner, replace(trajectory, steps=tuple(part))))
    return views


def _some(steps: Sequence[Step], keep: int, pick: Pick, rng: np.random.Generator) -> Iterator[Step]:
    total = len(steps)
    if keep > total:
        raise ValueError(f"cannot score {keep} of {total} steps")
    if pick == "uniform":
        for index in sorted(rng.choice(total, size=keep, replace=False)):
            yield replace(steps[index], weight=total / keep)
        return
    edges = [round(total * part / keep) for part in range(keep + 1)]
    for start, end in itertools.pairwise(edges):
        yield replace(steps[int(rng.integers(start, end))], weight=float(end - start))
