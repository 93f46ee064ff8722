"""The figures of a pilot against those counted one by one, and what it leaves as it was."""

import re
import statistics
from collections import Counter
from dataclasses import replace

import pytest
import torch

from plumbline.checks.gain import Foretold
from plumbline.errors import DataError
from plumbline.records import Judged, Outcome, Score
from plumbline.training import pilot
from plumbline.training.pilot import judge_right, measure_answers
from tests.toy import RUBRIC, ToyTask
from tests.training.toy_runs import fresh_policy, toy_recipe


class Uneven(ToyTask):
    """An answer to an even prompt is right or not, one to an odd prompt earns nothing; one in a while
    cannot be judged."""

    def judge(self, example, completion):
        kind = sum(map(ord, completion)) % 5
        if kind == 4:
            raise RuntimeError("no verdict")
        right = float(kind == 0 and example.stratum == "even")
        return Outcome(how="strict"), RUBRIC.score({"letters": right, "any": right})


@pytest.fixture
def measured(tiny_folder, monkeypatch):
    kept, collect = [], pilot.collect

    def watch(*given, **named):
        kept.extend(collect(*given, **named))
        return kept

    monkeypatch.setattr(pilot, "collect", watch)
    monkeypatch.setattr(pilot, "check_judged", lambda _: None)
    policy = fresh_policy(tiny_folder)
    before = {name: weight.clone() for name, weight in policy.trainable().items()}
    task = Uneven({"size": 20})
    found = measure_answers(policy, task, toy_recipe(), prompts=16, answers=6, right="letters")
    assert all(torch.equal(before[name], now) for name, now in policy.trainable().items())
    return found, kept


def test_figures_are_those_counted_one_by_one(measured):
    found, groups = measured
    by_prompt = [
        [each.verdict.score.total for each in group.rollouts if each.verdict.score is not None]
        for group in groups
    ]
    every = [reward for rewards in by_prompt for reward in rewards]
    assert 0 < len(every) < 96, "some answers cannot be judged"
    assert (found.prompts, found.answers) == (16, 96)
    assert found.reward == pytest.approx(statistics.mean(every))
    assert found.right == pytest.approx(every.count(1.0) / len(every))
    assert found.right_prompts == sum(1.0 in rewards for rewards in by_prompt) / 16
    assert 0 < found.right_prompts < 1
    assert found.best == pytest.approx(statistics.mean(map(max, by_prompt)))
    assert found.mixed == sum(len(set(rewards)) > 1 for rewards in by_prompt) / 16
    spread = statistics.mean(map(statistics.variance, by_prompt)) ** 0.5
    assert found.spread == pytest.approx(spread)
    assert found.parts == pytest.approx({"letters": spread, "any": spread})
    again = sum(
        count - 1
        for group in groups
        for count in Counter(each.text for each in group.rollouts).values()
    )
    assert found.duplicates == pytest.approx(again / 96)
    tokens = [each.num_tokens for group in groups for each in group.rollouts]
    assert found.tokens == statistics.mean(tokens)


def test_a_step_of_more_answers_has_more_signal(measured):
    found, _ = measured
    assert found.signal_at(512) == pytest.approx(4 * found.signal_at(128))
    assert found.update_seconds > 0


def test_equal_rewards_have_no_signal(tiny_folder):
    task = ToyTask({"size": 4, "reward": "constant"})
    found = measure_answers(fresh_policy(tiny_folder), task, toy_recipe(), answers=2)
    assert (found.mixed, found.spread, found.signal) == (0, 0, None)
    assert found.update_seconds == found.draw_seconds > 0
    assert found.signal_at(64) is None


def test_the_same_whatever_the_recipe_learns_by(tiny_folder):
    task, found = ToyTask({"size": 6}), []
    for given in ({}, {"algorithm": "rft"}, {"inner_epochs": 2, "minibatch": 1, "beta": 0.1}):
        found.append(measure_answers(fresh_policy(tiny_folder), task, toy_recipe(**given)).signal)
    assert found[0] is not None
    assert found == pytest.approx([found[0]] * 3)


@pytest.mark.parametrize("way", [*pilot.WAYS, "sft"])
def test_each_ways_recipe_has_as_many_answers_as_the_budget(measured, way):
    """And where a step has too little signal, a larger step and a larger optimiser step."""
    figures, _ = measured
    steps = {}
    for signal in (1.0, pilot.ENOUGH / pilot.STEP / 3):
        given = Foretold(way, 0.3, 0.1, 0.5, answers=6400, learning_rate=3e-4)
        made = pilot.advise(toy_recipe(), given, replace(figures, signal=signal), 160)
        stage = made.sft if way == "sft" else made.rl
        assert (made.sft is None) == (way != "sft") == (made.rl is not None)
        each = 16 if way == "sft" else stage.prompts_per_step * stage.group_size
        assert stage.steps * each == pytest.approx(6400, rel=0.05)
        assert stage.optimiser.learning_rate == 3e-4
        epochs = float(re.search(r"; (\S+) epochs of 160 ", made.description)[1])
        assert epochs == pytest.approx(40 if way == "sft" else 5, rel=0.05)
        steps[signal] = each, 0 if way == "sft" else stage.prompts_per_step / stage.minibatch
    assert steps[1.0] == (16, 0) if way == "sft" else steps[1.0][0] == pilot.STEP
    (small, updates), (large, same) = steps.values()
    assert updates == same
    assert large == (small if way == "sft" else 4 * small)


@pytest.mark.parametrize("way", pilot.WAYS)
def test_the_keys_of_ones_own_recipe_stay_where_the_way_has_them(measured, way):
    figures, _ = measured
    optimiser = {"learning_rate": 1e-6, "max_grad_norm": 0.3}
    own = toy_recipe(
        algorithm={"name": "grpo", "clip_high": 0.28},
        beta=0.04,
        filter={"samples": 4},
        resample=1,
        seconds=60,
        optimiser=optimiser,
    )
    given = Foretold(way, 0.3, 0.1, 0.5, answers=6400, learning_rate=3e-4)
    made = pilot.advise(own, given, figures, 160).rl
    assert made.filter == own.rl.filter
    assert (made.optimiser.max_grad_norm, made.optimiser.learning_rate) == (0.3, 3e-4)
    assert made.seconds is None
    assert made.resample == (2 if way == "dynamic" else 0)
    same = made.algorithm.name == "grpo"
    assert (made.beta == 0.04) == (made.algorithm == own.rl.algorithm) == same


def test_what_is_right():
    score = Score(total=0.96, parts={"result": 1.0, "style": 0.5, "extra": None})
    row = Judged(
        id="1", stratum="", completion="", reward=0.9, parts=score.parts, readings={}, how="strict"
    )
    assert judge_right(score, None) == 1
    assert judge_right(row, None) == 0
    assert judge_right(score, "result") == judge_right(row, "result") == 1
    assert judge_right(score, "style") == 0
    assert judge_right(score, "extra") != judge_right(score, "extra"), "NaN"
    with pytest.raises(DataError):
        judge_right(score, "absent")
