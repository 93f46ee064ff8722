"""What training relies on: some steps for all, bounds, and a reward that is learnt."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch

from plumbline.algorithms import gdpo
from plumbline.algorithms.algorithm import make_bound_targets, make_trajectory_targets
from plumbline.api import sample_trajectories
from plumbline.policies.masked.options import MaskedSampling
from plumbline.training.optimiser import Optimiser
from plumbline.training.update import update_policy
from tests.algorithms.batches import group_of, rollout_of
from tests.policies.families import drawn
from tests.policies.masked.conftest import opened
from tests.policies.masked.oracle import logits_of, logits_of_many, trajectory_of
from tests.training.toy_runs import toy_recipe

CHAT = [{"role": "user", "content": "nota?"}]


def test_some_steps_have_the_gradient_of_all_on_average(policy):
    """K of T = 1 of 4: the mean over all choices, each with weight T / K, is the whole gradient."""
    trajectory = drawn(policy)[0]
    weights = list(policy.trainable().values())

    def gradient(steps):
        terms = policy.score([replace(trajectory, transitions=tuple(steps))])
        return torch.autograd.grad((terms.logprobs * terms.weight).sum(), weights)

    whole = gradient(trajectory.transitions)
    single = [gradient([replace(step, weight=4.0)]) for step in trajectory.transitions]
    for index, wanted in enumerate(whole):
        mean = torch.stack([found[index] for found in single]).mean(0)
        torch.testing.assert_close(mean, wanted, atol=1e-5, rtol=1e-4)
    targets = make_trajectory_targets(
        [rollout_of(trajectory)], 1, "uniform", np.random.default_rng(0), split=True
    )
    assert [step.weight for step in targets[0].trajectory.transitions] == [4.0]


class TestBounds:
    """ELBOs of an answer on three places against all orders of filling it in, by plain forward
    passes."""

    sampling = MaskedSampling(max_tokens=3, steps=3)

    def orders(self, policy, trajectory):
        """log p(answer | order) of each order."""
        answer = self.canvas(policy, trajectory)
        found = []
        for order in itertools.permutations(range(3)):
            state, total = [policy.mask_id] * 3, 0.0
            for place in order:
                with torch.no_grad():
                    log_p = logits_of(policy, trajectory.prompt.tolist(), state).log_softmax(-1)
                total += float(log_p[place, answer[place]])
                state[place] = answer[place]
            found.append(total)
        return np.array(found)

    def canvas(self, policy, trajectory):
        answer = trajectory.answer.tolist()
        return answer + [policy.chat.end_of_turn] * (3 - len(answer))

    @pytest.mark.parametrize("attention", ["prefix", "full"])
    def test_hidden_views_weigh_up_to_the_bound_of_all_orders(self, masked_folder, attention):
        """Exactly: the expectation of ESPO's estimator, over every size and every set."""
        policy = opened(masked_folder, attention=attention)
        (trajectory,) = sample_trajectories(policy, [CHAT], 1, self.sampling, 0)[0]
        expected = 0.0
        for size in (1, 2, 3):
            sets = list(itertools.combinations(range(3), size))
            for places in sets:
                hidden = np.isin(np.arange(3), places)
                target = replace(
                    trajectory, transitions=(policy.mask_positions(trajectory, hidden),)
                )
                with torch.no_grad():
                    expected += (
                        float(policy.score([target]).logprobs.sum()) * (3 / size) / len(sets) / 3
                    )
        orders = self.orders(policy, trajectory)
        assert expected == pytest.approx(orders.mean(), abs=2e-5)
        likelihood = np.log(np.exp(orders).mean())
        assert expected <= likelihood
        # The likelihood is that of the random sampler with a step for each place: all of its ways
        # to this answer.
        answer = self.canvas(policy, trajectory)
        ways = [
            trajectory_of(
                policy, trajectory.prompt, tuple(((i,), (answer[i],)) for i in order), self.sampling
            )
            for order in itertools.permutations(range(3))
        ]
        with torch.no_grad():
            terms = policy.score(ways)
        totals = torch.zeros(6, dtype=torch.float64).index_add(
            0, terms.owner, terms.logprobs.double()
        )
        assert float(totals.logsumexp(0)) == pytest.approx(likelihood, abs=2e-5)


def test_a_reward_is_learnt_step_by_step(masked_folder):
    """A bandit: the share of places that hold one token. Its exact expectation rises at each
    update, and reaches 1."""
    policy = opened(masked_folder)
    sampling = MaskedSampling(max_tokens=2, steps=2, selector="plackett_luce")
    prompt, mask = policy.chat.prompt(CHAT), policy.mask_id
    with torch.no_grad():
        token = int(logits_of(policy, prompt, [mask, mask])[0].topk(2).indices[1])

    @torch.no_grad()
    def expected():
        """By enumeration: which place first, each token there, then the other place, with plain
        forward passes."""
        first = logits_of(policy, prompt, [mask, mask]).softmax(-1)
        pick = first.amax(-1) / first.amax(-1).sum()
        vocabulary = first.shape[1]
        total = 0.0
        for place in (0, 1):
            states = [
                [drawn_token, mask] if place == 0 else [mask, drawn_token]
                for drawn_token in range(vocabulary)
            ]
            then = logits_of_many(policy, prompt, states).softmax(-1)[:, 1 - place, token]
            share = (torch.arange(vocabulary) == token).double() + then
            total += float(pick[place] * (first[place] * share).sum() / 2)
        return total

    recipe = toy_recipe(family="masked", steps=24, optimiser={"learning_rate": 1e-2})
    optimiser = Optimiser(policy.trainable(), recipe.rl.optimiser, 24)
    values = [expected()]
    for step in range(24):
        (group,) = sample_trajectories(policy, [CHAT], 128, sampling, seed=step)
        rewards = np.array(
            [
                np.mean([t == token for s in trajectory.transitions for t in s.tokens])
                for trajectory in group
            ]
        )
        weighted = (
            rollout_of(trajectory, advantage=float(reward - rewards.mean()), weight=1 / (128 * 2))
            for trajectory, reward in zip(group, rewards, strict=True)
        )
        update_policy(policy, optimiser, [group_of(*weighted)], recipe, step)
        if step < 10 or step == 23:
            values.append(expected())
    assert all(later > sooner for sooner, later in itertools.pairwise(values)), values
    assert values[0] < 0.5
    assert values[-1] > 0.95, values[-3:]


def test_a_rollout_none_of_whose_looks_hides_anything_adds_nothing(masked_folder):
    """On a canvas of one place GDPO's two nodes leave every sixth rollout whole."""
    policy, sampling = opened(masked_folder), MaskedSampling(max_tokens=1, steps=1)
    rate = {"learning_rate": 1e-9}
    recipe = toy_recipe(
        family="masked", max_tokens=1, algorithm={"name": "gdpo", "mask_samples": 2}, optimiser=rate
    )
    optimiser = Optimiser(policy.trainable(), recipe.rl.optimiser, 4)
    rollouts = [
        rollout_of(each, advantage=1.0, weight=0.1) for each in drawn(policy, sampling, copies=8)
    ]
    targets = make_bound_targets(
        policy,
        rollouts,
        gdpo.sample_masks,
        2,
        np.random.default_rng(0),
    )
    assert 0 < len(targets) < len(rollouts)
    assert all(target.trajectory.transitions for target in targets)
    found = [update_policy(policy, optimiser, [group_of(*rollouts)], recipe, 0)]
    found += [
        update_policy(policy, optimiser, [group_of(rollouts[0])], recipe, step)
        for step in range(12)
    ]
    assert found[0].terms > 0
    assert {one.terms > 0 for one in found[1:]} == {True, False}, (
        "a step without any look is one without a signal"
    )
