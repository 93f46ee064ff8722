"""Which tokens are credited with what: every token of an answer with the answer's advantage.

GRPO gives every token of an answer the answer's advantage (Shao et al. 2024, arXiv:2402.03300), and so every token of
every answer of an episode of several turns the episode's. The denominators count the tokens of all its answers, and
Dr. GRPO's constant is rollouts * max_tokens * turns allowed: the most tokens that the rollouts could have had, whatever
they had, so that a token weighs the same in an episode that took one turn and in one that took all.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from plumbline.algorithms.advantages import shuffled
from plumbline.recipe import ControlsSection, RlSection
from plumbline.records import Group, Trajectory

NO_CONTROLS = ControlsSection()


@dataclass(frozen=True, slots=True, eq=False)
class Credit:
    """The turns of a rollout with its advantage, and the weight of each of their terms in the loss."""

    turns: tuple[Trajectory, ...]
    advantage: float
    weight: float

    @property
    def prompt(self) -> bytes:
        """The first turn's: rollouts of one group share it, and those of no other."""
        return self.turns[0].prompt.tobytes()

    @property
    def is_idle(self) -> bool:
        """Whether it has no gradient, a KL aside."""
        return self.weight == 0 or self.advantage == 0


def credit(
    groups: Sequence[Group],
    section: RlSection,
    rng: np.random.Generator,
    controls: ControlsSection = NO_CONTROLS,
    turns: int = 1,
) -> list[Credit]:
    """Advantages and weights of all rollouts, group by group, as the section's algorithm says.

    Args:
        groups: of one step.
        section: the recipe's.
        rng: shuffles advantages for the negative control.
        controls: the recipe's.
        turns: the most that an episode may have.
    """
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    given = [section.algorithm.advantages(group.rewards()) for group in groups]
    if controls.shuffle_advantages:
        given = shuffled(given, rng)
    lengths = [rollout.num_tokens for rollout in rollouts]
    weights = section.algorithm.weights(lengths, turns * rollouts[0].turns[0].sampling.max_tokens)
    return [
        Credit(rollout.turns, float(advantage), float(weight))
        for rollout, advantage, weight in zip(rollouts, np.concatenate(given), weights, strict=True)
    ]
