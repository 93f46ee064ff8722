"""One denoising step of several rows, as the samplers of this family make it.

Letters in shapes: R rows, L places, n places filled in a step, Q places looked at.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from plumbline.policies.places import Places
from plumbline.records import Step

Settled = Callable[[Tensor, Tensor, float], Places]
"""From canvases [R, L], the places to look at [R, L] (bool) and the time to the laws of these places, row by row."""


@dataclass(frozen=True, slots=True, eq=False)
class Filling:
    """One step of every row, on the CPU; a row's first `counts` columns count."""

    positions: Tensor  # [R, n]
    tokens: Tensor  # [R, n]
    logprobs: Tensor  # [R, n]
    counts: Tensor  # [R]
    selection: Tensor | None  # [R]

    def step(self, row: int, canvas: Tensor, time: float) -> Step:
        """The record of a row's step, that began at `time` with `canvas` [L]."""
        count = int(self.counts[row])
        return Step(
            positions=self.positions[row, :count].numpy(),
            tokens=self.tokens[row, :count].numpy(),
            logprobs=self.logprobs[row, :count].numpy(),
            selection=None if self.selection is None else float(self.selection[row]),
            state=canvas.numpy().copy(),
            time=time,
        )


def spread(values: Tensor, eligible_rl: Tensor) -> Tensor:
    """Values [Q] at the eligible places, row by row, as [R, L] on the CPU; minus infinity elsewhere."""
    dense_rl = torch.full(eligible_rl.shape, float("-inf"), dtype=torch.float32)
    dense_rl[eligible_rl] = values.float().cpu()
    return dense_rl
