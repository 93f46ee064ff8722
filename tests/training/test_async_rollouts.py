"""A sampler that is behind its learner: as good on a toy, the same to the bit after a resume, and
it ends cleanly."""

import copy
import threading

import numpy as np
import pytest
import torch

from conftest import make_sharp
from plumbline.errors import RecipeError, TrainingStopped
from plumbline.policies import open_policy
from plumbline.policies.autoregressive import policy as sampler
from plumbline.recipe import parse_recipe
from plumbline.records import Request, Sampling
from plumbline.rollouts.collect import collect
from plumbline.runs.record import RunRecord
from plumbline.training import prompts
from plumbline.training.stage import Stage
from tests.policies.families import move
from tests.toy import ToyTask
from tests.training.toy_runs import samplers, train_toy

CONSTANT = {"schedule": "constant"}
LEARNS = {"prompts_per_step": 4, "group_size": 8, "max_tokens": 4}
TIS = {"old": "rescored", "tis": 2.0}


def reward_of(policy) -> float:
    """The mean reward of the learner's own distribution, whatever drew its rollouts."""
    task = ToyTask({})
    groups = collect(
        policy, task, task.examples("val"), copies=8, sampling=Sampling(max_tokens=4), key=(1,)
    )
    return float(np.mean([rollout.reward for group in groups for rollout in group.rollouts]))


def answers(policy) -> list[list[int]]:
    requests = [
        Request((copy,), [{"role": "user", "content": "escreva"}], Sampling(max_tokens=8))
        for copy in range(4)
    ]
    return [trajectory.tokens.tolist() for _, trajectory in policy.sample(requests)]


@pytest.fixture(scope="module")
def shallow(tmp_path_factory):
    """A model of one layer, which needs half of the time."""
    return make_sharp(tmp_path_factory.mktemp("async") / "shallow", layers=1)


def test_a_sampler_behind_reaches_what_one_that_waits_reaches_and_the_negative_control_does_not(
    shallow, tmp_path
):
    ways = {
        "waits": {"off_policy_steps": 0},
        "behind": {"off_policy_steps": 1},
        "weighted": {"off_policy_steps": 1, **TIS},
        "shuffled": {"off_policy_steps": 0, "controls": {"shuffle_advantages": True}},
    }
    gains, optimiser = {}, {"learning_rate": 6e-3, **CONSTANT}
    for name, settings in ways.items():
        policy, run = train_toy(
            shallow, tmp_path / name, steps=60, optimiser=optimiser, **LEARNS, **settings
        )
        rows, off_policy_steps = run.rows("rl"), settings["off_policy_steps"]
        rewards = [row["train/reward"] for row in rows]
        gains[name] = np.mean(rewards[-5:]) - np.mean(rewards[:5])
        assert np.mean(rewards[:5]) < 0.3
        assert [row["train/staleness"] for row in rows] == [
            min(step, off_policy_steps) for step in range(60)
        ]
        assert max(row["train/sampler_scorer_gap"] for row in rows) < 1e-5, (
            "by law 1, under the weights that drew"
        )
        gaps = [row["train/tis_gap"] for row in rows]
        assert gaps == [None] * 60 if off_policy_steps == 0 else max(gaps) > 0.01 > 1e-5 > gaps[0]
        moved = [row for row in rows if row["train/frac_reward_zero_std"] < 1]  # by some answers
        assert {row["train/tis_capped"] is None for row in moved} == {"tis" not in settings}
        assert name == "shuffled" or reward_of(policy) > 0.95
    assert gains["waits"] > 0.3
    assert gains["shuffled"] < gains["waits"] / 3


def test_where_the_sampler_differs_learning_takes_the_correction(
    tiny_folder, tmp_path, monkeypatch
):
    """The sampler's logits are off by a number for each token (standard deviation 3); it records
    what it does."""
    honest, noise = sampler.draw, 3 * torch.randn(300, generator=torch.Generator().manual_seed(0))
    monkeypatch.setattr(
        sampler, "draw", lambda logits, *rest: honest(logits + noise[: logits.shape[-1]], *rest)
    )
    learns = {
        **LEARNS,
        "off_policy_steps": 1,
        "steps": 25,
        "optimiser": {"learning_rate": 2e-2, **CONSTANT},
    }
    reached, first = {}, {}
    for name, settings in (
        ("clipped", {}),
        ("uncorrected", {"old": "rescored"}),
        ("corrected", TIS),
    ):
        policy, run = train_toy(
            tiny_folder, tmp_path / name, max_gap=10, patience=25, **learns, **settings
        )
        first[name] = run.rows("rl")[0]
        with monkeypatch.context() as own:
            own.setattr(sampler, "draw", honest)
            reached[name] = reward_of(policy)
    assert reached["corrected"] > 0.9
    assert reached["uncorrected"] < 0.7
    assert reached["clipped"] < 0.4, "the mismatch alone takes the ratios out of the clip"
    assert first["corrected"]["train/tis_gap"] > 0.1
    with pytest.raises(TrainingStopped, match=r"\d nats .*; .* 0\.1\n"):
        train_toy(tiny_folder, tmp_path / "watched", **learns)
    assert RunRecord.read(tmp_path / "watched").rows("rl") == [], "before the first update"


@pytest.mark.parametrize("off_policy_steps", [1, 3])
def test_a_resumed_run_is_the_run_that_was_not_interrupted(
    tiny_folder, tmp_path, monkeypatch, off_policy_steps
):
    """Interrupted in the third step, when no older weights are due yet three steps
    off-policy, and once more in the sixth."""
    settings = {
        "off_policy_steps": off_policy_steps,
        "steps": 7,
        "optimiser": {"learning_rate": 1e-2, "schedule": "constant"},
        "beta": 0.01,
    }
    whole, run = train_toy(tiny_folder, tmp_path / "whole", **settings)
    for resume in (False, True):
        calls = iter(range(7))

        def stop(*_, calls=calls, last=4 if resume else 2):
            if next(calls) == last:
                raise TrainingStopped("pulled the plug")
            return ()

        with monkeypatch.context() as cut:
            cut.setattr(Stage, "spend", stop)
            with pytest.raises(TrainingStopped, match="plug"):
                train_toy(
                    tiny_folder, tmp_path / "cut", checkpoint_every=1, resume=resume, **settings
                )
        assert len(RunRecord.read(tmp_path / "cut").rows("rl")) == (5 if resume else 2)
    again, resumed = train_toy(
        tiny_folder, tmp_path / "cut", checkpoint_every=1, resume=True, **settings
    )
    assert resumed.rows("rl") == run.rows("rl")
    assert resumed.files["samples"].rows() == run.files["samples"].rows()
    for name, weight in again.trainable().items():
        assert torch.equal(weight, whole.trainable()[name])


def test_an_error_in_the_loop_ends_the_sampler_after_the_answer_in_progress(
    tiny_folder, tmp_path, monkeypatch
):
    drawn, going = [], threading.Event()
    honest = prompts.collect_parts

    def slow(sampler, parts, **rest):
        step = parts[0].key[-1]
        if step == 1:  # the step that is drawn while the first is trained on
            going.set()
            assert sampler.stopped.wait(60), "the loop that failed has not said so"
        groups = honest(sampler, parts, **rest)
        drawn.append(step)
        return groups

    def fail(*_):
        assert going.wait(60)
        raise KeyboardInterrupt

    monkeypatch.setattr(prompts, "collect_parts", slow)
    monkeypatch.setattr(Stage, "spend", fail)
    with pytest.raises(KeyboardInterrupt):
        train_toy(tiny_folder, tmp_path / "run", off_policy_steps=1)
    assert drawn == [0]
    assert not samplers()


def test_a_copy_shares_what_is_frozen_and_nothing_that_trains(tiny_folder):
    section = parse_recipe(
        {"name": "toy", "model": {"name": str(tiny_folder), "lora": {"rank": 4}}}
    ).model
    policy = open_policy(section, str(tiny_folder))
    twin = copy.deepcopy(policy)
    own = {id(weight) for weight in policy.trainable().values()}
    assert not own & {id(weight) for weight in twin.model.parameters()}
    frozen = {id(weight) for weight in policy.model.parameters()} - own
    assert frozen == {id(weight) for weight in twin.model.parameters()} - {
        id(w) for w in twin.trainable().values()
    }
    before = answers(twin)
    move(policy, 1.0)
    assert before == answers(twin) != answers(policy)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"tis": 2.0}, r"rl\.tis .* rl\.old: rescored"),
        ({"tis": 0.5, "old": "rescored"}, r"rl\.tis: .* 1\n"),
        ({"off_policy_steps": -1}, r"rl\.off_policy_steps: .* 0\n"),
        ({"off_policy_steps": 1, "algorithm": "espo"}, r"espo .* rl\.off_policy_steps"),
    ],
)
def test_what_does_not_go_together_is_an_error_of_the_recipe(settings, message):
    family = "masked" if "algorithm" in settings else "autoregressive"
    with pytest.raises(RecipeError, match=message):
        parse_recipe(
            {
                "name": "toy",
                "model": {"name": "given", "family": family},
                "rl": {"steps": 1, **settings},
            }
        )
