"""The learning rate over a stage's steps, as factors; no torch."""

import math

from plumbline.recipe import Schedule


def schedule(kind: Schedule, step: float, total: int, warmup: int) -> float:
    """The factor on the learning rate at `step` (from 0, not always a whole one) of `total`.

    The warm-up rises linearly and its first step already moves: (step + 1) / warmup, 1 at most. After it `constant` and
    `constant_with_warmup` stay at 1, `linear` falls to 0 at `total`, `cosine` falls along half a cosine.
    """
    if kind != "constant" and step < warmup:
        return min(1.0, (step + 1) / warmup)
    progress = (step - warmup) / max(1, total - warmup)
    if kind == "linear":
        return max(0.0, 1.0 - progress)
    if kind == "cosine":
        return 0.5 * (1.0 + math.cos(math.pi * min(1.0, progress)))
    return 1.0


def warmup_steps(warmup: float, total: int) -> int:
    """A share below 1 of all steps, or a number of steps."""
    return round(warmup * total) if warmup < 1 else int(warmup)
