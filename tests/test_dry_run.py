"""A dry run: it says what a run would do and need, and what is wrong, and leaves nothing behind."""

import json
import re
import subprocess
import sys
from dataclasses import replace

import pytest

from plumbline import api
from plumbline.checks.preflight import costs
from plumbline.checks.preflight import report as module
from plumbline.checks.preflight.before import open_tasks
from plumbline.checks.preflight.shapes import find_shapes, load_published
from plumbline.cli import main as cli
from plumbline.errors import ModelError
from plumbline.recipe import load_recipe


def fatal(said) -> list[str]:
    return [finding.what for finding in said.findings if finding.level == "fatal"]


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A working directory; no reward is tried, and how long texts are is seen in a small shop."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("plumbline_commerce.task.SKETCHED_ORDERS", 500)
    monkeypatch.setattr(module, "CHECKS", [check for check in module.CHECKS if check.quick])
    return tmp_path


def test_a_dry_run_says_everything_and_leaves_nothing(place):
    said = api.dry_run("commerce-demo")
    assert list(place.iterdir()) == []
    (cause,) = fatal(said)
    assert cause.endswith(" models/smollm2-135m")
    (need,) = said.needs
    assert re.match(r"models/smollm2-135m .*`plumbline get smollm2-135m` .*\(93 MB\)$", need)
    (prompts,) = said.prompts
    assert prompts.sizes == {"train": 1920, "val": 240, "test": 240}
    assert (prompts.finals, prompts.drawn, said.answers) == (["test"], 128.0, 1024)
    assert prompts.coverage == pytest.approx(128 / 1920)
    (coverage,) = [finding for finding in said.findings if finding.check == "coverage"]
    assert coverage.change == {"rl.steps": 240}
    assert said.shapes.parameters == 134_515_008
    text = said.text()
    assert re.search("do: .*`plumbline get smollm2-135m`", text)
    plain = json.loads(json.dumps(said.to_json()))
    assert plain["recipe"]["sampling"]["max_tokens"] == 72
    assert plain["prompts"][0]["coverage"] == prompts.coverage
    assert plain["findings"][0]["fix"].startswith("fetch it first")


def test_it_loads_no_torch(tmp_path):
    code = (
        "import sys; from plumbline.api import dry_run; dry_run('forms-demo');"
        "assert not set(sys.modules) & {'torch', 'transformers'}"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path)


def test_the_command_ends_with_1_where_something_is_wrong(place, monkeypatch, capsys):
    for recipe, status in (("commerce-tiny", 0), ("commerce-demo", 1)):
        monkeypatch.setattr(sys, "argv", ["plumbline", "run", recipe, "--dry-run", "--json"])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        said = json.loads(capsys.readouterr().out)
        assert (ended.value.code, said["fatal"]) == (status, bool(status))
        assert said["recipe"]["name"] == recipe
    monkeypatch.setattr(sys, "argv", ["plumbline", "run", "commerce-tiny", "--dry-run"])
    with pytest.raises(SystemExit):
        cli.main()
    shown = capsys.readouterr().out
    heads = [
        line for line in shown.splitlines() if line in {"needs:", "prompts:", "notes:", "findings:"}
    ]
    assert heads == ["findings:", "needs:", "prompts:", "notes:"]
    assert list(place.iterdir()) == []


def test_the_sizes_said_are_those_that_are_built(tmp_path):
    options = ["task.options.orders=500", "task.options.extraction=97"]
    recipe = load_recipe("commerce-tiny", options)
    opened, wrong = open_tasks(recipe, tmp_path / "none", tmp_path / "scratch")
    said = opened[""]
    task = api.open_task("commerce", folder=tmp_path / "records", **recipe.task.options)
    assert not task.built
    assert said.sizes == {split: len(task.examples(split)) for split in task.splits}
    assert task.built
    assert wrong == []
    again, _ = open_tasks(recipe, tmp_path / "records", tmp_path / "scratch")
    assert (said.built, again[""].built) == (False, True)
    assert again[""].sizes == said.sizes


def test_several_things_that_are_wrong_are_said_at_once(place):
    (place / "runs" / "busy").mkdir(parents=True)
    (place / "runs" / "busy" / "mine.txt").write_text("mine")
    overrides = ["model.name=./typo", "evaluation.final=[train]", "run.folder=runs"]
    said = api.dry_run(
        "commerce-smollm2-extraction", overrides=overrides, out=place / "runs" / "busy"
    )
    causes = fatal(said)
    files, final, model = causes
    assert "(mine.txt)" in files
    assert final.startswith("evaluation.final names train")
    assert model.endswith(" ./typo")
    unknown = api.dry_run(
        "mixed-demo", overrides=["tasks.forms.options.nonsense=1", "tasks.extraction.name=nosuch"]
    )
    causes = fatal(unknown)
    assert len(causes) == 2
    assert "task named nosuch" in causes[0]
    assert re.search(r"tasks\.forms: .* task\.options\.nonsense", causes[1])
    assert unknown.prompts == []
    assert list((place / "runs" / "busy").iterdir()) == [place / "runs" / "busy" / "mine.txt"]


def test_a_task_of_yours_is_asked_and_its_shares_are_shown(place):
    tasks = {
        "first": {"name": "tests.toy:open_toy", "options": {"size": 40}, "weight": 3},
        "second": {"name": "tests.toy:open_toy", "options": {"size": 10}},
    }
    values = {
        "name": "two",
        "tasks": tasks,
        "model": {"tiny": {}},
        "rl": {"steps": 10, "prompts_per_step": 4, "group_size": 2},
        "evaluation": {"every": 5, "limit": 8, "final": ["val"]},
    }
    said = api.dry_run(values)
    assert [(one.name, one.drawn, one.coverage, one.inside) for one in said.prompts] == [
        ("first", 30.0, 0.75, 8),
        ("second", 10.0, 1.0, 8),
    ]
    assert fatal(said) == []
    assert {finding.check for finding in said.findings} == {"evaluation-size", "coverage", "groups"}


def test_a_hub_name_says_what_would_be_fetched(place, monkeypatch):
    monkeypatch.setenv("HF_HUB_CACHE", str(place / "cache"))
    known = api.dry_run(
        "commerce-smollm2-extraction", overrides=["model.name=Polygl0t/Tucano2-qwen-0.5B-Instruct"]
    )
    (need,) = known.needs
    assert "Polygl0t/Tucano2-qwen-0.5B-Instruct from the hub" in need
    assert need.endswith(" 1.0 GB (490,799,104 weights)")
    assert fatal(known) == []
    unknown = api.dry_run("commerce-smollm2-extraction", overrides=["model.name=some/model"])
    (need,) = unknown.needs
    assert "some/model from the hub" in need
    assert "not known" in need
    there = place / "cache" / "models--some--model" / "snapshots" / "0"
    there.mkdir(parents=True)
    (there / "config.json").write_text(json.dumps(CONFIG))
    cached = api.dry_run("commerce-smollm2-extraction", overrides=["model.name=some/model"])
    assert cached.needs == []
    layer = 128 * 128 + 2 * 128 * 64 + 128 * 128 + 3 * 128 * 512 + 2 * 128
    assert cached.shapes.parameters == 2 * layer + 128 + 2 * 2048 * 128


CONFIG = {
    "num_hidden_layers": 2,
    "hidden_size": 128,
    "intermediate_size": 512,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 2048,
    "tie_word_embeddings": False,
}


def test_lengths_and_the_absence_of_gold_answers_are_said(place, tiny_folder):
    values = {
        "name": "bound",
        "task": {"name": "tests.toy:open_toy", "options": {"size": 40, "gold": False}},
        "model": {"name": str(tiny_folder)},
        "rl": {"steps": 10, "prompts_per_step": 4, "group_size": 2},
        "evaluation": {"every": 0, "final": ["val"]},
        "sampling": {"max_tokens": 80},
    }
    assert re.search(r"no gold answers; .* 80\b", api.dry_run(values).text())


# -- shapes ----------------------------------------------------------------------------------------


def test_the_tables_weights_are_those_of_the_model_cards():
    found = load_published()
    assert found["polygl0t/tucano2-qwen-0.5b-base"].parameters == 490_799_104
    assert found["qwen/qwen3-8b"].parameters == 8_190_735_360
    assert found["models/smollm2-135m"].parameters == 134_515_008


def test_the_count_of_weights_is_that_of_the_model(tiny_folder):
    from plumbline.policies import open_policy
    from plumbline.policies.autoregressive.options import AutoregressiveModel

    shapes = find_shapes(str(tiny_folder))
    lora = AutoregressiveModel(name=str(tiny_folder), lora={"rank": 4})
    policy = open_policy(lora, str(tiny_folder))
    adapters = sum(weight.numel() for weight in policy.trainable().values())
    assert (
        shapes.parameters == sum(weight.numel() for weight in policy.model.parameters()) - adapters
    )


def test_time_and_memory_are_counted_from_what_products_take(place, monkeypatch):
    machine = {"name": "CPU", "memory": 24e9, "width": 4, "speeds": [1e9, 4e9]}
    monkeypatch.setattr(costs, "_measure", lambda *_: machine)
    said = api.dry_run("commerce-demo")
    lengths, weights = said.prompts[0].lengths, said.shapes.parameters
    many = 2 * weights / 4e9 + said.shapes.layers * costs.LAYER / costs.TOKENS
    found = said.costs
    examples = said.recipe.sft.steps * said.recipe.sft.batch_size
    shown = examples * (lengths["prompt"] + lengths["answer"]) * 2 * many
    assert found.seconds["sft"] == pytest.approx((shown, shown))
    few = 2 * weights / 1e9 + said.shapes.layers * costs.LAYER / costs.ROWS
    reading = 128 * lengths["prompt"] * many
    drawn = tuple(1024 * tokens * few + reading for tokens in (lengths["answer"], 72))
    assert found.seconds["drawing"] == pytest.approx(drawn)
    assert found.fits
    assert said.to_json()["costs"]["fits"] is True
    assert costs.estimate_costs(said.recipe, said.prompts, replace(said.shapes, inner=0)) is None
    large = api.dry_run("commerce-llada-8b").costs
    assert not large.fits
    assert large.needed[1] > large.needed[0] > 4 * 8e9
    assert "DOES NOT FIT: shorter answers" in "".join(large.lines())
    quick = api.dry_run("commerce-demo", overrides=["rl.seconds=60"]).costs.seconds
    assert (
        max(map(sum, zip(quick["drawing"], quick["learning"], strict=True))) <= 60.01 / costs.CPUS
    )
    one = ["rl.seconds=60", "model.threads=1", "model.dtype=bfloat16"]
    slow = api.dry_run("commerce-demo", overrides=one).costs
    assert slow.seconds["drawing"][1] + slow.seconds["learning"][1] == pytest.approx(60)


def test_products_are_measured_by_a_program_of_its_own():
    recipe = load_recipe("commerce-demo")
    found = costs._measure(recipe, find_shapes("models/smollm2-135m"))
    assert all(1e8 < speed < 1e15 for speed in found["speeds"])
    assert found["memory"] > 1e8
    with pytest.raises(ModelError, match="cannot be measured on cpu"):
        costs._measure(recipe, replace(find_shapes("models/smollm2-135m"), hidden=-1))
