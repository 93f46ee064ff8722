"""docs/research/faults.md says what catches what: that it names every check, no other, and tests
that are there."""

import re
from pathlib import Path

from plumbline.checks import catalogue

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "research" / "faults.md").read_text(encoding="utf-8")
TABLES = PAGE[PAGE.index("## The failures") :]
SAID = re.compile(r"\b(before|audit|live|after) ((?:`[a-z0-9-]+`(?: \([^)]*\))?(?:, | and )?)+)")


def named(*moments):
    return {
        name
        for moment, names in SAID.findall(TABLES)
        if moment in moments
        for name in re.findall(r"`([a-z0-9-]+)`", names)
    }


def checks(*moments):
    return {name for name, of, _ in catalogue() if set(of) & set(moments)}


def test_the_page_names_every_check_and_no_other():
    assert named("live", "after") == checks("during", "after")
    assert named("live") - checks("during") == set()
    table = (ROOT / "docs" / "reference" / "checks.md").read_text(encoding="utf-8")
    wanted = checks("during", "after")
    assert [
        name for name in wanted if not re.search(rf"^\| {name}( \(note\))? \|", table, re.MULTILINE)
    ] == []


def test_findings_of_the_audit_and_of_the_recipe_are_there():
    source = "".join(
        path.read_text(encoding="utf-8")
        for path in (ROOT / "src/plumbline/checks/audit").glob("*.py")
    )
    assert [
        name for name in named("audit") - checks("reward") if f'check="{name}"' not in source
    ] == []
    assert named("before") - checks("before") == set()


def test_every_check_has_a_name_of_its_own_in_its_moment_and_says_what_it_looks_for():
    listed = list(catalogue())
    pairs = [(name, moment) for name, moments, _ in listed for moment in moments]
    assert len(pairs) == len(set(pairs))
    assert [name for name, moments, said in listed if not moments or not said.endswith(".")] == []


def test_every_test_that_the_page_names_is_there():
    rows = [row.split("|")[-2].strip() for row in TABLES.splitlines() if row.startswith("| ")]
    places = [row.partition(": ") for row in rows if row not in {"test", ""}]
    assert len(places) > 60
    for file, _, what in places:
        assert what in (ROOT / "tests" / file).read_text(encoding="utf-8"), (file, what)
