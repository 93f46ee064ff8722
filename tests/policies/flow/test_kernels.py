"""Kernels against direct probabilities: rows that sum to 1, whole trajectories by enumeration,
extreme logits."""

import itertools
import math

import pytest
import torch

from plumbline.policies.flow import sampler as kernels
from plumbline.policies.flow.options import FlowSampling
from plumbline.policies.flow.sampler import ClockStep, tick, ticks

KERNELS = ("conditional", "marginal")


def direct(p: torch.Tensor, current: int, kernel: str, step: ClockStep) -> torch.Tensor:
    """The row [V] of the transition matrix, from probabilities, as the table in `kernels` says."""
    if step.last:
        return p
    if kernel == "conditional":
        row = step.jump * p
        row[current] = (1 - step.jump) + step.jump * p[current]
        return row
    m = 1 - p[current]
    row = (1 - math.exp(-step.amount * m)) * p / m
    row[current] = math.exp(-step.amount * m)
    return row


def row_of(z, current, kernel, step):
    count = len(z)
    return kernels.log_prob(
        z.expand(count, -1), torch.full((count,), current), torch.arange(count), kernel, step
    )


STEPS = [
    tick(0.0, 0.25, 1.0),
    tick(0.5, 0.75, 2.0),
    tick(0.999, 0.9999, 1.0),
    tick(0.75, 1.0, 1.0),
    tick(0, 1e-6, 1.0),
]


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("scale", [0.3, 1.0, 30.0])
def test_rows_sum_to_one_and_are_the_direct_ones(kernel, step, scale):
    z = torch.randn(5, dtype=torch.float64, generator=torch.Generator().manual_seed(3)) * scale
    for current in range(5):
        row = row_of(z, current, kernel, step)
        assert row.exp().sum().item() == pytest.approx(1, abs=1e-12)
        if scale <= 1:
            torch.testing.assert_close(
                row.exp(), direct(z.softmax(-1), current, kernel, step), atol=1e-12, rtol=1e-9
            )


@pytest.mark.parametrize("kernel", KERNELS)
def test_whole_trajectories_sum_to_one(kernel):
    """V = 3, two places, three steps: all 6,561 trajectories from one start, each place's
    distribution depending on both."""
    weights = (
        torch.randn(
            (3, 3, 3, 2, 3), dtype=torch.float64, generator=torch.Generator().manual_seed(0)
        )
        / 0.7
    )
    clock = ticks(FlowSampling(max_tokens=2, steps=3), 1.0)
    states = list(itertools.product(range(3), repeat=2))
    total = {state: (1.0 if state == (0, 1) else 0.0) for state in states}
    for index, step in enumerate(clock):
        following = dict.fromkeys(states, 0.0)
        for state, mass in total.items():
            if mass == 0:
                continue
            rows = [
                row_of(weights[index, state[0], state[1], place], state[place], kernel, step)
                for place in (0, 1)
            ]
            for after in states:
                following[after] += mass * float((rows[0][after[0]] + rows[1][after[1]]).exp())
        total = following
    assert sum(total.values()) == pytest.approx(1, abs=1e-12)


def test_the_two_kernels_agree_to_second_order():
    z = torch.randn(5, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    gaps = []
    for width in (1e-2, 1e-3):
        step = tick(0.2, 0.2 + width, 1.0)
        a, b = (row_of(z, 1, kernel, step).exp() for kernel in KERNELS)
        gaps.append((a - b).abs().max().item())
    assert gaps[1] < gaps[0] / 50


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("step", STEPS)
def test_the_divergence_is_the_enumerated_one(kernel, step):
    generator = torch.Generator().manual_seed(4)
    z, other = (torch.randn(6, dtype=torch.float64, generator=generator) for _ in range(2))
    for current in range(6):
        p, r = (row_of(logits, current, kernel, step) for logits in (z, other))
        wanted = (p.exp() * (p - r)).sum()
        at = torch.tensor([current])
        got = kernels.divergence(z.unsqueeze(0), other.unsqueeze(0), at, kernel, step)
        assert got.item() == pytest.approx(wanted.item(), abs=1e-12, rel=1e-9)
        assert got.item() >= 0
        same = kernels.divergence(z.unsqueeze(0), z.unsqueeze(0).clone(), at, kernel, step)
        assert same.item() == pytest.approx(0, abs=1e-14)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("other", [1e-1, 1e-4, 1e-8, 1e-12])
def test_float32_keeps_its_digits_where_the_model_is_sure(kernel, other):
    """The forms log's clamps lost the gradient at 1 - p_c = 1e-4; here float32 agrees with float64
    down to 1e-12."""
    vocabulary, current = 1000, 7
    z = torch.randn(vocabulary, dtype=torch.float64, generator=torch.Generator().manual_seed(5))
    rest = z.index_fill(0, torch.tensor([current]), float("-inf")).logsumexp(0)
    z[current] = rest + math.log((1 - other) / other)
    step = tick(0.5, 0.5 + 1 / 64, 1.0)
    found = {}
    for dtype in (torch.float32, torch.float64):
        logits = z.to(dtype).clone().requires_grad_()
        rows = logits.expand(2, -1)
        log_p = kernels.log_prob(
            rows, torch.tensor([current] * 2), torch.tensor([current, 3]), kernel, step
        )
        log_p.sum().backward()
        assert logits.grad.isfinite().all()
        found[dtype] = (log_p.detach().double(), logits.grad.double())
    for one, two in zip(found[torch.float32], found[torch.float64], strict=True):
        torch.testing.assert_close(one, two, rtol=1e-4, atol=2e-5)


def test_phi_has_no_seam():
    x = torch.tensor(
        [0.0, 1e-12, 1e-6, 9.9e-3, 1.01e-2, 0.5, 5.0, 50.0], dtype=torch.float64, requires_grad=True
    )
    values = kernels.phi(x)
    for value, at in zip(values.tolist(), x.tolist(), strict=True):
        wanted = math.log(-math.expm1(-at) / at) if at else 0.0
        assert value == pytest.approx(wanted, rel=1e-10, abs=1e-13)
    values.sum().backward()
    assert x.grad.isfinite().all()
    assert x.grad[0].item() == pytest.approx(-0.5)


def test_the_path_loss_is_its_formula_and_finite_at_the_ends():
    generator = torch.Generator().manual_seed(6)
    log_p = torch.randn((4, 5), dtype=torch.float64, generator=generator).log_softmax(-1)
    noisy, clean = torch.tensor([0, 1, 2, 3]), torch.tensor([0, 1, 4, 0])
    rate = torch.tensor([1.0, 1000.0, 2.0, 1000.0], dtype=torch.float64)
    d = (noisy == clean).double()
    p = log_p.exp().gather(1, noisy[:, None]).squeeze(1)
    wanted = -rate * (p - d + (1 - d) * log_p.gather(1, clean[:, None]).squeeze(1))
    torch.testing.assert_close(kernels.path_loss(log_p, noisy, clean, rate), wanted)
    assert (kernels.path_loss(log_p, noisy, clean, rate) >= 0).all()
    sure = torch.tensor([[200.0, 0.0, 0.0]], requires_grad=True)
    loss = kernels.path_loss(
        sure.log_softmax(-1), torch.tensor([0]), torch.tensor([0]), torch.tensor([1000.0])
    )
    loss.sum().backward()
    assert sure.grad.isfinite().all()


def test_the_clock_covers_the_path():
    for exponent in (1.0, 2.0):
        clock = ticks(FlowSampling(max_tokens=2, steps=5), exponent)
        assert [step.last for step in clock] == [False] * 4 + [True]
        stays = 1.0
        for step in clock:
            stays *= 1 - step.jump
            assert math.exp(step.log_stay) == pytest.approx(1 - step.jump)
        assert stays == 0
