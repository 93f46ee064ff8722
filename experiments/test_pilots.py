"""The grid of pilots: every run is a recipe, none is made twice, and a cell is measured once."""

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from experiments import pilots, ways
from plumbline.storage import read_jsonl, write_jsonl


@pytest.fixture
def made(monkeypatch):
    """What was measured and trained, in order, without a model."""
    done = []
    figures = ways.PilotFigures(**dict.fromkeys(ways.PilotFigures.__slots__, 0))

    def measure(task, model):
        done.append((task, model, "pilot"))
        return figures

    def train(options, way, seed):
        done.append((options.task, options.model, way))
        row = {"task": options.task, "model": options.model, "arm": way, "seed": seed}
        row |= {"start": options.start, "greedy": {}}
        write_jsonl(options.rows, [*pilots.read(options.rows), row])

    monkeypatch.setattr(ways, "pilot", measure)
    monkeypatch.setattr(ways, "run_arm", train)
    monkeypatch.setattr(ways, "train_start", lambda *_: "started")
    return done


def test_the_list_is_one_order_and_has_controls():
    listed = pilots.runs()
    assert listed == pilots.runs()
    assert max(Counter(listed).values()) == 1
    assert len(listed) >= 48
    ways_made = Counter(way for _, way in listed)
    assert set(ways_made) >= {"sft", "grpo", "expert-iteration", "dynamic", "dpo"}
    cells = {cell for cell, way in listed if way in {"control", "unverified"}}
    assert len(cells) >= len(pilots.PLAN) / 3


def test_runs_follow_each_other_and_a_cell_is_measured_once(made, tmp_path, monkeypatch):
    rows = tmp_path / "pilots.jsonl"
    monkeypatch.setattr("sys.argv", ["pilots.py", "next", "--rows", str(rows)])
    for _ in range(3):
        pilots.main()
    trained = [each for each in made if each[2] != "pilot"]
    wanted = [(cell.task, cell.model, way) for cell, way in pilots.runs()[:3]]
    assert trained == wanted
    monkeypatch.setattr("sys.argv", ["pilots.py", "next", "--minutes", "5", "--rows", str(rows)])
    pilots.main()
    written = [row for _, row in read_jsonl(rows)]
    cells = [(row["task"], row["model"], row["start"]) for row in written if row["arm"] == "pilot"]
    assert len(cells) == len(set(cells)) == len(pilots.PLAN)
    assert len(written) == len(pilots.PLAN) + len(pilots.runs())


def test_the_command_of_the_docstring_runs(tmp_path):
    assert "python -m experiments.pilots list" in pilots.__doc__
    done = subprocess.run(
        [sys.executable, "-m", "experiments.pilots", "list", "--rows", tmp_path / "none.jsonl"],
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\n") == len(pilots.runs()) + 1
