"""Random numbers that belong to one prompt or one demonstration, whatever stands beside it in a chunk or a pass.

How many rows a device holds at once must not change what is drawn or what is learnt, so nothing is drawn for a chunk
as a whole: each prompt and each demonstration has a generator of its own, seeded by its place among all.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from plumbline.seeds import derive, generator


@dataclass(frozen=True, slots=True, eq=False)
class Noise:
    """The randomness of one demonstration in one step of supervised training."""

    time: float
    """In [0, 1), for families whose loss looks at one time; evenly spread over the whole batch."""
    generator: torch.Generator
    """For everything else that is drawn."""


def noises(count: int, seed: int) -> list[Noise]:
    """The randomness of each demonstration of a batch, to be dealt before the batch is cut into passes.

    Times are stratified, (u + i / count) mod 1 with one u for all, which lowers the variance of a mean over times.
    """
    start = generator(seed, "time").random()
    return [Noise((start + index / count) % 1.0, own) for index, own in enumerate(generators(count, seed))]


def generators(count: int, seed: int) -> list[torch.Generator]:
    """A CPU generator for each prompt or demonstration."""
    return [torch.Generator().manual_seed(derive(seed, "row", index)) for index in range(count)]


def uniforms(of_prompts: Sequence[torch.Generator], rows: int, *shape: int) -> Tensor:
    """Numbers in [0, 1) [rows, *shape] in float64 on the CPU, as many rows from each prompt's generator."""
    copies = rows // len(of_prompts)
    return torch.cat([torch.rand((copies, *shape), dtype=torch.float64, generator=each) for each in of_prompts])
