"""Running the clock: every place of every canvas stays or jumps, step after step.

Letters in shapes: R rows, L places, N = R L.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from plumbline.policies.chunks import Chunk
from plumbline.policies.draws import uniforms
from plumbline.policies.flow import kernels
from plumbline.policies.flow.options import FlowSampling
from plumbline.policies.flow.schedule import Tick, ticks
from plumbline.policies.places import Places
from plumbline.policies.token_law import draw, restrict
from plumbline.records import Step

LawOf = Callable[[Tensor, Tick], Places]
"""From canvases [R, L] and a step of the clock to the laws of all their places, row by row."""


@dataclass(frozen=True, slots=True, eq=False)
class Flowed:
    """What became of each row."""

    canvas: NDArray[np.int64]  # [R, L]
    steps: list[list[Step]]  # of each row


@torch.no_grad()
def flow(
    law_of: LawOf, start_rl: Tensor, chunk: Chunk[FlowSampling], exponent: float, own: Sequence[torch.Generator]
) -> Flowed:
    """Carry canvases from noise to text.

    At temperature 0 a place that jumps takes the most probable token, and the last step takes it everywhere; when a
    place jumps is still drawn (a rule such as "jump where the chance exceeds a half" would leave every place as noise
    until the last step).

    Args:
        law_of: the model.
        start_rl: [R, L] on the CPU, the noise.
        chunk: whose rows they are; its law is greedy where its temperature is 0.
        exponent: of the schedule.
        own: a CPU generator for each row, the only source of randomness.
    """
    canvas_rl, sampling = start_rl.clone(), chunk.sampling
    rows, places = canvas_rl.shape
    steps: list[list[Step]] = [[] for _ in range(rows)]
    for step in ticks(sampling, exponent):
        numbers = uniforms(own, 2, places).transpose(0, 1).flatten(1)
        laws = law_of(canvas_rl, step)
        moved = laws.several(
            lambda part, now, first, second, step=step: _move(part, now, first, second, sampling, step),
            *(value.to(laws.hidden.device) for value in (canvas_rl.flatten(), *numbers)),
        )
        following_rl, logprobs_rl = (value.cpu().view_as(canvas_rl) for value in moved)
        for row in range(rows):
            steps[row].append(
                Step(
                    positions=np.arange(places),
                    tokens=following_rl[row].numpy().copy(),
                    logprobs=logprobs_rl[row].numpy().copy(),
                    state=canvas_rl[row].numpy().copy(),
                    time=step.time,
                    until=step.until,
                )
            )
        canvas_rl = following_rl
        chunk.show(range(rows), canvas_rl)
    return Flowed(canvas_rl.numpy(), steps)


def _move(
    part: Places, now: Tensor, first: Tensor, second: Tensor, sampling: FlowSampling, step: Tick
) -> tuple[Tensor, Tensor]:
    """The next token of each place [N], and its log-probability [N]."""
    logits = part.logits()
    if sampling.greedy:
        most, best = logits.max(-1)
        following = best if step.last else kernels.jump(best, now, second, step)
        return following, (most - most).float()  # NaN where the logits are no numbers, as in `draw`
    restricted = restrict(logits, sampling)
    if step.last or sampling.kernel == "conditional":
        drawn, _ = draw(logits, first, sampling)
        following = drawn if step.last else kernels.jump(drawn, now, second, step)
        log_p = kernels.log_prob(restricted, now, following, sampling.kernel, step)
    else:
        following, log_p = kernels.marginal_move(restricted, now, first, second, step)
    return following, log_p.float()
