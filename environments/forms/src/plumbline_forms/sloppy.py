"""The gold plan as somebody in a hurry would have recorded it: things left out, nothing wrong in what is there."""

from collections.abc import Sequence

import numpy as np

from plumbline_forms.options import Sloppiness
from plumbline_forms.plans.actions import Action, Fill, Submit


def sloppily(actions: Sequence[Action], sloppiness: Sloppiness, rng: np.random.Generator) -> list[Action]:
    """Leave things out of a gold plan, each at its probability.

    Args:
        actions: the plan.
        sloppiness: probabilities.
        rng: decides; as many numbers are drawn whatever they come to, so one probability moves no other.
    """
    unsent, chances = rng.random(), rng.random(len(actions))
    kept = [
        action
        for action, chance in zip(actions, chances, strict=True)
        if not (isinstance(action, Fill) and chance < sloppiness.skipped)
    ]
    if unsent < sloppiness.unsent and kept and isinstance(kept[-1], Submit):
        kept.pop()
    return kept
