"""Running the clock: every place of every canvas stays or jumps, step after step.

Letters in shapes: R rows, L places, N = R L.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from plumbline.errors import RecipeError
from plumbline.policies.chunks import Chunk
from plumbline.policies.flow.options import FlowSampling, Kernel
from plumbline.policies.sampling_distribution import draw, kl, restrict, uniforms
from plumbline.policies.token_logprobs import TokenDistributions
from plumbline.records import IntArray, Sampling, Transition

# -- schedule --------------------------------------------------------------------------------------
#
# The clock of a discrete flow: how much of the answer stands at time t, and how often a place may
# jump.
#
# Letters: kappa_t = t^n is the chance that a place already holds its final token (the mixture path
# of Gat et al. 2024, arXiv:2407.15595). A step from t to t + h lets a place jump with
#
#     a = ln[(1 - kappa_t) / (1 - kappa_{t+h})]        the cumulative scalar of FS-DFM (arXiv:2509.20624)
#     q = 1 - e^-a = (kappa_{t+h} - kappa_t) / (1 - kappa_t)
#
# which at the last step is q = 1 and a infinite: there every place takes a token from the model's
# distribution.


@dataclass(frozen=True, slots=True)
class ClockStep:
    """One step of the clock."""

    time: float
    until: float
    jump: float  # q
    log_jump: float
    log_stay: float  # log(1 - q); minus infinity at the last step
    amount: float  # a; infinite at the last step

    @property
    def last(self) -> bool:
        """Whether the step ends at time 1."""
        return math.isinf(self.amount)


def kappa(time: float, exponent: float) -> float:
    """The share of the answer that stands at `time`."""
    return time**exponent


def tick(time: float, until: float, exponent: float) -> ClockStep:
    """The step from `time` to `until`."""
    gone, left = 1 - kappa(time, exponent), 1 - kappa(until, exponent)
    if until >= 1:
        return ClockStep(time, until, 1.0, 0.0, -math.inf, math.inf)
    amount = math.log(gone / left)
    jump = -math.expm1(-amount)
    return ClockStep(time, until, jump, math.log(jump), -amount, amount)


def ticks(sampling: FlowSampling, exponent: float) -> list[ClockStep]:
    """An even grid of `sampling.steps` steps from 0 to 1.

    Raises:
        RecipeError: there are no steps.
    """
    if sampling.steps is None:
        raise RecipeError(
            "a flow policy needs a number of steps", "set sampling.steps, for example to 8"
        )
    count = sampling.steps
    return [tick(step / count, (step + 1) / count, exponent) for step in range(count)]


# -- kernels ---------------------------------------------------------------------------------------
#
# How a place jumps in one step, and the probability of what it did.
#
# Letters: z restricted logits [N, V] (temperature and filters are in them), l = log softmax(z), c
# the place's present token, m = 1 - p_c the chance of any other, q and a from `schedule`.
#
#     kernel             stays                         jumps to j != c
#     conditional (A)    (1 - q) + q p_c               q p_j          a token is drawn, and taken with probability q
#                                                                     (Gat et al. 2024, arXiv:2407.15595)
#     marginal (B)       e^(-a m)                      (1 - e^(-a m)) p_j / m          the marginal rate, held for the
#                                                                     step (FS-DFM, arXiv:2509.20624)
#     last step          p_c                           p_j
#
# The two agree to second order in a. Log-probabilities need no clamp: for B, log((1 - e^-x) p_j /
# m) with x = a m is log a + l_j + phi(x), phi(x) = log((1 - e^-x) / x), and log m is a log-sum-exp
# over the other tokens, not log(1 - p_c), which loses all digits where the model is sure.

SMALL = 1e-2
"""Below this phi is taken from its series, whose next term is 1e-15 there."""


def log_other(restricted: Tensor, current: Tensor, total: Tensor | None = None) -> Tensor:
    """log m [N]: the log-probability of any token but `current` [N]; `total` [N] is the
    log-sum-exp, where known."""
    others = restricted.scatter(-1, current.unsqueeze(-1), float("-inf"))
    # A distribution of a single token leaves nothing else: its log is minus infinity, without a
    # gradient of inf - inf.
    nothing = others.amax(-1, keepdim=True).isneginf()
    total = restricted.logsumexp(-1) if total is None else total
    log_m = others.masked_fill(nothing, 0.0).logsumexp(-1) - total
    return log_m.masked_fill(nothing.squeeze(-1), float("-inf"))


def phi(x: Tensor) -> Tensor:
    """log((1 - e^-x) / x) for x >= 0, with its gradient, to full precision."""
    series = -x / 2 + x.square() / 24 - x**4 / 2880
    safe = x.clamp_min(SMALL)
    return torch.where(x < SMALL, series, torch.log(-torch.expm1(-safe) / safe))


def log_prob(
    restricted: Tensor, current: Tensor, following: Tensor, kernel: Kernel, step: ClockStep
) -> Tensor:
    """Log-probability [N] of going from `current` [N] to `following` [N]."""
    total = restricted.logsumexp(-1)
    log_p = restricted.gather(-1, following.unsqueeze(-1)).squeeze(-1) - total
    if step.last:
        return log_p
    stays = following == current
    if kernel == "conditional":
        stay = torch.logaddexp(torch.full_like(log_p, step.log_stay), step.log_jump + log_p)
        return torch.where(stays, stay, step.log_jump + log_p)
    rate = step.amount * log_other(restricted, current, total).exp()
    return torch.where(stays, -rate, math.log(step.amount) + log_p + phi(rate))


def divergence(
    restricted: Tensor, reference: Tensor, current: Tensor, kernel: Kernel, step: ClockStep
) -> Tensor:
    """KL [N] of the step's distribution under `restricted` from that under `reference` [N, V], in
    closed form.

    With D = sum over j != c of p_j (l_j - l'_j):
        A: s log(s / s') + q D,  s = (1 - q) + q p_c
        B: e^-x (x' - x) + (1 - e^-x) (phi(x) - phi(x')) + ((1 - e^-x) / m) D,  x = a m
        last step: sum over all j of p_j (l_j - l'_j)
    """
    log_p, log_r = restricted.log_softmax(-1), reference.log_softmax(-1)
    gap = kl(log_p, log_r)
    if step.last:
        return gap
    at = current.unsqueeze(-1)
    mine, theirs = log_p.gather(-1, at).squeeze(-1), log_r.gather(-1, at).squeeze(-1)
    # Masked before it is multiplied: a token that the filters removed would have a gradient of 0
    # times no number.
    other = gap - mine.exp() * (mine - theirs).masked_fill(mine.isneginf(), 0.0)
    if kernel == "conditional":
        floor = torch.full_like(mine, step.log_stay)
        stay = torch.logaddexp(floor, step.log_jump + mine)
        stay_there = torch.logaddexp(floor, step.log_jump + theirs)
        return stay.exp() * (stay - stay_there) + step.jump * other
    m, m_there = log_other(restricted, current).exp(), log_other(reference, current).exp()
    x, x_there = step.amount * m, step.amount * m_there
    leave = -torch.expm1(-x)
    # (1 - e^-x) / m = a e^phi(x), which has no division by a vanishing m.
    return (
        torch.exp(-x) * (x_there - x)
        + leave * (phi(x) - phi(x_there))
        + step.amount * phi(x).exp() * other
    )


def jump(drawn: Tensor, current: Tensor, uniforms: Tensor, step: ClockStep) -> Tensor:
    """Kernel A: the drawn token [N] where uniforms [N] fall below q, else the present one."""
    return torch.where(uniforms < step.jump, drawn, current)


@torch.no_grad()
def marginal_move(
    restricted: Tensor, current: Tensor, first: Tensor, second: Tensor, step: ClockStep
) -> tuple[Tensor, Tensor]:
    """Kernel B, drawn: the next token of each place [N], and the `log_prob` [N] of going there.

    What drawing and scoring have in common (the sum of all, the sum of the others) is computed
    once: over a large vocabulary these passes are what a step costs.

    Args:
        restricted: [N, V].
        current: [N].
        first: uniform numbers [N] for the token.
        second: uniform numbers [N] for whether the place leaves its token.
        step: of the clock.
    """
    total = restricted.logsumexp(-1)
    others = restricted.scatter(-1, current.unsqueeze(-1), float("-inf"))
    rest = others.logsumexp(-1)
    alone = (
        rest.isneginf()
    )  # a distribution of a single token: it never leaves, so any other will do
    drawn, _ = draw(
        others.masked_fill(alone.unsqueeze(-1), 0.0) if bool(alone.any()) else others,
        first,
        Sampling(),
    )
    rate = step.amount * (rest - total).exp()
    leaves = second < -torch.expm1(-rate.double())
    log_p = restricted.gather(-1, drawn.unsqueeze(-1)).squeeze(-1) - total
    return torch.where(leaves, drawn, current), torch.where(
        leaves, math.log(step.amount) + log_p + phi(rate), -rate
    )


def path_loss(log_p: Tensor, noisy: Tensor, clean: Tensor, rate: Tensor) -> Tensor:
    """The generalised KL [N] of the mixture path: the integrand of a bound on -log p(clean), for
    any source.

    -c [ p(x_t) - d + (1 - d) log p(x_1) ], d = 1 where x_t = x_1, c = kappa' / (1 - kappa) (Shaul
    et al. 2024, arXiv:2412.03487, as used by FS-DFM).

    Args:
        log_p: [N, V].
        noisy: [N], x_t.
        clean: [N], x_1.
        rate: [N], c.
    """
    there = log_p.gather(-1, noisy.unsqueeze(-1)).squeeze(-1)
    wanted = log_p.gather(-1, clean.unsqueeze(-1)).squeeze(-1)
    # Where d = 1 the bracket is p - 1 = expm1(log p), which keeps its digits where p is near 1.
    bracket = torch.where(noisy == clean, torch.expm1(there), there.exp() + wanted)
    return -rate * bracket


def sinusoid(time: Tensor, size: int) -> Tensor:
    """Cosines, then sines [N, size] of times [N] at frequencies from 1 down to 1/10,000 (Vaswani et
    al. 2017)."""
    half = size // 2
    frequencies = torch.exp(-torch.arange(half, device=time.device) * (math.log(10_000.0) / half))
    angle = time.float().unsqueeze(-1) * frequencies
    return functional.pad(torch.cat([angle.cos(), angle.sin()], dim=-1), (0, size % 2))


ReadDistributions = Callable[[Tensor, ClockStep], TokenDistributions]
"""From canvases [R, L] and a step of the clock to the distributions of all their places, row by
row."""


@torch.no_grad()
def flow(
    read_distributions: ReadDistributions,
    start_rl: Tensor,
    chunk: Chunk[FlowSampling],
    exponent: float,
    own: Sequence[torch.Generator],
) -> tuple[IntArray, list[list[Transition]]]:
    """Carry canvases from noise to text [R, L], with the steps of each row.

    At temperature 0 a place that jumps takes the most probable token, and the last step takes it
    everywhere; when a place jumps is still drawn (a rule such as "jump where the chance exceeds a
    half" would leave every place as noise until the last step).

    Args:
        read_distributions: the model.
        start_rl: [R, L] on the CPU, the noise.
        chunk: whose rows they are; its distribution is greedy where its temperature is 0.
        exponent: of the schedule.
        own: a CPU generator for each row, the only source of randomness.
    """
    canvas_rl, sampling = start_rl.clone(), chunk.sampling
    rows, places = canvas_rl.shape
    steps: list[list[Transition]] = [[] for _ in range(rows)]
    for step in ticks(sampling, exponent):
        numbers = uniforms(own, 2, places).transpose(0, 1).flatten(1)
        distributions = read_distributions(canvas_rl, step)
        moved = distributions.map_slices_jointly(
            lambda part, now, first, second, step=step: _move(
                part, now, first, second, sampling, step
            ),
            *(value.to(distributions.hidden.device) for value in (canvas_rl.flatten(), *numbers)),
        )
        following_rl, logprobs_rl = (value.cpu().view_as(canvas_rl) for value in moved)
        for row in range(rows):
            steps[row].append(
                Transition(
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
    return canvas_rl.numpy(), steps


def _move(
    part: TokenDistributions,
    now: Tensor,
    first: Tensor,
    second: Tensor,
    sampling: FlowSampling,
    step: ClockStep,
) -> tuple[Tensor, Tensor]:
    """The next token of each place [N], and its log-probability [N]."""
    logits = part.logits()
    if sampling.greedy:
        most, best = logits.max(-1)
        following = best if step.last else jump(best, now, second, step)
        return following, (most - most).float()  # NaN where the logits are no numbers, as in `draw`
    restricted = restrict(logits, sampling)
    if step.last or sampling.kernel == "conditional":
        drawn, _ = draw(logits, first, sampling)
        following = drawn if step.last else jump(drawn, now, second, step)
        log_p = log_prob(restricted, now, following, sampling.kernel, step)
    else:
        following, log_p = marginal_move(restricted, now, first, second, step)
    return following, log_p.float()
