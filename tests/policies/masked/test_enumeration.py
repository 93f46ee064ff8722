"""Both laws, and the scorer against every trajectory there is, in float64: values, sums and
gradients."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from plumbline.algorithms.algorithm import make_trajectory_targets
from plumbline.algorithms.just_grpo import JustGrpo
from plumbline.api import sample_trajectories
from plumbline.policies import plackett_luce
from plumbline.policies.masked.options import MaskedSampling
from tests.algorithms.batches import rollout_of
from tests.policies.families import assert_both_laws_hold, selections
from tests.policies.masked.conftest import opened
from tests.policies.masked.oracle import token_logprobs, trajectory_of, ways

CHAT = [{"role": "user", "content": "nota?"}]
KINDS = (
    "random",
    "ancestral",
    "leftmost",
    "plackett_luce",
    "plackett_luce_set",
    "threshold",
    "low_confidence",
)
GRADIENT = 1e-6
"""Llama's norm works in float32 whatever the model's type, which leaves its gradient about 5e-8 of
noise."""
BLOCKS = MaskedSampling(max_tokens=4, steps=3, blocks=2, top_k=2, selector="plackett_luce")


def make_sampling(selector, **options):
    extra = {"threshold": 0.6, "position_temperature": 0.3} if selector == "threshold" else {}
    return replace(
        MaskedSampling(max_tokens=3, steps=2, top_k=2), selector=selector, **{**extra, **options}
    )


@pytest.fixture(scope="module")
def policies(masked_folder):
    """{attention: policy in float64}."""
    found = {
        attention: opened(masked_folder, attention=attention) for attention in ("prefix", "full")
    }
    for policy in found.values():
        policy.model.double()
    return found


@pytest.fixture
def wide(policies):
    return policies["prefix"]


def totals(terms):
    """The scorer's log-probability of each trajectory, differentiable."""
    count = int(terms.owner.max()) + 1
    return torch.zeros(count, dtype=torch.float64).index_add(
        0, terms.owner, terms.logprobs.double()
    )


@pytest.mark.parametrize("selector", KINDS)
def test_both_laws_hold(policy, selector):
    assert_both_laws_hold(policy, CHAT, make_sampling(selector), draws=1200, least=0.97)


@pytest.mark.parametrize(
    "options",
    [
        {"temperature": 0.6, "selector": "plackett_luce", "position_temperature": 0.5},
        {"top_k": 0, "top_p": 0.3, "temperature": 0.4},
        {"blocks": 2, "steps": 3, "max_tokens": 4, "selector": "plackett_luce"},
    ],
)
def test_temperatures_filters_and_blocks_are_part_of_the_distribution(policy, options):
    assert_both_laws_hold(
        policy, CHAT, replace(make_sampling("random"), **options), draws=1200, seed=3
    )


def test_gradients_are_finite_at_extreme_scores():
    scores = torch.tensor(
        [[30.0, -30.0, 0.0, float("-inf")]], dtype=torch.float64, requires_grad=True
    )
    chosen = torch.tensor([[True, False, True, False]])
    loss = plackett_luce.log_prob(scores, torch.tensor([[0, 2]])).sum()
    (loss + plackett_luce.set_log_prob(scores, chosen).sum()).backward()
    assert scores.grad.isfinite().all()


def test_the_learnt_temperature_is_inside_the_distribution(masked_folder):
    policy = opened(masked_folder, learned_temperature=True)
    with torch.no_grad():
        policy.learned_temperature.log_temperature.copy_(torch.linspace(-0.8, 0.8, 16))
    asked = make_sampling("plackett_luce")
    assert_both_laws_hold(policy, CHAT, asked, draws=1200)
    (drawn,) = sample_trajectories(policy, [CHAT], 4, asked, seed=0)
    theta = policy.trainable()["learned_temperature.log_temperature"]
    policy.score(drawn).logprobs.sum().backward()
    assert theta.grad.abs().sum() > 0
    for index in theta.grad.nonzero().flatten().tolist():
        values = []
        for sign in (1, -1):
            with torch.no_grad():
                theta[index] += sign * 1e-2
                values.append(policy.score(drawn).logprobs.sum().item())
                theta[index] -= sign * 1e-2
        assert theta.grad[index].item() == pytest.approx(
            (values[0] - values[1]) / 2e-2, rel=2e-2, abs=2e-2
        )


@pytest.mark.parametrize(
    ("attention", "temperature"), [("prefix", 0.3), ("prefix", 1.0), ("prefix", 2.0), ("full", 1.0)]
)
@pytest.mark.parametrize("selector", KINDS)
def test_all_trajectories_have_their_probability_and_sum_to_one(
    policies, selector, attention, temperature
):
    wide, asked = policies[attention], make_sampling(selector, temperature=temperature)
    prompt = wide.chat.prompt(CHAT)
    with torch.no_grad():
        found = list(ways(wide, prompt, asked, temperature))
        scored = totals(
            wide.score([trajectory_of(wide, prompt, key, asked) for key, _, _ in found])
        )
    # A choice that the model has no say in is a float32 number.
    free = 1e-6 if selector in {"random", "ancestral"} else 1e-9
    torch.testing.assert_close(
        scored, torch.stack([log_p for _, log_p, _ in found]), atol=free, rtol=0
    )
    assert scored.exp().sum().item() == pytest.approx(1, abs=free)


@pytest.mark.parametrize("selector", KINDS)
def test_the_gradient_is_the_enumerated_one_and_a_baseline_does_not_change_it(wide, selector):
    """grad sum P R by the oracle is sum P R grad log P by the scorer; sum P grad log P is 0."""
    asked, prompt = make_sampling(selector, max_tokens=2), wide.chat.prompt(CHAT)
    found = list(ways(wide, prompt, asked))
    rewards = torch.rand(
        len(found), dtype=torch.float64, generator=torch.Generator().manual_seed(0)
    )
    chance = torch.stack([log_p for _, log_p, _ in found]).exp()
    weights = list(wide.trainable().values())
    wanted = torch.autograd.grad((chance * rewards).sum(), weights, allow_unused=True)
    log_p = totals(wide.score([trajectory_of(wide, prompt, key, asked) for key, _, _ in found]))
    for baseline in (0.0, 7.0):
        loss = (chance.detach() * (rewards - baseline) * log_p).sum()
        for mine, theirs in zip(
            torch.autograd.grad(loss, weights, retain_graph=True), wanted, strict=True
        ):
            torch.testing.assert_close(mine, theirs, atol=GRADIENT, rtol=1e-4)


def test_the_gradient_of_the_tokens_alone_is_not_that_of_the_native_sampler(wide):
    """Negative control of the test above: without the choice of places a baseline changes the
    gradient."""
    asked, prompt = make_sampling("low_confidence"), wide.chat.prompt(CHAT)
    found = [trajectory_of(wide, prompt, key, asked) for key, _, _ in ways(wide, prompt, asked)]
    terms = wide.score(found)
    chance = totals(terms).detach().exp()
    weights = list(wide.trainable().values())

    def of_a_baseline(values):
        gradients = torch.autograd.grad(
            (chance[terms.owner] * values).sum(), weights, retain_graph=True
        )
        return max(float(gradient.abs().max()) for gradient in gradients)

    assert of_a_baseline(terms.logprobs) < GRADIENT
    tokens = terms.logprobs * ~selections(found)
    assert of_a_baseline(tokens) > 1e-3
    assert totals(replace(terms, logprobs=tokens)).exp().sum() > 1.2, (
        "what token-only methods call the probability"
    )


def test_just_grpo_scores_the_product_of_left_to_right_conditionals(wide):
    """By hand, not by steps: every answer has one trajectory, and its terms are log p(token | what
    is to its left)."""
    asked, prompt = make_sampling("leftmost", steps=3), wide.chat.prompt(CHAT)
    wanted = {}
    with torch.no_grad():
        todo = [((), 0.0)]
        for place in range(3):
            states = {answer: [*answer, *[wide.mask_id] * (3 - place)] for answer, _ in todo}
            todo = [
                ((*answer, token), total + float(log_p))
                for answer, total in todo
                for token, log_p in token_logprobs(wide, prompt, states[answer])[place].items()
            ]
        wanted = dict(todo)
        drawn = [
            trajectory_of(wide, prompt, tuple(((i,), (t,)) for i, t in enumerate(a)), asked)
            for a in wanted
        ]
        rollouts = [rollout_of(each) for each in drawn]
        targets = JustGrpo().targets(wide, rollouts, np.random.default_rng(0))
        terms = wide.score([target.trajectory for target in targets])
    assert not bool(selections(drawn).any())
    owner = torch.tensor([rollouts.index(target.rollout) for target in targets])[terms.owner]
    found = torch.zeros(8, dtype=torch.float64).index_add(0, owner, terms.logprobs.double())
    assert found.tolist() == pytest.approx(list(wanted.values()), abs=1e-9)
    assert float(found.exp().sum()) == pytest.approx(1, abs=1e-9)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_the_leftmost_places_are_filled_and_nothing_behind_an_end_is_drawn(
    masked_folder, temperature
):
    policy = opened(masked_folder)
    asked = MaskedSampling(max_tokens=4, steps=4, selector="leftmost", temperature=temperature)
    (plain,) = sample_trajectories(policy, [CHAT], 64, asked, seed=0)
    assert {tuple(int(step.positions[0]) for step in t.transitions) for t in plain} <= {
        tuple(range(n)) for n in range(1, 5)
    }
    policy.chat.stop_ids = (int(plain[0].transitions[0].tokens[0]),)
    (ended,) = sample_trajectories(policy, [CHAT], 64, asked, seed=0)
    assert len(ended[0].transitions) == 1
    assert ended[0].finish == "stop"
    for trajectory in ended:
        tokens = [int(step.tokens[0]) for step in trajectory.transitions]
        assert not set(tokens[:-1]) & set(policy.chat.stop_ids)


class TestAnAnswerThatEndsEarly:
    """Blocks behind the first one that holds an end token are filled, not drawn."""

    @pytest.fixture
    def ending(self, masked_folder):
        """One of the two best tokens of the first place ends an answer."""
        policy = opened(masked_folder)
        with torch.no_grad():
            likely = token_logprobs(
                policy, policy.chat.prompt(CHAT), [policy.mask_id] * BLOCKS.max_tokens
            )[0]
        policy.chat.stop_ids = (next(iter(likely)),)
        return policy

    @pytest.mark.parametrize("selector", KINDS)
    def test_both_laws_hold(self, ending, selector):
        assert_both_laws_hold(
            ending, CHAT, replace(BLOCKS, selector=selector, threshold=0.6), draws=1200, least=0.97
        )

    def test_its_trajectories_are_the_enumerated_ones(self, ending):
        prompt = ending.chat.prompt(CHAT)
        with torch.no_grad():
            found = list(ways(ending, prompt, BLOCKS))
            scored = totals(
                ending.score([trajectory_of(ending, prompt, key, BLOCKS) for key, _, _ in found])
            )
        assert {len(key) for key, _, _ in found} == {2, 3}, (
            "some end after the first block, some do not"
        )
        torch.testing.assert_close(
            scored, torch.stack([log_p for _, log_p, _ in found]), atol=2e-5, rtol=0
        )
        assert scored.exp().sum().item() == pytest.approx(1, abs=1e-4)

    def test_the_answer_is_what_it_would_have_been(self, ending, masked_folder):
        """The same seed, with and without an end token: equal up to the end, which is where the
        answer stops."""
        never = opened(masked_folder)
        never.chat.stop_ids = ()
        (short,), (whole,) = (
            sample_trajectories(policy, [CHAT], 64, BLOCKS, seed=3) for policy in (ending, never)
        )
        ended = [t for t in short if len(t.transitions) < 3]
        assert 0 < len(ended) < 64
        for mine, full in zip(short, whole, strict=True):
            assert mine.answer.tolist() == full.answer[: len(mine.answer)].tolist()
            assert mine.finish == ("stop" if mine.answer[-1] in ending.chat.stop_ids else "length")

    def test_a_ratio_over_more_steps_than_it_made_takes_those(self, ending):
        (drawn,) = sample_trajectories(ending, [CHAT], 64, BLOCKS, seed=3)
        targets = make_trajectory_targets(
            [rollout_of(each) for each in drawn],
            3,
            "uniform",
            np.random.default_rng(0),
            split=False,
        )
        for trajectory, target in zip(drawn, targets, strict=True):
            assert [step.weight for step in target.trajectory.transitions] == [1.0] * len(
                trajectory.transitions
            )
