"""What a check or an audit found."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Level = Literal["fatal", "warning", "note"]
"""fatal: the result is false, or there will be none. warning: it is likely worse than it could be. note: no fault, but
what a reader of the figures must know."""
LEVELS: tuple[Level, ...] = ("fatal", "warning", "note")


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong, with what says so."""

    check: str
    level: Level
    what: str
    """One sentence."""
    since: int | None = None
    """The step from which on it can be seen."""
    evidence: Mapping[str, Any] = field(default_factory=dict)
    """Figures by name."""
    samples: tuple[str, ...] = ()
    """Ids of completions that show it."""
    causes: tuple[str, ...] = ()
    """The likely ones, the likeliest first."""
    fix: str = ""
    about: str = ""
    """Which part, task or evaluation it is of, where a check looks at several."""
    change: Mapping[str, Any] = field(default_factory=dict)
    """What to change in the recipe, by key, where that is known."""
