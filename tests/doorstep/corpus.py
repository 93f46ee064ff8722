"""The inputs of the corpus, and the verdict on what Plumbline makes of one."""

import importlib
from pathlib import Path
from typing import Any

import yaml

KINDS = ("scripts", "rows", "rewards", "logs")
VERDICTS = ("right", "unclear", "wrong", "silently wrong")
"""right: what `answers.yaml` says. unclear: not that, but a true word about it and nothing false,
such as an error that names what is missing, a TODO, a note in the place of a finding. wrong:
something false is said, or a traceback. silently wrong: another result than the right one, without
a word that a reader would notice."""


def answers(kind: str) -> dict[str, Any]:
    """What is right, by the name of the input."""
    return yaml.safe_load(
        (Path(__file__).parent / kind / "answers.yaml").read_text(encoding="utf-8")
    )


def names(kind: str) -> list[str]:
    """The inputs of a kind."""
    return sorted(answers(kind))


def grade(kind: str, name: str) -> tuple[str, str]:
    """The verdict on one input, and why."""
    verdict, why = importlib.import_module(f"tests.doorstep.{kind}").grade(
        name, answers(kind)[name]
    )
    assert verdict in VERDICTS, verdict
    return verdict, why
