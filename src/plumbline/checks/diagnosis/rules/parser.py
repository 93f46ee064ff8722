"""A reader of answers that rejects what a lenient one accepts: right answers are charged for how they are written."""

from collections.abc import Iterator

import numpy as np

from plumbline.checks.diagnosis.check import Check
from plumbline.checks.diagnosis.finding import Finding
from plumbline.checks.diagnosis.history import History

SOME, MANY = 0.05, 0.2
"""Of the highest reward, that the strict reading takes away."""


def look(history: History) -> Iterator[Finding]:
    """The strict reading against the lenient one, where a rubric has both, over the run."""
    for name in history.names("reading/"):
        task, _, reading = name.rpartition("/")
        if reading != "strict" or not len(lenient := history[f"reading/{task + '/' if task else ''}lenient"]):
            continue
        reward = history[f"task/{task}" if task else "reward"]
        strict = history[f"reading/{name}"]
        lost = float(np.nanmean(lenient.values) - np.nanmean(strict.values))
        paid_strictly = len(reward) > 0 and abs(np.nanmean(reward.values) - np.nanmean(strict.values)) < 1e-6 < lost
        if lost < SOME:
            continue
        yield Finding(
            check="parser",
            level=("fatal" if lost >= MANY else "warning") if paid_strictly else "note",
            what=f"read strictly, answers{f' to {task}' if task else ''} earn {np.nanmean(strict.values):.3f}; read "
            "as they "
            f"are meant, {np.nanmean(lenient.values):.3f}",
            evidence={"lenient": float(np.nanmean(lenient.values)), "strict": float(np.nanmean(strict.values))},
            about=task,
            causes=("the parser rejects what people write: decimal commas, fences, prose around an object",),
            fix="reward the lenient reading, and charge form by itself",
            change={"task.options.reading": "lenient"} if paid_strictly else {},
        )


CHECK = Check(
    name="parser",
    asks="whether a strict parser rejects answers that are right as meant",
    needs=("reading/",),
    look=look,
)
