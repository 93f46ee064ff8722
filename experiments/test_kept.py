"""experiments/kept: what is kept of runs, and what stands in its tables."""

from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from environments.miniwob.tests.test_task import opened
from experiments.kept import PAGES, read_kept, with_run, written
from plumbline.errors import DataError
from plumbline.evaluation.evaluate import evaluate_completions, evaluate_references
from plumbline.recipe import load_recipe
from plumbline.runs.evaluations import EvaluationKey
from plumbline.tasks import open_task


def run(name, seed, found, *over, recipe="miniwob-smollm2", finished=True) -> SimpleNamespace:
    """What `with_run` reads of a run."""
    recipe = load_recipe(recipe, [f"seed={seed}", "model.dtype=float32", *over])
    result = {} if finished else None
    return SimpleNamespace(
        folder=Path(name), recipe=recipe, evaluations=lambda: found, result=lambda: result
    )


def judged(task, examples, split: str, **stages: list[str]) -> dict[EvaluationKey, object]:
    """Evaluations of the answers of stages, and the references."""
    found = {
        EvaluationKey(stage, split, "greedy"): evaluate_completions(
            task, examples, texts, source=stage, split=split
        )
        for stage, texts in stages.items()
    }
    beside = evaluate_references(task, examples, split)
    return found | {EvaluationKey("reference", split, name): one for name, one in beside.items()}


def test_tables_of_two_seeds_and_the_control(tmp_path):
    task = opened(tmp_path / "records")
    examples = task.examples("test")
    gold = [one.gold for one in examples]
    half = [one if number % 2 else "" for number, one in enumerate(gold)]

    nothing, found = [""] * 4, partial(judged, task, examples, "test")
    kept = []
    for one in (
        run("runs/miniwob-smollm2-seed0", 0, found(sft=half, rl=gold)),
        run("runs/miniwob-smollm2-seed1", 1, found(sft=half, rl=nothing)),
        # in the place of the one before
        run("runs/miniwob-smollm2-seed1", 1, found(sft=half, rl=half)),
        run(
            "runs/miniwob-smollm2-control-seed0",
            0,
            found(rl=nothing),
            recipe="miniwob-smollm2-control",
        ),
    ):
        kept = with_run(kept, one)
    lines = written(PAGES["miniwob"], kept).splitlines()
    rows = {line.split(" | ")[0].removeprefix("| "): line for line in reversed(lines)}
    assert rows["click-button"] == "| click-button | 4 | 0.50 constant | 0.50 | 0.75 |"
    assert rows["SFT"].startswith("| SFT | 2 | 8 | 0.500 [")
    assert next(line for line in lines if line.startswith("| GRPO | 2 |")).startswith(
        "| GRPO | 2 | 8 | 0.750 ["
    )
    assert rows["oracle"].startswith("| oracle | – | 4 | 1.000 [")
    seeds = [line.split(" | ") for line in lines if " | float32 | " in line]
    assert [(cells[0], cells[1]) for cells in seeds] == [
        *(
            ("| SFT", "0"),
            ("| SFT", "1"),
            ("| GRPO", "0"),
            ("| GRPO", "1"),
            ("| GRPO, shuffled advantages", "0"),
        )
    ]
    figures = [[cell.partition(" ")[0] for cell in cells[4:6]] for cells in seeds]
    assert figures == [
        ["0.500", "–"],
        ["0.500", "–"],
        ["1.000", "+0.500"],
        ["0.500", "+0.000"],
        ["0.000", "-0.500"],
    ]


def test_what_is_right_of_a_form_is_every_field_and_not_a_reward_above_0(tmp_path):
    options = {"records": 5, "mixed": 0}
    task = open_task("forms", options, tmp_path)
    examples = task.examples("held-out-forms")[:6]
    # The last text is another: two forms take it, one is not sent for it, and the plans in
    # Portuguese have none.
    answers = ["Type 'Q".join(one.gold.rsplit("Type '", 1)) for one in examples]
    found = judged(task, examples, "held-out-forms", sft=answers)
    of_sft = found[EvaluationKey("sft", "held-out-forms", "greedy")]
    assert [row.parts["exact"] for row in of_sft.rows] == [0, 0, 1, 1, 1, 0]
    assert of_sft.mean_reward > 0.7
    kept = with_run([], run("runs/forms-smollm2", 0, found, recipe="forms-smollm2"))
    lines = written(PAGES["forms"], kept).splitlines()
    assert any(line.startswith("| SFT | 1 | 6 | 0.500 [") for line in lines)
    assert any(line.startswith("| oracle | – | 6 | 1.000 [") for line in lines)


def test_a_folder_of_no_arm_is_named():
    with pytest.raises(DataError, match=r"runs/mine is .*miniwob-smollm2-control"):
        with_run([], run("runs/mine", 0, {}))


@pytest.mark.parametrize(
    ("name", "over", "told"),
    [
        ("forms-smollm2-seed0", "sft.steps=200", "sft.steps: 400 -> 200"),
        ("forms-smollm2-attempts-seed0", "seed=0", "task.options.attempts: 2 -> "),
        (
            "forms-smollm2-control-seed0",
            "rl.steps=3",
            "controls.shuffle_advantages: True -> False; rl.steps: 20 -> 3",
        ),
    ],
)
def test_a_run_of_another_recipe_than_its_folder_says_is_refused(name, over, told):
    with pytest.raises(DataError, match=f"{name} is .*{told}"):
        with_run([], run(f"runs/{name}", 0, {}, over, recipe="forms-smollm2"))


def test_seeds_threads_and_a_stage_less_are_of_the_same_arm():
    over = ("model.threads=1", "evaluation.untrained=false", "model.name=elsewhere/sft", "sft=null")
    assert with_run([], run("runs/forms-smollm2-seed2", 2, {}, *over, recipe="forms-smollm2")) == []
    over = ("task.options.attempts=2", "rl=null")
    assert (
        with_run([], run("runs/forms-smollm2-attempts-seed2", 2, {}, *over, recipe="forms-smollm2"))
        == []
    )


def test_an_unfinished_run_is_not_kept():
    with pytest.raises(DataError, match="not finished"):
        with_run([], run("runs/miniwob-smollm2-seed0", 0, {}, finished=False))


def test_a_row_of_something_else_is_named(tmp_path):
    (tmp_path / "kept.jsonl").write_text('{"arm": "x"}\n')
    with pytest.raises(DataError, match=r"kept.jsonl:1: .*missing"):
        read_kept(tmp_path / "kept.jsonl")
