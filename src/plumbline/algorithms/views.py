"""A view: some of a rollout's states, with weights. The policy scores views; the surrogate sums
them."""

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from plumbline.records import Step, Trajectory


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """States to score for one trajectory: for a rollout, or one of its turns."""

    owner: int
    """Index of the trajectory among those that views were made of."""
    trajectory: Trajectory
    """The trajectory with the steps to score; each step has its weight."""


class Scores(Protocol):
    """What an algorithm asks of the policy that will score its views."""

    family: str
    stepwise: bool
    """Whether each step is scored by a forward pass of its own; False: one pass scores a whole
    trajectory."""

    def hide(self, trajectory: Trajectory, hidden: NDArray[np.bool_]) -> Step:
        """A step that fills in the `hidden` positions [L] of the answer's canvas from the others.

        Its state is the canvas with these positions masked; its tokens are the answer's own; its
        recorded log-probabilities are not a number, because nobody sampled them.

        Raises:
            RecipeError: the policy cannot hide positions.
        """
        ...


# -- trajectory ------------------------------------------------------------------------------------
#
# The exact log-probability of a trajectory, from all of its steps or an unbiased estimate from K of
# them.
#
# The surrogate is a sum over steps, so scoring K of T steps with weights whose expectation is 1
# gives its gradient without bias: an even draw of K steps weighs each T/K, and one step from each
# of K equal stretches weighs each by its stretch's length, with less variance. A ratio of whole
# sequences is no such sum, and refuses K < T.
#
# This is not what Flow-GRPO (Liu et al. 2025, arXiv:2505.05470) calls denoising reduction, which is
# sampling training rollouts in fewer steps than evaluations have: `sampling.steps` against
# `evaluation.steps`.

Pick = Literal["stratified", "uniform"]


def trajectory_views(
    trajectories: Sequence[Trajectory],
    keep: int | None,
    pick: Pick,
    rng: np.random.Generator,
    *,
    split: bool,
) -> list[View]:
    """Views of every trajectory.

    A trajectory that ended in fewer than K steps, though its law allows K, is scored whole.

    Args:
        trajectories: what was sampled.
        keep: K; None scores all steps.
        pick: how K steps are drawn.
        rng: draws them.
        split: a view for each step (a policy that scores each in a forward pass of its own can then
            put any of them into a micro-batch); else one view holds all.

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


# -- bound -----------------------------------------------------------------------------------------
#
# Bounds on an answer's log-likelihood, from a few looks at it with some positions hidden.
#
# Letters: L positions of the canvas, S a set of hidden positions, H = |S|.
#
# A masked model that fills in positions in random order has log p(y) >= E_S [ weight * sum_{i in S}
# log p(y_i | rest) ]. What differs between the algorithms is how S is drawn and what it counts:
# each has its `looks`.
#
# None is the log-probability of the trajectory that was sampled, so a report says that they are not
# exact. Tokens are scored at temperature 1, as published: the bound is one of the model, not of the
# sampler's law.

Look = tuple[NDArray[np.bool_], float]
"""A hidden set [L], and what it counts."""
Looks = Callable[[int, int, np.random.Generator], Iterable[Look]]
"""From L, the number of draws, and who draws them."""


def bound_views(
    policy: Scores,
    trajectories: Sequence[Trajectory],
    looks: Looks,
    draws: int,
    rng: np.random.Generator,
) -> list[View]:
    """One view for each rollout, that holds all of its looks.

    A look that hides nothing says nothing and is left out, and so is a rollout all of whose looks
    do.

    Args:
        policy: hides positions.
        trajectories: what was sampled.
        looks: of the algorithm.
        draws: Monte Carlo draws or quadrature nodes.
        rng: draws the sets.

    Raises:
        RecipeError: the policy cannot hide positions.
    """
    views = []
    for owner, trajectory in enumerate(trajectories):
        length = trajectory.sampling.max_tokens
        seen = [(hidden, weight) for hidden, weight in looks(length, draws, rng) if hidden.any()]
        if not seen:
            continue
        steps = tuple(
            replace(policy.hide(trajectory, hidden), weight=weight) for hidden, weight in seen
        )
        plain = type(trajectory.sampling)(max_tokens=length)
        views.append(View(owner, replace(trajectory, steps=steps, sampling=plain)))
    return views
