"""A sweep: every variant runs once, a changed recipe is noticed, and one that fails costs no other."""

import pytest

from plumbline.errors import RecipeError, TrainingStopped
from plumbline.reports.terminal import sweep_table
from plumbline.sweep import run_sweep, variants

RECIPE = """
name: swept
task: {name: "tests.toy:open_toy", options: {size: 4}}
model: {threads: 1, tiny: {hidden: 32, layers: 2, heads: 2, vocabulary: 300, context: 128, steps: 2}}
rl: {steps: 3, prompts_per_step: 2, group_size: 8, patience: 3}
sampling: {max_tokens: 8}
evaluation: {every: 0, final: [val]}
"""


@pytest.fixture
def recipe(tmp_path):
    path = tmp_path / "swept.yaml"
    path.write_text(RECIPE)
    return path


def swept(recipe, folder, *varied, overrides=(), resume=False):
    return run_sweep(variants(recipe, overrides, varied), folder, resume=resume, observers=lambda *_: [])


def test_one_that_fails_has_its_error_and_the_others_their_figures(recipe, tmp_path):
    rows = swept(recipe, tmp_path / "sweep", "task.options.reward=constant,letters")
    assert "every group's rewards were equal" in rows[0]["error"]
    assert rows[1]["greedy"]["n"] == 4
    assert sweep_table(rows).row_count == 3
    with pytest.raises(TrainingStopped):
        swept(recipe, tmp_path / "all", "task.options.reward=constant")


def test_a_finished_variant_is_taken_as_it_is_and_a_changed_one_is_not(recipe, tmp_path):
    first = swept(recipe, tmp_path / "sweep", "seed=0,1")
    written = {path: path.stat().st_mtime_ns for path in (tmp_path / "sweep").rglob("metrics.jsonl")}
    assert swept(recipe, tmp_path / "sweep", "seed=0,1", resume=True) == first
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "sweep").rglob("metrics.jsonl")} == written
    rows = swept(recipe, tmp_path / "sweep", "seed=0,2", overrides=["rl.steps=4"], resume=True)
    assert "was started with another recipe (rl.steps: 3 -> 4" in rows[0]["error"]
    assert "greedy" in rows[1]


def test_values_are_yaml_and_each_stands_once(recipe):
    found = variants(recipe, [], ["evaluation.final=[val],[val, test]", "rl.optimiser.learning_rate=5e-6,1e-4"])
    assert [len(one.evaluation.final) for one in found.values()] == [1, 1, 2, 2]
    assert {one.rl.optimiser.learning_rate for one in found.values()} == {5e-6, 1e-4}
    for wrong, message in (("seed=0,0", "has seed=0 twice"), ("seed", "names no values"), ("seed=", "names no values")):
        with pytest.raises(RecipeError, match=message):
            variants(recipe, [], [wrong])
