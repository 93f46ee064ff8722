"""GDPO: the ELBO as an integral over the hidden share, by quadrature instead of chance.

Rule. The bound is an integral over t in (0, 1) of E[sum over hidden places of log p] / t, each
place being hidden with probability t. `mask_samples` Gauss-Legendre nodes replace random t; a node
counts its weight over t. Ratio and clip are those of whole answers, as in `espo`.

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

from plumbline.algorithms.algorithm import BoundAlgorithm, MaskSample, MaskSampler
from plumbline.algorithms.objective import Level


def sample_masks(length: int, mask_samples: int, rng: np.random.Generator) -> Iterator[MaskSample]:
    """One set for each of `mask_samples` nodes on (0, 1)."""
    nodes, node_weights = np.polynomial.legendre.leggauss(mask_samples)
    for node, weight in zip((nodes + 1) / 2, node_weights / 2, strict=True):
        yield rng.random(length) < node, float(weight / node)


class Gdpo(BoundAlgorithm):
    """Group diffusion policy optimisation."""

    likelihood = "gdpo"
    name: Literal["gdpo"] = "gdpo"
    sample_masks: ClassVar[MaskSampler] = staticmethod(sample_masks)

    @property
    def level(self) -> Level:
        """See `Clipped.level`."""
        return "sequence"
