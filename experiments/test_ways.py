"""Every arm of `ways.py` is a recipe, for each of its tasks and models, and its rows are told apart."""

import argparse
import json
from pathlib import Path

import pytest

from experiments import ways
from plumbline.storage import read_jsonl


class OpenedError(Exception):
    """In place of a training."""


def options(task, model, **given):
    values = {"seconds": 1200.0, "start": 0.0, "overrides": [], "rows": Path("none"), **given}
    return argparse.Namespace(task=task, model=model, **values)


@pytest.fixture(autouse=True)
def _no_training(monkeypatch, tmp_path):
    def stop(recipe, folder, **_):
        raise OpenedError(recipe, folder)

    monkeypatch.setattr(ways, "run_recipe", stop)
    monkeypatch.setattr(ways, "share_start", lambda *_: None)
    monkeypatch.setattr(ways, "FOLDER", tmp_path)


@pytest.mark.parametrize("task", ways.TASKS)
@pytest.mark.parametrize("arm", ways.WAYS)
def test_an_arm_is_a_recipe(task, arm):
    folders = set()
    for model in ways.MODELS:
        with pytest.raises(OpenedError) as opened:
            ways.run_arm(options(task, model), arm, seed=1)
        recipe, folder = opened.value.args
        stage = recipe.sft if arm == "sft" else recipe.rl
        assert (recipe.name, recipe.seed, stage.seconds) == (f"{task}-{arm}", 1, 1200.0)
        assert recipe.model.name == f"models/{model}"
        named = [each for each in ways.TASKS[task] if each.startswith("task.name=")]
        assert [f"task.name={recipe.task.name}"] == (named or ["task.name=strict-json"])
        folders.add(folder)
    assert len(folders) == len(ways.MODELS)


def test_only_what_is_asked_for_sets_arms_apart():
    with pytest.raises(OpenedError) as plain:
        ways.run_arm(options("strict-json", ways.MODELS[1]), "dynamic", seed=0)
    told = ["task.options.system=Answer with the JSON alone."]
    with pytest.raises(OpenedError) as system:
        ways.run_arm(options("strict-json", ways.MODELS[1], overrides=told), "dynamic", seed=0)
    (recipe, folder), (other, place) = plain.value.args, system.value.args
    assert (recipe.rl.resample, recipe.rl.group_size) == (2, 8)
    assert other.task.options["system"] == "Answer with the JSON alone."
    assert folder != place


def test_no_arm_without_gold_answers_has_a_stage_that_reads_them():
    for arm in ways.NOTHING:
        with pytest.raises(OpenedError) as opened:
            ways.run_arm(options("strict-json", ways.MODELS[1]), arm, seed=0)
        recipe, _ = opened.value.args
        assert (recipe.sft, recipe.rl.teacher) == (None, None)


def test_committed_rows_are_read_by_the_table():
    rows = [row for _, row in read_jsonl(ways.ROWS)]
    assert {row["model"] for row in rows} <= set(ways.MODELS)
    chosen = [row for row in rows if (row["task"], row["start"]) == ("strict-json", 300)]
    assert len(ways.table(chosen).splitlines()) == 2 + len({row["arm"] for row in chosen})


def test_a_finished_arm_has_one_row_beside_those_of_pilots(monkeypatch, tmp_path):
    rows = tmp_path / "rows.jsonl"
    pilot = {"task": "strict-json", "model": ways.MODELS[0], "arm": "pilot", "seed": 0, "start": 0}
    rows.write_text(json.dumps(pilot) + "\n")
    given = options("strict-json", ways.MODELS[0])
    given.rows = rows
    monkeypatch.setattr(ways, "run_recipe", lambda *_, **__: None)
    monkeypatch.setattr(ways.RunRecord, "read", lambda folder: folder)
    monkeypatch.setattr(ways, "figures", lambda *_: {"steps": 3})
    for _ in range(2):
        ways.run_arm(given, "sft", seed=0)
    first, second = map(json.loads, rows.read_text().splitlines())
    assert (first, second["arm"], second["steps"]) == (pilot, "sft", 3)
