"""The recipes of the ways to make a model better, from a tiny model to the report, and what the
report calls them."""

import pytest

from plumbline.errors import ModelError
from plumbline.recipe import load_recipe
from plumbline.training.pipeline import run_recipe

SMALL = (
    *("model.name=null", "model.dtype=float32", "model.threads=1", "model.lora.rank=2"),
    (
        "model.tiny={hidden: 32, layers: 1, heads: 2, vocabulary: 320, context: 512, steps: 2, "
        "batch_size: 2}"
    ),
    *(
        "task.options.train=16",
        "sampling.max_tokens=6",
        "evaluation.final_limit=2",
        "evaluation.untrained=false",
    ),
)
RL = ("rl.steps=1", "rl.prompts_per_step=2")
CALLED = {
    "rft": "Expert iteration",
    "dpo": "DPO",
    "self-distillation": "Distillation",
    "distillation": "Distillation",
    "control": "GRPO",
}


def finished(folder, way, *overrides):
    return run_recipe(
        load_recipe(f"strict-json-{way}", [*SMALL, f"run.folder={folder}", *overrides]),
        folder / way,
    )


def test_every_way_ends_in_a_report_that_names_it(tmp_path):
    base = finished(tmp_path, "sft", "sft.steps=1")
    for way, called in CALLED.items():
        teacher = f"rl.teacher.model={base.folder / 'models' / 'sft'}"
        run = finished(tmp_path, way, *RL, *([teacher] if way == "distillation" else []))
        (row,) = run.rows("rl")
        assert row["train/reward"] is not None
        assert ("train/kl_teacher" in row) == (called == "Distillation")
        report = (run.folder / "report.md").read_text(encoding="utf-8")
        assert (
            f"{called} did not change" in report or f"Only {called} has been evaluated" in report
        ), report[:800]


@pytest.mark.parametrize("way", ["expert-iteration", "unverified"])
def test_controls_differ_from_their_way_in_what_is_wrong_alone(way):
    recipe, rft = load_recipe(f"strict-json-{way}"), load_recipe("strict-json-expert-iteration")
    assert recipe.rl.algorithm.unverified == (way == "unverified")
    assert recipe.rl.model_copy(update={"algorithm": rft.rl.algorithm}) == rft.rl


def test_a_teacher_that_is_not_made_yet_is_said_before_anything_is_trained(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    recipe = load_recipe("strict-json-distillation", [*SMALL, *RL])
    with pytest.raises(ModelError, match="runs/strict-json-sft") as raised:
        run_recipe(recipe, tmp_path / "run")
    assert "`plumbline run strict-json-sft`" in raised.value.fix
    assert not (tmp_path / "run" / "metrics.jsonl").exists()
