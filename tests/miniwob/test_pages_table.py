"""experiments/miniwob_pages: what is kept of runs, and what stands in its tables."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from experiments.miniwob_pages import read_kept, with_run, written
from plumbline.errors import DataError
from plumbline.evaluation.evaluate import evaluate_completions, references
from plumbline.runs.evaluations import EvaluationKey
from tests.miniwob.test_task import opened


def run(name: str, seed: int, found: dict[EvaluationKey, object], *, finished: bool = True) -> SimpleNamespace:
    """What `with_run` reads of a run."""
    recipe = SimpleNamespace(seed=seed, model=SimpleNamespace(dtype="float32"))
    return SimpleNamespace(
        folder=Path(name), recipe=recipe, evaluations=lambda: found, result=lambda: {} if finished else None
    )


def test_tables_of_two_seeds_and_the_control(tmp_path):
    task = opened(tmp_path / "records")
    examples = task.examples("test")
    gold = [one.gold for one in examples]
    half = [one if number % 2 else "" for number, one in enumerate(gold)]

    def found(**stages: list[str]) -> dict[EvaluationKey, object]:
        return {
            EvaluationKey(stage, "test", "greedy"): evaluate_completions(
                task, examples, texts, source=stage, split="test"
            )
            for stage, texts in stages.items()
        }

    beside = {EvaluationKey("reference", "test", name): one for name, one in references(task, examples, "test").items()}
    kept = []
    for one in (
        run("runs/miniwob-smollm2-seed0", 0, found(sft=half, rl=gold) | beside),
        run("runs/miniwob-smollm2-seed1", 1, found(sft=half, rl=[""] * 4) | beside),
        run("runs/miniwob-smollm2-seed1", 1, found(sft=half, rl=half) | beside),  # in the place of the one before
        run("runs/miniwob-smollm2-control-seed0", 0, found(rl=[""] * 4) | beside),
    ):
        kept = with_run(kept, one)
    lines = written(kept).splitlines()
    rows = {line.split(" | ")[0].removeprefix("| "): line for line in lines}
    assert rows["click-button"] == "| click-button | 4 | 0.50 constant | 0.50 | 0.75 |"
    assert rows["SFT"].startswith("| SFT | 2 | 8 | 0.500 [")
    assert next(line for line in lines if line.startswith("| GRPO | 2 |")).startswith("| GRPO | 2 | 8 | 0.750 [")
    assert rows["oracle"].startswith("| oracle | – | 4 | 1.000 [")
    first, second = [line.split(" | ") for line in lines if " | float32 | " in line and "shuffled" not in line]
    assert [cell.partition(" ")[0] for cell in first[4:7]] == ["0.500", "1.000", "+0.500"]
    assert [cell.partition(" ")[0] for cell in second[4:7]] == ["0.500", "0.500", "+0.000"]
    (shuffled,) = [line.split(" | ") for line in lines if "shuffled" in line and "float32" in line]
    assert [cell.partition(" ")[0] for cell in shuffled[4:7]] == ["0.500", "0.000", "-0.500"]


def test_an_unfinished_run_is_not_kept():
    with pytest.raises(DataError, match="not finished"):
        with_run([], run("runs/miniwob-smollm2-seed0", 0, {}, finished=False))


def test_a_row_of_something_else_is_named(tmp_path):
    (tmp_path / "kept.jsonl").write_text('{"arm": "x"}\n')
    with pytest.raises(DataError, match=r"kept.jsonl:1: .*missing"):
        read_kept(tmp_path / "kept.jsonl")
