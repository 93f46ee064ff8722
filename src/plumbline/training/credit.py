"""Which tokens are credited with what: the whole answer with its reward, or each value with what it earned.

Letters in shapes: G rollouts of a group, K items of a reward, the rest of it last; N terms of a trajectory.

GRPO gives every token of an answer the answer's advantage (Shao et al. 2024, arXiv:2402.03300), and so every token of
every answer of an episode of several turns the episode's. The denominators count the tokens of all its answers, and
Dr. GRPO's constant is rollouts * max_tokens * turns allowed: the most tokens that the rollouts could have had, whatever
they had, so that a token weighs the same in an episode that took one turn and in one that took all.

Where a reward is a sum of items that single values decide, most of that is noise: the token that chose the sentiment is
credited with the category's luck, too. `items` gives the tokens that wrote a value the advantage of what that value
earned,

    A_t = (rest_i - mean rest) + sum over items k whose characters t begins in of (earned_ik - mean earned_k)

and everything else of the reward (`exact`, form, items that have no place in this answer) to all tokens. Leaving out
costs that no choice of a token changes leaves the gradient unbiased (Schulman et al. 2015, "Gradient Estimation Using
Stochastic Computation Graphs", arXiv:1506.05254, theorem 1). Here more is left out: what a value does to the worth of
those after it, which read it. So this is a biased estimate of GRPO's gradient with less noise, exact where values do
not depend on each other; what it does to a real model stands in docs/grpo-on-real-models.md.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from plumbline.algorithms.advantages import shuffled
from plumbline.policies.policy import Policy, locating
from plumbline.recipe import ControlsSection, RlSection
from plumbline.records import Group, Rollout, Trajectory
from plumbline.tasks.task import Itemised, Task, itemised

NO_CONTROLS = ControlsSection()
Items = Mapping[str, tuple[float, list[slice]]]
"""What each item earned, and the terms that wrote it."""


@dataclass(frozen=True, slots=True, eq=False)
class Credit:
    """The turns of a rollout with its advantage, and the weight of each of their terms in the loss."""

    turns: tuple[Trajectory, ...]
    advantage: float
    weight: float
    by_term: NDArray[np.float64] | None = None
    """Advantages [N] of single terms, where they differ: of one turn only."""

    @property
    def prompt(self) -> bytes:
        """The first turn's: rollouts of one group share it, and those of no other."""
        return self.turns[0].prompt.tobytes()

    @property
    def is_idle(self) -> bool:
        """Whether it has no gradient, a KL aside."""
        return self.weight == 0 or not (self.advantage if self.by_term is None else self.by_term.any())

    def term_advantages(self) -> NDArray[np.float64]:
        """The advantage [N] of each term."""
        if self.by_term is not None:
            return self.by_term
        return np.full(sum(len(turn.logprobs) for turn in self.turns), self.advantage)


def locate_items(task: Task, policy: Policy) -> Callable[[Rollout], Items]:
    """How a rollout's items are found, and the terms that wrote them.

    Raises:
        RecipeError: the task does not itemise its reward, or the policy cannot tell which terms wrote what.
    """
    items, places_of = itemised(task).items, locating(policy).first_terms

    def find(rollout: Rollout) -> Items:
        if rollout.score is None:
            return {}
        (trajectory,) = rollout.turns
        found = items(trajectory.text, rollout.score)
        places = sorted({place for item in found.values() for span in item.spans for place in span})
        term = dict(zip(places, places_of(trajectory, places), strict=True))
        return {name: (item.earned, [slice(term[a], term[b]) for a, b in item.spans]) for name, item in found.items()}

    return find


def locate_by_task(tasks: Mapping[str, Task], policy: Policy) -> dict[str, Callable[[Rollout], Items]]:
    """`locate_items` of every task that itemises its reward; answers to the others are credited as a whole.

    Raises:
        RecipeError: none does, or the policy cannot tell which terms wrote what.
    """
    itemising = {name: task for name, task in tasks.items() if isinstance(task, Itemised)}
    return {name: locate_items(task, policy) for name, task in (itemising or tasks).items()}


def credit(
    groups: Sequence[Group],
    section: RlSection,
    rng: np.random.Generator,
    items: Mapping[str, Callable[[Rollout], Items]] | None = None,
    controls: ControlsSection = NO_CONTROLS,
    turns: int = 1,
) -> list[Credit]:
    """Advantages and weights of all rollouts, group by group, as the section's algorithm says.

    Args:
        groups: of one step.
        section: the recipe's.
        rng: deals advantages anew for the negative control.
        items: from `locate_items` by task, for credit by items; a task that has none is credited by answer.
        controls: the recipe's.
        turns: the most that an episode may have.
    """
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    found: list[Items] = [
        items[group.task](rollout) if items is not None and group.task in items else {}
        for group in groups
        for rollout in group.rollouts
    ]
    names = sorted({name for each in found for name in each})
    ends = np.cumsum([len(group.rollouts) for group in groups])
    given = [section.algorithm.advantages(table) for table in np.split(_earned(rollouts, found, names), ends[:-1])]
    if controls.shuffle_advantages:
        given = shuffled(given, rng)
    lengths = [rollout.num_tokens for rollout in rollouts]
    weight = section.algorithm.weights(lengths, turns * rollouts[0].turns[0].sampling.max_tokens)
    return [
        Credit(
            rollout.turns,
            float(np.sum(advantage)),
            float(w),
            None if items is None else _spread(len(rollout.turns[0].logprobs), advantage, places, names),
        )
        for rollout, advantage, w, places in zip(rollouts, np.concatenate(given), weight, found, strict=True)
    ]


def _earned(rollouts: Sequence[Rollout], found: Sequence[Items], names: Sequence[str]) -> NDArray[np.float64]:
    """What each rollout earned [rollouts, K]: by item, and the rest last; NaN where it was not judged."""
    table = np.array([[each[name][0] if name in each else 0.0 for name in names] for each in found])
    table = table.reshape(len(rollouts), len(names))
    rewards = np.array([rollout.reward for rollout in rollouts])[:, None]
    return np.concatenate([table, rewards - table.sum(axis=1, keepdims=True)], axis=1) + 0 * rewards


def _spread(count: int, advantage: NDArray[np.float64], places: Items, names: Sequence[str]) -> NDArray[np.float64]:
    """The advantage [N] of each term: of its items, of the rest, and of items that have no place in this answer."""
    everywhere = advantage[-1] + sum(a for a, name in zip(advantage, names, strict=False) if name not in places)
    terms = np.full(count, everywhere)
    for value, name in zip(advantage, names, strict=False):
        for span in places[name][1] if name in places else ():
            terms[span] += value
    return terms
