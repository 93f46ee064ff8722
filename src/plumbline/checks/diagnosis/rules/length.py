"""The length of completions runs away or shrinks to nothing, and the reward with it or in spite of it."""

from collections.abc import Iterator

import numpy as np

from plumbline.checks.diagnosis.check import Check
from plumbline.checks.diagnosis.facts import likely
from plumbline.checks.diagnosis.finding import Finding
from plumbline.checks.diagnosis.history import History
from plumbline.checks.diagnosis.trends import finite, trend

TIMES = 3.0
SHORT = 0.2
ENOUGH = 20


def look(history: History) -> Iterator[Finding]:
    """The first tenth of the steps against the last."""
    series = history["length"]
    values = finite(series.values)
    if len(values) < ENOUGH:
        return
    width = max(3, len(values) // 10)
    first, last = float(np.median(values[:width])), float(np.median(values[-width:]))
    reward = trend(history["reward"].values)
    if last > TIMES * max(first, 1) and last - first > 20:
        falls = reward.t < -2
        yield Finding(
            check="length",
            level="warning" if falls or reward.t < 2 else "note",
            what=f"completions grew from {first:.0f} to {last:.0f} tokens"
            + ("" if reward.t >= 2 else " and earn no more for it"),
            since=int(series.steps[np.argmax(series.values > TIMES * max(first, 1))]),
            evidence={"first": first, "last": last, "reward: t": float(np.clip(reward.t, -99, 99))},
            causes=likely(
                history,
                ("length is paid", lambda run: not paid(run)),
                "wrong answers are charged less a token the longer they are (length in the loss)",
                "the end of the text is no longer learnt",
            ),
            fix="charge length, or use a loss with a constant denominator",
        )
    elif first >= 5 and last < SHORT * first:
        yield Finding(
            check="length",
            level="warning",
            what=f"completions shrank from {first:.0f} to {last:.0f} tokens",
            since=int(series.steps[np.argmax(series.values < SHORT * first)]),
            evidence={"first": first, "last": last, "reward: t": float(np.clip(reward.t, -99, 99))},
            causes=("short answers earn as much: a cheat", "an end of text that is drawn too early"),
            fix="look at the shortest completions and their rewards",
        )


def paid(history: History) -> bool:
    """Whether length may be what is paid: the reward or a part of it rises with it."""
    names = ("reward", *(f"part/{name}" for name in history.names("part/")))
    return any(trend(history[name].values).t > 2 for name in names)


CHECK = Check(
    name="length",
    asks="whether completions grew or shrank out of measure",
    needs=("length",),
    look=look,
)
