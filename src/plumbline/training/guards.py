"""What stops a step before its gradient reaches the weights.

What needs the history of a run stands in `plumbline.checks.diagnosis.rules`, and stops it after a
checkpoint.
"""

import math

from plumbline.errors import TrainingStopped
from plumbline.records import Sampling

ENGINES = (
    "resume with model.decoder: transformers, then with model.scoring: rows (--resume), to find "
    "which disagrees; "
)


def check_finite(value: float, what: str, step: int, rate: str) -> None:
    """Stop before the weights are updated with what is no number.

    Args:
        value: the loss or the norm of the gradient.
        what: which.
        step: in which step.
        rate: the recipe's key of the stage's learning rate.

    Raises:
        TrainingStopped: it is infinite or NaN.
    """
    if not math.isfinite(value):
        raise TrainingStopped(
            f"the {what} is {value} at step {step}; the weights were not updated",
            f"lower {rate}, then --resume: it holds from the last checkpoint on; if that does not "
            "help and the weights "
            "have 16 bits, begin a new run with model.dtype: float32",
        )


def check_gap(gap: float, limit: float, sampling: Sampling, family: str) -> None:
    """Stop where sampler and scorer are two distributions, which makes every gradient wrong.

    Args:
        gap: mean nats a choice.
        limit: how much is taken for rounding.
        sampling: the sampling distribution that was asked for.
        family: of the policy.

    Raises:
        TrainingStopped: the mean gap exceeds `limit` nats, or is not a number.
    """
    if not gap <= limit:
        raise TrainingStopped(
            f"the scorer's log-probabilities differ from the sampler's by {gap:.3f} nats a choice "
            "(temperature "
            f"{sampling.temperature}, top_k {sampling.top_k}, top_p {sampling.top_p}); the limit "
            f"is {limit}",
            (ENGINES if family == "autoregressive" else "")
            + "with 16-bit weights a gap below 0.05 is rounding: raise rl.max_gap, then "
            "--resume, or begin a new run "
            "with model.dtype: float32",
        )
