"""Every family through the one pipeline: made, SFT, RL in each likelihood, evaluated, saved, opened
again."""

import functools
import math
import shutil
import sys

import pytest
import torch

from plumbline.errors import ModelError, RecipeError
from plumbline.evaluation.models import evaluate_model
from plumbline.policies import open_policy
from plumbline.policies.opening import ModelOptions, options_as_trained, saved_settings
from plumbline.recipe import ModelSection, parse_recipe
from plumbline.runs.run import Observer
from plumbline.storage import read_json, write_json
from plumbline.training.pipeline import run_recipe
from plumbline.training.sft import _backward, cut_microbatches
from tests.toy import ToyTask
from tests.training.toy_runs import fresh_policy, messages

SAMPLING = {
    "masked": {"steps": 4, "selector": "plackett_luce"},
    "slots": {"steps": 2, "selector": "plackett_luce"},
    "flow": {"steps": 4},
}


TINY = {"hidden": 32, "layers": 2, "heads": 2, "vocabulary": 300, "context": 128, "steps": 2}


def recipe(family, controls=None, sampling=None, start=None, **rl):
    """All stages of a tiny model that is made; or RL alone, of the model of the run `start`, and no
    evaluation."""
    stages = {"evaluation": {"every": 0, "final": [], "untrained": False}}
    if start is None:
        evaluation = {"every": 1, "limit": 2, "final": ["val"]}
        stages = {"sft": {"steps": 2, "batch_size": 4}, "evaluation": evaluation}
    return parse_recipe(
        {
            "name": family,
            "task": {"name": "tests.toy:open_toy", "options": {"size": 4}},
            "model": {
                "family": family,
                **({"slot": 4} if family == "slots" else {"attention": "prefix"}),
                "threads": 1,
                **(
                    {"tiny": TINY}
                    if start is None
                    else {"name": str(start.folder / "models" / "sft")}
                ),
            },
            "rl": {"steps": 2, "prompts_per_step": 2, "group_size": 3, **rl},
            "controls": controls or {},
            "sampling": {"max_tokens": 8, **SAMPLING[family], **(sampling or {})},
            **stages,
        }
    )


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Gives a finished run of a family, which is made when it is first asked for."""
    folder = tmp_path_factory.mktemp("families")
    return functools.cache(lambda family: run_recipe(recipe(family), folder / family))


@pytest.fixture(scope="module", params=sorted(SAMPLING))
def finished(request, runs):
    return request.param, runs(request.param)


def test_a_run_has_its_metrics_and_its_laws_hold(finished):
    family, run = finished
    rows = [row for row in run.rows("rl") if "train/reward" in row]
    assert len(rows) == 2
    for row in rows:
        assert row["train/sampler_scorer_gap"] < 1e-4
        assert math.isfinite(row["train/loss"])
        assert row["train/completion_length"] <= 8
    assert "every choice" in (run.folder / "report.html").read_text(encoding="utf-8")
    assert saved_settings(str(run.folder / "models" / "rl"))["family"] == family
    card = read_json(run.folder / "models" / "rl" / "plumbline.json")
    assert card["model"]["dtype"] == "float32", "what auto was is remembered"


@pytest.mark.parametrize("family", sorted(SAMPLING))
def test_a_sampler_behind_is_a_copy_that_draws_by_its_own_distribution(family, runs, tmp_path):
    learns = {
        "steps": 3,
        "group_size": 6,
        "optimiser": {"learning_rate": 1e-2, "schedule": "constant"},
    }
    run = run_recipe(
        recipe(family, start=runs(family), off_policy_steps=1, old="rescored", tis=2.0, **learns),
        tmp_path,
    )
    rows = [row for row in run.rows("rl") if "train/reward" in row]
    assert [row["train/staleness"] for row in rows] == [0, 1, 1]
    assert max(row["train/sampler_scorer_gap"] for row in rows) < 1e-4
    assert rows[0]["train/tis_gap"] < 1e-4 < max(row["train/tis_gap"] for row in rows)


def evaluated(saved):
    task = ToyTask({"size": 4})
    return evaluate_model(str(saved), task, task.examples("val"), "val", ModelOptions(), Observer())


def assert_answers_as_in_its_run(run):
    (stored,) = [e for key, e in run.evaluations().items() if str(key) == "rl.val.greedy"]
    again = evaluated(run.folder / "models" / "rl")
    assert [row.completion for row in again.rows] == [row.completion for row in stored.rows]


def test_a_saved_model_is_opened_as_what_it_is(finished):
    family, run = finished
    saved = str(run.folder / "models" / "rl")
    section = recipe(family).model.model_copy(update={"rows_at_once": 3})
    assert open_policy(section, saved).rows_at_once == 3
    if family != "flow":  # whose noise is drawn even where its tokens are not
        assert_answers_as_in_its_run(run)
    other = "masked" if family != "masked" else "slots"
    with pytest.raises(ModelError, match=f"is of family {family}, not {other}"):
        open_policy(ModelSection(name=saved, family=other), saved)
    if family != "slots":
        with pytest.raises(ModelError, match="attention: prefix"):
            open_policy(ModelSection(name=saved, family=family), saved)


@pytest.fixture(scope="module", params=["masked", "slots"])
def adapted(request, runs, tmp_path_factory):
    """A finished run whose sft and rl models are adapters, in 16 bits, of the model that another
    has made."""
    values = recipe(request.param).model_dump(mode="json")
    base = {"name": str(runs(request.param).model("base")), "tiny": None}
    values["model"] |= {**base, "lora": {"rank": 2, "alpha": 4}, "dtype": "bfloat16"}
    values["evaluation"] |= {"every": 0, "sampled": False, "untrained": False}
    folder = tmp_path_factory.mktemp("adapted") / request.param
    return request.param, run_recipe(parse_recipe(values), folder)


def test_a_saved_adapter_is_opened_as_what_it_is(adapted, runs):
    """Its family, its canvas and its precision were forgotten: it was opened as an autoregressive
    model in 32 bits."""
    family, run = adapted
    saved = str(run.folder / "models" / "rl")
    section, sampling = options_as_trained(saved, ModelOptions())
    assert (section.family, section.dtype, section.lora.rank) == (family, "bfloat16", 2)
    assert (sampling.max_tokens, sampling.steps) == (8, SAMPLING[family]["steps"])
    assert_answers_as_in_its_run(run)
    assert options_as_trained(saved, ModelOptions(dtype="float32"))[0].dtype == "float32"
    assert options_as_trained(str(runs(family).model("base")), ModelOptions())[0].lora is None


def test_an_adapter_on_a_base_in_4_bits_is_evaluated_on_one(adapted, tmp_path, monkeypatch):
    """It was scored on a base in 16 bits, which is another model."""
    _, run = adapted
    saved = shutil.copytree(run.folder / "models" / "rl", tmp_path / "adapter")
    card = read_json(saved / "plumbline.json")
    assert card["model"]["quantize"] is None
    write_json(saved / "plumbline.json", {**card, "model": {**card["model"], "quantize": "4bit"}})
    monkeypatch.setitem(sys.modules, "bitsandbytes", None)
    with pytest.raises(ModelError, match="needs bitsandbytes"):
        evaluated(saved)


@pytest.mark.parametrize(
    ("family", "rl"),
    [
        ("masked", {"algorithm": {"keep": 2}, "inner_epochs": 2}),
        ("masked", {"algorithm": "gspo", "inner_epochs": 2}),
        ("masked", {"algorithm": {"ratio": "step"}, "beta": 0.1, "kl": "closed"}),
        ("masked", {"controls": {"score_temperature": 0.7}, "beta": 0.1, "max_gap": 100.0}),
        (
            "masked",
            {"algorithm": {"name": "espo", "mask_samples": 2}, "inner_epochs": 2, "beta": 0.1},
        ),
        ("masked", {"algorithm": {"name": "gdpo", "mask_samples": 2}, "inner_epochs": 2}),
        ("masked", {"algorithm": "just_grpo", "sampling": {"selector": "leftmost", "steps": 8}}),
        ("slots", {"beta": 0.1, "kl": "closed", "algorithm": {"ratio": "step"}, "inner_epochs": 2}),
        ("slots", {"algorithm": "cispo", "inner_epochs": 2, "beta": 0.1}),
        ("flow", {"beta": 0.1, "kl": "closed"}),
        ("flow", {"algorithm": {"keep": 2, "ratio": "step"}, "inner_epochs": 2}),
    ],
)
def test_every_algorithm_trains(family, rl, runs, tmp_path):
    run = run_recipe(recipe(family, start=runs(family), **rl), tmp_path / "run")
    rows = [row for row in run.rows("rl") if "train/reward" in row]
    assert all(
        math.isfinite(row["train/loss"]) and math.isfinite(row["train/grad_norm"]) for row in rows
    )
    assert (rows[-1]["train/kl"] is not None) == ("beta" in rl)
    algorithm = run.recipe.rl.algorithm
    report = (run.folder / "report.html").read_text(encoding="utf-8")
    assert ("not exact" in report) == (not algorithm.exact or "controls" in rl)
    assert algorithm.name in report
    assert (rows[-1]["train/sampler_scorer_gap"] is not None) == algorithm.exact
    assert (rows[-1]["train/clip_fraction"] is not None) == algorithm.uses_ratio


def test_scoring_at_another_temperature_than_was_sampled_at_is_noticed(runs, tmp_path):
    from plumbline.errors import TrainingStopped

    wrong = recipe(
        "masked", start=runs("masked"), controls={"score_temperature": 0.3}, max_gap=0.01
    )
    with pytest.raises(TrainingStopped, match="sampler's"):
        run_recipe(wrong, tmp_path / "run")


@pytest.mark.parametrize(
    ("family", "rl", "message"),
    [
        ("slots", {"algorithm": {"keep": 1}}, "scores a whole rollout"),
        ("slots", {"algorithm": "espo"}, "family slots, .* masked"),
    ],
)
def test_what_a_family_cannot_do_is_said(family, rl, message, runs, tmp_path, monkeypatch):
    """Also of a family of one's own, whose keys nobody knows before."""
    start = runs(family)
    monkeypatch.setattr("plumbline.recipe.files.check_family_keys", lambda recipe: None)
    with pytest.raises(RecipeError, match=message):
        run_recipe(recipe(family, start=start, **rl), tmp_path / "run")


@pytest.mark.parametrize("family", ["autoregressive", *sorted(SAMPLING)])
def test_how_a_batch_is_cut_into_passes_changes_no_loss(family, runs, tiny_folder):
    """Times were stratified in each pass anew, so a smaller `tokens_per_microbatch` was another
    training."""
    if family == "autoregressive":
        opened = fresh_policy(tiny_folder)
    else:
        opened = open_policy(recipe(family).model, str(runs(family).folder / "models" / "rl"))
    words = ("a", "aaaa", "aa", "b", "bb", "ab")
    chats = [
        [{"role": "user", "content": word}, {"role": "assistant", "content": word * 2}]
        for word in words
    ]
    batch = [opened.demonstrate(chat) for chat in chats]
    found = []
    for tokens_per_microbatch in (10_000, 80, 1):
        assert (
            len(cut_microbatches(batch, tokens_per_microbatch))
            == {10_000: 1, 80: 3, 1: 6}[tokens_per_microbatch]
        )
        loss = _backward(opened, cut_microbatches(batch, tokens_per_microbatch), seed=3)
        found.append(
            (loss, {name: weight.grad.clone() for name, weight in opened.trainable().items()})
        )
        for weight in opened.trainable().values():
            weight.grad = None
    for loss, gradients in found[1:]:
        assert loss == pytest.approx(found[0][0], rel=1e-5)
        for name, gradient in gradients.items():
            torch.testing.assert_close(gradient, found[0][1][name], atol=1e-6, rtol=1e-4)
    other = _backward(opened, cut_microbatches(batch, 80), seed=4)
    assert (other == pytest.approx(found[0][0], rel=1e-3)) == (family == "autoregressive"), (
        "whose loss draws nothing"
    )


def test_a_run_that_makes_the_model_worse_says_so_while_it_trains(tmp_path):
    settings = {
        "name": "fall",
        "seed": 1,
        "task": {"name": "tests.toy:open_toy", "options": {"size": 40}},
        "model": {"threads": 1, "tiny": TINY},
        "sft": {"steps": 18, "batch_size": 8, "optimiser": {"learning_rate": 1e-2}},
        "rl": {
            "steps": 4,
            "prompts_per_step": 4,
            "group_size": 4,
            "optimiser": {"learning_rate": 1e-3},
        },
        "controls": {"shuffle_advantages": True},
        "sampling": {"max_tokens": 8},
        "evaluation": {"every": 2, "limit": 40, "final": ["val"]},
    }

    def worse(run):
        said = messages(run, "worse")
        assert all(" 40 examples" in message and "letters" in message for message in said)
        return [int(message.split()[1]) for message in said]

    run = run_recipe(parse_recipe(settings), tmp_path / "slow")
    assert worse(run) == []
    settings |= {"model": {"threads": 1, "name": str(run.model("sft"))}, "sft": None}
    settings["rl"]["optimiser"] = {"learning_rate": 1e-1}
    assert worse(run_recipe(parse_recipe(settings), tmp_path / "fast")) == [2, 4]
