"""How long a run will take, said before it begins: measured passes of a clock of our own,
multiplied."""

import pytest
import torch

from plumbline.policies.policy import Demonstration
from plumbline.recipe import parse_recipe
from plumbline.tasks.source import Source
from plumbline.training import forecast as module
from plumbline.training.forecast import forecast
from tests.toy import ToyTask
from tests.training.toy_runs import fresh_policy

PROMPT, ANSWER = 30, 10


class Clocked:
    """A policy for which a token of a pass takes 2 ms, a prompt's reading 0.5 s in all, and a
    decoding step 0.1 s."""

    def __init__(self):
        self.now = 0.0
        self.weight = torch.ones(1, requires_grad=True)

    def demonstrate(self, messages, *, allow_truncation):
        return Demonstration((0,) * (PROMPT + ANSWER), (False,) * PROMPT + (True,) * ANSWER)

    def supervised_loss(self, batch, noise):
        self.now += 0.002 * sum(len(one.tokens) for one in batch)
        return self.weight.sum()

    def sample(self, requests):
        self.now += 0.5 + 0.1 * requests[0].sampling.max_tokens
        return iter(())

    def trainable(self):
        return {"weight": self.weight}


def recipe(**sections):
    return parse_recipe(
        {"name": "toy", "model": {"name": "any"}, "sampling": {"max_tokens": 16}, **sections}
    )


SFT = {"steps": 10, "batch_size": 4}
RL = {"steps": 5, "prompts_per_step": 2, "group_size": 4}


def test_what_was_measured_is_multiplied(monkeypatch):
    policy, task = Clocked(), ToyTask({})
    monkeypatch.setattr(module.time, "perf_counter", lambda: policy.now)
    source = Source.of(task, task.examples("train"))
    found = forecast(policy, source, recipe(sft=SFT, rl=RL), answers=24)
    assert found["sft"] == pytest.approx(10 * 4 * 40 * 0.002)
    rollouts, update = 0.7 + 0.1 * ANSWER, 2 * (PROMPT + 4 * ANSWER) * 0.002
    assert found["rl"] == pytest.approx(5 * (rollouts + update))
    # Three stages: 24 answers each, in rows of eight; before training they are 16 tokens long,
    # after it 10.
    assert found["evaluations"] == pytest.approx(
        24 * (0.1 * (16 + 2 * ANSWER) / 8 + 3 * 0.002 * PROMPT / 3)
    )
    assert policy.weight.grad is None
    assert set(forecast(policy, source, recipe(sft=SFT), answers=24)) == {"evaluations", "sft"}


def test_a_real_policy_can_be_measured(tiny_folder):
    policy, task = fresh_policy(tiny_folder), ToyTask({})
    found = forecast(
        policy, Source.of(task, task.examples("train")), recipe(sft=SFT, rl=RL), answers=24
    )
    assert min(found.values()) > 0
    assert all(weight.grad is None for weight in policy.trainable().values())
