"""How much of a step's gradient is signal, from the parts that the batch was cut into: no
micro-batch more than the step has.

Letters in shapes: C parts of a batch, P groups (prompts) in it, M of them in the parts; the
others' gradient is 0.

Groups are drawn independently, so their gradients g_p are, too: with mean mu and summed variance
s2 over all weights, two different groups have E g_p . g_q = |mu|^2, and the batch has E |sum of
g_p|^2 = P^2 |mu|^2 + P s2. Part c holds n_c whole groups and adds up to S_c, so the products that
can be seen are those between parts:

    |sum of S_c|^2 - sum of |S_c|^2     over M^2 - sum of n_c^2 ordered pairs of groups

Their mean stands for all M (M - 1) pairs that are not 0, of the P (P - 1) that there are. Pairs
with a group of gradient 0 must not be counted as seen: which groups these are is chance, too, and
only the others share parts. So the signal P^2 |mu|^2 and the noise P s2 in the squared norm of
the batch's gradient are estimated without bias (McCandlish et al. 2018, "An Empirical Model of
Large-Batch Training", arXiv:1812.06162, appendix A.1, for parts of any size). Their ratio grows
with the number of groups; the cosine that the gradients of two such batches have on average is
about ratio / (1 + ratio) where the noise goes in many directions, and less where it goes in few.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

WATCHED = 2**20
"""Elements of the gradient that are looked at, evenly spread over all: enough for a ratio, and
cheap to keep."""
MEMORY = 0.9
"""Share of the past in the smoothed ratio: about the last ten steps. One step's own estimate says
little."""


class SignalNoise(NamedTuple):
    """Of the squared norm of one batch's gradient, on the weights that are watched."""

    signal: float
    """Unbiased, so it can fall below 0 where there is little of it."""
    noise: float
    """Unbiased, too."""


def estimate_signal_noise(
    total: float, parts: Sequence[float], sizes: Sequence[int], groups: int
) -> SignalNoise | None:
    """Signal and noise of a batch, from the products between its parts: the derivation stands
    at the top of the file.

    Args:
        total: |sum of all gradients|^2.
        parts: |S_c|^2 [C].
        sizes: n_c [C], groups of each part.
        groups: P, those without a signal included: their gradient is 0.

    Returns:
        None where there are not two groups, or where one part holds all that have a gradient.
    """
    moving, apart = sum(sizes), sum(sizes) ** 2 - sum(size**2 for size in sizes)
    if groups < 2 or (moving > 1 and apart == 0):
        return None
    # of two groups that have a gradient, on average
    product = (total - sum(parts)) / apart if apart else 0.0
    signal_one = product * moving * (moving - 1) / (groups * (groups - 1))
    # of single groups, summed
    squares = sum(parts) - product * (sum(size**2 for size in sizes) - moving)
    return SignalNoise(groups**2 * signal_one, squares - groups * signal_one)


class GradientParts:
    """Watches gradients add up over the micro-batches of a batch."""

    def __init__(self, weights: Mapping[str, Tensor]) -> None:
        """Take the weights whose gradients add up, cleared."""
        self.weights = list(weights.values())
        # Odd, so that it does not walk down a single column of matrices whose width is a power of
        # two.
        self.stride = -(-sum(weight.numel() for weight in self.weights) // WATCHED) | 1
        self.before: Tensor | None = None
        self.sums: dict[int, Tensor] = {}

    def add(self, part: int) -> None:
        """What was added since the last call belongs to `part`; parts may come in any order, and
        again."""
        now = torch.cat(
            [
                weight.grad.flatten()[:: self.stride].float()
                if weight.grad is not None
                else weight.new_zeros(-(-weight.numel() // self.stride), dtype=torch.float32)
                for weight in self.weights
            ]
        )
        gained = now if self.before is None else now - self.before
        self.before = now
        self._gain(part, gained)

    def _gain(self, part: int, gained: Tensor) -> None:
        self.sums[part] = self.sums[part] + gained if part in self.sums else gained

    def join(self, other: "GradientParts") -> None:
        """Take in what a replica watched of the same batch: its gradient is added to that of the
        weights here."""
        for part, gained in other.sums.items():
            self._gain(part, gained)
        if other.before is not None:
            self.before = other.before if self.before is None else self.before + other.before

    def measure(self, sizes: Mapping[int, int], groups: int) -> SignalNoise | None:
        """Signal and noise of the batch; `sizes` has the groups of each part."""
        if self.before is None:
            return None
        squares = {part: float(gained.square().sum()) for part, gained in self.sums.items()}
        total = float(self.before.square().sum())
        return estimate_signal_noise(
            total, list(squares.values()), [sizes[part] for part in squares], groups
        )


def group_independent_parts(
    microbatches: Sequence[Sequence[bytes]],
) -> tuple[list[int], dict[int, int]]:
    """Put micro-batches together that share a group, so that parts are independent of each other.

    Args:
        microbatches: the groups (by their prompt) that each micro-batch holds something of.

    Returns:
        The part of each micro-batch, and how many groups each part holds.
    """
    part_of: dict[bytes, int] = {}
    members: dict[int, set[bytes]] = {}
    found: list[int] = []
    for number, groups in enumerate(microbatches):
        merged = set(groups)
        for old in {part_of[group] for group in merged if group in part_of}:
            merged |= members.pop(old)
            found = [number if part == old else part for part in found]
        members[number] = merged
        part_of |= dict.fromkeys(merged, number)
        found.append(number)
    return found, {part: len(groups) for part, groups in members.items()}


def smooth_ratio(measured: SignalNoise | None, memory: dict[str, Any]) -> float | None:
    """Signal over noise of about the last ten steps; `memory` carries the sums from step to step.

    A step without any measure leaves it as it was. None until there was one with noise in it.
    """
    if measured is not None:
        for name, value in measured._asdict().items():
            memory[f"grad_{name}"] = MEMORY * memory.get(f"grad_{name}", 0.0) + (1 - MEMORY) * value
    if memory.get("grad_noise", 0.0) <= 0:
        return None
    return float(memory["grad_signal"] / memory["grad_noise"])
