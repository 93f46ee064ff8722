"""Prompts that come again before the others came: a resume that began the data anew, duplicates, rows in file order."""

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from math import ceil

import numpy as np

from plumbline.checks.diagnosis.check import Check
from plumbline.checks.diagnosis.finding import Finding
from plumbline.checks.diagnosis.history import History

SHARE = 0.3
"""Of the draws, over which of a prompt that had come often enough. Where every prompt is drawn anew out of all (with
replacement) 0.27 are over the epochs at most, and over what is usual among the prompts."""
FEW = 8
"""Different prompts, under which a run may be meant so."""
ENOUGH = 40
IN_ORDER = 16
"""Draws in a row that follow the prompts that they once followed: of 32 prompts in a new order that is no chance."""


def look(history: History) -> Iterator[Finding]:
    """Draws of each prompt against the epochs; then steps that have the prompts of earlier ones in the same order."""
    by_step = _drawn(history)
    draws = Counter(prompt for prompts in by_step.values() for prompt in prompts)
    total, epochs = sum(draws.values()), history["epoch"].values
    several = len(history.names("task/")) > 1  # each of several tasks has epochs of its own
    if total >= ENOUGH and len(epochs) and np.isfinite(epochs[-1]) and epochs[-1] > 0 and not several:
        allowed = ceil(round(float(epochs[-1]), 3))
        # Not all trainers mean the same by an epoch; then all prompts come about equally often.
        usual = int(np.percentile(list(draws.values()), 10)) + 1
        often = allowed if len(draws) < FEW else max(allowed, usual)
        again = sum(max(0, count - often) for count in draws.values())
        if again > SHARE * total:
            yield Finding(
                check="repeated-prompts",
                level="warning" if len(draws) >= FEW else "note",
                what=f"in {epochs[-1]:.2f} epochs {total} prompts were drawn, and only {len(draws)} of them differ: "
                f"{again} draws were of a prompt that had come {often} time{'s' if often > 1 else ''}",
                evidence={"draws": total, "different": len(draws), "epochs": float(epochs[-1])},
                samples=tuple(prompt[:80] for prompt, _ in draws.most_common(3)),
                causes=("the data have duplicates", "a resume began the data anew", "a prompt that is no whole one"),
                fix="count the different prompts of the data; resume with the place in them",
            )
            return
    yield from _in_order(by_step)


def _drawn(history: History) -> dict[int, list[str]]:
    """The different prompts of each step; without steps that use old rollouts again, which TRL then stores again."""
    rows: dict[int, list[tuple[str, str]]] = {}
    for one in history.samples:
        if one.prompt:
            rows.setdefault(one.step, []).append((one.prompt, one.text))
    steps = sorted(rows)
    again = {now for before, now in pairwise(steps) if rows[before] == rows[now]}
    return {step: list(dict.fromkeys(prompt for prompt, _ in rows[step])) for step in steps if step not in again}


def _in_order(by_step: dict[int, list[str]]) -> Iterator[Finding]:
    """The longest stretch of draws each of which came before, after the same prompt as now."""
    draws = [(step, prompt) for step in sorted(by_step) for prompt in by_step[step]]
    last: dict[str, int] = {}
    now, longest, begins, whence = 0, 0, 0, 0
    for at, (_, prompt) in enumerate(draws):
        before = last.get(prompt)
        now = now + 1 if before is not None and at and before and draws[before - 1][1] == draws[at - 1][1] else 0
        if before is not None and now > longest:
            longest, begins, whence = now, at - now, before - now
        last[prompt] = at
    if longest < IN_ORDER or len(last) < 2 * IN_ORDER:
        return
    whole = whence == 0 and begins >= len(last)
    yield Finding(
        check="repeated-prompts",
        level="note" if whole else "warning",
        what=f"from step {draws[begins][0]} on {longest + 1} prompts come in the order in which they came from step "
        f"{draws[whence][0]} on" + (": the data are not shuffled anew" if whole else ""),
        since=draws[begins][0],
        evidence={"prompts": longest + 1, "as from": draws[whence][0], "different": len(last)},
        causes=("rows in the order of the file", "one order for all epochs")
        if whole
        else ("a resume began the data anew",),
        fix="shuffle in each epoch" if whole else "resume with the place in the data",
    )


CHECK = Check(
    name="repeated-prompts",
    asks="whether prompts come again before the others came, or in the same order",
    needs=("samples",),
    look=look,
)
