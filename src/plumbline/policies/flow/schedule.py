"""The clock of a discrete flow: how much of the answer stands at time t, and how often a place may jump.

Letters: kappa_t = t^n is the chance that a place already holds its final token (the mixture path of Gat et al. 2024,
arXiv:2407.15595). A step from t to t + h lets a place jump with

    a = ln[(1 - kappa_t) / (1 - kappa_{t+h})]        the cumulative scalar of FS-DFM (arXiv:2509.20624)
    q = 1 - e^-a = (kappa_{t+h} - kappa_t) / (1 - kappa_t)

which at the last step is q = 1 and a infinite: there every place takes a token from the model's law.
"""

import math
from dataclasses import dataclass

from plumbline.errors import RecipeError
from plumbline.policies.flow.options import FlowSampling


@dataclass(frozen=True, slots=True)
class Tick:
    """One step of the clock."""

    time: float
    until: float
    jump: float  # q
    log_jump: float
    log_stay: float  # log(1 - q); minus infinity at the last step
    amount: float  # a; infinite at the last step

    @property
    def last(self) -> bool:
        """Whether the step ends at time 1."""
        return math.isinf(self.amount)


def kappa(time: float, exponent: float) -> float:
    """The share of the answer that stands at `time`."""
    return time**exponent


def tick(time: float, until: float, exponent: float) -> Tick:
    """The step from `time` to `until`."""
    gone, left = 1 - kappa(time, exponent), 1 - kappa(until, exponent)
    if until >= 1:
        return Tick(time, until, 1.0, 0.0, -math.inf, math.inf)
    amount = math.log(gone / left)
    jump = -math.expm1(-amount)
    return Tick(time, until, jump, math.log(jump), -amount, amount)


def ticks(sampling: FlowSampling, exponent: float) -> list[Tick]:
    """An even grid of `sampling.steps` steps from 0 to 1.

    Raises:
        RecipeError: there are no steps.
    """
    if sampling.steps is None:
        raise RecipeError("a flow policy needs a number of steps", "set sampling.steps, for example to 8")
    count = sampling.steps
    return [tick(step / count, (step + 1) / count, exponent) for step in range(count)]
