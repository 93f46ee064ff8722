"""The guide's example is a family: it keeps both laws, learns by SFT and by RL, and survives being
saved."""

import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from plumbline.api import check_policy
from plumbline.config.imports import import_named
from plumbline.errors import ModelError, RecipeError
from plumbline.evaluation.models import evaluate_model
from plumbline.export.export import Export, export
from plumbline.policies import open_policy
from plumbline.policies.opening import ModelOptions, options_as_trained, settled_keys
from plumbline.recipe import parse_recipe
from plumbline.records import Sampling
from plumbline.runs.run import Observer
from plumbline.seeds import derive
from plumbline.storage import write_json
from plumbline.training.pipeline import run_recipe
from tests.toy import ToyTask
from tests.training.toy_runs import train_toy

GUIDE = Path(__file__).parents[2] / "docs" / "architecture.md"


@pytest.fixture
def blocks():
    return re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), flags=re.DOTALL)


@pytest.fixture
def family(blocks, tmp_path, monkeypatch):
    (tmp_path / "tabular_family.py").write_text(blocks[0], encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield "tabular_family:TabularPolicy"
    sys.modules.pop("tabular_family", None)


def section(family, **options):
    return parse_recipe({"name": "x", "model": {"name": "m", "family": family, **options}}).model


@pytest.fixture
def opened(family, tmp_path):
    logits = torch.randn((6, 4), generator=torch.Generator().manual_seed(0))
    write_json(tmp_path / "model" / "table.json", {"alphabet": "abc ", "logits": logits.tolist()})
    return open_policy(section(family, sharpness=1.5), str(tmp_path / "model"))


def test_the_guides_laws_hold(blocks, opened):
    fewer = blocks[1].replace("draws=20_000", "draws=4_000")
    assert fewer != blocks[1]
    exec(compile(fewer, str(GUIDE), "exec"), {"policy": opened})


def test_they_would_not_for_a_sampler_of_another_distribution(opened, monkeypatch):
    module = sys.modules["tabular_family"]
    honest = module.draw
    monkeypatch.setattr(
        module, "draw", lambda logits, uniforms, sampling: honest(logits * 1.2, uniforms, sampling)
    )
    laws = check_policy(
        opened, [{"role": "user", "content": "?"}], Sampling(max_tokens=2), draws=3000
    )
    assert laws.gap > 1e-3
    assert laws.chi_square_p < 1e-3


def test_it_learns_by_rl_and_is_the_same_after_saving(opened, family, tmp_path):
    policy, run = train_toy(
        tmp_path / "model", tmp_path / "run", policy=opened, steps=60, beta=0.01,
        optimiser={"learning_rate": 0.1}, max_tokens=6,
    )  # fmt: skip
    rewards = [row["train/reward"] for row in run.rows("rl")]
    assert sum(rewards[-5:]) / 5 > sum(rewards[:5]) / 5 + 0.3
    policy.save(tmp_path / "saved", {})
    again = open_policy(section(family), str(tmp_path / "saved"))
    torch.testing.assert_close(again.logits, policy.logits)


def test_a_class_of_the_same_methods_is_told_to_inherit(blocks, tmp_path, monkeypatch):
    bare = blocks[0].replace("class TabularPolicy(Policy):", "class TabularPolicy:")
    (tmp_path / "bare_family.py").write_text(bare, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    write_json(tmp_path / "model" / "table.json", {"alphabet": "ab", "logits": [[0.0, 1.0]]})
    with pytest.raises(ModelError, match="subclass of Policy"):
        open_policy(section("bare_family:TabularPolicy"), str(tmp_path / "model"))


def test_a_recipe_may_ask_it_what_it_says_that_it_reads(family):
    policy = import_named(family, "policy family")
    policy.options = replace(policy.options, reads=frozenset({"rl.kl"}))
    values = {"steps": 1, "kl": "forward", "beta": 0.1}
    recipe = {"name": "x", "model": {"name": "m", "family": family}, "rl": values}
    assert parse_recipe(recipe).rl.kl == "forward"


def test_a_recipe_names_it(family):
    assert section(family).family == family
    assert section(family, sharpness=2).sharpness == 2.0
    with pytest.raises(RecipeError, match=r"model\.sharpnes \(.* sharpness"):
        section(family, sharpnes=2)
    with pytest.raises(RecipeError, match=r"key model\.lora"):
        section(family, lora={"rank": 2})


def test_a_saved_model_is_asked_by_the_options_that_it_was_trained_with(family, opened, tmp_path):
    """A run of the recipe, and then what `plumbline eval` does with the model that it saved."""
    recipe = parse_recipe(
        {
            "name": "own",
            "task": {"name": "tests.toy:open_toy", "options": {"size": 4}},
            "model": {"name": str(tmp_path / "model"), "family": family, "sharpness": 3.0},
            "rl": {"steps": 1, "prompts_per_step": 2, "group_size": 2},
            "sampling": {"max_tokens": 4},
            "evaluation": {"every": 0, "final": ["val"]},
        }
    )
    run = run_recipe(recipe, tmp_path / "run")
    saved, task = str(run.folder / "models" / "rl"), ToyTask({"size": 4})
    assert options_as_trained(saved, ModelOptions())[0].sharpness == 3.0
    how = ModelOptions(temperature=1.0, seed=derive(0, "evaluation", "val", "sampled"))
    again = evaluate_model(saved, task, task.examples("val"), "val", how, Observer())
    (stored,) = [e for key, e in run.evaluations().items() if str(key) == "rl.val.sampled"]
    assert [row.completion for row in again.rows] == [row.completion for row in stored.rows]
    with pytest.raises(RecipeError, match=r"sampling\.steps .* flow"):
        options_as_trained(saved, ModelOptions(steps=4))
    done = export(Export(model=str(run.folder), out=tmp_path / "out", evaluate=2), Observer())
    assert (done.figures["parameters"], done.changes[0].same) == (24, 2)
    settled = settled_keys(str(tmp_path / "out"))
    assert settled == {"family": family, "sharpness": 3.0}, "a recipe that goes on with it says so"
    logits = open_policy(section(family), str(tmp_path / "out")).logits
    torch.testing.assert_close(logits, open_policy(section(family), saved).logits)
    for options in ({"dtype": "bfloat16"}, {"kind": "adapter"}, {"kind": "gguf"}):
        with pytest.raises(ModelError):
            export(Export(model=saved, out=tmp_path / "other", **options), Observer())
    assert not (tmp_path / "other").exists()
