"""GDPO: the ELBO as an integral over the hidden share, by quadrature instead of chance.

Rule. The bound is an integral over t in (0, 1) of E[sum over hidden places of log p] / t, each
place being hidden with probability t. `draws` Gauss-Legendre nodes replace random t; a node counts
its weight over t. Ratio and clip are those of whole answers, as in `espo`.

Reason. Most of the ELBO's variance is that of t, and the integrand is smooth in it: two or three
nodes do what many draws of t do.

Source. Rojas et al. 2025, arXiv:2510.08554.

Assumption. As in `espo`.

Edge case. A node near 0 may hide nothing: it then says nothing and is left out, which is what it
counts for, 0.
"""

from collections.abc import Iterator
from typing import ClassVar, Literal

import numpy as np

from plumbline.algorithms.algorithm import Bounded
from plumbline.algorithms.objective import Level
from plumbline.algorithms.views import Look, Looks


def looks(length: int, draws: int, rng: np.random.Generator) -> Iterator[Look]:
    """One set for each of `draws` nodes on (0, 1)."""
    nodes, node_weights = np.polynomial.legendre.leggauss(draws)
    for node, weight in zip((nodes + 1) / 2, node_weights / 2, strict=True):
        yield rng.random(length) < node, float(weight / node)


class Gdpo(Bounded):
    """Group diffusion policy optimisation."""

    likelihood: ClassVar[str] = "gdpo"
    name: Literal["gdpo"] = "gdpo"
    looks: ClassVar[Looks] = staticmethod(looks)

    @property
    def level(self) -> Level:
        """See `Clipped.level`."""
        return "sequence"
