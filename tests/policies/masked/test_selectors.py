"""Choices of places against sums over orders and over all draws, at scores and logits of every
size, in float64."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch

from plumbline.policies import plackett_luce
from plumbline.policies.masked import sampler as selectors
from plumbline.policies.masked.options import MaskedSampling
from plumbline.policies.masked.scorer import selection_log_prob, slices
from plumbline.policies.token_logprobs import TokenDistributions, token_log_prob

GAPS = (-30.0, -3.0, 0.0, 3.0, 5.0, 8.0, 10.0, 13.0, 30.0)
"""How far the chosen places lead."""


def over_orders(scores, places):
    """log P that `places` come first in any order: P(S) = sum over the last one drawn, by subsets
    (exact)."""
    table = {frozenset(): scores.new_zeros(())}
    for size in range(1, len(places) + 1):
        for members in map(frozenset, itertools.combinations(places, size)):
            parts = []
            for last in members:
                before = members - {last}
                left = scores[[place for place in range(len(scores)) if place not in before]]
                parts.append(table[before] + scores[last] - left.logsumexp(0))
            table[members] = torch.stack(parts).logsumexp(0)
    return table[frozenset(places)]


def errors(log_prob, gap, size=8, count=4):
    """Largest error of value and of gradient of `log_prob` over a few draws of scores."""
    generator = torch.Generator().manual_seed(0)
    chosen = torch.arange(size).unsqueeze(0) < count
    worst = torch.zeros(2, dtype=torch.float64)
    for _ in range(3):
        scores = torch.randn(size, generator=generator, dtype=torch.float64)
        scores[:count] += gap
        mine, exact = scores.clone().requires_grad_(), scores.clone().requires_grad_()
        found, wanted = log_prob(mine.unsqueeze(0), chosen)[0], over_orders(exact, range(count))
        gradients = torch.autograd.grad(found, mine)[0], torch.autograd.grad(wanted, exact)[0]
        now = torch.stack(
            [(found - wanted).abs(), (gradients[0] - gradients[1]).abs().max()]
        ).detach()
        worst = torch.maximum(worst, now)
    return worst


@pytest.mark.parametrize("gap", GAPS)
@pytest.mark.parametrize(("size", "count"), [(4, 1), (8, 4), (9, 7)])
def test_a_sets_probability_is_the_sum_over_its_orders(gap, size, count):
    assert errors(plackett_luce.set_log_prob, gap, size, count).max() < 1e-11


def by_gauss(scores, chosen):
    """The usual quadrature: 64 Gauss-Legendre nodes after u = v^8."""
    nodes, weights = (torch.from_numpy(part / 2) for part in np.polynomial.legendre.leggauss(64))
    v = nodes + 0.5
    ratio = scores[chosen].exp() / scores[~chosen].exp().sum()
    factors = -torch.expm1(8 * v.log().unsqueeze(1) * ratio)
    return (weights * 8 * v**7 * factors.prod(1)).sum().log().unsqueeze(0)


def test_gauss_nodes_would_miss_places_that_lead_by_far():
    """Negative control: where nothing leads both are exact, and where the model is sure only one
    is."""
    assert errors(by_gauss, 0.0).max() < 1e-11
    assert errors(by_gauss, 10.0)[0] > 1e-4


def test_many_places_at_once():
    """32 of 64 equal places: one of the sets of that size."""
    chosen = torch.arange(64).unsqueeze(0) < 32
    wanted = -(np.log(np.arange(33, 65)).sum() - np.log(np.arange(1, 33)).sum())
    assert float(
        plackett_luce.set_log_prob(torch.zeros((1, 64)).double(), chosen)[0]
    ) == pytest.approx(wanted, abs=1e-9)


@pytest.mark.parametrize("temperature", [0.05, 0.3, 2.0])
def test_the_threshold_chooses_some_set(temperature):
    generator = torch.Generator().manual_seed(1)
    confidence = torch.rand((1, 4), generator=generator, dtype=torch.float64)
    eligible = torch.tensor([[True, True, False, True]])
    total = 0.0
    for choice in itertools.product([False, True], repeat=4):
        chosen = torch.tensor([choice])
        if chosen.any() and not (chosen & ~eligible).any():
            total += float(
                selectors.threshold_log_prob(confidence, eligible, (0.5, temperature), chosen).exp()
            )
    assert total == pytest.approx(1, abs=1e-12)


class Identity:
    """A head whose logits are the hidden states."""

    def __init__(self, size):
        self.weight = torch.zeros(size, 1)

    def __call__(self, hidden):
        return hidden.clone()


LOGITS = {
    "drawn": torch.randn((4, 5), generator=torch.Generator().manual_seed(2), dtype=torch.float64),
    "extreme": torch.randn((4, 5), generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    * 30,
    "all equal": torch.zeros((4, 5), dtype=torch.float64),
}


@pytest.mark.parametrize("count", [1, 2, 3, 4])
@pytest.mark.parametrize("temperature", [0.3, 1.0, 2.0])
@pytest.mark.parametrize("which", LOGITS)
def test_the_native_sampler_has_its_enumerated_probability(which, temperature, count):
    """Every token at every place is drawn, the most confident are kept: all draws, one by one. Ties
    go by index."""
    logits, mask = LOGITS[which], 4
    distributions = TokenDistributions(Identity(5), mask, logits, None)
    sampling = MaskedSampling(
        max_tokens=4, steps=1, temperature=temperature, selector="low_confidence"
    )
    plain = logits[:, :mask].float().softmax(-1)
    log_p = (logits[:, :mask] / temperature).log_softmax(-1)
    wanted = {}
    for tokens in itertools.product(range(mask), repeat=4):
        ranked = sorted(range(4), key=lambda place: (-float(plain[place, tokens[place]]), place))[
            :count
        ]
        action = tuple((place, tokens[place]) for place in sorted(ranked))
        chance = sum(log_p[place, token] for place, token in enumerate(tokens)).exp()
        wanted[action] = wanted.get(action, 0.0) + float(chance)
    order = torch.tensor([[place for place, _ in action] for action in wanted])
    kept = torch.tensor([[token for _, token in action] for action in wanted])
    chosen = torch.zeros((len(wanted), 4), dtype=torch.bool).scatter(1, order, value=True)
    rows = replace(distributions, hidden=logits.repeat(len(wanted), 1))
    found = selection_log_prob(rows, torch.ones_like(chosen), chosen, order, kept, sampling)
    tokens = token_log_prob(
        replace(distributions, hidden=logits[order.flatten()]), kept.flatten(), sampling
    )
    found = found + tokens.view_as(kept).sum(1)
    exact = torch.tensor(list(wanted.values()), dtype=torch.float64)
    torch.testing.assert_close(found.exp(), exact, atol=1e-12, rtol=0)
    assert found.exp().sum().item() == pytest.approx(1, abs=1e-12)


def test_no_block_has_more_steps_than_places():
    """So a step always has something to fill, whatever the numbers (8 places, 7 steps, 5 blocks is
    such a case)."""
    for places in range(1, 13):
        for steps in range(1, places + 1):
            for blocks in range(1, steps + 1):
                made = slices(MaskedSampling(max_tokens=places, steps=steps, blocks=blocks))
                assert len(made) == steps
                assert min(piece.count for piece in made) >= 1
                assert sum(piece.last for piece in made) == blocks
                assert sum(piece.count for piece in made) == places
                assert [piece.time for piece in made] == sorted({piece.time for piece in made})
                for start, end in {(piece.start, piece.end) for piece in made}:
                    assert sum(piece.count for piece in made if piece.start == start) == end - start
