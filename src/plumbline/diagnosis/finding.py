"""What a check found."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Level = Literal["fatal", "warning", "note"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong, or worth knowing, with its evidence and what to do."""

    check: str
    """The check's name."""
    level: Level
    """Fatal: a result would be false, or the time spent on it lost."""
    what: str
    """One sentence for people."""
    since: int | None = None
    """The training step from which on it holds."""
    evidence: Mapping[str, Any] = field(default_factory=dict)
    """Figures by name."""
    samples: tuple[str, ...] = ()
    """Ids of examples that show it."""
    causes: tuple[str, ...] = ()
    """Likely ones, the likeliest first."""
    fix: str = ""
    change: Mapping[str, Any] = field(default_factory=dict)
    """The fix as a change of the recipe, where there is one: values by key."""
