"""Examples that were trained on and evaluated on."""

from collections.abc import Iterator

from plumbline.checks.diagnosis.check import Check
from plumbline.checks.diagnosis.finding import Finding
from plumbline.checks.diagnosis.history import History


def look(history: History) -> Iterator[Finding]:
    """By their ids, for each held-out split of each task."""
    trained = {one.prompt for one in history.samples}
    by_split: dict[str, set[str]] = {}
    for final in history.finals:
        if final.split != "train":
            where = f"{final.task} {final.split}".strip()
            by_split.setdefault(where, set()).update(row.id for row in final.evaluation.rows)
    for where, ids in by_split.items():
        if shared := sorted(ids & trained):
            yield Finding(
                check="overlap",
                level="fatal",
                what=f"{len(shared)} of {len(ids)} examples of {where} were trained on",
                evidence={"shared": len(shared), "of": len(ids)},
                samples=tuple(shared[:3]),
                causes=("splits that are not disjoint", "an evaluation on a slice of the training rows"),
                fix="evaluate on examples that no stage has seen",
            )


CHECK = Check(
    name="overlap",
    asks="whether examples that were trained on are evaluated on",
    needs=("samples", "finals"),
    look=look,
    live=False,
)
