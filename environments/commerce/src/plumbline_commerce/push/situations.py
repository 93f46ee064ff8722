"""The situations of `situations.yaml`, and the concepts that contradict each."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from plumbline.tasks.tables import read_table


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """See `situations.yaml`."""

    name: str
    rows: str
    told: Sequence[str]
    core: frozenset[str]
    also: Sequence[frozenset[str]]
    contradicting: frozenset[str]
    """Concepts that are against it, or the core of another situation and not allowed here."""
    acts: Sequence[str]
    offered: float
    plain: Sequence[str]
    offer: Sequence[str]
    titles: Sequence[str]


@cache
def situations() -> Mapping[str, Situation]:
    """The situations by name."""
    table: dict[str, Any] = read_table(Path(__file__).with_name("situations.yaml"))
    cores = {concept for written in table.values() for concept in written["core"]}
    made = {}
    for name, written in table.items():
        core, also = frozenset(written["core"]), [frozenset(aspect) for aspect in written["also"]]
        allowed = core.union(*also, written["may"])
        made[name] = Situation(
            name=name,
            rows=written["rows"],
            told=written["told"],
            core=core,
            also=also,
            contradicting=frozenset((cores - allowed) | set(written["against"])),
            acts=written["acts"],
            offered=float(written["offered"]),
            plain=written["plain"],
            offer=written.get("offer", ()),
            titles=written["titles"],
        )
    return made
