"""Completions at the ceiling: cut before they end, so what is judged is not what was meant."""

from collections.abc import Iterator

import numpy as np

from plumbline.diagnosis.check import Check
from plumbline.diagnosis.finding import Finding, Level
from plumbline.diagnosis.history import History
from plumbline.diagnosis.trends import trend

MOST, SOME = 0.9, 0.3
WINDOW = 10
LEVELS: tuple[Level, ...] = ("note", "warning", "fatal")


def look(history: History) -> Iterator[Finding]:
    """Of the last window; and marks of completions that count as cut and are not."""
    series = history["truncated"]
    last = series.last(WINDOW).values
    last = last[np.isfinite(last)]
    if len(last) < 3:
        return
    share, first = float(last.mean()), float(np.nanmean(series.values[:WINDOW]))
    longest = history["length_max"].last(WINDOW).values
    ceiling = history.settings.get("sampling.max_tokens")
    shorter = len(longest) >= 5 and share > 0.05 and _under(longest, ceiling)
    if shorter:
        yield Finding(
            check="truncation",
            level="warning",
            what=f"{share:.0%} of the completions count as cut by the limit, but the longest has {longest.max():.0f} "
            "tokens "
            f"at most and {longest.min():.0f} at least: no limit cut them",
            evidence={"share": round(share, 3), "longest": float(longest.max()), "limit": ceiling},
            causes=("the model ends with a second end-of-text token, which the trainer does not know",),
            fix="give the trainer every id that ends a text (generation_config.eos_token_id)",
        )
    elif share >= SOME:
        rose = share > first + 0.2
        learns = trend(history["reward"].values).t > 3 and not rose
        yield Finding(
            check="truncation",
            # Where nearly all are cut and it learns all the same, it learns what is paid before the end: a warning.
            level=LEVELS[(share >= MOST and len(series) >= 5) + (not learns)],
            what=f"{share:.0%} of the completions of the last {len(last)} logged steps are cut by the limit"
            + (f"; at first {first:.0%} were" if rose else "; the reward rises all the same" if learns else ""),
            since=int(series.steps[np.argmax(series.values >= SOME)]),
            evidence={"share": round(share, 3), "at first": round(first, 3), "limit": ceiling},
            causes=(
                ("length is paid, or not charged", "the end of the text is never drawn")
                if rose
                else (
                    "the limit is too low for this task",
                    "the model never learnt to end: no SFT, or a wrong template",
                )
            ),
            fix="raise the limit, or show answers that end in SFT",
            change={"sampling.max_tokens": 2 * ceiling} if isinstance(ceiling, int) else {},
        )


def _under(longest: np.ndarray, ceiling: object) -> bool:
    """Whether the longest completion of steps is below the ceiling; without a known one it would be the same in all."""
    if isinstance(ceiling, int | float):
        return bool(longest.max() < ceiling)
    return bool(np.unique(longest).size > 0.8 * len(longest))


CHECK = Check(
    name="truncation",
    asks="whether completions are cut at the limit, or counted as cut though they are not",
    needs=("truncated",),
    look=look,
)
