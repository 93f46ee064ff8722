"""What a trial asks of a packaged task: labels, forms and ranges, where the task answers; else the
check is not run."""

from dataclasses import replace

import pytest

from plumbline.checks.audit import cheats
from plumbline.checks.audit.trial import check_reward, try_reward
from plumbline.tasks import open_task
from plumbline.tasks.cases import find_label
from plumbline.tasks.task import as_task
from tests.audit.faulty import FaultyTask

OPTIONAL = {
    "label": ["find_label"],
    "form": ["explain_misread"],
    "range": ["declare_ranges"],
    "rows": ["describe_rows"],
    "unpaid": ["explain_unpaid"],
}


@pytest.fixture(autouse=True)
def few_verdicts(monkeypatch):
    monkeypatch.setattr(cheats, "VERDICTS", 100)


class LabelledTask(FaultyTask):
    """Pays the word alone only behind four marks, and has the bare word for a gold answer."""

    def _example(self, number):
        example = super()._example(number)
        return replace(example, gold=example.reference["tipo"])

    def judge(self, example, completion):
        right = float(completion == f"#### {example.reference['tipo']}")
        return super().judge(example, "")[0], self.weighed.score({"nota": right, "tipo": right})


class DeclaringTask(LabelledTask):
    def find_label(self, examples):
        return find_label(self, examples, "tipo")


def test_a_packaged_task_that_declares_labels_is_asked_for_them():
    found = try_reward(DeclaringTask(), "run")
    (label,) = [one for one in found.findings if one.level == "fatal"]
    assert (label.check, label.evidence["template"]) == ("label", "#### {}")
    assert "#### {tipo}" in label.fix
    assert "label" not in found.not_run


def test_what_a_packaged_task_does_not_answer_is_not_run_and_not_clear():
    found = try_reward(LabelledTask(), "run")
    assert found.not_run == OPTIONAL
    assert not OPTIONAL.keys() & {*found.clear}
    assert found.to_dict()["not_run"] == OPTIONAL
    assert {"oracle", "part-dead"} & {one.check for one in found.findings}
    assert check_reward(LabelledTask()) == []  # no code of the user's


def test_a_task_of_a_class_that_is_none_of_ours_may_declare_them_too():
    class Foreign:
        name, splits = "foreign", ("train",)

        def __init__(self, task):
            self.find_label = task.find_label
            self.rubric, self.baselines = task.rubric, task.baselines
            self.examples, self.judge = task.examples, task.judge

    found = try_reward(as_task(Foreign(DeclaringTask())), "run")
    assert "label" in {one.check for one in found.findings}
    assert "range" in found.not_run


@pytest.mark.parametrize("name", ["short-answers", "strict-json"])
def test_the_answers_are_sound_and_say_what_was_not_asked(name, tmp_path):
    found = try_reward(open_task(name, {}, tmp_path), "run", limit=12)
    assert not found.fatal
    assert found.not_run.keys() == OPTIONAL.keys()
