"""The groups of a step become `inner_epochs` optimiser steps, whatever the family and the
likelihood.

Letters in shapes: N terms of a micro-batch.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar, cast

import torch
from torch import Tensor

from plumbline.algorithms.objective import Batch, Target
from plumbline.errors import RecipeError
from plumbline.policies.policy import Helpers, Policy
from plumbline.recipe import Recipe, RlSection
from plumbline.records import Group, Rollout, Terms, Trajectory, rollouts_of
from plumbline.seeds import generator
from plumbline.training import guards
from plumbline.training.gradient_noise import GradientParts, SignalNoise, group_independent_parts
from plumbline.training.microbatches import Cut, Microbatches, Threads, shared_out
from plumbline.training.optimiser import Optimiser

Part = TypeVar("Part")


@dataclass(frozen=True, slots=True)
class StepReport:
    """What the inner epochs of one step did. None: not computed, which is not 0."""

    loss: float
    grad_norm: float
    clip_fraction: float | None
    kl: float | None
    """Mean nats: for each term where it is sampled, for each step where it is in closed form."""
    gap: float | None
    """Mean |scored - recorded| log-probability [nats] before the first update. Where the weights
    that are trained drew the rollouts it is 0 up to rounding, by law 1; off-policy it has what was
    learnt since in it, too."""
    terms: int
    """Choices that were scored with gradient; 0 where no group had a signal."""
    capped: float | None = None
    """Share of units whose importance weight `rl.tis` cut."""
    gradient: SignalNoise | None = None
    """What of the first update's squared gradient norm is signal, and what noise; None where one
    part holds all."""
    figures: Mapping[str, float] = field(default_factory=dict)
    """The algorithm's own metrics, before the first update."""


def split_minibatches(groups: Sequence[Part], prompts: int | None) -> list[Sequence[Part]]:
    """The groups of each optimiser step on a batch, about `prompts` of them or all."""
    count = -(-len(groups) // (prompts or len(groups)))
    return [groups[start::count] for start in range(count)]


def update_policy(
    policy: Policy,
    optimiser: Optimiser,
    groups: Sequence[Group],
    recipe: Recipe,
    step: int,
    microbatches: Microbatches | None = None,
    teacher: Policy | None = None,
) -> StepReport:
    """`inner_epochs` times an optimiser step on each minibatch of groups.

    A rollout with advantage 0 has gradient 0 and is skipped, unless a KL is asked for, which has a
    gradient everywhere. Which states are looked at is drawn once: new, old and reference
    log-probabilities then differ by the weights alone. Every turn of a rollout is scored at its own
    prompt and has the rollout's advantage; a ratio of whole sequences is one for each turn,
    because each is an answer of its own to a prompt of its own.

    Args:
        policy: any family.
        optimiser: of its trainable weights.
        groups: of the step, weighted.
        recipe: of the run; with the step its seed decides which steps or hidden positions are
            scored.
        step: which.
        microbatches: how the batch is cut; by default as the recipe says, in this process.
        teacher: what the KL is measured to in place of the reference.
    """
    section = recipe.rl
    assert section is not None
    microbatches = microbatches or Microbatches(optimiser)
    algorithm, probed = section.algorithm, groups[0].rollouts[0].turns
    sampling = probed[0].sampling
    # off-policy the sampler's copy is held to it
    limit = section.max_gap if section.off_policy_steps == 0 else math.inf
    dice = generator(recipe.seed, "rl", "likelihood", step)
    batches, prompts = [], 0
    for part in split_minibatches(groups, section.minibatch):
        rollouts = rollouts_of(part)
        useful = [
            rollout
            for rollout in rollouts
            if rollout.weight > 0 and (section.beta > 0 or rollout.advantage != 0)
        ]
        if (other := recipe.controls.score_temperature) is not None:
            useful = _score_at(other, useful)
        if useful and (targets := algorithm.targets(policy, useful, dice)):
            prompts = prompts or len({rollout.prompt for rollout in rollouts})
            batches.append(
                _Minibatch(policy, recipe, section.beta, targets, microbatches.helpers, teacher)
            )
    if not batches:
        gap = probe_gap(policy, probed)
        guards.check_gap(gap, limit, sampling, policy.family)
        return StepReport(0.0, 0.0, 0.0 if algorithm.uses_ratio else None, None, gap, 0)
    cut, trial = batches[0].cut, batches[0]
    if trial.estimated:  # its reference is not scored yet
        trial = replace(trial, beta=0.0)
    tokens = microbatches.max_tokens(cut, partial(trial.backward, watch=False), section)
    updates = len(batches) * section.inner_epochs
    for batch in batches:
        if not section.uses_recorded_logprobs and updates > 1:
            batch.targets = [
                replace(target, old=old)
                for target, old in zip(
                    batch.targets, batch.score(microbatches, tokens), strict=True
                )
            ]
        if batch.estimated or algorithm.uses_reference:
            scores = batch.score(microbatches, tokens, reference=True)
            batch.targets = [
                replace(target, reference=reference)
                for target, reference in zip(batch.targets, scores, strict=True)
            ]
    done: list[_Sums] = []
    norm = 0.0
    for _ in range(section.inner_epochs):
        for batch in batches:
            prepared, figures = algorithm.prepare(
                batch.targets, partial(batch.score, microbatches, tokens)
            )
            work = partial(replace(batch, targets=prepared).backward, watch=not done)
            sums = microbatches.run_fitting(batch.cut, work, tokens)
            sums.figures = dict(figures)
            sums.loss = sums.figures.pop("train/loss", sums.loss)
            if not done and algorithm.exact:
                guards.check_gap(sums.gap / sums.terms, limit, sampling, policy.family)
            guards.check_finite(sums.loss, "loss", step, optimiser.rate_key)
            norm += optimiser.step(step) / updates
            done.append(sums)
    first, units = done[0], sum(each.units for each in done)
    return StepReport(
        sum(each.loss for each in done) / updates,
        norm,
        sum(each.clipped for each in done) / units if algorithm.uses_ratio else None,
        sum(each.kl for each in done) / sum(each.kl_terms for each in done)
        if section.beta > 0
        else None,
        first.gap / first.terms if algorithm.exact else None,
        sum(each.terms for each in done) // section.inner_epochs,
        sum(each.capped for each in done) / units if section.tis is not None else None,
        first.watched.measure(first.sizes, prompts),
        first.figures,
    )


def _score_at(temperature: float, rollouts: Sequence[Rollout]) -> list[Rollout]:
    """Rollouts as if they had been sampled at another temperature: a control."""
    return [
        replace(
            rollout,
            turns=tuple(
                replace(turn, sampling=replace(turn.sampling, temperature=temperature))
                for turn in rollout.turns
            ),
        )
        for rollout in rollouts
    ]


@dataclass(slots=True)
class _Sums:
    """Sums over the micro-batches of an epoch."""

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
    figures: dict[str, float] = field(default_factory=dict)

    def join(self, other: "_Sums") -> None:
        """Add the sums over other micro-batches of the same epoch."""
        for name in ("loss", "gap", "terms", "clipped", "capped", "units", "kl", "kl_terms"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.watched.join(other.watched)


@dataclass(slots=True, eq=False)
class _Minibatch:
    """What an optimiser step is made of. A micro-batch is a list of indices of its targets."""

    policy: Policy
    recipe: Recipe
    beta: float
    targets: Sequence[Target]
    helpers: Helpers | None = None
    teacher: Policy | None = None

    @property
    def section(self) -> RlSection:
        """The recipe's."""
        assert self.recipe.rl is not None
        return self.recipe.rl

    @property
    def present(self) -> bool:
        """Whether the policy's present weights are the teacher."""
        return self.section.teacher is not None and self.section.teacher.weights == "present"

    @property
    def estimated(self) -> bool:
        """Whether a KL is estimated from what was sampled."""
        return self.beta > 0 and self.section.kl == "sampled"

    @property
    def cut(self) -> Cut[list[int]]:
        """From the most tokens of a micro-batch to the micro-batches, as indices of targets."""
        return partial(self.policy.batches, [target.trajectory for target in self.targets])

    def hinted_trajectories(self, indices: Sequence[int]) -> list[Trajectory]:
        """Targets as the teacher, or the reference, is given them: later turns of an episode after
        their own prompts."""
        found = []
        for index in indices:
            each, of = self.targets[index].trajectory, self.targets[index].rollout
            is_first = each.prompt.tobytes() == of.prompt
            told = of.teacher_prompt if is_first else None
            found.append(each if told is None else replace(each, prompt=told))
        return found

    def score(
        self, microbatches: Microbatches, tokens: int, *, reference: bool = False
    ) -> list[Tensor]:
        """Log-probabilities of each target without gradient, in micro-batches of `tokens`."""
        work = partial(self._score_all, reference=reference)
        return microbatches.run_fitting(self.cut, work, tokens)

    def _score_all(self, microbatches: Sequence[Sequence[int]], *, reference: bool) -> list[Tensor]:
        near = self.helpers if isinstance(self.helpers, Threads) else None
        work = partial(_score_share, self._without_policy(), reference)
        found = dict[int, Tensor]()
        for share in shared_out(near, self.policy, microbatches, work):
            found |= share
        return [found[index] for index in range(len(self.targets))]

    def backward(self, microbatches: Sequence[Sequence[int]], *, watch: bool) -> _Sums:
        """Add up the gradient of all micro-batches in the weights; `watch` it, too. Helpers do
        their share of the micro-batches."""
        part_of, sizes = group_independent_parts(
            [[self.targets[index].rollout.prompt for index in one] for one in microbatches]
        )
        numbered = list(zip(part_of, microbatches, strict=True))
        own, *others = shared_out(
            self.helpers, self.policy, numbered, partial(_add_up, self._without_policy(), watch)
        )
        own.sizes = sizes
        for theirs in others:
            own.join(theirs)
        return own

    def _without_policy(self) -> "_Minibatch":
        """What a process of its own can be sent."""
        return replace(self, policy=cast(Policy, None), helpers=None)

    def add_up(self, numbered: Sequence[tuple[int, Sequence[int]]], *, watch: bool) -> _Sums:
        """The same of some micro-batches, each with its part, in this process."""
        sums = _Sums(GradientParts(self.policy.trainable()), {})
        for number, indices in numbered:
            trajectories = [self.targets[index].trajectory for index in indices]
            closed = self.beta > 0 and not self.estimated
            if closed and (self.section.teacher is not None or self.section.kl == "forward"):
                hinted, present = self.hinted_trajectories(indices), self.present
                terms = self.policy.compare(
                    trajectories,
                    hinted,
                    self.teacher,
                    forward=self.section.kl == "forward",
                    present=present,
                )
            else:
                terms = self.policy.score(trajectories, divergence=closed)
            sums.gap += float((terms.logprobs.detach() - terms.recorded).abs().sum())
            sums.terms += len(terms.logprobs)
            loss = _loss(terms, self, indices, sums)
            loss.backward()
            if watch:
                sums.watched.add(number)
            sums.loss += float(loss.detach())
        return sums


def _add_up(
    batch: _Minibatch, watch: bool, numbered: Sequence[tuple[int, Sequence[int]]], policy: Policy
) -> _Sums:
    """A share of a batch's micro-batches, as sums that can be sent."""
    sums = replace(batch, policy=policy).add_up(numbered, watch=watch)
    sums.watched.weights = []
    return sums


@torch.no_grad()
def _score_share(
    batch: _Minibatch, reference: bool, microbatches: Sequence[Sequence[int]], policy: Policy
) -> dict[int, Tensor]:
    """Log-probabilities of the targets of a share of the micro-batches."""
    found = dict[int, Tensor]()
    for indices in microbatches:
        part = [batch.targets[index].trajectory for index in indices]
        if reference:
            own = batch.teacher is None and not batch.present
            logprobs = (
                (batch.teacher or policy)
                .score(batch.hinted_trajectories(indices), reference=own)
                .logprobs
            )
        else:
            logprobs = policy.score(part).logprobs
        found |= zip(indices, logprobs.split([len(each.logprobs) for each in part]), strict=True)
    return found


def _loss(terms: Terms, batch: _Minibatch, indices: Sequence[int], sums: _Sums) -> Tensor:
    """The loss of one micro-batch; numbers for the metrics are added to `sums`."""
    section, beta = batch.section, batch.beta
    targets = [batch.targets[index] for index in indices]
    given = terms.logprobs.new_tensor(
        [(target.rollout.advantage, target.rollout.weight) for target in targets]
    )
    advantage, weight = given[terms.owner].unbind(1)
    old = _concatenate([target.old for target in targets])
    if old is None:
        old = terms.recorded if section.uses_recorded_logprobs else terms.logprobs.detach()
    losses = section.algorithm.loss(
        Batch(
            targets,
            terms,
            old,
            advantage,
            weight,
            reference=_concatenate([target.reference for target in targets]),
            beta=beta,
            cap=section.tis,
        )
    )
    loss = losses.value
    if losses.capped is not None:
        sums.capped += float(losses.capped)
    elif section.tis is not None:
        raise RecipeError(
            f"rl.algorithm: {section.algorithm.name} does not weight by rl.tis", "leave out rl.tis"
        )
    if losses.clipped is not None:
        sums.clipped += float(losses.clipped)
        sums.units += losses.units
    if losses.kl is not None:
        sums.kl += float(losses.kl)
        sums.kl_terms += len(terms.logprobs)
    if terms.divergence is not None:
        of_step = torch.zeros(len(terms.divergence), dtype=torch.long, device=loss.device)
        of_step = of_step.scatter_(
            0, terms.transition, torch.arange(len(terms.transition), device=loss.device)
        )
        per_step = given[terms.owner[of_step], 1] * terms.weight[of_step]
        loss = loss + beta * (terms.divergence * per_step).sum()
        sums.kl += float(terms.divergence.detach().sum())
        sums.kl_terms += len(terms.divergence)
    return loss


def _concatenate(of_targets: Sequence[Tensor | None]) -> Tensor | None:
    """One tensor of what each target has; None where none has any."""
    known = [each for each in of_targets if each is not None]
    return torch.cat(known) if known else None


@torch.no_grad()
def probe_gap(policy: Policy, trajectories: Sequence[Trajectory]) -> float:
    """The gap on one rollout, where not all have to be scored: the two distributions are watched at
    every step."""
    terms = policy.score(trajectories)
    return float((terms.logprobs - terms.recorded).abs().mean())
