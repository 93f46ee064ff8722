"""A model that knows nothing at the first step: random weights, or weights that were loaded only in part."""

from collections.abc import Iterator

import numpy as np

from plumbline.checks.diagnosis.check import Check
from plumbline.checks.diagnosis.finding import Finding
from plumbline.checks.diagnosis.history import History

HIGH = 7.0
"""Nats a token: as much as one of 1,100 tokens drawn evenly. Random weights have the logarithm of the vocabulary
(32,000: 10.4; 152,000: 11.9); a pretrained model has 1 to 4 on any text of a language that it knows."""
MOST = 13.0
"""The logarithm of 440,000: what is higher is no mean over tokens."""
KNOWN = 0.05
"""Share of right next tokens, where that is logged."""


def look(history: History) -> Iterator[Finding]:
    """The first loss of supervised training, the first entropy of RL. Who pretrains knows it: then it is no fault."""
    if history.name == "base":
        return
    series = history["entropy" if history.kind == "rl" else "loss"]
    values = series.values[np.isfinite(series.values)]
    right = history["accuracy"].values
    if not len(values) or series.steps[0] > 10 or not HIGH <= values[0] <= MOST:
        return
    if len(right) and right[0] > KNOWN:
        return
    what = "entropy" if history.kind == "rl" else "loss"
    yield Finding(
        check="untrained",
        level="warning" if len(right) or history.kind == "rl" else "note",
        what=f"the {what} is {values[0]:.1f} nats a token at step {int(series.steps[0])}: about what random weights "
        "have",
        since=int(series.steps[0]),
        evidence={what: float(values[0])} | ({"accuracy": float(right[0])} if len(right) else {}),
        causes=(
            "weights that were not found, or loaded in part (look for 'newly initialized' in what the program said)",
            "another tokenizer than the model's",
        ),
        fix="have the model continue a sentence before training",
    )


CHECK = Check(
    name="untrained",
    asks="whether the model that training began with knows anything",
    needs=("loss|entropy",),
    look=look,
    kinds=("rl", "sft"),
)
