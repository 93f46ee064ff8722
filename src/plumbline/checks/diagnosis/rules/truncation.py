"""Completions at the ceiling: cut before they end, so what is judged is not what was meant."""

from collections.abc import Iterator

import numpy as np

from plumbline.checks.diagnosis.check import Check, stood
from plumbline.checks.diagnosis.facts import likely
from plumbline.checks.diagnosis.finding import Finding
from plumbline.checks.diagnosis.history import History
from plumbline.checks.diagnosis.rules.length import paid
from plumbline.checks.diagnosis.trends import finite, trend

MOST, SOME = 0.9, 0.3
WINDOW = 10


def look(history: History) -> Iterator[Finding]:
    """Of the last window; and marks of completions that count as cut and are not."""
    series = history["truncated"]
    last = series.last(WINDOW).values
    last = last[np.isfinite(last)]
    if len(last) < 3:
        return
    share, first = float(last.mean()), float(np.nanmean(series.values[:WINDOW]))
    longest = _longest(history)
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
        learns = not rose and _rises(history)
        yield Finding(
            check="truncation",
            level=("warning" if learns else "fatal")
            if share >= MOST and len(series) >= 5
            else "note"
            if learns
            else "warning",
            what=f"{share:.0%} of the completions of the last {len(last)} logged steps are cut by the limit"
            + (f"; at first {first:.0%} were" if rose else "; the reward rises all the same" if learns else ""),
            since=int(series.steps[np.argmax(series.values >= SOME)]),
            evidence={"share": round(share, 3), "at first": round(first, 3), "limit": ceiling},
            causes=likely(
                history, ("length is paid, or not charged", lambda run: not paid(run)), "the end is never drawn"
            )
            if rose
            else ("the limit is too low for this task", "the model never learnt to end: no SFT, or a wrong template"),
            fix="raise the limit, or show answers that end in SFT",
            change={"sampling.max_tokens": 2 * ceiling} if isinstance(ceiling, int) else {},
        )


def _rises(history: History) -> bool:
    """Whether the reward rises: by a line, or from the first tenth to the last third, as where it rises at once."""
    values = finite(history["reward"].values)
    if len(values) < 12:
        return trend(values).t > 3
    first, last = values[: max(4, len(values) // 10)], values[-len(values) // 3 :]
    error = (first.var() / len(first) + last.var() / len(last)) ** 0.5
    return trend(values).t > 3 or bool(last.mean() - first.mean() > 4 * error)


def _longest(history: History) -> np.ndarray:
    """The longest completions of those steps of the last window in which some was cut for sure.

    Where only every k-th step is logged, what is logged is a mean of k, and in some of those nothing may have been cut:
    in all of them it was where more than 1 - 1/k of the completions were.
    """
    series, longest = history["truncated"].last(WINDOW), history["length_max"]
    every = int(np.median(np.diff(history["truncated"].steps))) if len(history["truncated"]) > 1 else 1
    sure = series.steps[series.values > 1 - 1 / max(every, 1)]
    found = longest.values[np.isin(longest.steps, sure)]
    # A length of half a token is a mean over batches, of which some had no answer at the limit.
    return found[found == np.round(found)]


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
    stops=lambda history, since: stood(30)(history, since) and trend(history["truncated"].values).t > -2,
)
