"""How much of a step's gradient is signal, from the parts that the batch was cut into: no pass more than the step has.

Letters in shapes: C parts of a batch, P groups (prompts) in all of them.

Groups are drawn independently, so their gradients g_p are, too: with mean mu and summed variance s2 over all weights,

    E |sum of g_p|^2            = P^2 |mu|^2 + P s2            over the batch
    E sum over parts |S_c|^2    = sum n_c^2 |mu|^2 + P s2      where part c holds n_c whole groups and adds up to S_c

Two equations, two unknowns: an unbiased estimate of the signal P^2 |mu|^2 and of the noise P s2 in the squared norm of
the batch's gradient (McCandlish et al. 2018, "An Empirical Model of Large-Batch Training", arXiv:1812.06162, appendix
A.1, for parts of any size). Their ratio grows with the number of groups; the cosine that the gradients of two such
batches have on average is about ratio / (1 + ratio).
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

WATCHED = 2**20
"""Elements of the gradient that are looked at, evenly spread over all: enough for a ratio, and cheap to keep."""
MEMORY = 0.9
"""Share of the past in the smoothed ratio: about the last ten steps. One step's own estimate says little."""


class SignalNoise(NamedTuple):
    """Of the squared norm of one batch's gradient, on the weights that are watched."""

    signal: float
    """Unbiased, so it can fall below 0 where there is little of it."""
    noise: float


def signal_and_noise(total: float, parts: Sequence[float], sizes: Sequence[int], groups: int) -> SignalNoise | None:
    """Solve the two equations above.

    Args:
        total: |sum of all gradients|^2.
        parts: |S_c|^2 [C].
        sizes: n_c [C], groups of each part.
        groups: P, those without a signal included: their gradient is 0.

    Returns:
        None where there are not two parts to compare.
    """
    squares = sum(size**2 for size in sizes) + (groups - sum(sizes))
    if groups**2 == squares:
        return None
    signal_one = (total - sum(parts)) / (groups**2 - squares)
    noise_one = (sum(parts) - squares * signal_one) / groups
    return SignalNoise(groups**2 * signal_one, groups * noise_one)


class GradientParts:
    """Watches gradients add up over the passes of a batch."""

    def __init__(self, weights: Mapping[str, Tensor]) -> None:
        """Take the weights whose gradients add up, cleared."""
        self.weights = list(weights.values())
        self.stride = max(1, -(-sum(weight.numel() for weight in self.weights) // WATCHED))
        self.before: Tensor | None = None
        self.sums: dict[int, Tensor] = {}

    def add(self, part: int) -> None:
        """What was added since the last call belongs to `part`; parts may come in any order, and again."""
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
        self.sums[part] = self.sums[part] + gained if part in self.sums else gained

    def measure(self, sizes: Mapping[int, int], groups: int) -> SignalNoise | None:
        """Signal and noise of the batch; `sizes` has the groups of each part."""
        if self.before is None:
            return None
        squares = {part: float(gained.square().sum()) for part, gained in self.sums.items()}
        total = float(self.before.square().sum())
        return signal_and_noise(total, list(squares.values()), [sizes[part] for part in squares], groups)


def independent_parts(passes: Sequence[Sequence[bytes]]) -> tuple[list[int], dict[int, int]]:
    """Put passes together that share a group, so that parts are independent of each other.

    Args:
        passes: the groups (by their prompt) that each pass holds something of.

    Returns:
        The part of each pass, and how many groups each part holds.
    """
    part_of: dict[bytes, int] = {}
    members: dict[int, set[bytes]] = {}
    found: list[int] = []
    for number, groups in enumerate(passes):
        merged = set(groups)
        for old in {part_of[group] for group in merged if group in part_of}:
            merged |= members.pop(old)
            found = [number if part == old else part for part in found]
        members[number] = merged
        part_of |= dict.fromkeys(merged, number)
        found.append(number)
    return found, {part: len(groups) for part, groups in members.items()}


def smoothed_ratio(measured: SignalNoise | None, memory: dict[str, Any]) -> float | None:
    """Signal over noise of about the last ten steps; `memory` carries the sums from step to step.

    A step without any measure leaves it as it was. None until there was one.
    """
    if measured is not None:
        for name, value in measured._asdict().items():
            memory[f"grad_{name}"] = MEMORY * memory.get(f"grad_{name}", 0.0) + (1 - MEMORY) * value
    if not memory.get("grad_noise"):
        return None
    return float(memory["grad_signal"] / memory["grad_noise"])
