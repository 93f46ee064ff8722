"""A view: some of a rollout's states, with weights. The policy scores views; the surrogate sums them."""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from plumbline.records import Step, Trajectory


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """States to score for one trajectory: for a rollout, or one of its turns."""

    owner: int
    """Index of the trajectory among those that views were made of."""
    trajectory: Trajectory
    """The trajectory with the steps to score; each step has its weight."""


class Scores(Protocol):
    """What an algorithm asks of the policy that will score its views."""

    family: str
    stepwise: bool
    """Whether each step is scored by a forward pass of its own; False: one pass scores a whole trajectory."""


@runtime_checkable
class Hides(Protocol):
    """A policy that can also look at its own answers with some positions hidden: what bounds need."""

    def hide(self, trajectory: Trajectory, hidden: NDArray[np.bool_]) -> Step:
        """A step that fills in the `hidden` positions [L] of the answer's canvas from the others.

        Its state is the canvas with these positions masked; its tokens are the answer's own; its recorded
        log-probabilities are not a number, because nobody sampled them.
        """
        ...
