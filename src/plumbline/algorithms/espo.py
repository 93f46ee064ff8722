"""ESPO: the ELBO of an answer stands for its log-likelihood, and one ratio is formed of the whole
of it.

Rule. L = answer's places. A draw hides H of them, H uniform in 1..L, the set uniform of that size,
and counts L/H times the sum of log p of what it hides; its complement counts L/(L-H), and the two
are averaged. d = (new - old) / L; loss = sum over answers of w L * -min(exp(d) A, clip(exp(d)) A).

Reason. log p(y) of a masked model is a sum over all orders; E[(L/H) sum_S log p] is its bound for
random ones. Old and new are scored at the same sets, so they differ by the weights alone; a draw
and its complement see every token once, which halves the variance.

Source. Ou et al. 2025, arXiv:2512.03759. The factor w L in front is as in `gspo`.

Assumption. A change of the bound is a change of the likelihood: nothing says so where the bound is
loose, and it is the model's at temperature 1, not the sampler's distribution.

Edge case. The complement of a full set is empty: such a draw stands alone and counts whole.
"""

from collections.abc import Iterator
from typing import ClassVar, Literal

import numpy as np

from plumbline.algorithms.algorithm import BoundAlgorithm, MaskSample, MaskSampler
from plumbline.algorithms.objective import Level


def sample_masks(length: int, mask_samples: int, rng: np.random.Generator) -> Iterator[MaskSample]:
    """Sets of uniform size and their complements: two mask samples a draw."""
    for _ in range(mask_samples):
        count = int(rng.integers(1, length + 1))
        hidden = np.zeros(length, dtype=bool)
        hidden[rng.permutation(length)[:count]] = True
        share = 0.5 if count < length else 1.0
        yield hidden, share * length / count / mask_samples
        if count < length:
            yield ~hidden, share * length / (length - count) / mask_samples


class Espo(BoundAlgorithm):
    """ELBO-based sequence-level policy optimisation."""

    likelihood = "espo"
    name: Literal["espo"] = "espo"
    sample_masks: ClassVar[MaskSampler] = staticmethod(sample_masks)

    @property
    def level(self) -> Level:
        """See `Clipped.level`."""
        return "sequence"
