"""Tables that people read and correct: YAML files beside the code that uses them."""

from pathlib import Path
from typing import Any

import yaml

# Nothing but text, lists and mappings, so that a word such as "no" stays a word and 0.10 stays
# 0.10; in C where that is built in, which is ten times as fast.
_LOADER = yaml.CBaseLoader if yaml.__with_libyaml__ else yaml.BaseLoader


def read_table(path: Path) -> Any:
    """What a file holds: mappings and lists of texts, numbers as they are written."""
    return yaml.load(path.read_text(encoding="utf-8"), Loader=_LOADER)  # noqa: S506 - it makes texts and nothing else


def read_tables(folder: Path) -> dict[str, Any]:
    """The files of a folder by name, without their ending, in the order of the alphabet."""
    return {path.stem: read_table(path) for path in sorted(folder.glob("*.yaml"))}
