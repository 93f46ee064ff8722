"""Batches, rollouts and groups from plain numbers."""

from math import isnan

import torch

from plumbline.algorithms.objective import Batch
from plumbline.records import Example, Group, Outcome, Rollout, Score, Terms, Verdict
from plumbline.training.optimiser import Optimiser
from plumbline.training.update import update_policy


def batch_of(new, old, advantage, weight, *, term_weight=None, sampled=None, **compared):
    """A batch in which each term is a step and a rollout of its own."""
    each = torch.arange(len(new))
    terms = Terms(
        logprobs=new,
        recorded=old if sampled is None else sampled,
        owner=each,
        transition=each,
        weight=torch.ones_like(weight) if term_weight is None else term_weight,
    )
    return Batch([], terms, old, advantage, weight, **compared)


def rollout_of(*turns, advantage=0.0, weight=0.0):
    return Rollout(turns=turns, verdict=Verdict(Outcome()), advantage=advantage, weight=weight)


def group_of(*rollouts):
    return Group(example=Example(id="x", messages=()), rollouts=rollouts)


def judged(rewards):
    """A group with these rewards (NaN: not judged)."""
    scores = (None if isnan(reward) else Score(total=float(reward)) for reward in rewards)
    return group_of(*(Rollout(turns=(), verdict=Verdict(Outcome(), score)) for score in scores))


def gradients_of(policy, groups, recipe, teacher=None):
    """An update by groups that are weighed, and the gradients of the step that it does not take."""
    caught = {}
    optimiser = Optimiser(policy.trainable(), recipe.rl.optimiser, 4)

    def step(_):
        caught.update({name: weight.grad.clone() for name, weight in policy.trainable().items()})
        optimiser.clear()
        return 1.0

    optimiser.step = step
    return update_policy(policy, optimiser, groups, recipe, 0, teacher=teacher), caught


def assert_gradients(found, plain):
    """They are those of a policy on which a plain sum was differentiated."""
    for name, weight in plain.trainable().items():
        torch.testing.assert_close(found[name], weight.grad, atol=2e-6, rtol=1e-3)
