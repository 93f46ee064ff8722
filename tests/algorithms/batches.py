"""Batches, rollouts and groups from plain numbers."""

from math import isnan

import torch

from plumbline.algorithms.objective import Batch
from plumbline.records import Example, Group, Outcome, Rollout, Score, Terms, Verdict


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
