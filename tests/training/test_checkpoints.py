"""Which checkpoints stay: never without the last, nor without the best or the nearest before it."""

import re
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from plumbline.errors import ModelError, RunError
from plumbline.policies.opening import check_source
from plumbline.runs.run import Run
from plumbline.storage import read_json, write_json, write_text
from plumbline.training import checkpoints
from plumbline.training.stage import Stage

STEPS = st.lists(
    st.tuples(st.sampled_from([None, 0.0, 0.25, 0.5, 0.5000001, 1.0]), st.booleans()),
    min_size=1,
    max_size=40,
)


def stage(folder, keep):
    """A stage of a run that records nothing, with one weight."""
    run = SimpleNamespace(
        recipe=SimpleNamespace(
            run=SimpleNamespace(keep_checkpoints=keep), checks=SimpleNamespace(ignore=[])
        ),
        checkpoints=lambda name: folder / name,
        marks=dict,
        on_checkpoint=lambda: None,
    )
    made = Stage.__new__(Stage)
    made.run, made.name, made.section, made.folder = run, "rl", run.recipe.run, folder / "rl"
    made.memory, made.older, made.optimiser = (
        {},
        {},
        SimpleNamespace(state=lambda: {"w": torch.zeros(1)}),
    )
    return made


@settings(max_examples=60, deadline=None)
@given(steps=STEPS, keep=st.integers(1, 3))
def test_the_last_and_the_best_are_never_deleted(tmp_path_factory, steps, keep):
    """A step is an evaluation or none, and a checkpoint or none, in the order of the loop."""
    one = stage(tmp_path_factory.mktemp("run"), keep)
    values, saved = {}, []
    for step, (value, due) in enumerate(steps, 1):
        one.remember_best(step, {checkpoints.EVALUATED: value})
        if value is not None:
            values[step] = value
        if not due:
            continue
        one._save(step)
        saved.append(step)
        left = [
            int(path.name.removeprefix("step-"))
            for path in checkpoints._list_checkpoints(one.folder)
        ]
        assert left[-keep:] == saved[-keep:]
        assert len(left) <= keep + 1
        if values:
            best = min(found for found, value in values.items() if value == max(values.values()))
            before = [found for found in saved if found <= best]
            assert not before or before[-1] in left
    assert checkpoints.find_latest(one.folder) == (
        one.folder / f"step-{saved[-1]:06d}" if saved else None
    )
    checkpoints.keep_best(one.folder)
    left = [
        int(path.name.removeprefix("step-")) for path in checkpoints._list_checkpoints(one.folder)
    ]
    best = min(
        (found for found, value in values.items() if value == max(values.values())), default=None
    )
    if saved and best is not None:  # an evaluation after the last checkpoint is not in it
        known = {found: value for found, value in values.items() if found <= saved[-1]}
        best = min(
            (found for found, value in known.items() if value == max(known.values())),
            default=saved[-1],
        )
        assert left == (
            [found for found in saved if found <= best][-1:] if best < saved[-1] else []
        )
    else:
        assert left == []


def test_what_is_best_outlives_a_resume(tmp_path):
    one = stage(tmp_path, 1)
    for step, value in enumerate([0.2, 0.9, 0.3, 0.4], 1):
        one.remember_best(step, {checkpoints.EVALUATED: value})
        one._save(step)
        one.memory = checkpoints.read_checkpoint(checkpoints.find_latest(one.folder))[1]["memory"]
    assert [path.name for path in checkpoints._list_checkpoints(one.folder)] == [
        "step-000002",
        "step-000004",
    ]


def test_a_copy_of_a_checkpoint_is_none(tmp_path):
    one = stage(tmp_path, 1)
    for step in (1, 2):
        one._save(step)
        (one.folder / f"step-{step:06d}").rename(one.folder / f"step-{step:06d}.bak")
    one._save(3)
    assert checkpoints.find_latest(one.folder) == one.folder / "step-000003"
    assert checkpoints._list_checkpoints(one.folder) == [one.folder / "step-000003"]
    run = SimpleNamespace(checkpoints=lambda name: tmp_path / name)
    assert Run._checkpoint_step(run, "rl") == 3


@pytest.mark.parametrize(
    "changes",
    [
        {"step": {}},
        {"step": True},
        {"marks": "x"},
        {"marks": {"metrics": None}},
        {"memory": []},
        {"memory": {"checks": 1}},
    ],
)
def test_a_state_of_other_types_is_damage(tmp_path, changes):
    one = stage(tmp_path, 1)
    one._save(1)
    path = checkpoints.find_latest(one.folder)
    assert checkpoints.read_checkpoint(path)[1]["step"] == 1
    write_json(path / "state.json", read_json(path / "state.json") | changes)
    with pytest.raises(RunError, match=rf"{re.escape(str(path))} .*: state\.json .* values\b"):
        checkpoints.read_checkpoint(path)


@pytest.fixture
def run(tmp_path):
    write_text(tmp_path / "run" / "recipe.yaml", "name: x\n")
    for step in (20, 40, 60):
        write_json(tmp_path / "run" / "checkpoints" / "rl" / f"step-{step:06d}" / "state.json", {})
    write_json(tmp_path / "run" / "models" / "sft" / "plumbline.json", {})
    return tmp_path / "run"


@pytest.mark.parametrize(
    ("asked", "steps"),
    [
        ("checkpoints/rl/step-000050", ["50", "40", "60"]),
        ("checkpoints/rl/step-1", ["1", "20", "40"]),
        ("checkpoints/rl/step-000040", ["40", "20", "40"]),
        ("models/rl", ["20", "40", "60"]),
    ],
)
def test_a_missing_checkpoint_names_the_nearest(run, asked, steps):
    with pytest.raises(ModelError) as error:
        check_source(str(run / asked))
    assert re.findall(r"step (\d+)", error.value.fix) == steps
    assert re.search(r"\brl\b.*; .*: sft\.", error.value.fix)


def test_a_damaged_checkpoint_names_the_one_before_it(run):
    for step, where in ((60, "step 40"), (20, "the stage's beginning")):
        with pytest.raises(RunError) as error:
            checkpoints.read_checkpoint(run / "checkpoints" / "rl" / f"step-{step:06d}")
        assert where in error.value.fix
