"""One batch of credited rollouts becomes `inner_epochs` optimiser steps, whatever the family and the likelihood.

Letters in shapes: N terms of a pass, V views.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import cast

import torch
from torch import Tensor

from plumbline.algorithms.algorithm import Scored
from plumbline.algorithms.likelihood.views import View
from plumbline.errors import RecipeError
from plumbline.policies.policy import Helpers, Policy, Terms
from plumbline.recipe import Recipe
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
    """
    section = recipe.rl
    assert section is not None
    beta = section.beta
    algorithm, sampling = section.algorithm, credits_[0].turns[0].sampling
    useful = [c for c in credits_ if c.weight > 0 and (beta > 0 or not c.is_idle)]
    limit = section.max_gap if section.lag == 0 else math.inf  # at a lag the sampler's copy is held to it
    owners, trajectories = [c for c in useful for _ in c.turns], [turn for c in useful for turn in c.turns]
    if (other := recipe.controls.score_temperature) is not None:
        trajectories = [replace(t, sampling=replace(t.sampling, temperature=other)) for t in trajectories]
    dice = generator(recipe.seed, "rl", "likelihood", step)
    views = algorithm.views(policy, trajectories, dice) if useful else []
    if not views:
        gap = probe_gap(policy, credits_[0].turns)
        guards.check_gap(gap, limit, sampling, policy.family)
        return Update(0.0, 0.0, 0.0 if algorithm.has_ratio else None, None, gap, 0)
    credited = [owners[view.owner] for view in views]
    batch = _Batch(policy, recipe, beta, views, credited, helpers=optimiser.passes.helpers)
    cut = partial(policy.batches, [view.trajectory for view in views])
    trial = replace(batch, beta=0.0) if batch.estimated else batch  # its reference is not scored yet
    tokens = optimiser.passes.tokens(cut, partial(trial.backward, watch=False), section)
    if not section.recorded and section.inner_epochs > 1:
        batch.old = optimiser.passes.fitting(cut, batch.plain, tokens)
    if batch.estimated:
        batch.reference = optimiser.passes.fitting(cut, partial(batch.plain, reference=True), tokens)
    epochs: list[_Sums] = []
    norm = 0.0
    for epoch in range(section.inner_epochs):
        sums = optimiser.passes.fitting(cut, partial(batch.backward, watch=epoch == 0), tokens)
        if epoch == 0 and algorithm.exact:
            guards.check_gap(sums.gap / sums.terms, limit, sampling, policy.family)
        guards.check_finite(sums.loss, "loss", step, optimiser.rate_key)
        norm += optimiser.step(step) / section.inner_epochs
        epochs.append(sums)
    first, units = epochs[0], sum(each.units for each in epochs)
    return Update(
        sum(each.loss / section.inner_epochs for each in epochs),
        norm,
        sum(each.clipped for each in epochs) / units if algorithm.has_ratio else None,
        sum(each.kl for each in epochs) / sum(each.kl_terms for each in epochs) if beta > 0 else None,
        first.gap / first.terms if algorithm.exact else None,
        first.terms,
        sum(each.capped for each in epochs) / units if section.tis is not None else None,
        first.watched.measure(first.sizes, len({c.prompt for c in credits_})),
    )


@dataclass(slots=True)
class _Sums:
    """Sums over the passes of an epoch."""

    watched: GradientParts
    sizes: Mapping[int, int]
    """Groups of each part that is watched."""
    loss: float = 0.0
    gap: float = 0.0
    terms: int = 0
    clipped: float = 0.0
    capped: float = 0.0
    units: int = 0
    kl: float = 0.0
    kl_terms: int = 0

    def join(self, other: "_Sums") -> None:
        """Add the sums over other passes of the same epoch."""
        for name in ("loss", "gap", "terms", "clipped", "capped", "units", "kl", "kl_terms"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.watched.join(other.watched)


@dataclass(slots=True, eq=False)
class _Batch:
    """What a step is made of, and what it is compared with. A pass is a list of indices of its views."""

    policy: Policy
    recipe: Recipe
    beta: float
    views: Sequence[View]
    credited: Sequence[Credit]
    """The credit of each view."""
    old: Sequence[Tensor] | None = None
    """Log-probabilities of each view before the first update; None where the sampler's records are, or they are the new
    ones."""
    reference: Sequence[Tensor] | None = None
    helpers: Helpers | None = None

    @property
    def estimated(self) -> bool:
        """Whether a KL is estimated from what was sampled."""
        return self.beta > 0 and self.recipe.rl is not None and self.recipe.rl.kl == "sampled"

    @torch.no_grad()
    def plain(self, passes: Sequence[Sequence[int]], *, reference: bool = False) -> list[Tensor]:
        """Log-probabilities of each view without gradient."""
        found = dict[int, Tensor]()
        for indices in passes:
            part = [self.views[index].trajectory for index in indices]
            logprobs = self.policy.score(part, reference=reference).logprobs
            found |= zip(indices, logprobs.split([len(each.logprobs) for each in part]), strict=True)
        return [found[index] for index in range(len(self.views))]

    def backward(self, passes: Sequence[Sequence[int]], *, watch: bool) -> _Sums:
        """Add up the gradient of all passes in the weights; `watch` it, too. Helpers do their share of the passes."""
        part_of, sizes = independent_parts([[self.credited[index].prompt for index in one] for one in passes])
        numbered = list(zip(part_of, passes, strict=True))
        if self.helpers is None or len(passes) == 1:
            return self.add_up(numbered, sizes, watch=watch)
        bare, count = replace(self, policy=cast(Policy, None), helpers=None), 1 + self.helpers.count
        own, *others = (numbered[start::count] for start in range(min(count, len(passes))))
        finished = self.helpers.begin(self.policy, [partial(_add_up, bare, share, watch) for share in others])
        sums = self.add_up(own, sizes, watch=watch)
        weights = self.policy.trainable()
        for theirs, gradients in finished():
            sums.join(theirs)
            for name, gradient in gradients.items():
                weight, moved = weights[name], gradient.to(weights[name].device)
                weight.grad = moved if weight.grad is None else weight.grad.add_(moved)
        return sums

    def add_up(self, numbered: Sequence[tuple[int, Sequence[int]]], sizes: Mapping[int, int], *, watch: bool) -> _Sums:
        """The same of some passes, each with its part, in this process."""
        sums = _Sums(GradientParts(self.policy.trainable()), sizes)
        for number, indices in numbered:
            trajectories = [self.views[index].trajectory for index in indices]
            terms = self.policy.score(trajectories, divergence=self.beta > 0 and not self.estimated)
            sums.gap += float((terms.logprobs.detach() - terms.recorded).abs().sum())
            sums.terms += len(terms.logprobs)
            loss = _loss(terms, self, indices, sums)
            loss.backward()
            if watch:
                sums.watched.add(number)
            sums.loss += float(loss.detach())
        return sums


def _add_up(batch: _Batch, numbered: Sequence[tuple[int, Sequence[int]]], watch: bool, policy: Policy) -> _Sums:
    """A share of a batch's passes on a replica, as sums that can be sent."""
    sums = replace(batch, policy=policy).add_up(numbered, {}, watch=watch)
    sums.watched.weights = []
    return sums


def _loss(terms: Terms, batch: _Batch, indices: Sequence[int], sums: _Sums) -> Tensor:
    """The loss of one pass; numbers for the metrics are added to `sums`."""
    section, beta = batch.recipe.rl, batch.beta
    assert section is not None
    credited = [batch.credited[index] for index in indices]
    old, reference = (
        None if known is None else torch.cat([known[index] for index in indices])
        for known in (batch.old, batch.reference)
    )
    if old is None:
        old = terms.recorded if section.recorded else terms.logprobs.detach()
    given = terms.logprobs.new_tensor([(c.advantage, c.weight) for c in credited])
    advantage, weight = given[terms.owner].unbind(1)
    scored = Scored(
        new=terms.logprobs,
        old=old,
        advantage=advantage,
        weight=weight,
        owner=terms.owner,
        step=terms.step,
        step_weight=terms.weight,
        views=[batch.views[index] for index in indices],
        reference=reference,
        beta=beta,
        sampled=None if section.tis is None else terms.recorded,
        cap=section.tis or math.inf,
    )
    losses = section.algorithm.surrogate(scored)
    loss = losses.loss
    if losses.capped is not None:
        sums.capped += float(losses.capped)
    elif section.tis is not None:
        raise RecipeError(f"rl.algorithm: {section.algorithm.name} does not weight by rl.tis", "leave out rl.tis")
    if losses.clipped is not None:
        sums.clipped += float(losses.clipped)
        sums.units += losses.units
    if losses.kl is not None:
        sums.kl += float(losses.kl)
        sums.kl_terms += len(scored.new)
    if terms.divergence is not None:
        of_step = torch.zeros(len(terms.divergence), dtype=torch.long, device=loss.device)
        of_step = of_step.scatter_(0, terms.step, torch.arange(len(terms.step), device=loss.device))
        per_step = given[terms.owner[of_step], 1] * terms.weight[of_step]
        loss = loss + beta * (terms.divergence * per_step).sum()
        sums.kl += float(terms.divergence.detach().sum())
        sums.kl_terms += len(terms.divergence)
    return loss


@torch.no_grad()
def probe_gap(policy: Policy, trajectories: Sequence[Trajectory]) -> float:
    """The gap on one rollout, where not all have to be scored: the two laws are watched at every step."""
    terms = policy.score(trajectories)
    return float((terms.logprobs - terms.recorded).abs().mean())
