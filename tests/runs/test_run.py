"""A run directory: what is kept, and what is begun anew."""

import pytest

from plumbline.errors import RunError
from plumbline.runs.run import Run
from tests.training.toy_runs import toy_recipe


def test_a_run_that_ended_before_its_first_step_is_begun_anew(tmp_path):
    folder = tmp_path / "run"
    with Run.start(toy_recipe(), folder, resume=False):
        (folder / "data").mkdir()
    with Run.start(toy_recipe(steps=7), folder, resume=False) as run:
        assert run.recipe.rl.steps == 7
    assert not list((folder / "data").iterdir())
    assert Run.read(folder).recipe.rl.steps == 7


def test_a_run_with_one_step_is_kept(tmp_path):
    folder = tmp_path / "run"
    with Run.start(toy_recipe(), folder, resume=False) as run:
        run.metrics("rl", 1, {"train/reward": 0.5})
    with pytest.raises(RunError, match="already holds a run"):
        Run.start(toy_recipe(), folder, resume=False)
