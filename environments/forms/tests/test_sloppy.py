"""Careless demonstrations: what they leave out, what they never leave out, and what that costs."""

from pathlib import Path

import pytest

from plumbline.errors import RecipeError
from plumbline.tasks import open_task
from plumbline_browser.plans.actions import Fill, Submit
from plumbline_forms.plans.agent import read_plan
from plumbline_forms.plans.oracle import elements_of

FORMS = ["library-card", "gallery-volunteer", "site-safety", "curso-de-extensao"]


def open_forms(plan="steps", **sloppiness):
    options = {"forms": FORMS, "records": 20, "plan": plan, "sloppiness": sloppiness}
    return open_task("forms", options, Path("unused"))


def actions_of(task, example, text):
    return read_plan(text, elements_of(task.forms[example.stratum])).actions


@pytest.mark.parametrize("plan", ["steps", "agent"])
def test_only_entries_are_skipped_and_the_rest_stays_in_order(plan):
    everything, some = open_forms(plan, skipped=1.0), open_forms(plan, skipped=0.5)
    for example in everything.examples("train"):
        gold = list(actions_of(everything, example, example.gold))
        left = list(actions_of(everything, example, everything.demonstration(example, 3)))
        assert left == [action for action in gold if not isinstance(action, Fill)]
        rest = iter(gold)
        assert all(
            action in rest for action in actions_of(some, example, some.demonstration(example, 3))
        )


def test_skipped_is_the_share_of_the_entries_that_is_missing():
    task = open_forms(skipped=0.7)
    there = missing = 0
    for example in task.examples("train"):
        gold, careless = (
            [a for a in actions_of(task, example, t) if isinstance(a, Fill)]
            for t in (example.gold, task.demonstration(example, example.reference["index"]))
        )
        there, missing = there + len(gold), missing + len(gold) - len(careless)
    assert there > 300
    assert 0.62 < missing / there < 0.78


def test_what_is_not_sent_is_worth_nothing_and_what_is_skipped_costs_its_part():
    unsent, skipped = open_forms(unsent=1.0), open_forms(skipped=0.15)
    example = next(e for e in unsent.examples("train") if e.stratum == "library-card")
    text = unsent.demonstration(example, 3)
    assert not any(isinstance(action, Submit) for action in actions_of(unsent, example, text))
    assert unsent.judge(example, text)[1].total == 0
    assert unsent.judge(example, example.gold)[1].total == 1
    worth = [
        skipped.judge(example, skipped.demonstration(example, seed))[1].total for seed in range(40)
    ]
    assert min(worth) == 0
    assert max(worth) == 1
    assert any(0 < one < 1 for one in worth)


def test_a_seed_gives_the_same_demonstration_and_without_dials_it_is_the_gold_plan():
    task = open_forms(skipped=0.5, unsent=0.5)
    example = next(e for e in task.examples("train") if e.stratum == "gallery-volunteer")
    texts = [task.demonstration(example, seed) for seed in range(20)]
    assert texts == [task.demonstration(example, seed) for seed in range(20)]
    assert len(set(texts)) > 10
    assert open_forms().demonstration(example, 3) == example.gold


def test_one_dial_moves_no_draw_of_the_other():
    both, one = open_forms(skipped=0.5, unsent=1.0), open_forms(skipped=0.5)
    for example in both.examples("train")[:20]:
        sent = actions_of(one, example, one.demonstration(example, 3))
        assert actions_of(both, example, both.demonstration(example, 3)) == sent[:-1]


def test_the_benchmark_has_no_use_for_them():
    with pytest.raises(RecipeError, match=r"task\.options\.sloppiness"):
        open_task(
            "forms",
            {"suite": "formfactory", "path": ".", "sloppiness": {"unsent": 0.5}},
            Path("unused"),
        )
