"""Sampler and scorer are two laws: temperature, filters, masks, stale weights, or 16 bits."""

from collections.abc import Iterator

import numpy as np

from plumbline.diagnosis.check import Check, stood
from plumbline.diagnosis.finding import Finding
from plumbline.diagnosis.history import History

LIMIT = 0.1
"""Nats a choice: two engines in 16 bits differ by about .01 to .05 (trl#5312 had .015, and .201 with stale weights)."""
SOME = 0.05
WINDOW = 10
GROWS = 4.0


def look(history: History) -> Iterator[Finding]:
    """The mean gap now, and whether it widened; then what importance ratios say where no gap is logged."""
    series = history["gap"]
    values = series.values[np.isfinite(series.values)]
    if len(values) >= 3:
        first, last = float(np.median(values[:WINDOW])), float(np.median(values[-WINDOW:]))
        widened = len(values) >= 2 * WINDOW and last > GROWS * max(first, 0.005) and last > SOME / 2
        if last > SOME or widened:
            yield Finding(
                check="gap",
                level="fatal" if last > LIMIT else "warning",
                what=f"sampler and scorer differ by {last:.3f} nats a choice"
                + (f"; at first by {first:.3f}" if widened else ""),
                since=int(series.steps[np.argmax(series.values > (SOME / 2 if widened else SOME))]),
                evidence={"first": first, "last": last, "highest": float(values.max())},
                causes=(
                    (
                        "the sampler has old weights (a failed or cached transfer)",
                        "the policy became sharper in 16 bits",
                    )
                    if widened
                    else ("another temperature, top-p or top-k than the scorer's", "another template or other tokens")
                ),
                fix="compare log-probabilities of one answer in both; publish the weights again, or correct by "
                "truncated importance sampling",
            )
            return
    yield from _ratios(history)


def _ratios(history: History) -> Iterator[Finding]:
    mean, highest = history["ratio_mean"], history["ratio_max"]
    off = np.isfinite(mean.values) & ((mean.values > 1.5) | (mean.values < 0.67))
    if len(mean) >= 5 and off[-WINDOW:].mean() > 0.5:
        yield Finding(
            check="gap",
            level="warning",
            what=f"importance ratios are {np.median(mean.values[-WINDOW:]):.3g} in the mean; drawn and scored by one "
            "law they "
            "are 1",
            since=int(mean.steps[off][0]),
            evidence={"mean": float(np.median(mean.values[-WINDOW:]))},
            causes=("the sampler draws by another law or with old weights",),
            fix="compare log-probabilities of one answer in sampler and scorer",
        )
    elif len(highest) >= 5 and np.nanmedian(highest.values[-WINDOW:]) > 100:
        yield Finding(
            check="gap",
            level="warning",
            what=f"importance ratios go up to {np.nanmedian(highest.values[-WINDOW:]):.3g} at most steps",
            since=int(highest.steps[np.argmax(highest.values > 100)]),
            evidence={"highest": float(np.nanmax(highest.values))},
            causes=("the sampler draws by another law or with old weights",),
            fix="compare log-probabilities of one answer in sampler and scorer; truncate the ratios",
        )


def _stops(history: History, since: int) -> bool:
    """Not below what the recipe allows."""
    allowed = history.settings.get("rl.max_gap") or LIMIT
    return stood(10)(history, since) and bool(np.nanmedian(history["gap"].last(WINDOW).values) > allowed)


CHECK = Check(
    name="gap",
    asks="whether what draws and what scores are one law",
    needs=("gap|ratio_mean|ratio_max",),
    look=look,
    stops=_stops,
)
