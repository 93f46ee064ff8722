"""docs/research/faults.md says what catches what: that it names every check, no other, and tests
that are there. docs/symptoms.md says what a user sees first."""

import json
import re
from pathlib import Path

import pytest

from plumbline.checks.audit.checks import CHECKS as OF_A_REWARD
from plumbline.checks.diagnosis.rules import CHECKS as OF_RECORDS
from plumbline.checks.preflight.report import CHECKS as BEFORE
from tests.doorstep.findings import LOUD, run

EVERY = (*BEFORE, *OF_RECORDS, *OF_A_REWARD)
ROOT = Path(__file__).parents[2]
SYMPTOMS = (ROOT / "docs" / "symptoms.md").read_text(encoding="utf-8")
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
    return {one.name for one in EVERY if {*one.moments} & {*moments}}


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
    pairs = [(one.name, moment) for one in EVERY for moment in one.moments]
    assert len(pairs) == len(set(pairs))
    first = {one.name: " ".join(one.look.__doc__.partition("\n\n")[0].split()) for one in EVERY}
    assert [name for name, said in first.items() if not said.endswith(".")] == []


def test_every_test_that_the_page_names_is_there():
    rows = [row.split("|")[-2].strip() for row in TABLES.splitlines() if row.startswith("| ")]
    places = [row.partition(": ") for row in rows if row not in {"test", ""}]
    assert len(places) > 60
    for file, _, what in places:
        assert what in (ROOT / "tests" / file).read_text(encoding="utf-8"), (file, what)


@pytest.mark.parametrize(
    ("symptom", "log"),
    [
        ("The reward is flat", "doorstep/logs/trl-grpo-rate-1e-9"),
        ("The reward stays 0", "doorstep/logs/trl-grpo-zero"),
        ("The reward stays 0", "doorstep/logs/trl-grpo-all-cut"),
        ("The reward collapses", "doorstep/logs/trl-grpo-collapse"),
        ("The reward collapses", "doorstep/logs/trl-console-nan.log"),
        ("The reward rises and quality falls", "doorstep/logs/trl-grpo-hacked"),
        ("The reward rises and quality falls", "doorstep/logs/trl-grpo-eval-falls"),
        (
            "The reward rises and quality falls",
            "public_reports/10-openr1-255-format-eats-accuracy",
        ),
        ("Answers grow longer and longer", "doorstep/logs/trl-grpo-length-paid"),
        ("The loss is 0", "public_reports/12b-trl-6668-some-batches-without-target"),
    ],
)
def test_a_symptom_names_what_check_finds_in_a_log_that_has_it(symptom, log):
    section = re.search(rf"^## {symptom}\n(.+?)^## ", SYMPTOMS, re.MULTILINE | re.DOTALL)[1]
    _, out, err = run("check", log, "--json", folder=ROOT / "tests")
    (stage,) = json.loads(out)["stages"]
    loud = {finding["check"] for finding in stage["findings"] if finding["level"] in LOUD}
    assert loud & set(re.findall(r"`([a-z-]+)`", section)), (loud, err)


def test_the_symptoms_name_checks_that_exist_on_a_short_page():
    listed = set(re.findall(r": ((?:`[a-z-]+`(?:, )?)+)", SYMPTOMS))
    names = {name for one in listed for name in re.findall(r"`([a-z-]+)`", one)}
    assert len(names) > 15
    assert names <= checks("during", "after")
    assert len(SYMPTOMS.split()) <= 400
