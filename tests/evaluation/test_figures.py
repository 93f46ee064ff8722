"""What a task puts first: its figures with their intervals, whole and broken down, in JSON and on
disk."""

import json
from dataclasses import replace

import pytest

from plumbline.evaluation.evaluate import evaluate_completions, evaluate_references
from plumbline.evaluation.statistics import rate_interval
from plumbline.evaluation.summary import (
    by_prefix,
    by_stratum,
    figures,
    summarise_with_references,
    titles,
)
from plumbline.records import Figure, Headline
from plumbline.runs.evaluations import read_evaluation, write_evaluation
from plumbline.storage import dumps
from tests.evaluation.shown_toy import HEADLINE, ShownToy
from tests.toy import ToyTask

ANSWERS = ["aaaa", "", "aabb", "", "aaaa", "b", "b", "b"]


@pytest.fixture
def task():
    return ShownToy({"size": 8})


@pytest.fixture
def evaluation(task):
    return evaluate_completions(task, task.examples("val"), ANSWERS, source="made up", split="val")


def test_figures_are_the_nonzero_rate_the_reward_and_the_tasks_own(evaluation):
    found = figures(evaluation.rows, HEADLINE)
    assert (
        list(found)
        == list(titles(HEADLINE))
        == ["nonzero_rate", "mean_reward", "letter_accuracy", "text_rate"]
    )
    assert found["nonzero_rate"].mean == 6 / 8
    assert found["mean_reward"].mean == pytest.approx(evaluation.mean_reward)
    assert found["letter_accuracy"].mean == pytest.approx(2.5 / 8)
    assert found["text_rate"] == rate_interval([1, 0, 1, 0, 1, 1, 1, 1])
    assert list(figures(evaluation.rows, None)) == ["nonzero_rate", "mean_reward"]


def test_what_is_declared_a_rate_and_is_none_is_a_mistake_of_the_task(evaluation):
    wrong = Headline(figures=(Figure(key="x", title="X", part="letters", rate=True),))
    with pytest.raises(AssertionError, match="letters"):
        figures(evaluation.rows, wrong)


def test_figures_by_stratum_and_by_the_parts_of_a_prefix(evaluation):
    strata = by_stratum(evaluation)
    assert {name: found["nonzero_rate"].mean for name, found in strata.items()} == {
        "even": 1.0,
        "odd": 0.5,
    }
    assert {name: found["nonzero_rate"].n for name, found in strata.items()} == {
        "even": 4,
        "odd": 4,
    }
    kinds = by_prefix(evaluation)
    assert list(kinds) == ["short"]
    assert kinds["short"]["accuracy"].mean == pytest.approx(2.5 / 8)
    assert kinds["short"]["all_right_rate"] == rate_interval([1, 0, 0, 0, 1, 0, 0, 0])
    single = replace(evaluation, rows=evaluation.rows[::2], headline=None)
    assert by_stratum(single) == by_prefix(single) == {}


def test_the_detail_is_json_and_says_whether_baselines_keep_their_limits(task, evaluation):
    summary = summarise_with_references(
        evaluation, evaluate_references(task, task.examples("val"), "val")
    )
    assert json.loads(dumps(summary)) == summary
    assert set(summary["by"]) == {"parity", "kind"}
    assert summary["by"]["parity"]["even"]["text_rate"]["n"] == 4
    assert summary["figures"]["letter_accuracy"]["mean"] == summary["parts"]["letters"]["mean"]
    assert summary["references"]["oracle"]["mean_reward"]["mean"] == 1
    earned = {
        name: one["mean_reward"]["mean"]
        for name, one in summary["references"].items()
        if name != "oracle"
    }
    assert set(summary["floors"]) == {"even", "odd"}
    assert sum(summary["floors"].values()) / 2 >= max(earned.values())
    assert summary["limits"]["blank"] == {"limit": 0.05, "mean": 0.0, "holds": True}
    assert summary["limits"]["constant"] == {"limit": 0.1, "mean": 0.25, "holds": False}
    assert (summary["note"], summary["prefix"]) == ("a toy", "kind-")


def test_a_baseline_that_few_examples_put_over_its_limit_holds_it(task, evaluation):
    beside = evaluate_references(task, task.examples("val"), "val")
    once = tuple(
        replace(row, reward=float(at == 0)) for at, row in enumerate(beside["constant"].rows)
    )
    summary = summarise_with_references(
        evaluation, {**beside, "constant": replace(beside["constant"], rows=once)}
    )
    assert summary["limits"]["constant"] == {"limit": 0.1, "mean": 0.125, "holds": True}


def test_the_detail_of_a_task_without_a_headline_has_the_common_figures_only():
    task = ToyTask({"size": 4})
    examples = task.examples("val")
    summary = summarise_with_references(
        evaluate_completions(task, examples, ["a"] * 4, source="x", split="val"),
        evaluate_references(task, examples, "val"),
    )
    assert (
        list(summary["figures"])
        == list(summary["references"]["blank"])
        == ["nonzero_rate", "mean_reward"]
    )
    assert set(summary["by"]) == {"stratum"}
    assert summary["limits"] == {}


def test_a_headline_is_kept_with_the_evaluation_and_an_older_file_has_none(tmp_path, evaluation):
    path = tmp_path / "e.json"
    write_evaluation(path, evaluation)
    assert read_evaluation(path) == evaluation
    values = json.loads(path.read_text())
    del values["headline"]
    path.write_text(json.dumps(values))
    assert read_evaluation(path) == replace(evaluation, headline=None)
