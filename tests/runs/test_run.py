"""A run directory: what is kept, what is begun anew, what is recorded, and who may write."""

import json
import os

import pytest

from plumbline.errors import RunError
from plumbline.records import Evaluation, Judged
from plumbline.runs.evaluations import EvaluationKey
from plumbline.runs.output_guard import claim_folder
from plumbline.runs.record import RunRecord
from plumbline.runs.run import Run, environment
from plumbline.storage import read_json, read_jsonl
from tests.training.toy_runs import toy_recipe


class Watcher:
    """An observer that writes down what it is told."""

    def __init__(self):
        self.told = []

    def __getattr__(self, name):
        return lambda *given: self.told.append((name, *given))


def start(folder, *, resume=False, observers=(), **rl):
    return Run.start(toy_recipe(**rl), folder, resume=resume, observers=observers)


def kinds(run):
    return [row["kind"] for row in run.files["events"].rows()]


def test_a_run_that_ended_before_its_first_step_is_begun_anew(tmp_path):
    folder = tmp_path / "run"
    with start(folder):
        (folder / "data").mkdir()
    with start(folder, steps=7) as run:
        assert run.recipe.rl.steps == 7
    assert not list((folder / "data").iterdir())
    assert RunRecord.read(folder).recipe.rl.steps == 7


def test_references_alone_are_forgotten_and_their_neighbours_kept(tmp_path):
    folder = tmp_path / "run"
    with start(folder):
        claim_folder(folder / "data", "records")
        for name in (
            "evaluations/reference.val.oracle.json",
            "evaluations/reference.txt",
            "data/commerce.db",
        ):
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).touch()
        (folder / "data" / "own.csv").touch()
        (folder / "data" / "manifest.json").write_text('{"files": ["commerce.db"]}')
    (folder / "evaluations" / "reference.txt").rename(folder / "evaluations" / "reference.val.txt")
    with start(folder, steps=7):
        pass
    left = {path.name for name in ("data", "evaluations") for path in (folder / name).iterdir()}
    assert left == {".plumbline", "own.csv", "reference.val.txt"}


def test_records_of_a_run_that_had_not_begun_to_train_are_kept_for_the_same_recipe_alone(tmp_path):
    """They take minutes where a browser builds them; of another recipe they may be other
    records."""
    folder, kept = tmp_path / "run", {}
    with start(folder):
        claim_folder(folder / "data", "records")
        for name in (
            "data/train.jsonl",
            "data/held-out-forms.jsonl",
            "evaluations/reference.val.oracle.json",
        ):
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text("{}")
        (folder / "data" / "manifest.json").write_text(
            '{"splits": {"train": 1, "held-out-forms": 1}}'
        )
        (folder / "data" / "own.jsonl").touch()
        kept = {
            path: path.read_bytes()
            for name in ("data", "evaluations")
            for path in (folder / name).iterdir()
        }
    with (folder / "events.jsonl").open("a") as events:
        events.write('{"time": "20')  # as a kill leaves it
    with start(folder, resume=True) as run:
        assert {path: path.read_bytes() for path in kept if path.exists()} == kept
        assert kinds(run) == ["started", "started"]
    with start(folder, resume=True, steps=7):
        left = {path.name for path in kept if path.exists()}
        assert left == {"own.jsonl", ".plumbline"}
        claim_folder(folder / "data", "records")


SAMPLE = {"step": 1, "id": "a", "text": "x", "reward": 0.5, "parts": {}, "how": "strict"}


@pytest.mark.parametrize(
    "began",
    [
        "models/sft/x",
        "checkpoints/rl/x",
        "metrics.jsonl",
        "result.json",
        "evaluations/base.val.greedy.json",
    ],
)
def test_a_run_that_trained_or_evaluated_anything_is_kept(tmp_path, began):
    folder = tmp_path / "run"
    with start(folder):
        (folder / began).parent.mkdir(parents=True, exist_ok=True)
        (folder / began).write_text('{"status": "kept"}')
    with pytest.raises(RunError, match="already holds a run"):
        start(folder)
    with start(folder, resume=True):
        pass
    assert (folder / began).read_text() == '{"status": "kept"}'


def test_resuming_says_so_and_sweeps_up_what_was_half_written(tmp_path):
    folder = tmp_path / "run"
    with start(folder) as run:
        run.metrics("rl", 1, {})
    for name in ("models/.rl.tmp/weights", "models/rl/weights", "models/rl/notes.tmp"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    (folder / ".result.json.tmp").touch()
    with start(folder, resume=True) as run:
        assert kinds(run) == ["started", "resumed"]
    assert {path.name for path in folder.rglob("*tmp*")} == {"notes.tmp"}
    assert (folder / "models" / "rl" / "weights").exists()
    with start(tmp_path / "new", resume=True) as run:
        assert kinds(run) == ["started"], "what had not begun is not resumed"


def test_an_event_that_a_crash_cut_short_does_not_swallow_the_next_one(tmp_path):
    folder = tmp_path / "run"
    with start(folder) as run:
        run.metrics("rl", 1, {})
        run.event("warning", "whole")
    with (folder / "events.jsonl").open("a") as file:
        file.write('{"time": "2026-01-01", "kin')
    with start(folder, resume=True) as run:
        assert kinds(run) == [
            "started",
            "warning",
            "resumed",
        ]


def test_another_recipe_is_refused_with_what_differs_and_the_run_is_left_open_to_others(tmp_path):
    folder = tmp_path / "run"
    with start(folder) as run:
        run.metrics("rl", 1, {})
    changed = {"steps": 9, "prompts_per_step": 9, "group_size": 9, "inner_epochs": 9, "beta": 0.9}
    with pytest.raises(RunError, match=r"rl\.steps: 4 -> 9; (.*; ){2}[^;]*\)") as refused:
        start(folder, resume=True, **changed)
    assert str(refused.value).count("->") == 4, "the first four are enough"
    assert len(list(read_jsonl(folder / "metrics.jsonl"))) == 1
    with Run.start(
        toy_recipe().model_copy(update={"description": "other words"}), folder, resume=True
    ):
        pass


def test_a_run_belongs_to_one_writer_until_it_is_over(tmp_path):
    folder = tmp_path / "run"
    watcher = Watcher()
    with start(folder) as run:
        run.metrics("rl", 1, {})
        with pytest.raises(RunError, match=r"process .*run"):
            start(folder, resume=True)
        assert RunRecord.read(folder).rows("rl") == [{"stage": "rl", "step": 1}], "looking is free"
    with pytest.raises(KeyboardInterrupt), start(folder, resume=True, observers=[watcher]):
        raise KeyboardInterrupt
    assert watcher.told[-1] == ("close",)
    with start(folder, resume=True) as run:
        said = [(row["kind"], row["message"]) for row in run.files["events"].rows()]
        assert [kind for kind, _ in said[1:-1]] == ["resumed", "stopped"]
        assert said[-2][1] == "interrupted"
    other = os.open(folder / "other", os.O_CREAT | os.O_RDWR)  # has the number that the lock had
    run.__exit__(None, None, None)
    os.close(other)


def test_files_that_are_no_evaluations_are_left_alone(tmp_path):
    with start(tmp_path / "run"):
        (tmp_path / "run" / "evaluations").mkdir()
        (tmp_path / "run" / "evaluations" / "notes.txt").write_text("mine")
    assert RunRecord.read(tmp_path / "run").evaluations() == {}


def test_what_is_recorded_is_told_and_read_back(tmp_path):
    watcher = Watcher()
    with start(tmp_path / "run", observers=[watcher]) as run:
        run.stage("sft", 8)
        run.stage("rl", 4, 2)
        run.working("records", 1, 3)
        run.metrics("sft", 1, {"train/loss": 2.0})
        run.metrics("rl", 1, {"train/kl": None})
        run.timings("rl", 1, {"sample": 1.23456789})
        run.sample(SAMPLE)
        run.event("warning", "look here")
    loss, kl = (
        {"stage": "sft", "step": 1, "train/loss": 2.0},
        {"stage": "rl", "step": 1, "train/kl": None},
    )
    assert watcher.told == [
        ("stage", "sft", 8, 0),
        ("stage", "rl", 4, 2),
        ("working", "records", 1, 3),
        ("metrics", loss),
        ("metrics", kl),
        ("event", "warning", "look here"),
        ("close",),
    ]
    again = RunRecord.read(tmp_path / "run")
    assert (again.rows("sft"), again.rows("rl"), again.rows("base")) == ([loss], [kl], [])
    assert again.files["timings"].rows() == [{"stage": "rl", "step": 1, "sample": 1.2346}]
    assert again.files["samples"].rows() == [SAMPLE]
    _, event = again.files["events"].rows()
    assert (event["kind"], event["message"], event["time"][-6:]) == (
        "warning",
        "look here",
        "+00:00",
    )


def test_records_are_cut_back_to_their_marks_and_events_never(tmp_path):
    with start(tmp_path / "run") as run:
        run.metrics("rl", 1, {})
        marks = run.marks()
        assert set(marks) == {"metrics", "timings", "samples"}
        for step in (2, 3):
            run.metrics("rl", step, {})
            run.timings("rl", step, {})
            run.sample({})
            run.event("warning", "")
        run.rewind(marks)
        counts = {name: len(file.rows()) for name, file in run.files.items()}
    assert counts == {"metrics": 1, "timings": 0, "samples": 0, "events": 3}


def evaluation(reward):
    row = Judged(
        id="a", stratum="s", completion="x", reward=reward, parts={}, readings={}, how="strict"
    )
    return Evaluation(
        source="m", task="toy", split="val", rubric="r", sampling={}, seed=0, rows=(row,)
    )


def test_the_outcome_is_there_once_it_is_written(tmp_path):
    keys = [EvaluationKey("rl", "val", "greedy", step) for step in (10, 2, None)]
    with start(tmp_path / "run") as run:
        assert (run.result(), run.evaluations()) == (None, {})
        for number, key in enumerate(keys):
            run.evaluation(key, evaluation(number / 10))
        run.environment({"engine": "lean"})
        run.finish({"reward": 0.5})
    again = RunRecord.read(tmp_path / "run")
    assert again.result() == {"reward": 0.5}
    found = again.evaluations()
    assert {str(key): one.mean_reward for key, one in found.items()} == {
        "rl.val.greedy": 0.2,
        "rl@000002.val.greedy": 0.1,
        "rl@000010.val.greedy": 0.0,
    }
    assert list(map(str, found)) == sorted(map(str, keys))
    written = read_json(tmp_path / "run" / "environment.json")
    assert written == {**json.loads(json.dumps(environment())), "engine": "lean"}
    assert {"python", "cores", "command", "plumbline"} <= set(written)
    assert {"torch", "numpy"} <= set(written["packages"])


def test_where_things_are(tmp_path):
    with start(tmp_path / "run") as run:
        pass
    assert run.model("sft") == tmp_path / "run" / "models" / "sft"
    assert run.checkpoints("rl") == tmp_path / "run" / "checkpoints" / "rl"
    key = EvaluationKey("rl", "val", "greedy", 40)
    assert run.replays(key) == tmp_path / "run" / "replays" / "rl@000040.val.greedy"


def test_a_package_that_is_not_installed_is_left_out(monkeypatch):
    monkeypatch.setattr("plumbline.runs.run.PACKAGES", ("no-such-package", "numpy"))
    assert list(environment()["packages"]) == ["numpy"]
    monkeypatch.setattr("sys.argv", ["/home/somebody/bin/plumbline", "run", "x"])
    assert environment()["command"] == ["plumbline", "run", "x"], "no path, and nobody's name"
