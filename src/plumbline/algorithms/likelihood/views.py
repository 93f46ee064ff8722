"""A view: some of a rollout's states, with weights. The policy scores views; the objective sums them."""

from dataclasses import dataclass

from plumbline.records import Trajectory


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """States to score for one rollout."""

    owner: int
    """Index of the rollout."""
    trajectory: Trajectory
    """The rollout with the steps to score; each step has its weight."""
