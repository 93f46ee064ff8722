"""What follows from what: that the table is a graph of codes, and what it makes of findings."""

from graphlib import TopologicalSorter

import pytest

from plumbline.checks.check import (
    FOLLOWS,
    Finding,
    examine,
    mark_consequences,
    read_consequences,
)
from plumbline.checks.diagnosis.rules import CHECKS
from plumbline.checks.messages import read_messages
from tests.diagnosis.test_more_checks import ROSE, log

EDGES, UNDATED = read_consequences()


def expand(name):
    """The findings that a name of the table stands for, each as `check:code`."""
    check, _, code = name.partition(":")
    found = read_messages()[check]["found"]
    assert not code or code in found, name
    return {f"{check}:{one}" for one in ([code] if code else found)}


def test_every_name_of_the_table_is_of_a_check_and_every_figure_is_one_of_either():
    assert all(expand(name) for edge in EDGES for name in (edge.finding, edge.cause))
    assert read_messages().keys() >= UNDATED
    for edge in EDGES:
        figures = {
            figure
            for name in (edge.finding, edge.cause)
            for figure in read_messages()[name.partition(":")[0]].get("figures", ())
        }
        assert not edge.figure or edge.figure in figures, edge
        assert edge.level in ("fatal", "warning", "note")


def test_nothing_follows_from_itself():
    """graphlib raises where there is a circle."""
    graph: dict[str, set[str]] = {}
    for edge in EDGES:
        for one in expand(edge.finding):
            graph.setdefault(one, set()).update(expand(edge.cause))
    assert list(TopologicalSorter(graph).static_order())


def mark(*found, look=0):
    """Checks by what they follow from, of findings by check:code, level, since and evidence."""
    findings = []
    for name, level, *others in found:
        check, _, code = name.partition(":")
        since, evidence = (*others, None, {})[:2] if len(others) < 2 else others
        findings.append(
            Finding(level, code or check, since, evidence or {}, check=check, causes=("x",))
        )
    return {one.check: one for one in mark_consequences(findings, look)}


def test_what_follows_is_a_note_under_the_first_cause_that_was_found():
    found = mark(
        ("truncation:cut", "fatal", 1, {"from start": True}),
        ("no-signal:zero-rewards", "fatal", 1),
        ("dead-part:zero", "warning", 1),
        ("no-rise", "warning", 1),
    )
    assert {name: (one.level, one.follows) for name, one in found.items()} == {
        "truncation": ("fatal", ()),
        "no-signal": ("note", ("truncation",)),
        "dead-part": ("note", ("truncation",)),
        "no-rise": ("note", ("truncation",)),
    }
    assert found["no-rise"].causes == (FOLLOWS,)


@pytest.mark.parametrize(
    ("cause", "follows"),
    [
        (("no-signal:equal-rewards", "fatal", 5), True),
        (("no-signal:equal-rewards", "warning", 5), False),  # the edge wants a fatal one
        (("no-signal:gradient-lost", "fatal", 5), False),  # the rewards differ
        (("no-signal:equal-rewards", "fatal", 35), True),  # within a look
        (("no-signal:equal-rewards", "fatal", 36), False),  # it was seen before
    ],
)
def test_an_edge_wants_a_code_a_level_and_that_the_cause_came_first(cause, follows):
    found = mark(cause, ("dead-part:zero", "warning", 25), look=10)
    assert bool(found["dead-part"].follows) == follows
    assert (found["dead-part"].level == "note") == follows


def test_a_figure_decides_whether_it_follows():
    for figure in (True, False):
        cause = ("truncation:cut", "warning", 1, {"from start": figure})
        found = mark(cause, ("no-signal:zero-rewards", "fatal", 1))
        assert bool(found["no-signal"].follows) == figure


def test_a_cause_is_as_bad_as_what_stands_under_it():
    found = mark(("kl:apart-from-start", "note", 1), ("no-rise", "warning", 1))
    assert (found["kl"].level, found["no-rise"].level) == ("warning", "note")


def list_findings(history):
    """Of a log the checks above a note with their first causes."""
    found = examine(history, CHECKS).findings
    return {one.check: one.causes[0] for one in found if one.level != "note"}


def fall(noise, place, at):
    return 0.6 * (1 - place) + noise(0.01)


@pytest.mark.parametrize(
    ("over", "wanted"),
    [
        ({"learning_rate": 0.05, "reward": fall, "entropy": 0.001}, {"high-rate": "slip"}),
        ({"learning_rate": 1e-3, "reward": fall}, {"reward-falls": "wrong-sign"}),
        (
            {"logprob_gap": lambda noise, place, at: 0.3 * (at > 1)},
            {"gap": "old-weights"},
        ),
        ({"logprob_gap": 0.3}, {"gap": "other-sampling"}),
    ],
)
def test_the_first_cause_is_what_the_log_shows(over, wanted):
    assert list_findings(log(over)) == wanted


@pytest.mark.parametrize("rate", [1e-3, 5e-2])
def test_a_high_rate_is_no_fault_where_the_reward_rises(rate):
    assert "high-rate" not in list_findings(log({"learning_rate": rate, **ROSE}))
