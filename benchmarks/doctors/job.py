"""A run that is to be made, and what is the matter with it."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Job:
    """One run in a folder of its own."""

    name: str
    trainer: str
    """trl or plumbline."""
    stage: str
    """The stage that is looked at: base, sft or rl."""
    make: Callable[[Path], None]
    fault: str = ""
    """What was planted: a key of faults.yaml; empty in a healthy run."""
