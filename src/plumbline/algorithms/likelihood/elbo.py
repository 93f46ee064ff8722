"""Bounds on an answer's log-likelihood, from a few looks at it with some positions hidden.

Letters: L positions of the canvas, S a set of hidden positions, H = |S|.

A masked model that fills in positions in random order has log p(y) >= E_S [ weight * sum_{i in S} log p(y_i | rest) ].
What differs between the methods is how S is drawn and what it counts:

    espo      ESPO (Ou et al. 2025, arXiv:2512.03759): H uniform in 1..L, S uniform of that size, each with its
              complement. E[(1/H) sum_S log p] * L is the any-order bound; a draw counts L/H, and pairs with their
              complements (L/(L-H)) halve the variance. Needs 2 looks a draw.
    gdpo      GDPO (Rojas et al. 2025, arXiv:2510.08554): the bound as an integral over the hidden share t, by
              Gauss-Legendre nodes on (0, 1): each position is hidden with probability t, and counts node weight / t.
    diffu     diffu-GRPO (Zhao et al. 2025, arXiv:2504.12216): one look with everything hidden, each token by itself.
              No bound of the sampler's law; kept as a baseline. (Its random masking of the prompt is left out.)
    coupled   coupled-GRPO (Gong et al. 2025, arXiv:2506.20639): a set (each position with probability t, t uniform
              in 0.2..0.8), its complement and everything hidden; every token is seen once hidden in part, where it
              counts 1/t or 1/(1-t), and once hidden in full, and the two are averaged.

None is the log-probability of the trajectory that was sampled, so a report says that they are not exact. Tokens are
scored at temperature 1, as published: the bound is one of the model, not of the sampler's law.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from plumbline.algorithms.likelihood.views import View
from plumbline.policies.policy import Hides
from plumbline.records import Trajectory

Bound = Literal["espo", "gdpo", "diffu", "coupled"]


def elbo_views(
    policy: Hides, trajectories: Sequence[Trajectory], bound: Bound, draws: int, rng: np.random.Generator
) -> list[View]:
    """One view for each rollout, that holds all of its looks.

    Args:
        policy: hides positions.
        trajectories: what was sampled.
        bound: which estimator.
        draws: Monte Carlo draws (espo, coupled) or quadrature nodes (gdpo); diffu has one.
        rng: draws the sets.
    """
    views = []
    for owner, trajectory in enumerate(trajectories):
        length = trajectory.sampling.max_tokens
        looks = _looks(bound, length, draws, rng)
        steps = tuple(replace(policy.hide(trajectory, hidden), weight=weight) for hidden, weight in looks)
        plain = type(trajectory.sampling)(max_tokens=length)
        views.append(View(owner, replace(trajectory, steps=steps, sampling=plain)))
    return views


def _looks(bound: Bound, length: int, draws: int, rng: np.random.Generator) -> list[tuple[NDArray[np.bool_], float]]:
    """Hidden sets [L] and what each counts; an empty set says nothing and is left out."""
    everything = np.ones(length, dtype=bool)
    if bound == "diffu":
        return [(everything, 1.0)]
    looks = []
    if bound == "gdpo":
        nodes, node_weights = np.polynomial.legendre.leggauss(draws)
        for node, weight in zip((nodes + 1) / 2, node_weights / 2, strict=True):
            looks.append((rng.random(length) < node, float(weight / node)))
    for _ in range(draws if bound in {"espo", "coupled"} else 0):
        if bound == "espo":
            count = int(rng.integers(1, length + 1))
            hidden = _subset(length, count, rng)
            # The complement of a full set is empty: the draw then stands alone and counts whole.
            share = 0.5 if count < length else 1.0
            looks += [(hidden, share * length / count / draws)]
            if count < length:
                looks += [(~hidden, share * length / (length - count) / draws)]
        else:
            share = rng.uniform(0.2, 0.8)
            hidden = rng.random(length) < share
            looks += [
                (everything, 0.5 / draws),
                (hidden, 0.5 / share / draws),
                (~hidden, 0.5 / (1 - share) / draws),
            ]
    return [(hidden, weight) for hidden, weight in looks if hidden.any()]


def _subset(length: int, count: int, rng: np.random.Generator) -> NDArray[np.bool_]:
    hidden = np.zeros(length, dtype=bool)
    hidden[rng.permutation(length)[:count]] = True
    return hidden
