"""The gold answer as a careless person would have written it: faults of form, none of fact."""

import json
import re

import numpy as np

from plumbline_commerce.options import Sloppiness

DECIMAL = re.compile(r"(?<=: )(\d+)\.(\d+)(?=[,}])")


def sloppily(gold: str, sloppiness: Sloppiness, rng: np.random.Generator) -> str:
    """Write a gold answer with each fault at its probability.

    Args:
        gold: one line of JSON with ", " between members.
        sloppiness: probabilities.
        rng: decides which faults; as many numbers are drawn whatever they come to, so one probability moves no other.
    """
    chance = rng.random(5)
    members = json.loads(gold)
    kept = {key: value for key, value in members.items() if rng.random() >= sloppiness.dropped}
    if chance[0] < sloppiness.abridged:
        kept = dict(list(kept.items())[: max(1, round(len(members) * 0.3))])
    text = json.dumps(kept, ensure_ascii=False) if kept != members else gold
    if chance[1] < sloppiness.decimal_comma:
        text = DECIMAL.sub(r"\1,\2", text)
    if chance[2] < sloppiness.unclosed:
        text = text.removesuffix("}")
    if chance[3] < sloppiness.fenced:
        text = f"```json\n{text}\n```"
    if chance[4] < sloppiness.chatty:
        text = f"Claro! Aqui está a análise:\n{text}"
    return text
