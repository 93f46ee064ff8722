"""One batch of credited rollouts becomes `inner_epochs` optimiser steps, whatever the family and the likelihood.

Letters in shapes: N terms of a pass, V views.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from plumbline.algorithms.likelihood.elbo import elbo_views
from plumbline.algorithms.likelihood.trajectory import trajectory_views
from plumbline.algorithms.likelihood.views import View
from plumbline.algorithms.objective import Units, clipped_surrogate, units
from plumbline.algorithms.ratio_free import sandwiched, weighted_likelihood
from plumbline.errors import RecipeError
from plumbline.policies.policy import Hides, Policy, Terms
from plumbline.recipe import RlSection
from plumbline.records import Sampling
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
    """Mean |scored - recorded| log-probability [nats] before the first update: 0 up to rounding, by law 1."""
    terms: int
    """Choices that were scored with gradient; 0 where no group had a signal."""
    gradient: SignalNoise | None = None
    """What of the first update's squared gradient norm is signal, and what noise; None where one part holds all."""


def update_policy(
    policy: Policy,
    optimiser: Optimiser,
    credits_: Sequence[Credit],
    section: RlSection,
    sampling: Sampling,
    step: int,
    beta: float,
    rng: np.random.Generator,
) -> Update:
    """`inner_epochs` optimiser steps on one batch of rollouts.

    A rollout with advantage 0 has gradient 0 and is skipped, unless a KL is asked for, which has a gradient everywhere.
    Which states are looked at is drawn once: new, old and reference log-probabilities then differ by the weights alone.

    Args:
        policy: any family.
        optimiser: of its trainable weights.
        credits_: all rollouts of the step.
        section: the recipe's.
        sampling: the law that drew them, for messages.
        step: which.
        beta: weight of the KL in this step.
        rng: draws which steps or hidden positions are scored.
    """
    useful = [c for c in credits_ if c.weight > 0 and (beta > 0 or not c.is_idle)]
    if not useful:
        gap = _probe_gap(policy, credits_)
        guards.check_gap(gap, section.max_gap, sampling, policy.family)
        return Update(0.0, 0.0, None if section.objective != "ppo" else 0.0, None, gap, 0)
    views = _views(policy, useful, section, rng)
    passes = [
        [views[index] for index in part]
        for part in policy.batches([view.trajectory for view in views], section.tokens_per_pass)
    ]
    sampled = section.likelihood.kind == "trajectory"
    old = [None if sampled or section.inner_epochs == 1 else _plain(policy, part) for part in passes]
    estimated = beta > 0 and section.kl == "sampled"
    references = [_plain(policy, part, reference=True) if estimated else None for part in passes]
    total = _Total()
    watched = GradientParts(optimiser.weights)
    part_of, sizes = independent_parts([[v.trajectory.prompt.tobytes() for v in part] for part in passes])
    for epoch in range(section.inner_epochs):
        epoch_loss = 0.0
        for number, part, before, reference in zip(part_of, passes, old, references, strict=True):
            terms = policy.score([v.trajectory for v in part], divergence=beta > 0 and not estimated)
            if epoch == 0 and sampled:
                total.gap += float((terms.logprobs.detach() - terms.recorded).abs().sum())
            if epoch == 0:
                total.terms += len(terms.logprobs)
            recorded = terms.recorded if sampled else terms.logprobs.detach() if before is None else before
            loss = _loss(terms, recorded, reference, [useful[v.owner] for v in part], part, section, beta, total)
            loss.backward()
            if epoch == 0:
                watched.add(number)
            epoch_loss += float(loss.detach())
        if epoch == 0 and sampled:
            guards.check_gap(total.gap / total.terms, section.max_gap, sampling, policy.family)
        guards.check_finite(epoch_loss, "loss", step, optimiser.rate_key)
        total.loss += epoch_loss / section.inner_epochs
        total.norm += optimiser.step(step) / section.inner_epochs
    return Update(
        total.loss,
        total.norm,
        total.clipped / total.units if section.objective == "ppo" else None,
        total.kl / total.kl_terms if beta > 0 else None,
        total.gap / total.terms if sampled else None,
        total.terms,
        watched.measure(sizes, len({c.trajectory.prompt.tobytes() for c in credits_})),
    )


@dataclass(slots=True)
class _Total:
    """Sums over the passes of a step."""

    loss: float = 0.0
    norm: float = 0.0
    gap: float = 0.0
    terms: int = 0
    clipped: float = 0.0
    units: int = 0
    kl: float = 0.0
    kl_terms: int = 0


def _views(policy: Policy, useful: Sequence[Credit], section: RlSection, rng: np.random.Generator) -> list[View]:
    """What is scored of each rollout."""
    how = section.likelihood
    trajectories = [c.trajectory for c in useful]
    if how.kind != "trajectory":
        if not isinstance(policy, Hides):
            raise RecipeError(
                f"rl.likelihood.kind: {how.kind} looks at answers with positions hidden, which a policy of family "
                f"{policy.family} cannot do",
                "set rl.likelihood.kind to trajectory",
            )
        return elbo_views(policy, trajectories, how.kind, how.draws, rng)
    if how.temperature is not None:
        trajectories = [replace(t, sampling=replace(t.sampling, temperature=how.temperature)) for t in trajectories]
    allowed = min(t.sampling.most_steps or len(t.steps) for t in trajectories)  # one that ends early makes fewer
    if how.keep is not None and (how.keep > allowed or not policy.stepwise):
        raise RecipeError(
            f"rl.likelihood.keep is {how.keep}, but "
            + (f"a trajectory has {allowed} steps" if policy.stepwise else f"{policy.family} scores a whole rollout"),
            "set it to at most sampling.steps, or leave it out" if policy.stepwise else "leave it out",
        )
    # A ratio of whole sequences needs all of a rollout's terms in one pass.
    split = policy.stepwise and section.ratio != "sequence"
    return trajectory_views(trajectories, how.keep, how.pick, rng, split=split)


def _loss(
    terms: Terms,
    old: Tensor,
    reference: Tensor | None,
    credited: Sequence[Credit],
    part: Sequence[View],
    section: RlSection,
    beta: float,
    total: _Total,
) -> Tensor:
    """The loss of one pass; sums for the metrics go to `total`."""
    given = terms.logprobs.new_tensor([(c.advantage, c.weight) for c in credited])
    advantage, weight = given[terms.owner].unbind(1)
    if section.credit == "items":  # every view is a whole trajectory (`RlSection`, `Locates`)
        advantage = terms.logprobs.new_tensor(np.concatenate([c.term_advantages() for c in credited]))
    counted = ~terms.selection if section.likelihood.tokens_only else torch.ones_like(terms.selection)
    owner, step, term_weight = terms.owner[counted], terms.step[counted], terms.weight[counted]
    new, advantage, weight = terms.logprobs[counted], advantage[counted], weight[counted]
    if section.objective == "wd1":
        return weighted_likelihood(new, term_weight, advantage, weight)
    if section.objective == "spg":
        return sandwiched(new, term_weight, _places(part, terms)[counted], advantage, weight)
    losses = clipped_surrogate(
        new,
        old[counted],
        advantage,
        weight,
        clip_low=section.clip_low,
        clip_high=section.clip_high,
        grouping=_grouping(section, owner, step, term_weight, part),
        reference=None if reference is None else reference[counted],
        beta=beta,
    )
    loss = losses.loss
    total.clipped += float(losses.clipped)
    total.units += losses.units
    if losses.kl is not None:
        total.kl += float(losses.kl)
        total.kl_terms += len(new)
    if terms.divergence is not None:
        of_step = torch.zeros(len(terms.divergence), dtype=torch.long, device=new.device)
        of_step = of_step.scatter_(0, terms.step, torch.arange(len(terms.step), device=new.device))
        per_step = given[terms.owner[of_step], 1] * terms.weight[of_step]
        loss = loss + beta * (terms.divergence * per_step).sum()
        total.kl += float(terms.divergence.detach().sum())
        total.kl_terms += len(terms.divergence)
    return loss


def _grouping(section: RlSection, owner: Tensor, step: Tensor, weight: Tensor, part: Sequence[View]) -> Units | None:
    """How terms form ratios; None where each stands alone and counts once."""
    if section.ratio == "token" and bool((weight == 1).all()):
        return None
    length = None
    if section.likelihood.kind != "trajectory":
        length = torch.tensor([v.trajectory.sampling.max_tokens for v in part], device=owner.device)
    return units(section.ratio, owner, step, weight, length)


def _places(part: Sequence[View], terms: Terms) -> Tensor:
    """A number [N] for each term, equal where the same token of the same rollout was looked at."""
    positions = np.concatenate([step.positions for view in part for step in view.trajectory.steps])
    longest = int(positions.max()) + 1
    return terms.owner * longest + torch.from_numpy(positions).to(terms.owner.device)


@torch.no_grad()
def _plain(policy: Policy, part: Sequence[View], *, reference: bool = False) -> Tensor:
    """Log-probabilities of a pass without gradient."""
    return policy.score([view.trajectory for view in part], reference=reference).logprobs


@torch.no_grad()
def _probe_gap(policy: Policy, credits_: Sequence[Credit]) -> float:
    """The gap on one rollout, where no rollout had to be scored: the two laws are watched at every step."""
    terms = policy.score([credits_[0].trajectory])
    return float((terms.logprobs - terms.recorded).abs().mean())
