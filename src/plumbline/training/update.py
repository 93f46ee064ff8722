"""One batch of credited rollouts becomes `inner_epochs` optimiser steps, whatever the family and the likelihood.

Letters in shapes: N terms of a pass, V views.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from plumbline.algorithms.algorithm import Scored
from plumbline.algorithms.likelihood.views import View
from plumbline.errors import RecipeError
from plumbline.policies.policy import Policy, Terms
from plumbline.recipe import ControlsSection, Recipe, RlSection
from plumbline.records import Trajectory
from plumbline.seeds import generator
from plumbline.training import guards
from plumbline.training.credit import Credit
from plumbline.training.noise import GradientParts, SignalNoise, independent_parts
from plumbline.training.optimiser import Optimiser


@dataclass(frozen=True, slots=True)
class Update:
    """What the inner epochs of one step did. None: not computed, which is not 0."""

    loss: float
    grad_norm: float
    clip_fraction: float | None
    kl: float | None
    """Mean nats: for each term where it is sampled, for each step where it is in closed form."""
    gap: float | None
    """Mean |scored - recorded| log-probability [nats] before the first update. Where the weights that are trained drew
    the rollouts it is 0 up to rounding, by law 1; at a lag it has what was learnt since in it, too."""
    terms: int
    """Choices that were scored with gradient; 0 where no group had a signal."""
    capped: float | None = None
    """Share of units whose importance weight `rl.tis` cut."""
    gradient: SignalNoise | None = None
    """What of the first update's squared gradient norm is signal, and what noise; None where one part holds all."""


def update_policy(
    policy: Policy,
    optimiser: Optimiser,
    credits_: Sequence[Credit],
    recipe: Recipe,
    step: int,
    beta: float,
) -> Update:
    """`inner_epochs` optimiser steps on one batch of rollouts.

    A rollout with advantage 0 has gradient 0 and is skipped, unless a KL is asked for, which has a gradient everywhere.
    Which states are looked at is drawn once: new, old and reference log-probabilities then differ by the weights alone.
    Every turn of a rollout is scored at its own prompt and owned by the rollout's credit; a ratio of whole sequences is
    one for each turn, because each is an answer of its own to a prompt of its own.

    Args:
        policy: any family.
        optimiser: of its trainable weights.
        credits_: all rollouts of the step.
        recipe: of the run; with the step its seed decides which steps or hidden positions are scored.
        step: which.
        beta: weight of the KL in this step.
    """
    section = recipe.rl
    assert section is not None
    algorithm, sampling = section.algorithm, credits_[0].turns[0].sampling
    useful = [c for c in credits_ if c.weight > 0 and (beta > 0 or not c.is_idle)]
    limit = section.max_gap if section.lag == 0 else math.inf  # at a lag the sampler's copy is held to it
    if not useful:
        gap = probe_gap(policy, credits_[0].turns)
        guards.check_gap(gap, limit, sampling, policy.family)
        return Update(0.0, 0.0, 0.0 if algorithm.has_ratio else None, None, gap, 0)
    owners, trajectories = [c for c in useful for _ in c.turns], [turn for c in useful for turn in c.turns]
    if (other := recipe.controls.score_temperature) is not None:
        trajectories = [replace(t, sampling=replace(t.sampling, temperature=other)) for t in trajectories]
    views = algorithm.views(policy, trajectories, generator(recipe.seed, "rl", "likelihood", step))
    sampled, estimated = algorithm.exact, beta > 0 and section.kl == "sampled"
    passes = [
        _Pass(
            part := [views[index] for index in indices],
            [owners[view.owner] for view in part],
            None if section.recorded or section.inner_epochs == 1 else _plain(policy, part),
            _plain(policy, part, reference=True) if estimated else None,
        )
        for indices in policy.batches([view.trajectory for view in views], section.tokens_per_pass)
    ]
    total = _Total()
    watched = GradientParts(optimiser.weights)
    part_of, sizes = independent_parts([[c.prompt for c in one.credited] for one in passes])
    for epoch in range(section.inner_epochs):
        epoch_loss = 0.0
        for number, one in zip(part_of, passes, strict=True):
            terms = policy.score([view.trajectory for view in one.views], divergence=beta > 0 and not estimated)
            if epoch == 0 and sampled:
                total.gap += float((terms.logprobs.detach() - terms.recorded).abs().sum())
            if epoch == 0:
                total.terms += len(terms.logprobs)
            loss = _loss(terms, one, section, beta, total, recipe.controls)
            loss.backward()
            if epoch == 0:
                watched.add(number)
            epoch_loss += float(loss.detach())
        if epoch == 0 and sampled:
            guards.check_gap(total.gap / total.terms, limit, sampling, policy.family)
        guards.check_finite(epoch_loss, "loss", step, optimiser.rate_key)
        total.loss += epoch_loss / section.inner_epochs
        total.norm += optimiser.step(step) / section.inner_epochs
    return Update(
        total.loss,
        total.norm,
        total.clipped / total.units if algorithm.has_ratio else None,
        total.kl / total.kl_terms if beta > 0 else None,
        total.gap / total.terms if sampled else None,
        total.terms,
        total.capped / total.units if section.tis is not None else None,
        watched.measure(sizes, len({c.prompt for c in credits_})),
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Pass:
    """What is scored in one forward and backward pass, and what it is compared with."""

    views: Sequence[View]
    credited: Sequence[Credit]
    """The credit of each view."""
    old: Tensor | None
    """Log-probabilities before the first update; None where the sampler's records are, or they are the new ones."""
    reference: Tensor | None


@dataclass(slots=True)
class _Total:
    """Sums over the passes of a step."""

    loss: float = 0.0
    norm: float = 0.0
    gap: float = 0.0
    terms: int = 0
    clipped: float = 0.0
    capped: float = 0.0
    units: int = 0
    kl: float = 0.0
    kl_terms: int = 0


def _loss(
    terms: Terms, one: _Pass, section: RlSection, beta: float, total: _Total, controls: ControlsSection
) -> Tensor:
    """The loss of one pass; sums for the metrics go to `total`."""
    old = terms.recorded if section.recorded else terms.logprobs.detach() if one.old is None else one.old
    given = terms.logprobs.new_tensor([(c.advantage, c.weight) for c in one.credited])
    advantage, weight = given[terms.owner].unbind(1)
    if section.credit == "items":  # every view is a whole trajectory (`Algorithm.by_term`, `Locates`)
        advantage = terms.logprobs.new_tensor(np.concatenate([c.term_advantages() for c in one.credited]))
    counted = ~terms.selection if controls.tokens_only else torch.ones_like(terms.selection)
    scored = Scored(
        new=terms.logprobs[counted],
        old=old[counted],
        advantage=advantage[counted],
        weight=weight[counted],
        owner=terms.owner[counted],
        step=terms.step[counted],
        step_weight=terms.weight[counted],
        views=one.views,
        reference=None if one.reference is None else one.reference[counted],
        beta=beta,
        sampled=None if section.tis is None else terms.recorded[counted],
        cap=section.tis or math.inf,
    )
    losses = section.algorithm.surrogate(scored)
    loss = losses.loss
    if losses.capped is not None:
        total.capped += float(losses.capped)
    elif section.tis is not None:
        raise RecipeError(f"rl.algorithm: {section.algorithm.name} does not weight by rl.tis", "leave out rl.tis")
    if losses.clipped is not None:
        total.clipped += float(losses.clipped)
        total.units += losses.units
    if losses.kl is not None:
        total.kl += float(losses.kl)
        total.kl_terms += len(scored.new)
    if terms.divergence is not None:
        of_step = torch.zeros(len(terms.divergence), dtype=torch.long, device=loss.device)
        of_step = of_step.scatter_(0, terms.step, torch.arange(len(terms.step), device=loss.device))
        per_step = given[terms.owner[of_step], 1] * terms.weight[of_step]
        loss = loss + beta * (terms.divergence * per_step).sum()
        total.kl += float(terms.divergence.detach().sum())
        total.kl_terms += len(terms.divergence)
    return loss


@torch.no_grad()
def _plain(policy: Policy, part: Sequence[View], *, reference: bool = False) -> Tensor:
    """Log-probabilities of a pass without gradient."""
    return policy.score([view.trajectory for view in part], reference=reference).logprobs


@torch.no_grad()
def probe_gap(policy: Policy, trajectories: Sequence[Trajectory]) -> float:
    """The gap on one rollout, where not all have to be scored: the two laws are watched at every step."""
    terms = policy.score(trajectories)
    return float((terms.logprobs - terms.recorded).abs().mean())
