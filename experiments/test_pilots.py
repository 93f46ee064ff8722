"""The grid of pilots: every run is a recipe, none is made twice, and a cell is measured once."""

import subprocess
import sys
from collections import Counter
from dataclasses import astuple, replace
from pathlib import Path

import numpy as np
import pytest

from experiments import pilots, ways
from plumbline.checks.gain import Coefficients, GainTable, Offer, foretell_way
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


def answers_of(number, way):
    """Steps, and the answers in them."""
    steps = 4 + 3 * (number % 5)
    return steps, steps * (16 if way == "sft" else 128)


def make_rows(cells, gain_of):
    """Rows as the list writes them, of cells whose figures and gains are known."""
    rows = []
    for number, cell in enumerate(cells):
        place = dict(zip(("task", "model", "start"), (*cell,), strict=True))
        spread = 0.05 + 0.3 * (number % 7) / 7
        figures = {"reward": 0.1 + 0.1 * (number % 5), "spread": spread, "right": 0.1}
        figures |= {"draw_seconds": 0.1, "update_seconds": 0.2, "right_prompts": 0.5}
        rows.append({"arm": "pilot", "seed": 0, "figures": figures, **place})
        offer = Offer(figures["reward"], spread, 0.1, 0.2, gold=True)
        for way in pilots.RATES:
            change = gain_of(offer, way, number)
            row = {
                "arm": way,
                "seed": 0,
                "steps": answers_of(number, way)[0],
                "set": pilots.SET,
                **place,
            }
            rows.append(row | {"greedy": {"reward": {"change": [change, 0, 0]}}})
    return rows


TRUE = GainTable(
    runs=0,
    low=0.0,
    high=0.0,
    ways={
        way: Coefficients(-0.5, 0.9, 0.0 if way == "sft" else 1.1, way == "sft", rate)
        for way, rate in pilots.RATES.items()
    },
)


def true_gain(offer, way, number):
    return foretell_way(way, offer, answers_of(number, way)[1], TRUE).gain


def test_what_made_the_rows_is_found_again():
    cells = [(f"task{number % 6}", "a", number) for number in range(30)]
    early, late = pilots.split_points(make_rows(cells, true_gain), [])
    assert (len(early), len(late)) == (150, 0), "none of them is in the list"
    table = pilots.fit(early)
    assert table.ways["grpo"].answers == pytest.approx(0.9, abs=0.15)
    assert table.ways["grpo"].spread == pytest.approx(1.1, abs=0.1)
    for point in early:
        assert pilots.foretold_of(point, table).gain == pytest.approx(point.gain, abs=0.02)


def test_errors_widen_the_intervals_and_four_fifths_hold():
    noise = np.random.default_rng(0).normal(0, 0.08, 1000)

    def noisy(offer, way, number):
        return true_gain(offer, way, number) + noise[5 * number + list(pilots.RATES).index(way)]

    cells = [(f"task{number % 6}", "a", number) for number in range(60)]
    early, _ = pilots.split_points(make_rows(cells, noisy), [])
    found = pilots.leave_task_out(early)
    held = np.mean([one.low <= point.gain <= one.high for point, one in found])
    assert 0.72 <= held <= 0.88
    order = np.random.default_rng(1).permutation(len(early))
    shuffled = [replace(early[at], gain=early[other].gain) for at, other in enumerate(order)]
    better, worse = (
        pilots.area_under_curve([one.gain for _, one in each], [point.gain for point, _ in each])
        for each in (found, pilots.leave_task_out(shuffled))
    )
    assert better > 0.72 > 0.6 > worse


def test_later_lines_are_foretold_by_what_stood_before_them():
    rows = make_rows([astuple(cell) for cell in pilots.PLAN], true_gain)
    others = [row for row in rows if row["arm"] == "sft"]
    early, late = pilots.split_points(rows, others, 24)
    measured = [row for row in rows[:24] if row["arm"] == "pilot"]
    assert len(measured) == 4
    assert len(early) == 20 + 4, "and of the others those of cells that were measured by then"
    assert len(late) == 5 * len(pilots.PLAN) - 20
    assert pilots.split_points(rows, [])[1] == []


def test_the_table_has_equal_budgets_and_stars_what_holm_leaves():
    def row(way, p, budget=pilots.SECONDS):
        reward = {"before": 0.2, "change": [0.1, -0.05, 0.25], "p": p}
        place = {"task": "tickets", "model": pilots.SMALL, "start": 0}
        return {"arm": way, "budget": budget, "greedy": {"reward": reward}, **place}

    rows = [row("grpo", 0.06), row("dpo", 0.02), row("sft", 0.001, 300)]
    head, _, line = pilots.table_of(rows).splitlines()
    assert "sft" not in head
    assert line.count("+0.10 ±0.15*") == 1, "of two only .02 is left"


def test_area_under_curve_by_counting():
    values, gains = [0.1, 0.4, 0.35, 0.8, 0.35], [0.0, 0.0, 0.2, 0.3, 0.01]
    runs = [*zip(values, gains, strict=True)]
    pairs = [(a, b) for a, x in runs for b, y in runs if x >= 0.05 > y]
    counted = sum((a > b) + (a == b) / 2 for a, b in pairs) / len(pairs)
    assert pilots.area_under_curve(values, gains) == pytest.approx(counted)


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
