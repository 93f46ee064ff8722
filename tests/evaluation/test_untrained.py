"""How much the untrained model is asked before a run."""

from pathlib import Path

from plumbline.recipe import parse_recipe
from plumbline.reports.view import RunView
from plumbline.runs.lineage import is_other_seed
from plumbline.training.pipeline import run_recipe
from tests.training.toy_runs import toy_recipe


def test_a_run_may_leave_out_the_untrained_model(tiny_folder, tmp_path):
    values = toy_recipe(steps=1).model_dump()
    values["model"]["name"] = str(tiny_folder)
    values["evaluation"]["untrained"] = False
    run = run_recipe(parse_recipe(values), tmp_path / "run")
    assert {key.stage for key in run.evaluations()} == {"reference", "rl"}
    assert "## " in Path(run.folder / "report.md").read_text(encoding="utf-8")
    assert parse_recipe({**values, "rl": None}).evaluates_untrained(), (
        "else nothing would be evaluated"
    )
    assert is_other_seed(
        parse_recipe({**values, "seed": 1}),
        toy_recipe(steps=1).model_copy(update={"model": run.recipe.model}),
    )


def test_the_untrained_model_may_be_asked_fewer_examples_and_is_compared_on_these(
    tiny_folder, tmp_path
):
    values = toy_recipe(steps=1).model_dump()
    values["model"]["name"] = str(tiny_folder)
    values["evaluation"] |= {"untrained": 5, "every": 0, "final": ["val"]}
    run = run_recipe(parse_recipe(values), tmp_path / "run")
    rows = {
        (key.stage, key.mode): found.rows
        for key, found in run.evaluations().items()
        if key.stage != "reference"
    }
    assert {key: len(found) for key, found in rows.items()} == {
        ("base", "greedy"): 5,
        ("rl", "greedy"): 12,
        ("rl", "sampled"): 12,
    }
    compared = RunView(run.record()).compare_last("val", "greedy", first=0)
    assert [before.id for before, _ in compared.pairs] == [row.id for row in rows["base", "greedy"]]
    assert (compared.reward.after.n, compared.unjudged) == (5, 0)
    (stage,) = RunView(run.record()).examinations
    assert not any("cannot be compared" in finding.what for finding in stage.findings)
    assert parse_recipe({**values, "rl": None}).untrained_limit() is None, (
        "else little would be evaluated"
    )
