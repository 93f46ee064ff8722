"""The trial of public graders: its labels are counted as its table says, and installed graders do
what is written."""

import pytest

from benchmarks.graders import TABLE, Case, Outcome, cases, in_form, installed, reproduce, trial

SMALL = ("TRL think_format_reward", "jsonschema validate")


def test_a_verdict_counts_by_its_label_and_the_contract():
    outcome = Outcome([(Case("a", "4", text, right, counts), score) for text, right, counts, score in (
        ("4", True, True, 1.0), ("four", True, True, 0.5), ("14", False, True, 1.0), ("5", False, False, 1.0),
        ("nan", False, True, float("nan")),
    )])  # fmt: skip
    outcome.raised.append((Case("a", "4", "4.", True, True), "ValueError"))
    assert outcome.flags(right=True) == [False, True, True]
    assert outcome.flags(right=False) == [True, False]
    assert outcome.flags(right=False, counts=False) == [True]
    assert {what: case.text for (what, _), case in outcome.defects().items()} == {
        "paid": "14",
        "refused": "four",
        "raised": "4.",
    }


def test_a_text_is_put_into_the_graders_form():
    assert in_form("#### {}", "72") == "#### 72"
    assert in_form("#### {}", "No 72.\n«73»") == "No 72.\n#### 73"


def test_no_text_has_two_labels():
    for grader in TABLE["graders"]:
        if grader["of"] != "gym":
            labels = {}
            for case in cases(grader):
                assert labels.setdefault((case.gold, case.text), case.right) == case.right, case


@pytest.mark.parametrize("name", SMALL)
def test_a_small_grader_takes_what_is_right_and_plain(name):
    (grader,) = [one for one in TABLE["graders"] if one["name"] == name]
    if installed(grader["package"]) is None:
        pytest.skip(f"{grader['package']} is not installed: pip install {grader['package']}")
    outcome = trial(grader)
    assert outcome.flags(right=True)
    assert not any(outcome.flags(right=True))
    assert len(outcome.flags(right=False)) > 20


@pytest.mark.parametrize("defect", TABLE["defects"], ids=lambda one: one["of"])
def test_a_defect_is_as_it_was_found(defect):
    if installed(defect["package"]) is None:
        pytest.skip(f"{defect['package']} is not installed: pip install {defect['package']}")
    reward, stands = reproduce(defect)
    assert stands, reward
