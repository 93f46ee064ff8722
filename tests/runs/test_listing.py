"""Whatever lies in a folder of runs has its line, and what runs have to do with one another is
found."""

import json
import os
import shutil
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from plumbline.errors import RunError, TrainingStopped
from plumbline.recipe import value_differences
from plumbline.runs.lineage import (
    ELSEWHERE,
    changes_text,
    find_origins,
    find_predecessors,
    list_changes,
    list_runs,
    order_runs,
)
from plumbline.runs.metadata import ModelMetadata
from plumbline.runs.record import RunRecord
from plumbline.runs.run import Run
from plumbline.storage import write_json, write_text
from tests.reports.building import recipe
from tests.runs.stored import rewards, stored

DAY = "2026-02-17T{:02d}:00:00+00:00"
GREEDY = "rl.test.greedy"
KILLED = "killed, or its machine went down"
PLATEAU = "plateau holds at step 1"


def listed(*folders: Path) -> dict[str, RunRecord]:
    return {run.name: run for run in list_runs(folders)[0]}


def test_a_finished_run_says_what_it_is(tmp_path):
    stored(
        tmp_path / "runs" / "v1", {GREEDY: rewards(0.5), "base.test.greedy": rewards(0.4)}, seed=3
    )
    run = listed(tmp_path / "runs")["v1"]
    assert (run.status, run.why, run.values["seed"], len(run.identity)) == ("finished", "", 3, 12)
    assert (f"{run.started:%H:%M}", run.seconds, dict(run.steps), run.planned) == (
        "12:00",
        120.0,
        {"rl": 60},
        {"rl": 60},
    )
    assert [str(key) for key in run.finals] == [GREEDY]
    assert [str(key) for key in run.starts] == ["base.test.greedy"]
    assert RunRecord(tmp_path / "runs" / "v1", "x").identity == run.identity


def test_a_run_that_goes_on_is_told_from_one_that_was_stopped_and_by_what(tmp_path):
    place = tmp_path / "runs"
    stored(place / "killed", steps=7, finished=False)
    with Run.start(recipe(), place / "begun"):
        pass
    with pytest.raises(RunError), Run.start(recipe(), place / "refused"):
        raise RunError("no such model", "give one")
    for name, error in (
        ("interrupted", KeyboardInterrupt()),
        ("failed", ZeroDivisionError("by zero")),
    ):
        with pytest.raises(type(error)), _begun(place / name):
            raise error
    with Run.start(recipe(), place / "going") as run:
        run.metrics("rl", 1, {})
        found = listed(place)
        ends = {name: (run.status, run.why) for name, run in found.items()}
    assert ends == {
        "killed": ("stopped", KILLED),
        "begun": ("never started", ""),
        "refused": ("never started", "RunError: no such model"),
        "interrupted": ("stopped", "interrupted"),
        "failed": ("stopped", "ZeroDivisionError: by zero"),
        "going": ("running", ""),
    }
    assert found["killed"].steps == {"rl": 7}
    with Run.start(recipe(), place / "interrupted", resume=True) as run:
        assert listed(place)["interrupted"].status == "running"
    assert listed(place)["interrupted"].why == KILLED, "it was resumed since"


def test_a_run_that_a_rule_stopped_is_not_finished(tmp_path):
    with suppress(TrainingStopped), _begun(tmp_path / "runs" / "halted") as run:
        run.halt({"rule": "plateau", "step": 1})
        raise TrainingStopped(PLATEAU)
    found = listed(tmp_path / "runs")["halted"]
    assert (found.status, found.why) == ("stopped", f"TrainingStopped: {PLATEAU}")


@contextmanager
def _begun(folder: Path):
    with Run.start(recipe(), folder) as run:
        run.metrics("rl", 1, {})
        yield run


DAMAGES = {
    "recipe.yaml": ("[1, 2]", "is a list, where a recipe is a mapping"),
    "result.json": ('{"evaluations"', "result.json is not JSON"),
    "timings.jsonl": ('{"stage": 1, "step": 1}\n', "stage: "),
    "events.jsonl": (b"\xff\xfe\n", "not UTF-8"),
    "timings.jsonl ": (
        '{"stage": "rl", "step": 1, "time/step": 1e308}\n',
        "which are no seconds of a step",
    ),
    "timings.jsonl  ": (f'{{"stage": "rl", "step": {"9" * 200}}}\n', "step: "),
    "recipe.yaml ": ("a: &a {b: *a}", "an anchor stands inside itself"),
    "evaluations/paper.json": ("{}", "paper does not name an evaluation"),
}


@pytest.mark.parametrize(("file", "damage"), DAMAGES.items(), ids=list(DAMAGES))
def test_a_damaged_record_is_named_and_costs_the_others_nothing(tmp_path, file, damage):
    stored(tmp_path / "good", {GREEDY: rewards(0.5)})
    stored(tmp_path / "bad", {GREEDY: rewards(0.5)})
    content, said = damage
    (tmp_path / "bad" / file.strip()).write_bytes(
        content if isinstance(content, bytes) else content.encode()
    )
    found = listed(tmp_path)
    assert found["bad"].status == "damaged"
    assert said in found["bad"].why
    assert (found["good"].status, found["good"].why) == ("finished", "")


@pytest.mark.parametrize(
    "moment", ["0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59", "1e308", None, [1]]
)
def test_a_moment_that_no_calendar_has_is_no_error(tmp_path, moment):
    stored(tmp_path / "run")
    with (tmp_path / "run" / "events.jsonl").open("a") as file:
        file.write(json.dumps({"kind": "started", "message": "", "time": moment}) + "\n")
    os.utime(tmp_path / "run" / "recipe.yaml", (2**40, 2**40))
    assert listed(tmp_path)["run"].status == "finished"


def test_what_is_no_run_is_named_and_nothing_hangs_or_raises(tmp_path):
    stored(tmp_path / "v1")
    (tmp_path / "empty").mkdir()
    (tmp_path / "cut" / "evaluations").mkdir(parents=True)
    write_text(tmp_path / "cut" / ".plumbline", "run\n")
    write_text(tmp_path / "theirs" / "trainer_state.json", "{}")
    write_text(tmp_path / "theirs" / "inner" / "recipe.yaml", "name: x")
    write_text(tmp_path / "notes" / "todo.md", "mine")
    (tmp_path / ".hidden").mkdir()
    (tmp_path / "file.txt").touch()
    (tmp_path / "around").symlink_to(tmp_path)
    os.mkfifo(tmp_path / "v1" / "samples.pipe")
    stored(tmp_path / "piped")
    (tmp_path / "piped" / "events.jsonl").unlink()
    os.mkfifo(tmp_path / "piped" / "events.jsonl")
    runs, others = list_runs([tmp_path])
    by_name = {run.name: run for run in runs}
    assert set(by_name) == {"v1", "cut", "piped"}
    assert by_name["cut"].status == "damaged"
    assert "recipe.yaml" in by_name["cut"].why
    assert by_name["piped"].status == "damaged"
    assert "events.jsonl " in by_name["piped"].why
    found = {Path(place).name: what for place, what in others.items()}
    assert set(found) == {"empty", "theirs", "notes"}
    assert found["empty"] == "empty"
    assert ELSEWHERE["trainer_state.json"] in found["theirs"]
    assert "todo.md" in found["notes"]


@pytest.mark.parametrize(
    ("name", "said"), [("nowhere", "is not there"), ("file", "is a file"), ("empty", "no run in")]
)
def test_a_folder_without_a_run_is_an_error(tmp_path, name, said):
    (tmp_path / "file").touch()
    (tmp_path / "empty").mkdir()
    with pytest.raises(RunError, match=said):
        list_runs([tmp_path / name])


def test_runs_of_sweeps_and_of_several_folders_have_names_of_their_own(tmp_path):
    for name in ("one/sweep/seed=1", "one/sweep/seed=2", "one/v1", "two/v1"):
        stored(tmp_path / name)
    assert set(listed(tmp_path / "one")) == {"sweep/seed=1", "sweep/seed=2", "v1"}
    assert set(listed(tmp_path / "one" / "v1", tmp_path / "two")) == {
        str(tmp_path / "one/v1"),
        str(tmp_path / "two/v1"),
    }
    assert len(listed(tmp_path / "one", tmp_path / "one" / "v1")) == 3, (
        "a run that is given twice is listed once"
    )


def test_a_recipe_of_another_version_is_shown_as_it_stands(tmp_path):
    stored(tmp_path / "old")
    path = tmp_path / "old" / "recipe.yaml"
    write_text(
        path,
        path.read_text().replace(
            "group_size: 8", "group_size: 8\n  clip_low: 0.2\n  when: 2026-02-17"
        ),
    )
    run = listed(tmp_path)["old"]
    assert (run.status, run.identity, run.values["rl"]["clip_low"]) == ("finished", "", 0.2)
    assert json.dumps(run.values["rl"]["when"]) == '"2026-02-17"', (
        "whatever stands there can be written as JSON"
    )


# -- what they have to do with one another ---------------------------------------------------------


def began(runs: list[RunRecord]) -> dict[str, str]:
    return {name: str(origin) for name, origin in find_origins(runs).items()}


def test_a_model_is_found_by_its_path_its_card_or_the_names_in_its_path(tmp_path, monkeypatch):
    place = tmp_path / "runs"
    stored(place / "sft")
    first = RunRecord(place / "sft", "sft")
    card = ModelMetadata(
        recipe=f"commerce-demo {first.identity}", stage="sft", task="forms", options={}
    )
    moved = tmp_path / "kept"
    write_json(moved / "plumbline.json", card.to_json())
    for name, model in {
        "absolute": str(place / "sft" / "models" / "sft"),
        "relative": "runs/sft/models/rl",
        "moved": str(moved),
        "gone": "/elsewhere/runs/sft/models/rl",
        "hub": "org/model",
        "strange": "/elsewhere/runs/other/models/rl",
    }.items():
        stored(place / name, model={"name": model})
    stored(place / "tiny", model={"tiny": {}})
    monkeypatch.chdir("/")
    runs, _ = list_runs([place])
    assert began(runs) == {
        "sft": "models/small",
        "absolute": "sft (sft)",
        "relative": "sft (rl)",
        "moved": "sft (sft)",
        "gone": "sft (rl)",
        "hub": "org/model",
        "strange": "/elsewhere/runs/other/models/rl",
        "tiny": "a tiny model",
    }
    write_text(moved / "plumbline.json", "{}")
    assert began(list_runs([place])[0])["moved"] == str(moved), "a damaged card says nothing"


def test_runs_stand_below_the_one_they_began_from_in_the_order_of_time(tmp_path):
    stored(tmp_path / "sft", began=DAY.format(9))
    model = {"name": str(tmp_path / "sft/models/sft")}
    stored(tmp_path / "b", began=DAY.format(12), model=model)
    stored(tmp_path / "a", began=DAY.format(13), model=model)
    stored(tmp_path / "other", began=DAY.format(10))
    runs, _ = list_runs([tmp_path])
    shown = [(run.name, depth) for run, depth in order_runs(runs, find_origins(runs))]
    assert shown == [("sft", 0), ("b", 1), ("a", 1), ("other", 0)]


def test_runs_that_began_from_one_another_in_a_circle_are_all_listed(tmp_path):
    stored(tmp_path / "a", model={"name": str(tmp_path / "b/models/rl")})
    stored(tmp_path / "b", model={"name": str(tmp_path / "a/models/rl")})
    runs, _ = list_runs([tmp_path])
    assert {run.name for run, _ in order_runs(runs, find_origins(runs))} == {"a", "b"}


def test_a_version_is_compared_with_the_one_before_it_that_has_a_result(tmp_path):
    done = {GREEDY: rewards(0.5)}
    model = {"name": str(tmp_path / "sft/models/sft")}
    rl = {"steps": 60, "prompts_per_step": 4, "group_size": 8}
    stored(tmp_path / "sft", done, began=DAY.format(1))
    for hour, (name, over) in enumerate(
        {
            "v1-seed0": {},
            "v1-seed1": {"seed": 1},
            "v2": {"rl": rl | {"beta": 0.1}, "seed": 0},
            "v2-control": {"rl": rl | {"beta": 0.1}, "controls": {"shuffle_advantages": True}},
            "v3-crashed": {"rl": rl | {"beta": 0.2}, "seed": 1},
            "v4-seed1": {"rl": rl | {"beta": 0.3}, "seed": 1},
            "other-task": {"task": {"name": "commerce"}},
        }.items(),
        2,
    ):
        crashed = name == "v3-crashed"
        seed = {"seed": 0, **over}
        stored(
            tmp_path / name,
            None if crashed else done,
            began=DAY.format(hour),
            finished=not crashed,
            model=model,
            **seed,
        )
    runs, _ = list_runs([tmp_path])
    assert find_predecessors(runs, find_origins(runs)) == {
        "v1-seed0": "sft",
        "v1-seed1": "sft",
        "v2": "v1-seed0",
        "v2-control": "v2",
        "v3-crashed": "v2",
        "v4-seed1": "v2",
        "other-task": "sft",
    }
    shutil.rmtree(tmp_path / "sft")
    runs, _ = list_runs([tmp_path])
    assert find_predecessors(runs, find_origins(runs))["v1-seed1"] == "v1-seed0", (
        "seeds of the first version are compared"
    )


def test_what_differs_is_said_in_words_and_what_a_run_is_called_is_no_difference(tmp_path):
    stored(tmp_path / "a")
    stored(
        tmp_path / "b",
        name="b",
        description="y" * 99,
        run={"folder": "z"},
        sft={"steps": 5},
        seed=8,
        model={"name": "m" * 60},
    )
    one, other = (RunRecord(tmp_path / name, name) for name in "ab")
    found = list_changes(one, other)
    assert sorted(key for key, *_ in found) == ["model.name", "seed", "sft"]
    words = changes_text(found)
    assert "sft added" in words
    assert f"model.name models/small → {'m' * 47}…" in words
    assert "sft left out" in changes_text(list_changes(other, one))
    assert changes_text(found, 1).endswith("; and 2 more")
    assert changes_text(list_changes(one, one)) == "nothing"


def test_differences_of_plain_values_are_those_of_recipes():
    assert list(value_differences({"a": {"b": 1}, "c": 2}, {"a": {"b": 3}, "d": 4})) == [
        ("a.b", 1, 3),
        ("c", 2, None),
        ("d", None, 4),
    ]
