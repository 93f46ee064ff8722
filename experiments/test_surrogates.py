"""Exact gradients, broken ones, and each surrogate against its paper's formula written separately."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from experiments import surrogates
from experiments.spg import MIX, ORDER, sandwich_loss
from experiments.surrogates import CANVASES, OBJECTIVES, ROWS, TOKENS, Gradients, Listing
from plumbline.algorithms.grpo import Grpo
from plumbline.algorithms.objective import Loss
from plumbline.policies.masked.options import MaskedSampling
from plumbline.storage import read_jsonl
from tests.policies.masked.oracle import logits_of_many

EXACT = [
    (canvas, at)
    for canvas in ("masked-2", "slots-4", "flow-2")
    for at in range(len(CANVASES[canvas]))
]
PLACES = range(3)
SAMPLING = MaskedSampling(max_tokens=3, steps=3, selector="random")


class Flipped(Grpo):
    """Its gradient points down."""

    def loss(self, batch):
        return Loss(-super().loss(batch).value)


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    made = {
        name: surrogates.make_policy(name[:-2], int(name[-1]), folder / name, 0)
        for name in CANVASES
    }
    return {name: Gradients(policy) for name, policy in made.items()}


def difference(found, wanted):
    return float((found - wanted).norm() / wanted.norm())


@pytest.mark.parametrize(("canvas", "at"), EXACT)
def test_the_exact_objective_is_the_true_gradient_and_broken_ones_are_not(
    models, monkeypatch, canvas, at
):
    gradients, sampling = models[canvas], CANVASES[canvas][at]
    listing = Listing(gradients.policy, sampling)
    true = listing.true_gradient(gradients.weights)
    assert float(listing.chances.sum()) == pytest.approx(1, abs=1e-6)
    assert difference(gradients.estimate(listing, "exact")[0], true) < 1e-6
    if gradients.policy.stepwise:
        assert difference(gradients.estimate(listing, "exact, 1 step of T")[0], true) < 1e-6
    other = replace(sampling, temperature=0.7)
    listing.trajectories = [replace(each, sampling=other) for each in listing.trajectories]
    assert difference(gradients.estimate(listing, "exact")[0], true) > 0.05
    monkeypatch.setitem(OBJECTIVES, "exact", (Flipped(), "all", ""))
    listing = Listing(gradients.policy, sampling)
    assert difference(gradients.estimate(listing, "exact")[0], -true) < 1e-6


def log_p(gradients):
    """log p(token | hidden set) {(answer, set, place)} of a masked model, differentiable."""
    policy, canvases = gradients.policy, [*itertools.product(range(TOKENS), repeat=3)]
    sets = [some for size in range(1, 4) for some in itertools.combinations(PLACES, size)]
    asked = [*itertools.product(canvases, sets)]
    states = [[policy.mask_id if i in some else c[i] for i in PLACES] for c, some in asked]
    logs = logits_of_many(policy, policy.chat.prompt(surrogates.PROMPT), states).log_softmax(-1)
    return canvases, {
        (c, some, i): logs[row, i, c[i]] for row, (c, some) in enumerate(asked) for i in some
    }


def any_order(p, c, advantage):
    """ESPO's and GDPO's bound by its definition: the mean over all orders of log p(next | so far)."""
    orders = [*itertools.permutations(PLACES)]
    each = (p[c, tuple(sorted(o[k:])), o[k]] for o in orders for k in PLACES)
    return advantage * sum(each) / len(orders)


def mean_field(p, c, advantage):
    """d1's: each token given the prompt alone."""
    return advantage * sum(p[c, (0, 1, 2), i] for i in PLACES)


def coupled(p, c, advantage):
    """DiffuCoder's: the mean of full and partial mask, a token's partial one weighing 1 over its
    chance to be hidden. Others are hidden by chance t, or 1 - t in the complement, t in 0.2..0.8."""
    total = 0.0
    for i in PLACES:
        others = [j for j in PLACES if j != i]
        for n in range(3):
            curve = np.poly1d([1, 0]) ** n * np.poly1d([-1, 1]) ** (2 - n)
            chance = (np.polyint(curve)(0.8) - np.polyint(curve)(0.2)) / 0.6
            for some in itertools.combinations(others, n):
                total = total + 2 * chance * p[c, tuple(sorted([i, *some])), i]
        total = total + p[c, (0, 1, 2), i]
    return advantage * total / 2


def sandwich(p, c, advantage):
    """SPG's with a set and its complement as the two draws, each weighing 1 over the share that it
    hides: an ELBO where A >= 0, else half of it and half of the log of the mean of p^b, over b."""
    total = 0.0
    for size in range(1, 4):
        for some in itertools.combinations(PLACES, size):
            rest = tuple(i for i in PLACES if i not in some)
            draws = [each for each in (some, rest) if each]
            lower = sum(3 / len(d) * p[c, d, i] for d in draws for i in d) / len(draws)
            upper = (
                sum(
                    (
                        sum(3 / len(d) * (ORDER * p[c, d, i]).exp() for d in draws if i in d)
                        / len(draws)
                    ).log()
                    for i in PLACES
                )
                / ORDER
            )
            bound = MIX * upper + (1 - MIX) * lower if advantage < 0 else lower
            total = total + bound / 3 / math.comb(3, size)
    return advantage * total


@pytest.mark.parametrize(
    ("name", "formula"),
    [("espo", any_order), ("gdpo", any_order), ("diffu_grpo", mean_field),
     ("coupled_grpo", coupled), ("spg", sandwich)],
)  # fmt: skip
def test_a_surrogate_is_its_papers_formula(models, name, formula):
    gradients = models["masked-3"]
    listing = Listing(gradients.policy, SAMPLING)
    algorithm = OBJECTIVES[name][0]
    advantages = surrogates.expected_advantages(algorithm, listing.rewards, listing.probability)
    canvases, p = log_p(gradients)
    pairs = zip(canvases, advantages.tolist(), listing.probability.tolist(), strict=True)
    objective = sum(chance * formula(p, c, advantage) for c, advantage, chance in pairs)
    wanted = torch.cat([g.flatten() for g in torch.autograd.grad(objective, gradients.weights)])
    assert difference(gradients.estimate(listing, name)[0], wanted) < 1e-6


def test_advantages_of_groups_are_those_of_many_groups():
    """Over the group's deviation, for rewards 0, 1/2 and 1, against 20,000 groups that are drawn."""
    rewards, chances = (
        torch.tensor([0.0, 0.5, 1.0]).double(),
        torch.tensor([0.5, 0.3, 0.2]).double(),
    )
    scaled = OBJECTIVES["exact, A over the spread"][0]
    found = surrogates.expected_advantages(scaled, rewards, chances)
    drawn = np.random.default_rng(0).choice(rewards, (20_000, surrogates.GROUP), p=chances)
    given = (drawn[:, 0] - drawn.mean(1)) / (drawn.std(1, ddof=1) + 1e-4)
    for value, wanted in zip(rewards, found, strict=True):
        mine = given[drawn[:, 0] == float(value)]
        assert float(wanted) == pytest.approx(mine.mean(), abs=4 * mine.std() / len(mine) ** 0.5)


@pytest.mark.parametrize(("name", "wanted"), [("espo", 1.0), ("gdpo", 1.0), ("coupled_grpo", 1.5)])
def test_every_draw_is_made_by_its_chance(name, wanted):
    """What a place weighs in the mean: over every draw, and over draws of numpy's generator."""
    sample, count = OBJECTIVES[name][0].masks

    def weigh(rng):
        return sum(hidden * weight for hidden, weight in sample(3, count, rng))

    draws = [*surrogates.every(weigh)]
    assert sum(chance for chance, _ in draws) == pytest.approx(1)
    assert sum(chance * w for chance, w in draws) == pytest.approx([wanted] * 3, abs=1e-6)
    rng = np.random.default_rng(0)
    seen = np.array([weigh(rng) for _ in range(2000)])
    square = sum(chance * w**2 for chance, w in draws)
    assert (seen**2).mean(0) == pytest.approx(square, rel=0.15)


def test_the_stored_rows_are_measured_again_and_drawn():
    rows = [row for _, row in read_jsonl(ROWS)]
    (stored, again) = (next(iter(each)) for each in (
        (row for row in rows if (row["canvas"], row["seed"]) == ("masked-2", 0)),
        surrogates.measure_canvas("masked-2", 0),
    ))  # fmt: skip
    assert stored.keys() == again.keys()
    assert again["expected"] == stored["expected"]
    for name, figures in stored["figures"].items():
        assert again["figures"][name] == pytest.approx(figures, rel=1e-2, abs=1e-4)
    assert surrogates.figure(rows).startswith("<svg xmlns=")
    assert len(surrogates.table(rows).splitlines()) > 2 + len(OBJECTIVES)


def test_spg_raises_the_lower_bound_and_lowers_the_upper_one():
    """By hand: one rollout, one place seen in two draws with weights 0.5 each."""
    logprobs = torch.tensor([-1.0, -2.0], dtype=torch.float64)
    half, place = torch.full((2,), 0.5, dtype=torch.float64), torch.zeros(2, dtype=torch.long)
    lower = -1.5
    upper = np.log(0.5 * np.exp(-1.0 * ORDER) + 0.5 * np.exp(-2.0 * ORDER)) / ORDER
    assert upper > lower
    for advantage, wanted in ((2.0, -2.0 * lower), (-2.0, 2.0 * (MIX * upper + (1 - MIX) * lower))):
        loss = sandwich_loss(
            logprobs, half, place, torch.full((2,), advantage).double(), torch.ones(2).double()
        )
        assert loss.item() == pytest.approx(wanted)


def test_spg_of_a_batch_is_the_sum_of_its_places():
    """Three places of two rollouts in any order; each is bounded by itself and weighs what its
    rollout weighs."""
    rng = np.random.default_rng(0)
    place = np.array([7, 2, 7, 5, 2, 5, 5])
    logprobs, term_weight = -rng.random(7), rng.random(7)
    advantage, weight = {2: -1.5, 5: 0.5, 7: -0.5}, {2: 0.3, 5: 0.2, 7: 0.1}
    wanted = 0.0
    for one in (2, 5, 7):
        mine = place == one
        lower = (logprobs * term_weight)[mine].sum()
        upper = np.log((term_weight[mine] * np.exp(ORDER * logprobs[mine])).sum()) / ORDER
        bound = MIX * upper + (1 - MIX) * lower if advantage[one] < 0 else lower
        wanted -= weight[one] * advantage[one] * bound
    given_ = (
        logprobs,
        term_weight,
        place,
        [advantage[one] for one in place],
        [weight[one] for one in place],
    )
    assert sandwich_loss(*map(torch.tensor, given_)).item() == pytest.approx(wanted)
