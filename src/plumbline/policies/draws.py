"""Random numbers that belong to one request or one demonstration, whatever stands beside it in a chunk or a pass.

How many rows a device holds at once must not change what is drawn or what is learnt, so nothing is drawn for a chunk
as a whole: each request has a generator of its own, seeded by its key, and each demonstration one seeded by its place.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from plumbline.records import Key
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
    own = generators((seed, "row", index) for index in range(count))
    return [Noise((start + index / count) % 1.0, each) for index, each in enumerate(own)]


def generators(keys: Iterable[Key]) -> list[torch.Generator]:
    """A CPU generator for each key."""
    return [torch.Generator().manual_seed(derive(*key)) for key in keys]


def uniforms(own: Sequence[torch.Generator], *shape: int) -> Tensor:
    """Numbers in [0, 1) [R, *shape] in float64 on the CPU, so that every device uses the same; a row a generator."""
    return torch.stack([torch.rand(shape, dtype=torch.float64, generator=each) for each in own])
