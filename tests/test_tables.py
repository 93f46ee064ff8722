"""The tables of the environments: YAML in which no key stands twice, and that both readers read
alike."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from plumbline.config.overrides import read_yaml
from plumbline.tasks.tables import read_table

ENVIRONMENTS = Path(__file__).parents[1] / "environments"
FILES = sorted(
    path for path in ENVIRONMENTS.glob("*/src/**/*.yaml") if path.parent.name != "recipes"
)


def texts(value: Any) -> Iterator[str]:
    """The leaves, in order; mappings give their keys, too."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield key
            yield from texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from texts(inner)
    else:
        yield value


@pytest.mark.parametrize("path", FILES, ids=lambda path: "/".join(path.parts[-3:]))
def test_a_data_file_names_nothing_twice_and_holds_only_text(path):
    written = path.read_text(encoding="utf-8")
    read_yaml(written, path.name)  # raises where a key stands twice
    assert written.startswith("#"), "its first line says what is in it"
    leaves = list(texts(read_table(path)))
    assert len(leaves) > 3
    for text in leaves:
        assert isinstance(text, str)
        assert text, "an entry is empty"
    assert not [line for line in written.splitlines() if line != line.rstrip() or "\t" in line]
