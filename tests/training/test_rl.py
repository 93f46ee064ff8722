"""The RL loop: it learns, it says what it did, skipping is free, and it stops where going on would
be false."""

import math
import os
import signal
from dataclasses import replace

import pytest
import torch

from plumbline.algorithms.grpo import Grpo
from plumbline.errors import DataError, RunError, TrainingStopped
from plumbline.recipe import EvaluationSection, parse_recipe
from plumbline.records import Sampling, rollouts_of
from plumbline.rollouts.collect import collect
from plumbline.runs.record import RunRecord
from plumbline.runs.run import Run
from plumbline.seeds import generator
from plumbline.training import checkpoints
from plumbline.training.pipeline import run_recipe
from plumbline.training.prompts import Source
from plumbline.training.rl import train_rl, weigh_rollouts
from tests.algorithms.batches import assert_gradients, gradients_of
from tests.toy import ToyTask
from tests.training.toy_runs import fresh_policy, interrupt, samplers, toy_recipe, train_toy

BEHIND = {"train/tis_gap", "train/tis_capped"}
"""Null where the sampler is not behind and nothing is weighted."""
GRADIENT = {"train/grad_signal", "train/grad_noise", "train/grad_snr"}
DESIGN_METRICS = """
    reward frac_reward_zero_std completion_length frac_truncated grad_norm kl clip_fraction entropy learning_rate epoch
    sampler_scorer_gap staleness reward/letters reward/any
"""


def test_every_metric_that_the_design_names_stands_at_every_step(tiny_folder, tmp_path):
    _, run = train_toy(tiny_folder, tmp_path / "run")
    rows = run.rows("rl")
    assert [row["step"] for row in rows] == [1, 2, 3, 4]
    for row in rows:
        assert row.keys() >= {f"train/{name}" for name in DESIGN_METRICS.split()}
        assert row["train/kl"] is None, "without beta no KL is computed, and none is reported as 0"
        assert {row[name] for name in BEHIND} == {None}
        assert all(row[name] is None or math.isfinite(row[name]) for name in GRADIENT)
        assert all(
            isinstance(v, (int, float)) and math.isfinite(v)
            for k, v in row.items()
            if k.startswith("train/") and k not in {"train/kl", *BEHIND, *GRADIENT}
        )
    assert rows[-1]["train/epoch"] == pytest.approx(8 / 12)
    samples = run.files["samples"].rows()
    assert len(samples) == 4 * 2 * 4
    assert all(set(sample["parts"]) == {"letters", "any"} for sample in samples)


def test_a_kl_is_computed_when_asked_for(tiny_folder, tmp_path):
    for name, model_options in (("full", {}), ("lora", {"lora": {"rank": 4}})):
        settings = {
            "beta": 0.1,
            "steps": 3,
            "optimiser": {"learning_rate": 2e-2, "schedule": "constant"},
        }
        _, run = train_toy(tiny_folder, tmp_path / name, model_options=model_options, **settings)
        kl = [row["train/kl"] for row in run.rows("rl")]
        assert kl[0] == pytest.approx(0, abs=1e-6)
        assert kl[-1] > 1e-4


def test_the_clip_is_live_with_inner_epochs_and_idle_without(tiny_folder, tmp_path):
    settings = {
        "steps": 4,
        "algorithm": {"clip_low": 0.02, "clip_high": 0.02},
        "optimiser": {"learning_rate": 1e-2, "schedule": "constant"},
    }
    _, once = train_toy(tiny_folder, tmp_path / "once", inner_epochs=1, **settings)
    _, thrice = train_toy(tiny_folder, tmp_path / "thrice", inner_epochs=3, **settings)
    assert all(row["train/clip_fraction"] == 0 for row in once.rows("rl"))
    assert max(row["train/clip_fraction"] for row in thrice.rows("rl")) > 0.1


def test_skipping_what_has_no_signal_leaves_the_gradient_as_it_is(tiny_folder):
    """Against a plain sum over all rollouts in rows, nothing skipped, nothing packed."""
    recipe, policy, task = (
        toy_recipe(steps=1, tokens_per_microbatch=60),
        fresh_policy(tiny_folder),
        ToyTask({}),
    )
    groups = collect(
        policy,
        task,
        task.examples("train")[:4],
        copies=4,
        sampling=Sampling(max_tokens=8),
        key=(0,),
    )
    dull = replace(groups[1], rollouts=(groups[1].rollouts[0],) * 4)
    groups = weigh_rollouts([groups[0], dull, *groups[2:]], recipe.rl.algorithm)
    rollouts = rollouts_of(groups)
    assert sum(each.advantage == 0 for each in rollouts) >= 4

    update, gradients = gradients_of(policy, groups, recipe)
    assert update.terms < sum(turn.num_tokens for each in rollouts for turn in each.turns)

    plain = fresh_policy(tiny_folder, scoring="rows")
    scored = plain.score([turn for each in rollouts for turn in each.turns])
    advantage = torch.tensor([each.advantage for each in rollouts], dtype=torch.float32)[
        scored.owner
    ]
    total = (-(scored.logprobs - scored.recorded).exp() * advantage).sum() / (16 * 8)
    total.backward()
    assert_gradients(gradients, plain)
    assert update.loss == pytest.approx(total.item(), abs=1e-5)


def test_what_is_looked_at_depends_on_the_step_and_on_nothing_that_ran_before(
    tiny_folder, tmp_path, monkeypatch
):
    """Pinned: a run that is resumed with another version of this package is still the same run."""
    honest, drawn = Grpo.targets, []
    monkeypatch.setattr(
        Grpo,
        "targets",
        lambda how, policy, given, rng: (
            drawn.append(rng.random()) or honest(how, policy, given, rng)
        ),
    )
    _, run = train_toy(tiny_folder, tmp_path / "run")
    steps = [row["step"] - 1 for row in run.rows("rl") if row["train/scored_terms"]]
    assert len(steps) > 1
    assert drawn == [generator(0, "rl", "likelihood", step).random() for step in steps]


@pytest.mark.parametrize("off_policy_steps", [0, 1])
def test_a_failing_verifier_stops_the_run_with_its_cause(tiny_folder, tmp_path, off_policy_steps):
    with pytest.raises(TrainingStopped, match=r"^8 of 8 .* 8 .* RuntimeError: .*database"):
        train_toy(
            tiny_folder,
            tmp_path / "run",
            options={"reward": "raises"},
            off_policy_steps=off_policy_steps,
        )
    assert not samplers()


def test_a_run_outlives_a_prompt_whose_answers_cannot_be_judged(tiny_folder, tmp_path):
    """A whole group in training and a row of each evaluation: counted, without credit, and in no
    mean."""
    values = {
        "name": "fragile",
        "model": {"name": str(tiny_folder)},
        "task": {
            "name": "tests.toy:open_toy",
            "options": {"size": 6, "breaks": ["train-3", "val-1"]},
        },
        "rl": {"steps": 2, "prompts_per_step": 6, "group_size": 4},
        "sampling": {"max_tokens": 4},
        "evaluation": {"every": 1, "final": ["val"]},
    }
    run = run_recipe(parse_recipe(values), tmp_path / "run")
    rows = run.rows("rl")
    assert [row["step"] for row in rows] == [0, 1, 2]
    assert [row["eval/frac_failed"] for row in rows] == pytest.approx([1 / 6] * 3)
    assert [row["train/frac_failed"] for row in rows[1:]] == pytest.approx([4 / 24] * 2)
    failed = [row for row in run.files["samples"].rows() if row["failure"]]
    assert {(row["id"], row["failure"], row["reward"], row["advantage"]) for row in failed} == {
        ("train-3", "RuntimeError", None, 0.0)
    }
    assert len(failed) == 8
    summary = (run.result() or {})["evaluations"]["rl.val.greedy"]
    assert (summary["n"], summary["failures"]) == (5, 1)


def test_a_sampler_that_is_not_the_scorer_stops_the_run(tiny_folder, tmp_path, monkeypatch):
    """The forms log's bug of versions 3 and 4: sampled at 0.7, scored at 1."""
    from plumbline.policies.autoregressive import policy as sampler

    honest = sampler.draw
    monkeypatch.setattr(
        sampler, "draw", lambda logits, uniforms, sampling: honest(logits / 0.3, uniforms, sampling)
    )
    with pytest.raises(TrainingStopped, match=r"\d nats .*; .* 0\.1\n"):
        train_toy(tiny_folder, tmp_path / "run")


def test_a_nan_stops_before_the_weights_change(tiny_folder, tmp_path, monkeypatch):
    policy = fresh_policy(tiny_folder)
    before = {name: weight.detach().clone() for name, weight in policy.trainable().items()}
    calls, honest = [], Grpo.loss

    def poisoned(algorithm, scored):
        calls.append(1)
        losses = honest(algorithm, scored)
        return losses if len(calls) < 3 else replace(losses, value=losses.value * float("nan"))

    monkeypatch.setattr(Grpo, "loss", poisoned)
    with pytest.raises(TrainingStopped, match=r"loss .* nan .* step 2\b"):
        train_toy(tiny_folder, tmp_path / "run", policy=policy, steps=6)
    assert all(weight.isfinite().all() for weight in policy.trainable().values())
    assert any(not torch.equal(weight, before[name]) for name, weight in policy.trainable().items())


def test_an_empty_training_split_is_an_error(tiny_policy, tmp_path):
    recipe = toy_recipe()
    with (
        Run.start(recipe, tmp_path / "run") as run,
        pytest.raises(DataError, match="empty"),
    ):
        train_rl(tiny_policy, Source.of(ToyTask({}), []), run)


@pytest.mark.parametrize(("every", "evaluated"), [(0, []), (3, [0, 3, 4]), (2, [0, 2, 4])])
def test_it_is_evaluated_as_the_recipe_says_and_at_both_ends(
    tiny_folder, tmp_path, every, evaluated
):
    policy = fresh_policy(tiny_folder)
    task, asked = ToyTask({}), []
    recipe = toy_recipe().model_copy(update={"evaluation": EvaluationSection(every=every)})
    with Run.start(recipe, tmp_path / "run") as run:
        train_rl(
            policy,
            Source.of(task, task.examples("train")),
            run,
            lambda done: asked.append(done) or {"eval/done": done},
        )
    assert asked == evaluated
    assert [row["step"] for row in run.rows("rl")] == [*evaluated[:1], 1, 2, 3, 4]
    assert [row["eval/done"] for row in run.rows("rl") if "eval/done" in row] == evaluated


def test_an_interrupt_in_the_evaluation_before_the_first_step_waits_for_no_step(
    tiny_folder, tmp_path
):
    task = ToyTask({})
    recipe = toy_recipe().model_copy(update={"evaluation": EvaluationSection(every=2)})
    with pytest.raises(KeyboardInterrupt), Run.start(recipe, tmp_path / "run") as run:
        train_rl(
            fresh_policy(tiny_folder),
            Source.of(task, task.examples("train")),
            run,
            lambda done: os.kill(os.getpid(), signal.SIGINT) or {"eval/done": done},
        )
    assert run.rows("rl") == []


def test_an_interrupt_while_a_checkpoint_is_read_is_no_error_of_the_checkpoint(
    tiny_folder, tmp_path, monkeypatch
):
    """Safetensors turns a KeyboardInterrupt inside it into an error of its own, and the user was
    told to delete it."""
    interrupt(monkeypatch, tiny_folder, tmp_path / "run")
    honest = checkpoints.read_checkpoint

    def interrupted(checkpoint):
        try:
            os.kill(os.getpid(), signal.SIGINT)
        except KeyboardInterrupt:
            raise RunError(
                "could not determine the shape of object type 'torch.storage.UntypedStorage'"
            ) from None
        return honest(checkpoint)

    with monkeypatch.context() as slow:
        slow.setattr(checkpoints, "read_checkpoint", interrupted)
        with pytest.raises(KeyboardInterrupt):
            train_toy(tiny_folder, tmp_path / "run", resume=True)
    assert [row["step"] for row in RunRecord.read(tmp_path / "run").rows("rl")] == [1], (
        "it stopped before another step"
    )
    train_toy(tiny_folder, tmp_path / "run", resume=True)
    assert [row["step"] for row in RunRecord.read(tmp_path / "run").rows("rl")] == [1, 2, 3, 4]
