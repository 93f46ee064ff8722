"""`plumbline decide` on stored runs that realise the log's scenarios, and on those that realise
none."""

import json
import re

import pytest
from typer.testing import CliRunner

from plumbline.checks.diagnosis.decide import (
    decide,
    find_decision_tree,
    gather_evidence,
    write_next_recipe,
)
from plumbline.cli.main import app
from plumbline.errors import PlumblineError, RecipeError, RunError
from plumbline.recipe import differences, load_recipe
from plumbline.recipe.decision_rules import Change
from plumbline.runs.record import RunRecord
from plumbline.runs.run import Run
from tests.diagnosis.planted import SCENARIOS, TASKS, at, planted


def decided(*folders, tree=None):
    evidence = gather_evidence(folders)
    return decide(evidence, find_decision_tree(evidence, tree))


def without_names(rows):
    return [row for row in rows if row[0] not in {"name", "description"}]


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_each_scenario_leads_to_the_recipe_that_the_log_planned_for_it(tmp_path, scenario):
    folder = planted(tmp_path / "run", SCENARIOS[scenario])
    decision = decided(folder)
    assert decision.decided
    assert decision.scenario == scenario
    assert decision.because
    out = tmp_path / "elsewhere" / "next.yaml"
    out.parent.mkdir()
    write_next_recipe(decision, RunRecord.read(folder), out)
    assert (
        without_names(
            differences(load_recipe(f"commerce-v4.2-{scenario.lower()}"), load_recipe(out))
        )
        == []
    )
    text = out.read_text()
    for change in decision.changes.values():
        assert f"# {change.because}" in text
    changed = [line for line in text.splitlines() if line and not line.startswith("#")]
    assert changed[0] == "extends: ../run/recipe.yaml"


def test_near_the_bound_nothing_is_decided_and_the_number_of_examples_that_decides_is_right(
    tmp_path,
):
    near = {task: at(0.36, 0.5, 0.56) for task in TASKS}
    decision = decided(planted(tmp_path / "few", near, n=20))
    assert decision.scenario == "undecided"
    assert decision.changes == {}
    assert re.search(r"\bA \(.*\byes\b.*\bC\b", decision.says)
    wanted = int(
        re.search(r"about ([\d,]+) examples", " ".join(decision.needs))[1].replace(",", "")
    )
    assert 80 < wanted < 1000
    more = wanted * 13 // 10 // len(TASKS)  # the spread of another draw differs a little
    assert decided(planted(tmp_path / "many", near, n=more)).scenario == "A"
    fewer = wanted * 5 // 10 // len(TASKS)
    assert decided(planted(tmp_path / "fewer", near, n=fewer)).scenario == "undecided"
    with pytest.raises(RunError, match="does not decide"):
        write_next_recipe(decision, RunRecord.read(tmp_path / "few"), tmp_path / "next.yaml")
    assert not (tmp_path / "next.yaml").exists()


def test_a_run_that_fits_no_scenario_is_said_to_fit_none(tmp_path):
    levels = {task: at(0.4, 0.4, 0.4) for task in TASKS}
    decision = decided(planted(tmp_path / "run", levels))
    assert not decision.decided
    assert decision.path == ()
    assert "(A, B, C)" in decision.says


def test_a_run_that_a_rule_stopped_is_decided_on_by_where_it_ended(tmp_path):
    levels = {
        task: {**{step: mean for step, mean in points.items() if step < 600}, 200: points[130]}
        for task, points in SCENARIOS["B"].items()
    }
    folder = planted(tmp_path / "run", levels)
    assert decided(folder).scenario == "undecided"
    Run(folder, RunRecord.read(folder).recipe).halt({"rule": "plateau", "step": 200})
    decision = decided(folder)
    assert decision.scenario == "B"
    (stopped,) = decision.stopped
    assert re.search(rf"^{re.escape(str(folder))} .* step 200 .* rule plateau$", stopped)


def test_of_two_tasks_that_lag_the_lower_is_taken_and_noise_between_them_is_said(tmp_path):
    both = {"insights": at(0.05, 0.06, 0.08), "sql_qa": at(0.05, 0.08, 0.15)}
    others = {"extraction": at(0.4, 0.5, 0.7), "push": at(0.4, 0.5, 0.7)}
    clear = decided(planted(tmp_path / "clear", {**others, **both}))
    assert (clear.scenario, clear.noise) == ("C-insights", ())
    close = {**both, "sql_qa": at(0.05, 0.07, 0.085)}
    near = decided(planted(tmp_path / "near", {**others, **close}))
    assert near.scenario == "C-insights"
    (between,) = near.noise
    assert re.findall(r"eval/\w+", between) == ["eval/insights", "eval/sql_qa"]


def test_whether_a_task_lags_too_may_be_open(tmp_path):
    levels = {
        "insights": at(0.05, 0.06, 0.08),
        "sql_qa": at(0.1, 0.15, 0.2),
        "extraction": at(0.4, 0.5, 0.7),
    }
    decision = decided(planted(tmp_path / "run", {**levels, "push": at(0.4, 0.5, 0.7)}))
    assert decision.scenario == "C-insights"
    (open_,) = decision.noise
    assert re.findall(r"\w+_\w+|insights|extraction|push", open_) == ["sql_qa"]


def test_the_logs_questions_are_answered_with_figures(tmp_path):
    early = {task: {10: 0.17} for task in TASKS}
    before = planted(tmp_path / "v4", early, recipe=load_recipe("commerce-v4"), rubric="r@1:strict")
    now = planted(tmp_path / "v41", SCENARIOS["A"], rubric="r@1:lenient", strict=0.2)
    answers = {one.name: one for one in decided(now, before).answers}
    assert list(answers) == ["parser", "reading", "past_130", "weakest", "target"]
    assert answers["parser"].answer == "yes"
    (figure,) = answers["parser"].verdict.figures
    assert (figure.step, figure.kind, figure.n) == (10, "against previous", 150)
    assert figure.mean == pytest.approx(0.36 - 0.17, abs=0.01)
    assert figure.low < figure.mean < figure.high
    assert answers["reading"].verdict.figures[0].mean == pytest.approx(0.2, abs=0.01)
    assert answers["past_130"].answer == "yes"
    assert answers["weakest"].answer.endswith("not decided"), "all four have the same level"
    assert answers["target"].answer == "yes"
    alone = {one.name: one for one in decided(now).answers}["parser"]
    assert alone.verdict.figures[0].kind == "against 0.17", (
        "the log's figure stands for a run that is not there"
    )


def test_the_question_of_the_weakest_task_names_it(tmp_path):
    answers = {
        one.name: one for one in decided(planted(tmp_path / "run", SCENARIOS["C-sql_qa"])).answers
    }
    assert answers["weakest"].answer == "eval/sql_qa"
    assert len(answers["weakest"].verdict.figures) == 4


def test_runs_of_one_recipe_are_seeds_and_their_spread_widens_the_interval(tmp_path):
    def named(seed):
        return load_recipe("commerce-v4.1").model_copy(update={"seed": seed, "name": f"any-{seed}"})

    levels = {0: 0.58, 1: 0.64, 2: 0.61}
    folders = [
        planted(
            tmp_path / f"seed{seed}",
            {task: at(0.36, 0.5, level) for task in TASKS},
            recipe=named(seed),
        )
        for seed, level in levels.items()
    ]
    one = decided(folders[2]).answers[-1].verdict.figures[0]
    all_ = decided(*folders).answers[-1].verdict.figures[0]
    assert (one.seeds, all_.seeds) == (1, 3)
    assert all_.mean == pytest.approx(0.61, abs=0.002)
    assert all_.high - all_.low > 5 * (one.high - one.low)
    decision = decided(*folders)
    assert decision.scenario == "undecided"
    assert any(re.search(r"\d+ seeds\b.*\b3\b", line) for line in decision.needs)


def test_three_recipes_are_an_error(tmp_path):
    recipes = {
        steps: load_recipe("commerce-v4.1", [f"rl.steps={steps}"]) for steps in (600, 601, 602)
    }
    folders = [
        planted(tmp_path / str(steps), {}, recipe=recipe) for steps, recipe in recipes.items()
    ]
    with pytest.raises(RunError, match="runs of 3 recipes"):
        gather_evidence(folders)


def test_the_next_recipe_is_ours_to_write_and_must_be_one(tmp_path):
    folder = planted(tmp_path / "run", SCENARIOS["C-extraction"])
    decision, run, out = decided(folder), RunRecord.read(folder), tmp_path / "next.yaml"
    out.write_text("name: mine\n")
    with pytest.raises(RunError, match=re.escape(str(out))) as caught:
        write_next_recipe(decision, run, out)
    assert "--out" in caught.value.fix
    out.unlink()
    write_next_recipe(decision, run, out)
    first = out.read_bytes()
    write_next_recipe(decision, run, out)
    assert out.read_bytes() == first
    object.__setattr__(decision, "changes", {"rl.stepz": Change(to=3, because="a slip")})
    with pytest.raises(RecipeError, match=r"unknown key rl\.stepz"):
        write_next_recipe(decision, run, out)
    assert out.read_bytes() == first
    object.__setattr__(decision, "changes", {"rl.steps": Change(to=600, because="nothing new")})
    with pytest.raises(RunError, match=rf"{re.escape(str(folder))} .* rl\.steps\b"):
        write_next_recipe(decision, run, out)
    object.__setattr__(decision, "changes", {})
    with pytest.raises(RunError, match="changes no key"):
        write_next_recipe(decision, run, out)
    with pytest.raises(RunError, match=r"next\.txt (.|\n)*\.yaml"):
        write_next_recipe(decided(folder), run, tmp_path / "next.txt")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["next.yaml", "run"]


def test_a_tree_of_another_recipe_can_be_asked(tmp_path):
    folder = planted(
        tmp_path / "run", SCENARIOS["A"], recipe=load_recipe("commerce-v4", ["rl.steps=600"])
    )
    assert decided(folder, tree="commerce-v4.1").scenario == "A"


def test_a_folder_that_is_no_run_or_half_of_one_gets_a_clear_answer(tmp_path):
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "trainer_state.json").write_text("{}")
    with pytest.raises(PlumblineError, match="not a run directory"):
        decided(tmp_path / "foreign")
    begun = decided(planted(tmp_path / "begun", {}))
    assert begun.scenario == "undecided"
    assert any("evaluation.every" in need for need in begun.needs)
    half = planted(tmp_path / "half", {task: {0: 0.4, 10: 0.45, 130: 0.5} for task in TASKS})
    (need,) = decided(half).needs
    assert need.endswith(" step 600")
    (half / "evaluations" / "rl@000010.extraction.fixed.greedy.json").write_text('{"rows": [')
    with pytest.raises(PlumblineError, match="rl@000010"):
        decided(half)
    (half / "recipe.yaml").write_text("name: [")
    with pytest.raises(PlumblineError, match="not YAML"):
        decided(half)


def test_the_command_prints_text_or_json_and_writes_the_recipe(tmp_path):
    folder = planted(
        tmp_path / "run", SCENARIOS["C-insights"], metrics={"train/grad_norm": [0.1, 2.5, 0.1]}
    )
    out = tmp_path / "next.yaml"
    text = CliRunner().invoke(app, ["decide", str(folder), "--out", str(out)])
    assert text.exit_code == 0, text.output
    assert "scenario C-insights" in text.output
    assert "tasks.insights.options.insights" in text.output
    assert re.search(r"watch rules: 5\b.*\b1\b", text.output)
    plain = json.loads(CliRunner().invoke(app, ["decide", str(folder), "--json"]).output)
    assert plain["scenario"] == "C-insights"
    assert plain["changes"]["tasks.insights.options.insights"]["to"] == 350
    assert [rule["rule"] for rule in plain["watch"] if rule["fired"]] == ["gradient"]
    assert load_recipe(out).each_task["insights"].options["insights"] == 350
