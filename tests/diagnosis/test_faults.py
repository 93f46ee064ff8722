"""docs/faults.md says what catches what: that it names every check, no other, and tests that are there."""

import re
from importlib.util import find_spec
from pathlib import Path

import pytest

from plumbline.checks.diagnosis.rules import CHECKS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "faults.md").read_text(encoding="utf-8")
TABLES = PAGE[PAGE.index("## The failures") :]
SAID = re.compile(r"\b(before|audit|live|after) ((?:`[a-z0-9-]+`(?: \([^)]*\))?(?:, | and )?)+)")


def named(*moments):
    return {
        name
        for moment, names in SAID.findall(TABLES)
        if moment in moments
        for name in re.findall(r"`([a-z0-9-]+)`", names)
    }


def test_the_page_names_every_check_and_no_other():
    checks = {check.name: check for check in CHECKS}
    assert named("live", "after") == set(checks)
    assert [name for name in named("live") if not getattr(checks[name], "live", True)] == []
    table = (ROOT / "docs" / "check.md").read_text(encoding="utf-8")
    assert [name for name in checks if not re.search(rf"^\| {name}( \(note\))? \|", table, re.MULTILINE)] == []


def test_findings_of_the_audit_and_of_the_recipe_are_there():
    source = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "src/plumbline/checks/audit").glob("*.py"))
    assert [name for name in named("audit") if f'"{name}"' not in source] == []
    if find_spec("plumbline.checks.preflight") is None:
        pytest.skip("no checks of a recipe")
    from plumbline.checks.preflight.report import CHECKS as BEFORE

    assert named("before") - {check.name for check in BEFORE} == set()


def test_every_test_that_the_page_names_is_there():
    rows = [row.split("|")[-2].strip() for row in TABLES.splitlines() if row.startswith("| ")]
    places = [row.partition(": ") for row in rows if row not in {"test", ""}]
    assert len(places) > 60
    for file, _, what in places:
        assert what in (ROOT / "tests" / file).read_text(encoding="utf-8"), (file, what)
