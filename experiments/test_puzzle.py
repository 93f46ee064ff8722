"""The puzzles: one solution each, no held-out grid in training, a score that the baselines bear out;
and a run from start to table."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from experiments import puzzle
from experiments.surrogates import record
from plumbline.algorithms import ALGORITHMS
from plumbline.algorithms.objective import Batch, Target
from plumbline.policies.masked.options import MaskedSampling
from plumbline.records import Terms, Trajectory
from plumbline.storage import read_jsonl
from tests.algorithms.batches import rollout_of


@pytest.fixture(scope="module")
def rows():
    return puzzle.make_rows()


def test_grids_are_counted_and_split_by_class():
    assert len(puzzle.list_grids()) == 288
    train, test = puzzle.split_grids()
    assert (len(train), len(test)) == (192, 96)
    classes = [{puzzle.class_of(grid) for grid in part} for part in (train, test)]
    assert [len(part) for part in classes] == [8, 4]
    assert not classes[0] & classes[1]


def test_each_puzzle_has_one_solution_and_no_test_grid_is_trained_on(rows):
    seen = {row["grid"] for split in ("train", "partial") for row in rows[split]}
    train, test = puzzle.split_grids()
    assert seen <= {*train}
    assert {row["grid"] for row in rows["test"]} == {*test}
    assert len({row["prompt"] for row in rows["test"]}) == len(rows["test"]) >= 200
    for row in [*rows["train"][:200], *rows["test"]]:
        assert puzzle.count_solutions(row["prompt"]) == 1
        assert all(
            pair[0] in {"0", pair[1]} for pair in zip(row["prompt"], row["solution"], strict=True)
        )
        assert row["prompt"].count("0") in puzzle.HOLES


def test_no_answer_that_a_model_begins_with_is_a_solution(rows):
    assert len(rows["partial"]) == puzzle.PARTIAL
    shares = []
    for row in rows["partial"]:
        answer, holes = (
            row["solution"],
            [at for at, cell in enumerate(row["prompt"]) if cell == "0"],
        )
        assert answer != row["grid"]
        assert all(answer[at] == cell for at, cell in enumerate(row["prompt"]) if cell != "0")
        shares.append(np.mean([answer[at] == row["grid"][at] for at in holes]))
    assert 0.4 < np.mean(shares) < 0.7


def test_score_pays_cells_and_whole_grids():
    prompt, solution = "0234341221434300", "1234341221434321"
    assert puzzle.score(solution, prompt, solution) == {"cells": 1, "solved": 1}
    assert puzzle.score("1234341221434322", prompt, solution) == {"cells": 2 / 3, "solved": 0}
    assert puzzle.score("1134341221434321", prompt, solution) == {"cells": 1, "solved": 0}
    assert puzzle.score("", prompt, solution) == {"cells": 0, "solved": 0}


def test_the_rules_solve_some_and_an_order_solves_all(rows):
    found = puzzle.measure_baselines(rows["test"])
    assert 0.5 < found["random legal"] < 0.7
    assert found["the surest hole first"] == 1, "so each is solved by looking at one cell at a time"
    assert found["most frequent digit"] == 0


def test_terms_of_the_other_kind_have_no_gradient():
    step = replace(record([0, 1], [1, 2], [3, 3], 0.0, None), selection=-0.5)
    sampling = MaskedSampling(max_tokens=4, steps=2)
    fixed = {"text": "", "sampling": sampling, "finish": "length"}
    turn = Trajectory(prompt=np.zeros(1, np.int64), transitions=(step, step), **fixed)
    logprobs, ones = torch.full((6,), -0.5, requires_grad=True), torch.ones(6)

    def slope(algorithm):
        targets = [Target(rollout_of(turn, advantage=1.0, weight=1.0), turn)]
        batch = Batch(targets, Terms.of([turn], logprobs), logprobs.detach(), ones, ones)
        return torch.autograd.grad(algorithm.loss(batch).value, logprobs)[0].tolist()

    assert slope(puzzle.PartGrpo(part="tokens")) == [-1, -1, 0, -1, -1, 0]
    assert slope(puzzle.PartGrpo(part="order")) == [0, 0, -1, 0, 0, -1]
    assert slope(puzzle.Grpo()) == [-1] * 6


def test_arms_are_run_once_and_shown(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name in puzzle.OWN:
        monkeypatch.setitem(ALGORITHMS, name, puzzle.OWN[name])
    monkeypatch.setattr(puzzle, "TRAIN", 40)
    monkeypatch.setattr(puzzle, "PARTIAL", 40)
    monkeypatch.setattr(puzzle, "BLOCK", 1)
    small = ("hidden=16", "layers=1", "heads=2", "steps=1")
    limits = ("evaluation.limit=8", "evaluation.final_limit=16", "rl.prompts_per_step=2")
    settings = (*(f"model.tiny.{each}" for each in small), *limits)
    monkeypatch.setitem(puzzle.FAMILIES, "masked", settings)
    words = [
        "--seeds",
        "3",
        "--seconds",
        "0.1",
        "--arms",
        "tokens-only",
        "sft",
        "--rows",
        "r.jsonl",
    ]
    for _ in range(2):
        monkeypatch.setattr("sys.argv", ["puzzle", "run", *words])
        puzzle.main()
    rows = [row for _, row in read_jsonl(tmp_path / "r.jsonl")]
    assert [row["arm"] for row in rows] == ["tokens-only", "sft"]
    for row in rows:
        assert row["seconds"] >= 0.1
        assert row["steps"] >= 1
        assert all(row[mode]["n"] == 16 for mode in puzzle.MODES)
    assert [len(row["course"]) for row in rows] == [rows[0]["steps"], 0]
    assert rows[0]["course"][-1][0] == rows[0]["seconds"]
    assert "| sft | 1 |" in capsys.readouterr().out
    monkeypatch.setattr("sys.argv", ["puzzle", "figure", "f.svg", *words])
    puzzle.main()
    assert "tokens-only" in (tmp_path / "f.svg").read_text()
