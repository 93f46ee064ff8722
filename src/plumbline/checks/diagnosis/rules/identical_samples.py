"""The completions of a group are one text from the first steps on: nothing is drawn, or all by one stream of draws."""

from collections import defaultdict
from collections.abc import Iterator

from plumbline.checks.diagnosis.check import Check
from plumbline.checks.diagnosis.finding import Finding
from plumbline.checks.diagnosis.history import History

MOST = 0.6
EARLY = 0.25
"""Of the run: later a solved prompt may well be answered in one way."""


def look(history: History) -> Iterator[Finding]:
    """Groups of at least three completions of the first quarter of the steps."""
    steps = sorted({sample.step for sample in history.samples})
    early = set(steps[: max(1, round(EARLY * len(steps)))])
    groups: dict[tuple[int, str], list[str]] = defaultdict(list)
    for sample in history.samples:
        if sample.step in early and sample.prompt:
            groups[sample.step, sample.prompt].append(sample.text)
    whole = {key: texts for key, texts in groups.items() if len(texts) >= 3}
    same = [key for key, texts in whole.items() if len(set(texts)) == 1]
    if len(whole) < 4 or len(same) / len(whole) < MOST:
        return
    yield Finding(
        check="identical-samples",
        level="fatal",
        what=f"in {len(same)} of {len(whole)} groups of the first steps all completions are the same text",
        since=min(same)[0],
        evidence={"groups": len(whole), "with one text": len(same)},
        samples=tuple(key[1][:80] for key in same[:3]),
        causes=(
            "a temperature near 0",
            "one seed for every copy of a prompt",
            "an order of positions that is not drawn",
        ),
        fix="draw at the temperature 1, each copy with its own random numbers",
        change={"sampling.temperature": 1.0},
    )


CHECK = Check(
    name="identical-samples",
    asks="whether the completions of a group are all the same from the start",
    needs=("samples",),
    look=look,
    explains=("no-signal", "zero-variance-groups", "dead-part", "entropy", "degenerate-output"),
)
