"""Failed episodes again: which ones, what stands in for pictures that cannot be taken, and what is
on the disk."""

import json
from dataclasses import replace

import pytest

from plumbline.checks.refusals import final_splits
from plumbline.errors import DataError
from plumbline.evaluation.evaluate import evaluate_completions
from plumbline.evaluation.replays import replay_episodes
from plumbline.recipe import parse_recipe
from plumbline.records import Frame, Mistake, Unjudged
from plumbline.runs.evaluations import INDEX, EvaluationKey, Replay, read_replays, write_replays
from plumbline.training.pipeline import run_recipe
from tests.evaluation.shown_toy import ShownToy
from tests.toy import ToyTask

REPLAY = Replay(
    id="a-1",
    stratum="even",
    reward=0.25,
    mistakes=(Mistake(what="Name", expected="Ana", received="Bia"),),
    frames=(Frame(caption="one", image=b"\xff\xd81"), Frame(caption="two", image=b"\xff\xd82")),
)


def evaluated(task, answers):
    examples = task.examples("val")
    return examples, evaluate_completions(task, examples, answers, source="x", split="val")


def test_the_answers_that_earned_least_are_replayed_each_stratum_first_and_one_that_is_right():
    task = ShownToy({"size": 5})
    examples, evaluation = evaluated(task, ["aaaa", "ab", "", "b", ""])
    rows = [replace(row, stratum="") for row in evaluation.rows]
    found = replay_episodes(task, examples, replace(evaluation, rows=tuple(rows)), 4)
    assert [(one.id, one.reward) for one in found] == [
        ("val-2", 0),
        ("val-4", 0),
        ("val-3", 0.25),
        ("val-0", 1),
    ]
    assert found[2].mistakes == (Mistake(what="text", expected="aaaa", received="b"),)
    assert [frame.image for frame in found[0].frames] == [b"first of val-2", b"\xff\xd8second"]
    right = replace(evaluation, rows=evaluation.rows[:1])
    assert [len(replay_episodes(task, examples, right, count)) for count in (1, 2, 4)] == [0, 1, 1]
    dealt = [replace(row, stratum="a" if row.reward == 0 else "b") for row in rows]
    found = replay_episodes(task, examples, replace(evaluation, rows=tuple(dealt)), 4)
    assert [one.id for one in found] == ["val-2", "val-3", "val-4", "val-0"]


def test_an_answer_that_could_not_be_judged_is_not_replayed():
    task = ShownToy({"size": 2})
    examples, evaluation = evaluated(task, ["", "b"])
    row = evaluation.rows[0]
    lost = Unjudged(
        id=row.id, stratum=row.stratum, completion=row.completion, failure="EpisodeFailed"
    )
    without = replace(evaluation, rows=evaluation.rows[1:], unjudged=(lost,))
    assert [one.id for one in replay_episodes(task, examples, without, 4)] == ["val-1"]


@pytest.mark.parametrize(
    ("camera", "problem", "mistakes"),
    [("missing", "there is no camera; buy one", 1), ("no facts", "episode is gone", 0)],
)
def test_without_a_camera_a_line_says_so_and_nothing_is_lost(camera, problem, mistakes):
    task = ShownToy({"size": 2, "camera": camera})
    examples, evaluation = evaluated(task, ["", ""])
    for one in replay_episodes(task, examples, evaluation, 2):
        assert problem in one.problem
        assert one.frames == ()
        assert len(one.mistakes) == mistakes


def test_a_task_without_replays_and_too_many_of_them_are_refused():
    examples, evaluation = evaluated(ToyTask({"size": 1}), [""])
    with pytest.raises(DataError, match="toy"):
        replay_episodes(ToyTask({}), examples, evaluation, 1)
    with pytest.raises(DataError, match="5 replays"):
        replay_episodes(ShownToy({}), examples, evaluation, 5)


def test_replays_read_back_as_they_were_written(tmp_path):
    broken = Replay(id="b", stratum="", reward=0.0, problem="no browser")
    write_replays(tmp_path / "r", [REPLAY, broken])
    assert read_replays(tmp_path / "r") == (REPLAY, broken)
    assert sorted(path.name for path in (tmp_path / "r").iterdir()) == [
        "00-00.jpg",
        "00-01.jpg",
        INDEX,
    ]
    write_replays(tmp_path / "none", [])
    assert read_replays(tmp_path / "none") == ()


def test_a_folder_that_is_not_whole_reads_as_nothing_and_a_damaged_one_is_an_error(tmp_path):
    folder = tmp_path / "r"
    write_replays(folder, [REPLAY])
    index = json.loads((folder / INDEX).read_text())
    (folder / INDEX).unlink()
    assert read_replays(folder) == ()
    (tmp_path / "private.jpg").write_bytes(b"not of this folder")
    index["replays"][0]["frames"][0]["image"] = "../private.jpg"
    (folder / INDEX).write_text(json.dumps(index))
    with pytest.raises(DataError, match="r does not"):
        read_replays(folder)


def recipe(tiny, **evaluation):
    return parse_recipe(
        {
            "name": "shown",
            "model": {"name": str(tiny)},
            "task": {"name": "tests.evaluation.shown_toy:open_shown", "options": {"size": 6}},
            "sft": {"steps": 2, "batch_size": 2},
            "sampling": {"max_tokens": 4},
            "evaluation": {"every": 0, "sampled": False, **evaluation},
        }
    )


def test_a_run_covers_the_tasks_further_splits_and_keeps_its_replays(tiny_folder, tmp_path):
    run = run_recipe(recipe(tiny_folder, replays=2), tmp_path / "run")
    keys = {str(key) for key in run.evaluations()}
    stages = {
        f"{stage}.{split}.greedy"
        for stage in ("base", "sft")
        for split in ("val", "test", "strange")
    }
    assert stages | {"reference.strange.oracle", "reference.strange.blank"} <= keys
    assert set((run.result() or {})["evaluations"]) == stages
    found = read_replays(run.replays(EvaluationKey("sft", "test", "greedy")))
    worst = sorted(
        (row.reward, row.id)
        for row in run.evaluations()[EvaluationKey("sft", "test", "greedy")].rows
    )
    assert [(one.reward, one.id) for one in found] == worst[:2]
    html = (run.folder / "report.html").read_text()
    assert html.count('<img src="data:image/jpeg;base64,') == 4
    assert "strange (6 examples)" in html


def test_further_splits_can_be_left_out_and_named_ones_come_first(tiny_folder):
    task = ShownToy({})
    assert final_splits(recipe(tiny_folder, further=False), task) == ["val", "test"]
    assert final_splits(recipe(tiny_folder, final=["strange", "test"]), task) == ["strange", "test"]
    assert final_splits(recipe(tiny_folder, final=["test"]), task) == ["test", "strange"]
    assert final_splits(recipe(tiny_folder), ToyTask({})) == ["val", "test"]


def test_replays_of_a_task_that_has_none_are_refused_before_anything_is_trained(
    tiny_folder, tmp_path
):
    values = recipe(tiny_folder, replays=1).model_dump()
    values["task"]["name"] = "tests.toy:open_toy"
    with pytest.raises(DataError, match="toy"):
        run_recipe(parse_recipe(values), tmp_path / "run")
    assert not (tmp_path / "run" / "models").exists()
    with pytest.raises(ValueError, match="replays"):
        recipe(tiny_folder, replays=1, final=[])
