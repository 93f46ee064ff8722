"""Each algorithm by itself: its file, its row in the docs, its options; and one more, as a file and
a line."""

import re
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from plumbline.algorithms import ALGORITHMS
from plumbline.algorithms.algorithm import centre_rewards
from plumbline.algorithms.cispo import Cispo
from plumbline.algorithms.grpo import Grpo
from plumbline.errors import RecipeError
from plumbline.recipe import load_recipe, parse_recipe
from tests.algorithms.batches import batch_of
from tests.training.toy_runs import fresh_policy, train_toy

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "algorithms.md").read_text(
    encoding="utf-8"
)
ROWS = {
    cells[0].strip("|` "): [cell.strip(" |") for cell in cells]
    for line in PAGE.splitlines()
    if line.startswith("| `") and (cells := line.split(" | "))
}


def parsed(algorithm, **rl):
    return parse_recipe(
        {"name": "x", "model": {"name": "m"}, "rl": {"steps": 1, "algorithm": algorithm, **rl}}
    )


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_file_says_rule_reason_source_assumption_and_edge_case(name):
    kind = ALGORITHMS[name]
    assert kind.__module__ == f"plumbline.algorithms.{name}"
    said = sys.modules[kind.__module__].__doc__
    found = re.findall(r"^(Rule|Reason|Source|Assumption|Edge case)\. \S", said, re.MULTILINE)
    assert found == ["Rule", "Reason", "Source", "Assumption", "Edge case"]
    assert kind().name == name


def test_the_page_has_a_row_for_each_and_no_other():
    assert list(ROWS) == list(ALGORITHMS)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_row_is_true(name):
    _, _, likelihood, _, options, source, families = ROWS[name]
    kind = ALGORITHMS[name]
    defaults = {key: value for key, value in kind().model_dump().items() if key != "name"}
    wanted = [f"`{key}: {'null' if value is None else value}`" for key, value in defaults.items()]
    assert options == ", ".join(wanted)
    assert likelihood.startswith("exact") == kind().exact
    assert families == (", ".join(kind.families) or "all")
    ids = re.findall(r"\d{4}\.\d{5}", source)
    assert ids
    assert all(each in sys.modules[kind.__module__].__doc__ for each in ids)


def test_one_more_is_a_file_and_a_line(tiny_folder, tmp_path, monkeypatch):
    """The example of the page: with its own option, its own error, and what it learns."""
    code = PAGE.split("```python\n")[1].split("```")[0]
    (tmp_path / "reinforce_of_the_page.py").write_text(code, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    from reinforce_of_the_page import Reinforce

    with pytest.raises(RecipeError, match=r"rl\.algorithm: .* reinforce \(.*grpo, "):
        parsed("reinforce")
    monkeypatch.setitem(ALGORITHMS, "reinforce", Reinforce)
    with pytest.raises(RecipeError, match=r"key strenght .* strength\?\)"):
        parsed({"name": "reinforce", "strenght": 2})
    with pytest.raises(RecipeError, match=r"reinforce .* inner epoch, .* 0\b"):
        parsed("reinforce", inner_epochs=2)

    weights = {}
    for name, algorithm in (
        ("one", {"name": "reinforce"}),
        ("none", {"name": "reinforce", "strength": 0.0}),
        ("grpo", "grpo"),
    ):
        policy, run = train_toy(tiny_folder, tmp_path / name, algorithm=algorithm, steps=2)
        weights[name] = {key: value.detach().clone() for key, value in policy.trainable().items()}
        if name == "one":
            assert run.recipe.rl.algorithm == Reinforce()
            assert parse_recipe(run.recipe.model_dump(mode="json")) == run.recipe, (
                "a resumed run reads it again"
            )
    before = fresh_policy(tiny_folder).trainable()
    assert all(torch.equal(value, before[key]) for key, value in weights["none"].items())
    assert any(not torch.equal(value, before[key]) for key, value in weights["one"].items())
    for key, value in weights["grpo"].items():
        torch.testing.assert_close(weights["one"][key], value, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(
    "algorithm", [{"name": "cispo", "clip_high": 1e-3}, {"name": "gspo", "clip_high": 1e-3}]
)
def test_an_autoregressive_model_learns_by_it_and_the_clip_acts(algorithm, tiny_folder, tmp_path):
    rate = {"learning_rate": 1e-2, "schedule": "constant"}
    _, run = train_toy(
        tiny_folder,
        tmp_path,
        algorithm=algorithm,
        steps=3,
        inner_epochs=3,
        beta=0.1,
        optimiser=rate,
    )
    rows = run.rows("rl")
    assert max(row["train/clip_fraction"] for row in rows) > 0.01
    assert all(
        np.isfinite([row["train/loss"], row["train/kl"], row["train/grad_norm"]]).all()
        for row in rows
    )


def scored(new, old, advantage):
    return batch_of(new, old, advantage, torch.full_like(old, 1 / len(new)))


def test_cispo_by_hand():
    """Ratios 3, 1 and 0.1 under a bound of 1.5: weights 1.5, 1 and 0.1, whatever the sign of the
    advantage."""
    new = torch.tensor([3.0, 1.0, 0.1], dtype=torch.float64).log().requires_grad_()
    advantage = torch.tensor([1.0, -2.0, -1.0], dtype=torch.float64)
    losses = Cispo(clip_high=0.5).loss(scored(new, torch.zeros_like(new), advantage))
    losses.value.backward()
    assert new.grad.tolist() == pytest.approx([-1.5 / 3, 2 / 3, 0.1 / 3])
    assert losses.value.item() == pytest.approx(
        float(-(torch.tensor([1.5, -2.0, -0.1]) * new.detach()).sum() / 3)
    )
    assert (int(losses.clipped), losses.units) == (1, 3)


def test_where_ratios_are_one_cispo_has_the_gradient_of_grpo_and_beyond_the_clip_it_keeps_one():
    advantage = torch.tensor([1.0, -2.0], dtype=torch.float64)
    gradients = {}
    for shift in (0.0, 0.5):
        for algorithm in (Grpo(), Cispo()):
            new = torch.full((2,), shift, dtype=torch.float64, requires_grad=True)
            algorithm.loss(
                scored(new, torch.zeros(2, dtype=torch.float64), advantage)
            ).value.backward()
            gradients[algorithm.name, shift] = new.grad.tolist()
    assert gradients["grpo", 0.0] == pytest.approx(gradients["cispo", 0.0])
    assert gradients["grpo", 0.5][0] == 0
    assert gradients["cispo", 0.5][0] == pytest.approx(-1.2 / 2)


@pytest.mark.parametrize(
    ("sampling", "said"),
    [
        ({}, r"just_grpo .* masked .* sampling\.selector: leftmost .*steps: 256,"),
        ({"selector": "leftmost", "steps": 4, "max_tokens": 8}, "steps: 8"),
    ],
)
def test_just_grpo_refuses_a_distribution_that_is_not_left_to_right(sampling, said):
    values = {
        "name": "x",
        "model": {"name": "m", "family": "masked"},
        "rl": {"steps": 1, "algorithm": "just_grpo"},
    }
    with pytest.raises(RecipeError, match=said):
        parse_recipe({**values, "sampling": sampling})
    whole = parse_recipe(
        {**values, "sampling": {"selector": "leftmost", "steps": 8, "max_tokens": 8}}
    )
    assert whole.rl.algorithm.exact


def test_a_name_alone_is_the_algorithm_with_its_defaults_wherever_options_are_laid_over_it(
    tmp_path,
):
    (tmp_path / "base.yaml").write_text(
        "name: x\nmodel: {name: m}\nrl: {steps: 1, algorithm: cispo}\n"
    )
    (tmp_path / "over.yaml").write_text("extends: base.yaml\nrl: {algorithm: {clip_high: 0.7}}\n")
    assert load_recipe(tmp_path / "base.yaml").rl.algorithm == Cispo()
    assert load_recipe(tmp_path / "over.yaml").rl.algorithm == Cispo(clip_high=0.7)
    assert load_recipe(
        tmp_path / "base.yaml", ["rl.algorithm.clip_high=0.7"]
    ).rl.algorithm == Cispo(clip_high=0.7)
    assert load_recipe(tmp_path / "over.yaml", ["rl.algorithm=grpo"]).rl.algorithm == Grpo()


def test_controls_without_rl_are_an_error():
    with pytest.raises(RecipeError, match=r"recipe: controls .* no rl\b"):
        parse_recipe(
            {"name": "x", "model": {"name": "m"}, "controls": {"shuffle_advantages": True}}
        )


def test_the_denominator_and_the_credit_are_the_algorithms_own():
    rewards = np.array([0.2, 0.6, np.nan])
    assert centre_rewards(rewards).tolist() == pytest.approx([-0.2, 0.2, 0.0])
    scaled = centre_rewards(rewards, "group")
    assert scaled[1] == pytest.approx(0.2 / (np.std([0.2, 0.6], ddof=1) + 1e-4))
    assert Cispo().weights([5, 3], 20).tolist() == pytest.approx([1 / 8] * 2)
    assert Grpo().weights([5, 3], 20).tolist() == pytest.approx([1 / 40] * 2)
