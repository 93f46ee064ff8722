"""Distilling a few-step student that is told how long its step is (FS-DFM, arXiv:2509.20624, section 4).

Letters in shapes: R rows, L places, V vocabulary.

Step sizes h are powers of a half down to 2^-FINEST, the finest drawn most often (P proportional to 1/h). At the finest
one the student learns the path's own loss. At every other it learns to do in one step what its moving average does in
smaller ones: four looks in the manner of Runge and Kutta, each at half the step,

    k1 = f(x, t),  x1 = J(x, k1),  k2 = f(x1, t + h/2),  x2 = J(x1, k2),  k3 = f(x2, t + h/2),  x3 = J(x2, k3),
    k4 = f(x3, t + h),  target = softmax((k1 + 2 k2 + 2 k3 + k4) / 6),   loss = KL(target || student at t, h)

where J lets places jump for h/2 and x2 goes on from x1. A mean of logits is a geometric mean of laws, so the target is
a compromise of what the small steps say.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from plumbline.policies.flow import kernels
from plumbline.policies.flow.network import FlowConfig, FlowNetwork, Prefix
from plumbline.policies.flow.schedule import kappa, tick
from plumbline.policies.token_law import draw
from plumbline.records import Sampling

FINEST = 10
"""h is one of 1, 1/2, ..., 2^-FINEST."""
PLAIN = Sampling()


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Clean canvases behind prompts, on any device."""

    prompts: Sequence[Sequence[int]]  # R
    clean: Tensor  # [R, L]


def student_of(teacher: FlowNetwork, seed: int) -> FlowNetwork:
    """A step-conditioned network with the teacher's weights, where the teacher is.

    The fusing layers, which the teacher lacks, pass the time on and ignore the step at first; between them stands one
    more bend (a SiLU), so the student begins near its teacher and not as it.
    """
    config: FlowConfig = replace(teacher.config, step_conditioned=True)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        student = FlowNetwork(config).to(device=teacher.device, dtype=teacher.dtype)
    student.load_state_dict(teacher.state_dict(), strict=False)
    size = config.conditioning
    with torch.no_grad():
        assert student.fuse is not None
        student.fuse.weight.copy_(torch.eye(2 * size))
        student.fuse.bias.zero_()
        for name, weight in student.named_parameters():
            if name.endswith("modulation.fuse.weight"):
                weight.copy_(torch.eye(size, 2 * size))
            elif name.endswith("modulation.fuse.bias"):
                weight.zero_()
    return student


def distil_loss(student: FlowNetwork, average: FlowNetwork, batch: Batch, generator: torch.Generator) -> Tensor:
    """One draw of the loss, a mean over places (a scalar).

    Args:
        student: step-conditioned, trained.
        average: its moving average, which gives the targets.
        batch: clean canvases.
        generator: a CPU generator of times, step sizes, noise and jumps, wherever the networks are.
    """
    powers = torch.arange(FINEST + 1)
    size = float(0.5 ** powers[torch.multinomial(2.0**powers, 1, generator=generator)])
    slots = round(1 / size)
    time = float(torch.randint(0, slots, (1,), generator=generator)) * size
    config, device = student.config, student.device
    clean = batch.clean.to(device)
    noisy = _noisy(clean, time, config, generator)
    prefix = student.encode(batch.prompts)
    log_p = _logits(student, prefix, noisy, time, size).log_softmax(-1)
    if size <= 0.5**FINEST:
        time = min(time, 1 - 0.5**FINEST)
        rate = config.exponent * max(time, 1e-12) ** (config.exponent - 1) / (1 - kappa(time, config.exponent))
        flat = (log_p.flatten(0, 1), noisy.flatten(), clean.flatten())
        return kernels.path_loss(*flat, torch.full((noisy.numel(),), rate, device=device)).mean()
    with torch.no_grad():
        target = _target(average, batch, noisy, time, size, generator)
    return (target.exp() * (target - log_p)).sum(-1).mean()


def _target(
    network: FlowNetwork, batch: Batch, noisy: Tensor, time: float, size: float, generator: torch.Generator
) -> Tensor:
    """Log-probabilities [R, L, V] that the student is led to."""
    prefix = network.encode(batch.prompts)
    half = size / 2
    state, total = noisy, torch.zeros((), device=noisy.device)
    for share, at in ((1, time), (2, time + half), (2, time + half), (1, time + size)):
        logits = _logits(network, prefix, state, min(at, 1.0), half)
        total = total + share * logits
        if at < time + size:
            state = _jumped(logits, state, at, half, network.config, generator)
    return (total / 6).log_softmax(-1)


def _logits(network: FlowNetwork, prefix: Prefix, state: Tensor, time: float, width: float) -> Tensor:
    times, widths = (torch.full((len(state),), value, device=state.device) for value in (time, width))
    hidden = network.places(prefix, state, times, widths)
    logits: Tensor = network.head(hidden).float()
    return logits


def _jumped(
    logits: Tensor, state: Tensor, time: float, size: float, config: FlowConfig, generator: torch.Generator
) -> Tensor:
    """The state [R, L] a small step later."""
    step = tick(time, min(time + size, 1.0), config.exponent)
    uniforms = torch.rand((2, state.numel()), generator=generator, dtype=torch.float64).to(state.device)
    drawn, _ = draw(logits.flatten(0, 1), uniforms[0], PLAIN)
    return kernels.jump(drawn, state.flatten(), uniforms[1], step).view_as(state)


def _noisy(clean: Tensor, time: float, config: FlowConfig, generator: torch.Generator) -> Tensor:
    keep = torch.rand(clean.shape, generator=generator, dtype=torch.float64) < kappa(time, config.exponent)
    if config.source == "mask":
        noise = torch.full_like(clean, config.vocabulary)
    else:
        noise = torch.randint(0, config.vocabulary, clean.shape, generator=generator).to(clean.device)
    return torch.where(keep.to(clean.device), clean, noise)


@torch.no_grad()
def follow(average: FlowNetwork, student: FlowNetwork, decay: float = 0.9995) -> None:
    """Move the average towards the student: average = decay * average + (1 - decay) * student."""
    for mine, theirs in zip(average.parameters(), student.parameters(), strict=True):
        mine.lerp_(theirs, 1 - decay)
