"""A clip that never acts, where it could."""

from collections.abc import Iterator

from plumbline.checks.diagnosis.check import Check
from plumbline.checks.diagnosis.facts import level, likely, zeros
from plumbline.checks.diagnosis.finding import Finding
from plumbline.checks.diagnosis.history import History

MOVED = 0.01
"""Nats to the reference: the rate moves the policy."""


def look(history: History) -> Iterator[Finding]:
    """With one update a batch the ratio is 1 by construction: that is no fault, and often taken for one."""
    values = history["clip"].values
    if len(values) < 10 or not zeros(history["clip"], 1e-300).all():
        return
    epochs = history.settings.get("rl.inner_epochs")
    several = isinstance(epochs, int) and epochs > 1
    yield Finding(
        check="clip-idle",
        level="warning" if several else "note",
        what="no term was ever clipped"
        + (
            f", although each batch is used {epochs} times: the old log-probabilities are the new ones"
            if several
            else ": where each batch is used once the ratio is 1 and a clip cannot act"
        ),
        evidence={"steps": len(values), "uses of a batch": epochs},
        causes=likely(
            history,
            "old log-probabilities computed with the weights that are being trained",
            ("a rate too low to move a ratio", lambda run: level(run["kl"]) > MOVED),
        )
        if several
        else (),
        fix="take the log-probabilities that were recorded when the answers were drawn" if several else "",
    )


CHECK = Check(
    name="clip-idle", asks="whether the clip ever acted where it could", needs=("clip",), look=look, live=False
)
