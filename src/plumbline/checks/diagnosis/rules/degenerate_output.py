"""Completions that are no answers: empty, one sign over and over, or the same for every prompt."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from plumbline.checks.diagnosis.check import Check, stood
from plumbline.checks.diagnosis.finding import Finding
from plumbline.checks.diagnosis.history import History, Sample

MANY, MOST = 0.2, 0.5
EQUAL = 0.01
LONG, FEW = 60, 0.2
"""Rows of four words, and the share of different ones: each comes five times and more. Tables have over half."""
LOOKED_AT = 2000
"""Of the last completions."""
_REPEATED = re.compile(r"(.{1,12}?)\1{19,}", re.DOTALL)
"""The same one to twelve characters twenty times in a row."""


def look(history: History) -> Iterator[Finding]:
    """The last tenth of the completions, at least 16 of them."""
    last = list(history.samples[-LOOKED_AT:])
    last = last[-max(16, len(last) // 2) :]
    if len(last) < 8:
        return
    kinds = {
        "empty": [one for one in last if not one.text.strip()],
        "one piece of text over and over": [
            one for one in last if _REPEATED.search(one.text[:4000]) or _loops(one.text[:4000])
        ],
    }
    for what, found in kinds.items():
        share = len(found) / len(last)
        if share >= MANY:
            yield _finding(what, f"{share:.0%} of the last {len(last)} completions are {what}", share, found)
    if (same := _same(last)) is not None:
        share, found = same
        what = "one text, whatever the prompt"
        yield _finding(what, f"{share:.0%} of the last completions are {what}", share, found)


def _finding(about: str, what: str, share: float, found: Sequence[Sample]) -> Finding:
    rewarded = [one for one in found if (one.reward or 0) > 0.5]
    return Finding(
        check="degenerate-output",
        level="fatal" if share >= MOST else "warning",
        what=what + (f", for example {found[0].text.strip()[:40]!r}" if found[0].text.strip() else ""),
        since=found[0].step,
        evidence={"share": round(share, 3), "of these rewarded above .5": len(rewarded)},
        samples=tuple(dict.fromkeys(one.prompt[:80] for one in found[:3])),
        about=about,
        causes=("a cheat that the reward pays",)
        if len(rewarded) > len(found) / 2
        else (
            "weights that broke (too high a rate, NaN, wrong dtype)",
            "a prompt template that the model does not know",
        ),
        fix="read these completions; go back to a checkpoint before them",
    )


def _loops(text: str) -> bool:
    """Whether it says the same words again and again: of its rows of four few differ."""
    words = text.split()
    rows = list(zip(words, words[1:], words[2:], words[3:], strict=False))
    return len(rows) >= LONG and len(set(rows)) < FEW * len(rows)


def _same(last: Sequence[Sample]) -> tuple[float, list[Sample]] | None:
    """The most frequent text, where it answers many different prompts and is no answer to them.

    Many prompts may have one right answer: it earns much with some and little with others. One that earns the same with
    all of them was not written for any.
    """
    prompts = len({one.prompt for one in last})
    text, count = Counter(one.text.strip() for one in last).most_common(1)[0]
    found = [one for one in last if one.text.strip() == text]
    answered = len({one.prompt for one in found})
    if prompts < 8 or not text or count / len(last) < MANY or answered < max(5, 0.3 * prompts):
        return None
    earned = [one.reward for one in found if one.reward is not None]
    return (count / len(last), found) if not earned or max(earned) - min(earned) < EQUAL else None


CHECK = Check(
    name="degenerate-output",
    asks="whether completions are empty, repeat themselves, or are the same for every prompt",
    needs=("samples",),
    look=look,
    stops=stood(30),  # a base model may begin so, and learn what an answer is
)
