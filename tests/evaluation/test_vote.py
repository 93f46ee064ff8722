"""A vote: what answers say is counted, whoever wrote it how, and nothing gold is looked at."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from plumbline.errors import RecipeError
from plumbline.evaluation.evaluate import Conditions, evaluate_policy
from plumbline.evaluation.models import ModelOptions, check_name
from plumbline.evaluation.summary import summarise
from plumbline.evaluation.vote import elect
from plumbline.pipeline import run_recipe
from plumbline.recipe import parse
from plumbline.records import Example, Sampling
from plumbline.reports.view import View
from plumbline.runs.changes import same_but_seed
from plumbline.runs.evaluations import read_evaluation, write_evaluation
from plumbline.training import guards
from tests.toy import ToyTask
from tests.training.toy_runs import toy_recipe

EXAMPLE = Example(id="x", messages=[{"role": "user", "content": "?"}])


class Values(ToyTask):
    """What an answer says is its first word; it says nothing where that is a dash."""

    def said(self, _example, completion):
        return frozenset(completion.split()[:1]) - {"-"}


def test_where_an_answer_says_one_thing_the_most_frequent_wins():
    """Against counting (the plurality of self-consistency); the first of those that are as frequent."""
    task, rng = Values({}), np.random.default_rng(0)
    for _ in range(200):
        values = [str(value) for value in rng.integers(0, 4, size=rng.integers(2, 9))]
        answers = [f"{value} written {place}" for place, value in enumerate(values)]
        most = max(Counter(values).values())
        assert elect(task, EXAMPLE, answers) == next(i for i, v in enumerate(values) if values.count(v) == most)


def test_silence_is_no_opinion():
    assert elect(Values({}), EXAMPLE, ["- a", "- b", "- c", "one", "one more"]) == 3
    assert elect(Values({}), EXAMPLE, ["- a", "- b"]) == 0


def test_without_a_task_that_tells_words_are_what_an_answer_says():
    assert elect(ToyTask({}), EXAMPLE, ["nothing like it", "the cat sat", "The cat sat.", "a cat, sat down"]) == 1


def test_an_evaluation_by_vote_keeps_what_all_drawn_answers_earned(tiny_policy, tmp_path):
    task, law = ToyTask({"size": 6}), Sampling(max_tokens=6)
    one = Conditions(source="tiny", split="val", sampling=law, seed=1)
    single = evaluate_policy(tiny_policy, task, task.examples("val"), one)
    voted = evaluate_policy(tiny_policy, task, task.examples("val"), replace(one, votes=5))
    assert voted.sampling["votes"] == 5
    assert "votes" not in single.sampling
    assert [row.drawn[0] for row in voted.rows] == [row.reward for row in single.rows], "the first answer is the same"
    assert all(len(row.drawn) == 5 and row.reward in row.drawn for row in voted.rows)
    drawn = summarise(voted)["drawn"]
    assert drawn["one"]["mean"] == pytest.approx(np.mean([row.drawn for row in voted.rows]))
    assert drawn["best"]["mean"] == pytest.approx(np.mean([max(row.drawn) for row in voted.rows]))
    assert "drawn" not in summarise(single)
    write_evaluation(tmp_path / "e.json", voted)
    assert read_evaluation(tmp_path / "e.json") == voted


def test_a_run_votes_after_training_and_may_be_told_so_at_a_resume(tiny_folder, tmp_path, monkeypatch):
    def stop(*_):
        raise KeyboardInterrupt

    values = toy_recipe(steps=1).model_dump()
    values["model"]["name"] = str(tiny_folder)
    with monkeypatch.context() as broken:
        broken.setattr(guards, "adapt_beta", stop)
        with pytest.raises(KeyboardInterrupt):
            run_recipe(parse(values), tmp_path / "run")
    values["evaluation"]["votes"] = 3
    run = run_recipe(parse(values), tmp_path / "run", resume=True)
    found = {key for key in run.evaluations() if key.mode == "vote3"}
    assert {(key.stage, key.step) for key in found} == {("rl", None)}
    for key in found:
        assert all(len(row.drawn) == 3 for row in run.evaluations()[key].rows)
    assert "vote3" in Path(run.folder / "report.md").read_text(encoding="utf-8")


def test_a_run_may_leave_out_the_untrained_model(tiny_folder, tmp_path):
    values = toy_recipe(steps=1).model_dump()
    values["model"]["name"] = str(tiny_folder)
    values["evaluation"]["untrained"] = False
    run = run_recipe(parse(values), tmp_path / "run")
    assert {key.stage for key in run.evaluations()} == {"reference", "rl"}
    assert "## " in Path(run.folder / "report.md").read_text(encoding="utf-8")
    assert parse({**values, "rl": None}).evaluates_untrained(), "else nothing would be evaluated"
    assert same_but_seed(
        parse({**values, "seed": 1}), toy_recipe(steps=1).model_copy(update={"model": run.recipe.model})
    )


def test_the_untrained_model_may_be_asked_fewer_examples_and_is_compared_on_these(tiny_folder, tmp_path):
    values = toy_recipe(steps=1).model_dump()
    values["model"]["name"] = str(tiny_folder)
    values["evaluation"] |= {"untrained": 5, "every": 0, "final": ["val"]}
    run = run_recipe(parse(values), tmp_path / "run")
    rows = {(key.stage, key.mode): found.rows for key, found in run.evaluations().items() if key.stage != "reference"}
    assert {key: len(found) for key, found in rows.items()} == {
        ("base", "greedy"): 5,
        ("rl", "greedy"): 12,
        ("rl", "sampled"): 12,
    }
    compared = View(run).first_to_last("val", "greedy")
    assert [before.id for before, _ in compared.pairs] == [row.id for row in rows["base", "greedy"]]
    assert (compared.reward.after.n, compared.unjudged) == (5, 0)
    (stage,) = View(run).examined
    assert not any("cannot be compared" in finding.what for finding in stage.findings)
    assert parse({**values, "rl": None}).untrained_limit() is None, "else little would be evaluated"


def test_a_vote_of_equal_answers_is_refused():
    assert ModelOptions(votes=8).drawn_at == 1
    assert ModelOptions().drawn_at == 0
    for wrong in ({"votes": 8, "greedy": True}, {"votes": 8, "temperature": 0.0}, {"votes": 0}):
        with pytest.raises(RecipeError):
            ModelOptions(**wrong)
    with pytest.raises(RecipeError, match="nobody to vote with"):
        parse({**toy_recipe().model_dump(), "evaluation": {"votes": 1}})
    with pytest.raises(RecipeError, match="one answer"):
        check_name("oracle", ToyTask({}), ModelOptions(votes=8))
