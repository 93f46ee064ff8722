"""The evaluator of conditions: three answers, by intervals; what it says of noise, seeds and what
is not there."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml

from plumbline.checks.diagnosis.conditions import Evidence, RunFigures, judge_condition
from plumbline.checks.diagnosis.decide import gather_evidence
from plumbline.evaluation.comparison import compare
from plumbline.evaluation.statistics import count_units, pooled_interval
from plumbline.evaluation.summary import reward_interval
from plumbline.recipe import load_recipe, parse_recipe
from plumbline.recipe.decision_rules import Condition, DecideSection
from plumbline.runs.evaluations import EvaluationKey
from plumbline.runs.run import Run
from tests.diagnosis.planted import TASKS, at, evaluation, planted

DATA = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))

LEVELS = {task: at(0.3, 0.4, 0.5) for task in TASKS}


@pytest.fixture(scope="module")
def evidence(tmp_path_factory):
    rising = [
        float(x) for x in np.linspace(0.2, 0.6, 40) + np.random.default_rng(0).normal(0, 0.05, 40)
    ]
    folder = planted(
        tmp_path_factory.mktemp("run") / "run",
        LEVELS,
        metrics={"train/reward": rising, "train/x": [1.0]},
    )
    return gather_evidence([folder])


def holds(evidence, named=None, **condition):
    return judge_condition(Condition.model_validate(condition), evidence, named or {}).holds


@pytest.mark.parametrize(
    ("condition", "answer"),
    DATA,
    ids=str,
)
def test_a_condition_holds_does_not_or_is_not_decided(evidence, condition, answer):
    assert holds(evidence, **condition) is answer


@pytest.mark.parametrize("bound", ["above", "at_least", "below", "at_most"])
@pytest.mark.parametrize("window", [1, 2])
def test_a_figure_that_is_no_number_decides_nothing(evidence, bound, window):
    rows = [
        {"step": step, "train/loss": value} for step, value in enumerate([0.5, float("nan")], 1)
    ]
    broken = Evidence((RunFigures(evidence.runs[0].run, rows),))
    verdict = judge_condition(
        Condition.model_validate({"metric": "train/loss", "window": window, bound: 1.0}), broken, {}
    )
    assert (verdict.holds, verdict.leans, verdict.noise) == (None, None, False)
    (reason,), (need,) = verdict.reasons, verdict.needs
    assert reason.startswith("train/loss at step 2 ")
    assert "plumbline check" in need


def test_only_noise_is_called_noise(evidence):
    near = judge_condition(Condition(metric="eval/extraction", above=0.5), evidence, {})
    gone = judge_condition(Condition(metric="eval/nothing", above=0.5), evidence, {})
    assert (near.noise, gone.noise) == (True, False)
    assert gone.leans is None
    (need,) = gone.needs
    assert need.endswith(
        ": eval/mean_reward, eval/extraction, eval/sql_qa, eval/insights, eval/push"
    )


def test_a_name_stands_for_a_condition_that_was_defined_before(evidence):
    named = {"high": Condition(metric="eval/extraction", above=0.45)}
    assert judge_condition("high", evidence, named).holds
    assert holds(evidence, named, none=["high"]) is False
    later = {"first": {"all": ["later"]}, "later": {"metric": "eval/x", "above": 0}}
    with pytest.raises(ValueError, match=r"conditions\.first.* later\b.* none\b"):
        DecideSection.model_validate({"conditions": later})


def test_evaluations_of_other_examples_or_another_rubric_are_not_compared(tmp_path):
    now = planted(tmp_path / "now", LEVELS, n=40)
    fewer = planted(tmp_path / "fewer", LEVELS, n=30, recipe=load_recipe("commerce-v4"))
    other = planted(
        tmp_path / "other", LEVELS, n=40, recipe=load_recipe("commerce-v4"), rubric="r@2"
    )
    condition = {"metric": "eval/extraction", "at": 10, "against": "previous", "above": -1}
    alone = judge_condition(Condition.model_validate(condition), gather_evidence([now]), {})
    assert "no previous run" in alone.reasons[0]
    shared = judge_condition(Condition.model_validate(condition), gather_evidence([now, fewer]), {})
    assert re.findall(r"\d+", shared.reasons[0]) == ["30", "30", "40"]
    refused = judge_condition(
        Condition.model_validate(condition), gather_evidence([now, other]), {}
    )
    assert refused.holds is None
    assert "rubric r@2" in refused.reasons[0]
    assert holds(gather_evidence([now, other]), **condition, across_rubrics=True) is True


def test_a_mean_over_other_tasks_is_not_compared(tmp_path):
    now = planted(tmp_path / "now", LEVELS, n=40)
    two = {task: LEVELS[task] for task in TASKS if task not in {"sql_qa", "insights"}}
    fewer = planted(tmp_path / "fewer", two, n=40, recipe=load_recipe("commerce-v4.2-c-sql_qa"))
    verdict = judge_condition(
        Condition(metric="eval/mean_reward", against="previous", above=0),
        gather_evidence([now, fewer]),
        {},
    )
    assert re.search(rf"{re.escape(str(fewer))} .*\b2 tasks\b.*\b4\b", verdict.reasons[0])


def test_a_run_that_was_evaluated_at_its_ends_alone_has_two_points(tmp_path):
    recipe = load_recipe("commerce-smollm2")
    with Run.start(recipe, tmp_path / "run") as run:
        for task in TASKS:
            for stage, mean in (("base", 0.01), ("sft", 0.4), ("rl", 0.5)):
                if (stage, task) == ("rl", "push"):
                    continue
                found = evaluation(task, mean, 100, stage)
                run.evaluation(EvaluationKey(stage, "test", "greedy", None, task), found)
                run.evaluation(
                    EvaluationKey(stage, "val", "greedy", None, task),
                    evaluation(task, 0.9, 100, stage),
                )
    assert gather_evidence([tmp_path / "run"]).steps("eval/extraction") == [0], (
        "a stage that is half evaluated is no point yet"
    )
    run.evaluation(
        EvaluationKey("rl", "test", "greedy", None, "push"), evaluation("push", 0.5, 100, "rl")
    )
    evidence = gather_evidence([tmp_path / "run"])
    assert evidence.steps("eval/mean_reward") == [0, 40]
    (figure,) = judge_condition(
        Condition(metric="eval/mean_reward", since=0, above=0), evidence, {}
    ).figures
    assert figure.mean == pytest.approx(0.1, abs=0.005)


@pytest.mark.parametrize("right", [(0, 0), (0, 5), (3, 60), (64, 64)])
@pytest.mark.parametrize("stage", ["sft", "rl"])
def test_a_figure_has_the_interval_that_a_report_shows(tmp_path, right, stage):
    """Of 64 answers in 8 clusters so many are right; a budget of seconds ends the stage."""
    found = []
    for name, count in zip(("base", stage), right, strict=True):
        drawn = evaluation("extraction", 0.5, 64, name)
        rows = (
            replace(row, cluster=str(n % 8), reward=float(n < count))
            for n, row in enumerate(drawn.rows)
        )
        found.append(replace(drawn, source=name, rows=tuple(rows)))
    section = {"steps": 10**5, "seconds": 9}
    recipe = parse_recipe({"name": "one", "model": {"name": "m"}, stage: section})
    with Run.start(recipe, tmp_path / "run", resume=False) as run:
        run.metrics(stage, 7, {"train/loss": 1.0})
        for one in found:
            run.evaluation(EvaluationKey(one.source, "test", "greedy"), one)
    evidence = gather_evidence([tmp_path / "run"])
    assert evidence.steps("eval/mean_reward") == [0, 7]
    assert evidence.runs[0].run.planned == {stage: None}
    for since, own in ((None, reward_interval(found[1])), (0, compare(*found).difference)):
        condition = Condition(metric="eval/mean_reward", since=since, above=0)
        one = evidence.estimate(condition, 7, since).interval
        assert (one.low, one.high) == pytest.approx((own.low, own.high))


def evidence_of(tmp_path, found):
    """What a run of one task says whose only evaluation is this one."""
    recipe = parse_recipe(
        {"name": "one", "model": {"name": "m"}, "rl": {"steps": 10}, "evaluation": {"every": 5}}
    )
    with Run.start(recipe, tmp_path / "run") as run:
        run.evaluation(EvaluationKey("rl", "val", "greedy", 5), found)
    return gather_evidence([tmp_path / "run"])


def test_a_run_of_one_task_has_its_strata_and_readings_as_metrics(tmp_path):
    evidence = evidence_of(tmp_path, evaluation("extraction", 0.5, 50, "x", strict=0.2))
    assert evidence.steps("eval/extraction") == evidence.steps("eval/reading/strict") == [5]
    assert evidence.steps("eval/sql_qa") == []
    assert holds(evidence, metric="eval/reading/strict", below=0.4) is True


def test_where_there_are_clusters_it_is_these_that_would_decide(tmp_path):
    drawn = evaluation("extraction", 0.5, 64, "x")
    by = np.random.default_rng(0).normal(0, 0.1, 8)
    rows = tuple(
        replace(row, cluster=f"c{n // 8}", reward=float(np.clip(row.reward + by[n // 8], 0, 1)))
        for n, row in enumerate(drawn.rows)
    )
    evidence = evidence_of(tmp_path, replace(drawn, rows=rows))
    mean = float(np.mean([row.reward for row in rows]))
    for distance, number in ((0.03, True), (1e-5, False)):
        condition = Condition(metric="eval/mean_reward", above=mean - distance)
        (need,) = judge_condition(condition, evidence, {}).needs
        wanted = count_units(evidence.estimate(condition, 5).scatter, distance)
        assert str(wanted) in need
        assert (wanted.number is not None, wanted.unit) == (number, "clusters of 8 examples")
        assert wanted.needs_other_clusters
        assert "evaluation.limit" not in need, "more examples of the same clusters do not decide"


def test_a_pooled_interval_covers_as_often_as_it_says():
    """With three seeds and two strata; somewhat oftener is right, because two sources of chance are
    added."""
    rng = np.random.default_rng(0)
    covered = 0
    for _ in range(400):
        seeds = rng.normal(0, 0.05, 3)
        truth, examples = 0.5, rng.normal(0, 0.2, (2, 30))
        strata = [truth + examples[k] + seeds.mean() for k in range(2)]
        interval = pooled_interval(strata, [list(truth + seeds + examples.mean())])
        covered += interval.low <= truth <= interval.high
    assert 0.94 <= covered / 400 < 1


def test_values_without_spread_do_not_say_that_nothing_else_can_happen():
    six, many = pooled_interval([[0.0] * 6]), pooled_interval([[0.0] * 600])
    assert six.high > 0.3
    assert many.high < 0.01
    with pytest.raises(ValueError, match=r"\bmean\b"):
        pooled_interval([[1.0], []])
