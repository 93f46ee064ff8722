"""Sampler and scorer are two distributions: temperature, filters, masks, stale weights, or 16 bits."""

from collections.abc import Iterator

import numpy as np

from plumbline.checks.diagnosis.check import Check, stood
from plumbline.checks.diagnosis.facts import agree, level, likely
from plumbline.checks.diagnosis.finding import Finding
from plumbline.checks.diagnosis.history import History
from plumbline.checks.diagnosis.trends import finite

LIMIT, LIMIT_KL = 0.1, 0.05
"""Nats a choice: two engines in 16 bits differ by about .01 to .05 (trl#5312 had .015, and .201 with stale weights).
Of a KL divergence between them, which is about half the square of what single tokens differ by: .0005 to .005 there."""
ALWAYS_KL = 0.2
"""Where it was as high at first: filters of the sampler and asynchronous training have some."""
SOME, SOME_KL = 0.05, 0.03
LEAST, LEAST_KL = 0.005, 0.001
"""What it is taken to be at first, if it was less."""
WINDOW = 10
GROWS = 4.0


def look(history: History) -> Iterator[Finding]:
    """The mean gap now, and whether it widened; the KL divergence; then importance ratios."""
    found = _measured(history, "gap", SOME, LIMIT, LEAST) or _measured(history, "gap_kl", SOME_KL, LIMIT_KL, LEAST_KL)
    yield from [found] if found is not None else _ratios(history)


def _measured(history: History, name: str, some: float, limit: float, least: float) -> Finding | None:
    """What a logged difference says of itself."""
    good = np.isfinite(history[name].values)
    steps, values = history[name].steps[good], np.abs(history[name].values[good])
    if len(values) < 3:
        return None
    first, last = float(np.median(values[:WINDOW])), float(np.median(values[-WINDOW:]))
    widened = len(values) >= 2 * WINDOW and last > GROWS * max(first, least) and last > some / 2
    if not (last > some or widened):
        return None
    over = values > (GROWS / 2 * max(first, least) if widened else some)
    return Finding(
        check="gap",
        level="fatal" if last > (limit if widened or name == "gap" else ALWAYS_KL) else "warning",
        what=(
            f"sampler and scorer differ by {last:.3f} nats a choice"
            if name == "gap"
            else f"the KL divergence between sampler and scorer is {last:.3f} nats a token"
        )
        + (f"; at first by {first:.3f}" if widened and name == "gap" else f"; at first {first:.4f}" if widened else ""),
        since=int(steps[np.argmax(over)]),
        evidence={"first": first, "last": last, "highest": float(values.max())},
        causes=likely(
            history,
            "the sampler has old weights (a failed or cached transfer)",
            "its cache of prompts holds states of old weights",
            ("the policy became sharper in 16 bits", _not_sharper),
        )
        if widened
        else ("another temperature, top-p or top-k than the scorer's", "another template or other tokens"),
        fix="compare log-probabilities of one answer in both; publish the weights again, or correct by "
        "truncated importance sampling",
    )


def _not_sharper(history: History) -> bool:
    """Whether the entropy is logged and did not fall."""
    values = finite(history["entropy"].values)
    return len(values) >= 2 * WINDOW and bool(np.median(values[-WINDOW:]) > 0.9 * np.median(values[:WINDOW]))


def _ratios(history: History) -> Iterator[Finding]:
    """Ratios alone cannot tell another sampler from products over a whole answer; a logged difference can."""
    mean, highest = history["ratio_mean"], history["ratio_max"]
    off = np.isfinite(mean.values) & ((mean.values > 1.5) | (mean.values < 0.67))
    far = len(highest) >= 5 and level(highest) > 100
    if len(mean) >= 5 and off[-WINDOW:].mean() > 0.5:
        found, since = float(np.median(mean.values[-WINDOW:])), int(mean.steps[off][0])
        what = f"importance ratios are {found:.3g} in the mean"
    elif far:
        found, since = level(highest), int(highest.steps[np.argmax(highest.values > 100)])
        what = f"importance ratios go up to {found:.3g} at most steps"
    else:
        return
    most = max(finite(highest.values), default=np.inf)
    product = "ratios are a product over a whole answer" + (
        f", cut at {most:.3g}" if most < 100 else ", and perhaps cut at a limit"
    )
    if agree(history):
        known = "gap" if len(history["gap"]) else "gap_kl"
        size = f"{'differ' if known == 'gap' else 'have a KL divergence of'}{' by' if known == 'gap' else ''}"
        what += f", but sampler and scorer {size} {abs(level(history[known])):.2g} nats a token: the sampler is right"
        causes: tuple[str, ...] = (
            f"{product}: small differences of many tokens multiply, and the whole batch is weighed down",
        )
        fix = "take ratios by token, or the mean over an answer's tokens (sequence_mean) in place of the sum"
    else:
        what += "; where sampler and scorer are one distribution they are 1"
        causes = ("the sampler has another temperature, other filters or old weights", product)
        fix = "compare log-probabilities of one answer in sampler and scorer" + (
            "; truncate the ratios" if far else "; where they agree, take ratios by token"
        )
    yield Finding(
        check="gap",
        level="warning",
        what=what,
        since=since,
        evidence={"ratio": found, "gap": level(history["gap"]), "KL divergence": level(history["gap_kl"])},
        causes=causes,
        fix=fix,
    )


def _stops(history: History, since: int) -> bool:
    """Not below what the recipe allows."""
    allowed = history.settings.get("rl.max_gap") or LIMIT
    stands = level(history["gap"]) > allowed or level(history["gap_kl"]) > LIMIT_KL
    return stood(10)(history, since) and stands


CHECK = Check(
    name="gap",
    asks="whether sampler and scorer are one distribution",
    needs=("gap|gap_kl|ratio_mean|ratio_max",),
    look=look,
    stops=_stops,
)
