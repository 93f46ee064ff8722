"""What TRL 1.16 lets pass without a word, each beside what happens here.

Both run: TRL's trainer on the tiny model with the same kind of reward, then our loop. Where a later
TRL fixes a failure, the first half of a test fails, and the documentation's list gets shorter.
"""

import math

import pytest
import torch

from plumbline.api import sample_trajectories
from plumbline.errors import RecipeError, TrainingStopped
from plumbline.recipe import parse_recipe
from plumbline.records import Sampling
from plumbline.runs.run import Run
from tests.peers.trainer import grpo_trainer
from tests.training.toy_runs import train_toy


@pytest.fixture
def trl_train(tiny_folder, tmp_path):
    """Train with TRL for a few steps; returns its log rows and the model."""

    def train(reward, steps: int = 4, patch=None, **options):
        trainer = grpo_trainer(
            tiny_folder, tmp_path / "trl", reward,
            [[{"role": "user", "content": f"{n}: escreva"}] for n in range(8)],
            per_device_train_batch_size=8, num_generations=4, max_completion_length=8, max_steps=steps,
            logging_steps=1, learning_rate=1e-3, save_strategy="no", **options,
        )  # fmt: skip
        if patch is not None:
            patch(trainer)
        trainer.train()
        return [row for row in trainer.state.log_history if "loss" in row], trainer.model

    return train


def test_t1_a_constant_reward(trl_train, tiny_folder, tmp_path):
    rows, _ = trl_train(lambda completions, **_: [0.5] * len(completions))
    assert [row["loss"] for row in rows] == [0.0] * 4, "TRL trains on nothing and ends well"
    with pytest.raises(TrainingStopped, match="check no-signal: "):
        train_toy(tiny_folder, tmp_path / "ours", options={"reward": "constant"}, steps=12)


def test_t2_groups_without_signal_are_counted_by_group_in_every_mode(
    trl_train, tiny_folder, tmp_path
):
    def by_prompt(prompts, completions, **_):
        return [int(prompt[-1]["content"][0]) / 10 for prompt in prompts]

    rows, _ = trl_train(by_prompt, scale_rewards="batch")
    assert all(row["frac_reward_zero_std"] == 0 for row in rows), (
        "TRL measures the batch and calls it the groups"
    )
    for scale in ("none", "group"):
        options = {"reward": "constant_by_group"}
        _, run = train_toy(
            tiny_folder,
            tmp_path / scale,
            options=options,
            algorithm={"scale_advantages": scale},
            steps=3,
        )
        assert [row["train/frac_reward_zero_std"] for row in run.rows("rl")] == [1.0] * 3


def test_t3_a_part_of_the_reward_that_is_always_zero(tiny_folder, tmp_path):
    options = {"reward": "dead_part"}
    _, run = train_toy(tiny_folder, tmp_path / "run", options=options, steps=10)
    assert any(event.get("check") == "dead-part" for event in run.files["events"].rows())


def test_t4_an_infinite_reward(trl_train, tiny_folder, tmp_path):
    rows, _ = trl_train(lambda completions, **_: [float("inf")] + [0.0] * (len(completions) - 1))
    assert any(math.isinf(float(row["reward"])) for row in rows), "TRL logs it and trains on"
    with pytest.raises(TrainingStopped, match=r"\[0, 1\].* letters is inf"):
        train_toy(tiny_folder, tmp_path / "ours", options={"reward": "infinite"})


def test_t5_a_loss_that_is_no_number(trl_train):
    """Ours stops before the weights change:
    `test_rl.test_a_nan_stops_before_the_weights_change`."""

    def patch(trainer):
        original, calls = trainer._compute_loss, []

        def poisoned(model, inputs):
            calls.append(1)
            return original(model, inputs) * (float("nan") if len(calls) == 4 else 1.0)

        trainer._compute_loss = poisoned

    rows, model = trl_train(
        lambda completions, **_: [float(len(c[0]["content"])) for c in completions], patch=patch
    )
    assert rows[3]["loss"] == 0.0, "TRL logs a loss of 0"
    assert all(not parameter.isfinite().any() for parameter in model.parameters()), (
        "and every weight is NaN"
    )


def test_t6_a_sampler_at_another_temperature_than_the_scorer(trl_train, tiny_policy):
    rows, _ = trl_train(
        lambda completions, **_: [float(len(c[0]["content"])) for c in completions],
        generation_kwargs={"temperature": 0.3},
    )
    assert not any("sampling" in key or "importance" in key for key in rows[0]), (
        "TRL has no metric that shows it"
    )
    # Ours: the law travels inside the trajectory, so a scorer cannot be told another; both laws
    # hold at 0.3.
    (group,) = sample_trajectories(
        tiny_policy,
        [[{"role": "user", "content": "sim"}]],
        4,
        Sampling(temperature=0.3, max_tokens=8),
        0,
    )
    scored = tiny_policy.score(group)
    assert (scored.logprobs - scored.recorded).abs().max() < 2e-5
    assert "temperature" not in tiny_policy.score.__code__.co_varnames


class StoppedError(Exception):
    """Stands for a crash."""


@pytest.mark.parametrize("stop_after", [1, 2])
def test_t7_a_run_resumed_at_any_step_is_the_same_run(tiny_folder, tmp_path, stop_after):
    """TRL's differs when the checkpoint falls inside a window of generation reuse (inner
    epochs)."""
    settings = {"steps": 4, "inner_epochs": 2, "checkpoint_every": 1}
    whole, _ = train_toy(tiny_folder, tmp_path / "whole", **settings)

    original = Run.metrics

    def interrupted(self, stage, step, values):
        original(self, stage, step, values)
        if step == stop_after + 1:
            # after the checkpoint of `stop_after`, in the middle of the next step
            raise StoppedError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Run, "metrics", interrupted)
        with pytest.raises(StoppedError):
            train_toy(tiny_folder, tmp_path / "cut", **settings)
    resumed, _ = train_toy(tiny_folder, tmp_path / "cut", resume=True, **settings)
    for name, weight in whole.trainable().items():
        assert torch.equal(weight, resumed.trainable()[name])
    for file in ("metrics.jsonl", "samples.jsonl"):
        assert (tmp_path / "whole" / file).read_bytes() == (tmp_path / "cut" / file).read_bytes()


def test_t8_an_unknown_key_names_the_nearest_known_one():
    base = {"name": "x", "model": {"name": "m"}, "rl": {"steps": 1}}
    with pytest.raises(RecipeError, match=r"rl\.optimiser\.warmup_ratio .* warmup\?"):
        parse_recipe({**base, "rl": {"steps": 1, "optimiser": {"warmup_ratio": 0.05}}})
