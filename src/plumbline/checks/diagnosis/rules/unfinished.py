"""A run that ended before its steps did."""

from collections.abc import Iterator

from plumbline.checks.diagnosis.check import Check
from plumbline.checks.diagnosis.finding import Finding
from plumbline.checks.diagnosis.history import History


def look(history: History) -> Iterator[Finding]:
    """Where the planned number of steps is known. It may still be going on, so it is a note."""
    planned = history.settings.get("steps")
    if isinstance(planned, int) and not history.finished and history.last_step < planned - 1:
        yield Finding(
            check="unfinished",
            level="note",
            what=f"the records end at step {history.last_step} of {planned}",
            since=history.last_step,
            evidence={"share": round(history.last_step / planned, 3)},
            causes=("the run is going on", "it was stopped"),
            fix="figures are of what was done so far",
        )


CHECK = Check(
    name="unfinished",
    asks="whether all planned steps were made",
    needs=("loss|reward|rate",),
    look=look,
    kinds=("rl", "sft"),
    live=False,
)
