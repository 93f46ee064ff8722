"""Bounds on an answer's log-likelihood, from a few looks at it with some positions hidden.

Letters: L positions of the canvas, S a set of hidden positions, H = |S|.

A masked model that fills in positions in random order has log p(y) >= E_S [ weight * sum_{i in S} log p(y_i | rest) ].
What differs between the algorithms is how S is drawn and what it counts: each has its `looks`.

None is the log-probability of the trajectory that was sampled, so a report says that they are not exact. Tokens are
scored at temperature 1, as published: the bound is one of the model, not of the sampler's law.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from plumbline.algorithms.likelihood.views import Hides, Scores, View
from plumbline.errors import RecipeError
from plumbline.records import Trajectory

Look = tuple[NDArray[np.bool_], float]
"""A hidden set [L], and what it counts."""
Looks = Callable[[int, int, np.random.Generator], Iterable[Look]]
"""From L, the number of draws, and who draws them."""


def bound_views(
    policy: Scores, trajectories: Sequence[Trajectory], looks: Looks, draws: int, rng: np.random.Generator
) -> list[View]:
    """One view for each rollout, that holds all of its looks.

    A look that hides nothing says nothing and is left out, and so is a rollout all of whose looks do.

    Args:
        policy: hides positions.
        trajectories: what was sampled.
        looks: of the algorithm.
        draws: Monte Carlo draws or quadrature nodes.
        rng: draws the sets.

    Raises:
        RecipeError: the policy cannot hide positions.
    """
    if not isinstance(policy, Hides):
        raise RecipeError(
            "this rl.algorithm looks at answers with positions hidden, which a policy of family "
            f"{policy.family} cannot do",
            "set rl.algorithm to one that scores trajectories, such as grpo",
        )
    views = []
    for owner, trajectory in enumerate(trajectories):
        length = trajectory.sampling.max_tokens
        seen = [(hidden, weight) for hidden, weight in looks(length, draws, rng) if hidden.any()]
        if not seen:
            continue
        steps = tuple(replace(policy.hide(trajectory, hidden), weight=weight) for hidden, weight in seen)
        plain = type(trajectory.sampling)(max_tokens=length)
        views.append(View(owner, replace(trajectory, steps=steps, sampling=plain)))
    return views
