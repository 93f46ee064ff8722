"""Completions that nobody could judge: a verifier that fails is no wrong answer."""

from collections.abc import Iterator

import numpy as np

from plumbline.checks.diagnosis.check import Check
from plumbline.checks.diagnosis.finding import Finding
from plumbline.checks.diagnosis.history import History

SOME, MANY = 0.02, 0.2


def look(history: History) -> Iterator[Finding]:
    """The share over the run."""
    series = history["failed"]
    share = float(np.nanmean(series.values))
    if share < SOME:
        return
    yield Finding(
        check="unjudged",
        level="fatal" if share >= MANY else "warning",
        what=f"{share:.1%} of the completions could not be judged",
        since=int(series.steps[np.argmax(series.values > 0)]),
        evidence={"share": round(share, 4), "worst step": float(np.nanmax(series.values))},
        causes=("the world behind the verifier (a browser, a database) fails", "the verifier raises on some texts"),
        fix="look at the failures in samples.jsonl",
    )


CHECK = Check(name="unjudged", asks="whether verdicts failed", needs=("failed",), look=look)
