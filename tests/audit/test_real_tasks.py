"""The project's own tasks: nothing is found, but what is wrong on purpose."""

import pytest

from plumbline.checks.audit import cheats
from plumbline.checks.audit.trial import try_reward
from plumbline.tasks import open_task

SMALL = {"seed": 5, "orders": 3000, "extraction": 60, "sql_qa": 60, "insights": 60, "push": 60}


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    return tmp_path_factory.mktemp("all-jobs")


@pytest.mark.parametrize("name", ["extraction", "sql_qa", "insights", "push", "forms"])
def test_a_task_of_ours_is_sound(name, records, monkeypatch):
    monkeypatch.setattr(cheats, "VERDICTS", 400)
    monkeypatch.setattr(cheats, "MEASURING", 10)
    task, options = (
        ("forms", {"records": 5}) if name == "forms" else ("commerce", {**SMALL, "job": name})
    )
    task = open_task(task, options, records / task)
    found = try_reward(task, limit=4)
    assert found.findings == ()
    assert found.context.ceiling == 1.0
    assert found.context.cheat.reward < 0.5


def test_the_strict_reading_of_the_commerce_log_is_fatal(records):
    task = open_task(
        "commerce", {**SMALL, "job": "extraction", "reading": "strict"}, records / "commerce"
    )
    (finding,) = try_reward(task, limit=4).findings
    assert (finding.check, finding.level) == ("writing", "fatal")
    assert finding.evidence["decimal comma"]["loss"] == 1.0
