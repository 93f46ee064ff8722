"""One batch of weighted_rollouts rollouts becomes `inner_epochs` optimiser steps, whatever the family and
the likelihood.

Letters in shapes: N terms of a micro-batch, V scoring targets.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from plumbline.algorithms.advantages import shuffle_advantages
from plumbline.algorithms.algorithm import Scored
from plumbline.algorithms.dpo import Dpo
from plumbline.algorithms.scoring_targets import ScoringTarget
from plumbline.errors import RecipeError
from plumbline.policies.policy import Helpers, Policy, Terms
from plumbline.recipe import ControlsSection, Recipe, RlSection
from plumbline.records import Example, Group, Trajectory
from plumbline.seeds import generator
from plumbline.training import guards
from plumbline.training.microbatches import Cut, Microbatches, Threads, shared_out
from plumbline.training.optimiser import Optimiser

# -- signal and noise ------------------------------------------------------------------------------
#
# How much of a step's gradient is signal, from the parts that the batch was cut into: no
# micro-batch more than the step has.
#
# Letters in shapes: C parts of a batch, P groups (prompts) in it, M of them in the parts; the
# others' gradient is 0.
#
# Groups are drawn independently, so their gradients g_p are, too: with mean mu and summed variance
# s2 over all weights, two different groups have E g_p . g_q = |mu|^2, and the batch has E |sum of
# g_p|^2 = P^2 |mu|^2 + P s2. Part c holds n_c whole groups and adds up to S_c, so the products that
# can be seen are those between parts:
#
#     |sum of S_c|^2 - sum of |S_c|^2     over M^2 - sum of n_c^2 ordered pairs of groups
#
# Their mean stands for all M (M - 1) pairs that are not 0, of the P (P - 1) that there are. Pairs
# with a group of gradient 0 must not be counted as seen: which groups these are is chance, too, and
# only the others share parts. So the signal P^2 |mu|^2 and the noise P s2 in the squared norm of
# the batch's gradient are estimated without bias (McCandlish et al. 2018, "An Empirical Model of
# Large-Batch Training", arXiv:1812.06162, appendix A.1, for parts of any size). Their ratio grows
# with the number of groups; the cosine that the gradients of two such batches have on average is
# about ratio / (1 + ratio) where the noise goes in many directions, and less where it goes in few.

WATCHED = 2**20
"""Elements of the gradient that are looked at, evenly spread over all: enough for a ratio, and
cheap to keep."""
MEMORY = 0.9
"""Share of the past in the smoothed ratio: about the last ten steps. One step's own estimate says
little."""


class SignalNoise(NamedTuple):
    """Of the squared norm of one batch's gradient, on the weights that are watched."""

    signal: float
    """Unbiased, so it can fall below 0 where there is little of it."""
    noise: float
    """Unbiased, too."""


def estimate_signal_noise(
    total: float, parts: Sequence[float], sizes: Sequence[int], groups: int
) -> SignalNoise | None:
    """Signal and noise of a batch, from the products between its parts: the derivation stands
    above, under "signal and noise".

    Args:
        total: |sum of all gradients|^2.
        parts: |S_c|^2 [C].
        sizes: n_c [C], groups of each part.
        groups: P, those without a signal included: their gradient is 0.

    Returns:
        None where there are not two groups, or where one part holds all that have a gradient.
    """
    moving, apart = sum(sizes), sum(sizes) ** 2 - sum(size**2 for size in sizes)
    if groups < 2 or (moving > 1 and apart == 0):
        return None
    # of two groups that have a gradient, on average
    product = (total - sum(parts)) / apart if apart else 0.0
    signal_one = product * moving * (moving - 1) / (groups * (groups - 1))
    # of single groups, summed
    squares = sum(parts) - product * (sum(size**2 for size in sizes) - moving)
    return SignalNoise(groups**2 * signal_one, squares - groups * signal_one)


class GradientParts:
    """Watches gradients add up over the micro-batches of a batch."""

    def __init__(self, weights: Mapping[str, Tensor]) -> None:
        """Take the weights whose gradients add up, cleared."""
        self.weights = list(weights.values())
        # Odd, so that it does not walk down a single column of matrices whose width is a power of
        # two.
        self.stride = -(-sum(weight.numel() for weight in self.weights) // WATCHED) | 1
        self.before: Tensor | None = None
        self.sums: dict[int, Tensor] = {}

    def add(self, part: int) -> None:
        """What was added since the last call belongs to `part`; parts may come in any order, and
        again."""
        now = torch.cat(
            [
                weight.grad.flatten()[:: self.stride].float()
                if weight.grad is not None
                else weight.new_zeros(-(-weight.numel() // self.stride), dtype=torch.float32)
                for weight in self.weights
            ]
        )
        gained = now if self.before is None else now - self.before
        self.before = now
        self.sums[part] = self.sums[part] + gained if part in self.sums else gained

    def join(self, other: "GradientParts") -> None:
        """Take in what a replica watched of the same batch: its gradient is added to that of the
        weights here."""
        for part, gained in other.sums.items():
            self.sums[part] = self.sums[part] + gained if part in self.sums else gained
        if other.before is not None:
            self.before = other.before if self.before is None else self.before + other.before

    def measure(self, sizes: Mapping[int, int], groups: int) -> SignalNoise | None:
        """Signal and noise of the batch; `sizes` has the groups of each part."""
        if self.before is None:
            return None
        squares = {part: float(gained.square().sum()) for part, gained in self.sums.items()}
        total = float(self.before.square().sum())
        return estimate_signal_noise(
            total, list(squares.values()), [sizes[part] for part in squares], groups
        )


def group_independent_parts(
    microbatches: Sequence[Sequence[bytes]],
) -> tuple[list[int], dict[int, int]]:
    """Put micro-batches together that share a group, so that parts are independent of each other.

    Args:
        microbatches: the groups (by their prompt) that each micro-batch holds something of.

    Returns:
        The part of each micro-batch, and how many groups each part holds.
    """
    part_of: dict[bytes, int] = {}
    members: dict[int, set[bytes]] = {}
    found: list[int] = []
    for number, groups in enumerate(microbatches):
        merged = set(groups)
        for old in {part_of[group] for group in merged if group in part_of}:
            merged |= members.pop(old)
            found = [number if part == old else part for part in found]
        members[number] = merged
        part_of |= dict.fromkeys(merged, number)
        found.append(number)
    return found, {part: len(groups) for part, groups in members.items()}


def smooth_ratio(measured: SignalNoise | None, memory: dict[str, Any]) -> float | None:
    """Signal over noise of about the last ten steps; `memory` carries the sums from step to step.

    A step without any measure leaves it as it was. None until there was one with noise in it.
    """
    if measured is not None:
        for name, value in measured._asdict().items():
            memory[f"grad_{name}"] = MEMORY * memory.get(f"grad_{name}", 0.0) + (1 - MEMORY) * value
    if memory.get("grad_noise", 0.0) <= 0:
        return None
    return float(memory["grad_signal"] / memory["grad_noise"])


# -- advantages and weights ------------------------------------------------------------------------
#
# Every token of an answer has the answer's advantage.
#
# GRPO gives every token of an answer the answer's advantage (Shao et al. 2024, arXiv:2402.03300),
# and so every token of every answer of an episode of several turns the episode's. The denominators
# count the tokens of all its answers, and Dr. GRPO's constant is rollouts * max_tokens * turns
# allowed: the most tokens that the rollouts could have had, whatever they had, so that a token
# weighs the same in an episode that took one turn and in one that took all.

#
# A batch may be learnt from in minibatches of some of its groups, every k-th of them, so that each
# has something of every task; the weights of each minibatch's rollouts are those of a batch of that
# size.

NO_CONTROLS = ControlsSection()


@dataclass(frozen=True, slots=True, eq=False)
class WeightedRollout:
    """The turns of a rollout with its advantage, and the weight of each of their terms in the
    loss."""

    turns: tuple[Trajectory, ...]
    advantage: float
    weight: float
    minibatch: int = 0
    teacher_prompt: NDArray[np.int64] | None = None
    """The prompt that the teacher is given in place of the first turn's."""

    @property
    def prompt(self) -> bytes:
        """The first turn's: rollouts of one group share it, and those of no other."""
        return self.turns[0].prompt.tobytes()

    @property
    def is_idle(self) -> bool:
        """Whether it has no gradient, a KL aside."""
        return self.weight == 0 or self.advantage == 0


def weigh_rollouts(
    groups: Sequence[Group],
    section: RlSection,
    rng: np.random.Generator,
    controls: ControlsSection = NO_CONTROLS,
    turns: int = 1,
    encode: Callable[[Example], NDArray[np.int64]] | None = None,
) -> list[WeightedRollout]:
    """Advantages and weights of all rollouts, group by group, as the section's algorithm says.

    Args:
        groups: of one step.
        section: the recipe's.
        rng: shuffles advantages for the negative control.
        controls: the recipe's.
        turns: the most that an episode may have.
        encode: gives the prompt of a teacher that is told more.
    """
    given = [section.algorithm.group_advantages(group) for group in groups]
    if controls.shuffle_advantages:
        paired = section.algorithm.pairwise  # pairs stay pairs, and are turned round or not
        given = (
            [float(rng.choice([-1, 1])) * each for each in given]
            if paired
            else shuffle_advantages(given, rng)
        )
    count = -(-len(groups) // (section.minibatch or len(groups)))
    found: list[list[WeightedRollout]] = [[] for _ in groups]
    for minibatch in range(count):
        rollouts = [rollout for group in groups[minibatch::count] for rollout in group.rollouts]
        advantages = np.concatenate(given[minibatch::count])
        lengths = np.array([rollout.num_tokens for rollout in rollouts])
        if section.algorithm.selects_subset:
            lengths *= advantages != 0
        most = turns * rollouts[0].turns[0].sampling.max_tokens
        weights = iter(section.algorithm.weights(lengths.tolist(), most))
        for index in range(minibatch, len(groups), count):
            told = None if encode is None else encode(groups[index].example)
            found[index] = [
                WeightedRollout(
                    rollout.turns, float(advantage), float(next(weights)), minibatch, told
                )
                for rollout, advantage in zip(groups[index].rollouts, given[index], strict=True)
            ]
    return [rollout for rollouts in found for rollout in rollouts]


@dataclass(frozen=True, slots=True)
class Update:
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
    margin: float | None = None
    """Mean of the margins of pairs, before the first update, where the algorithm has pairs."""
    gradient: SignalNoise | None = None
    """What of the first update's squared gradient norm is signal, and what noise; None where one
    part holds all."""


def update_policy(
    policy: Policy,
    optimiser: Optimiser,
    weighted_rollouts: Sequence[WeightedRollout],
    recipe: Recipe,
    step: int,
    microbatches: Microbatches | None = None,
    teacher: Policy | None = None,
) -> Update:
    """`inner_epochs` times an optimiser step on each minibatch of rollouts.

    A rollout with advantage 0 has gradient 0 and is skipped, unless a KL is asked for, which has a
    gradient everywhere. Which states are looked at is drawn once: new, old and reference
    log-probabilities then differ by the weights alone. Every turn of a rollout is scored at its own
    prompt and owned by the weighted rollout; a ratio of whole sequences is one for each turn,
    because each is an answer of its own to a prompt of its own.

    Args:
        policy: any family.
        optimiser: of its trainable weights.
        weighted_rollouts: all rollouts of the step.
        recipe: of the run; with the step its seed decides which steps or hidden positions are
            scored.
        step: which.
        microbatches: how the batch is cut; by default as the recipe says, in this process.
        teacher: what the KL is measured to in place of the reference.
    """
    section = recipe.rl
    assert section is not None
    microbatches = microbatches or Microbatches(optimiser)
    algorithm, sampling = section.algorithm, weighted_rollouts[0].turns[0].sampling
    # off-policy the sampler's copy is held to it
    limit = section.max_gap if section.off_policy_steps == 0 else math.inf
    dice = generator(recipe.seed, "rl", "likelihood", step)
    batches = []
    for number in sorted({c.minibatch for c in weighted_rollouts}):
        useful = [
            c
            for c in weighted_rollouts
            if c.minibatch == number and c.weight > 0 and (section.beta > 0 or not c.is_idle)
        ]
        if (
            useful
            and (batch := _batch(policy, recipe, useful, dice, microbatches, teacher)) is not None
        ):
            batches.append(batch)
    if not batches:
        gap = probe_gap(policy, weighted_rollouts[0].turns)
        guards.check_gap(gap, limit, sampling, policy.family)
        return Update(0.0, 0.0, 0.0 if algorithm.uses_ratio else None, None, gap, 0)
    cut, trial = batches[0].cut, batches[0]
    if trial.estimated:  # its reference is not scored yet
        trial = replace(trial, beta=0.0)
    tokens = microbatches.max_tokens(cut, partial(trial.backward, watch=False), section)
    updates = len(batches) * section.inner_epochs
    for batch in batches:
        if not section.uses_recorded_logprobs and updates > 1:
            batch.old = microbatches.run_fitting(batch.cut, batch.score_views, tokens)
        if batch.estimated or algorithm.pairwise:
            batch.reference = microbatches.run_fitting(
                batch.cut, partial(batch.score_views, reference=True), tokens
            )
    done: list[_Sums] = []
    norm = 0.0
    for _ in range(section.inner_epochs):
        for batch in batches:
            margin = (
                batch.weigh_pairs(microbatches.run_fitting(batch.cut, batch.score_views, tokens))
                if algorithm.pairwise
                else None
            )
            sums = microbatches.run_fitting(
                batch.cut, partial(batch.backward, watch=not done), tokens
            )
            sums.margin = margin
            if not done and algorithm.exact:
                guards.check_gap(sums.gap / sums.terms, limit, sampling, policy.family)
            guards.check_finite(sums.loss, "loss", step, optimiser.rate_key)
            norm += optimiser.step(step) / updates
            done.append(sums)
    first, units = done[0], sum(each.units for each in done)
    groups = len(
        {c.prompt for c in weighted_rollouts if c.minibatch == batches[0].rollouts[0].minibatch}
    )
    return Update(
        sum(each.loss for each in done) / updates,
        norm,
        sum(each.clipped for each in done) / units if algorithm.uses_ratio else None,
        sum(each.kl for each in done) / sum(each.kl_terms for each in done)
        if section.beta > 0
        else None,
        first.gap / first.terms if algorithm.exact else None,
        sum(each.terms for each in done) // section.inner_epochs,
        sum(each.capped for each in done) / units if section.tis is not None else None,
        first.margin,
        first.watched.measure(first.sizes, groups),
    )


def _batch(
    policy: Policy,
    recipe: Recipe,
    useful: Sequence[WeightedRollout],
    dice: np.random.Generator,
    microbatches: Microbatches,
    teacher: Policy | None,
) -> "_Batch | None":
    """A minibatch of the rollouts that have a gradient, as it is scored; None where nothing is to
    be."""
    assert recipe.rl is not None
    owners, trajectories = (
        [c for c in useful for _ in c.turns],
        [turn for c in useful for turn in c.turns],
    )
    if (other := recipe.controls.score_temperature) is not None:
        trajectories = [
            replace(t, sampling=replace(t.sampling, temperature=other)) for t in trajectories
        ]
    targets = recipe.rl.algorithm.targets(policy, trajectories, dice)
    if not targets:
        return None
    rollouts = [owners[target.owner] for target in targets]
    return _Batch(
        policy,
        recipe,
        recipe.rl.beta,
        targets,
        rollouts,
        helpers=microbatches.helpers,
        teacher=teacher,
    )


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
    margin: float | None = None

    def join(self, other: "_Sums") -> None:
        """Add the sums over other micro-batches of the same epoch."""
        for name in ("loss", "gap", "terms", "clipped", "capped", "units", "kl", "kl_terms"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.watched.join(other.watched)


@dataclass(slots=True, eq=False)
class _Batch:
    """What a step is made of, and what it is compared with. A micro-batch is a list of indices of its
    targets."""

    policy: Policy
    recipe: Recipe
    beta: float
    targets: Sequence[ScoringTarget]
    rollouts: Sequence[WeightedRollout]
    """The rollout of each target."""
    old: Sequence[Tensor] | None = None
    """Log-probabilities of each target before the first update; None where the sampler's records
    are, or they are the new ones."""
    reference: Sequence[Tensor] | None = None
    helpers: Helpers | None = None
    teacher: Policy | None = None
    loss: float | None = None
    """Of pairs, which no micro-batch has whole."""

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
        """Views as the teacher, or the reference, is given them: later turns of an episode after
        their own prompts."""
        found = []
        for index in indices:
            each, of = self.targets[index].trajectory, self.rollouts[index]
            is_first = each.prompt.tobytes() == of.prompt
            told = of.teacher_prompt if is_first else None
            found.append(each if told is None else replace(each, prompt=told))
        return found

    def weigh_pairs(self, now: Sequence[Tensor]) -> float:
        """Weigh the answers of pairs by their log-probabilities `now`; the mean margin."""
        algorithm = cast(Dpo, self.section.algorithm)
        assert self.reference is not None
        of_target = [float((new - old).sum()) for new, old in zip(now, self.reference, strict=True)]
        distinct = {id(c.turns): c for c in self.rollouts}
        gained = dict.fromkeys(distinct, 0.0)
        for c, value in zip(self.rollouts, of_target, strict=True):
            gained[id(c.turns)] += value
        signs = np.sign([c.advantage for c in distinct.values()])
        advantages, self.loss, margin = algorithm.pair(
            signs, np.array([gained[key] for key in distinct])
        )
        advantage_of = dict(zip(distinct, map(float, advantages), strict=True))
        self.rollouts = [replace(c, advantage=advantage_of[id(c.turns)]) for c in self.rollouts]
        return margin

    def score_views(
        self, microbatches: Sequence[Sequence[int]], *, reference: bool = False
    ) -> list[Tensor]:
        """Log-probabilities of each target without gradient."""
        found, near = (
            dict[int, Tensor](),
            self.helpers if isinstance(self.helpers, Threads) else None,
        )
        for share in shared_out(
            near,
            self.policy,
            microbatches,
            partial(_score_share, self._without_policy(), reference),
        ):
            found |= share
        return [found[index] for index in range(len(self.targets))]

    def backward(self, microbatches: Sequence[Sequence[int]], *, watch: bool) -> _Sums:
        """Add up the gradient of all micro-batches in the weights; `watch` it, too. Helpers do
        their share of the micro-batches."""
        part_of, sizes = group_independent_parts(
            [[self.rollouts[index].prompt for index in one] for one in microbatches]
        )
        numbered = list(zip(part_of, microbatches, strict=True))
        own, *others = shared_out(
            self.helpers, self.policy, numbered, partial(_add_up, self._without_policy(), watch)
        )
        own.sizes = sizes
        for theirs in others:
            own.join(theirs)
        own.loss = own.loss if self.loss is None else self.loss
        return own

    def _without_policy(self) -> "_Batch":
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
    batch: _Batch, watch: bool, numbered: Sequence[tuple[int, Sequence[int]]], policy: Policy
) -> _Sums:
    """A share of a batch's micro-batches, as sums that can be sent."""
    sums = replace(batch, policy=policy).add_up(numbered, watch=watch)
    sums.watched.weights = []
    return sums


@torch.no_grad()
def _score_share(
    batch: _Batch, reference: bool, microbatches: Sequence[Sequence[int]], policy: Policy
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


def _loss(terms: Terms, batch: _Batch, indices: Sequence[int], sums: _Sums) -> Tensor:
    """The loss of one micro-batch; numbers for the metrics are added to `sums`."""
    section, beta = batch.section, batch.beta
    rollouts = [batch.rollouts[index] for index in indices]
    old, reference = (
        None if known is None else torch.cat([known[index] for index in indices])
        for known in (batch.old, batch.reference)
    )
    if old is None:
        old = terms.recorded if section.uses_recorded_logprobs else terms.logprobs.detach()
    given = terms.logprobs.new_tensor([(c.advantage, c.weight) for c in rollouts])
    advantage, weight = given[terms.owner].unbind(1)
    scored = Scored(
        new=terms.logprobs,
        old=old,
        advantage=advantage,
        weight=weight,
        owner=terms.owner,
        transition=terms.transition,
        transition_weight=terms.weight,
        targets=[batch.targets[index] for index in indices],
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
        raise RecipeError(
            f"rl.algorithm: {section.algorithm.name} does not weight by rl.tis", "leave out rl.tis"
        )
    if losses.clipped is not None:
        sums.clipped += float(losses.clipped)
        sums.units += losses.units
    if losses.kl is not None:
        sums.kl += float(losses.kl)
        sums.kl_terms += len(scored.new)
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


@torch.no_grad()
def probe_gap(policy: Policy, trajectories: Sequence[Trajectory]) -> float:
    """The gap on one rollout, where not all have to be scored: the two distributions are watched at
    every step."""
    terms = policy.score(trajectories)
    return float((terms.logprobs - terms.recorded).abs().mean())
