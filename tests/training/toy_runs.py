"""RL on the toy task with the tiny model, as a function that tests call."""

import copy
import functools
import json
import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

from plumbline.policies import open_policy
from plumbline.policies.policy import Policy
from plumbline.recipe import Recipe, parse_recipe
from plumbline.runs.run import Run
from plumbline.training.prompts import Source
from tests.toy import ToyTask


def toy_recipe(
    name: str = "toy",
    *,
    controls: dict[str, Any] | None = None,
    max_tokens: int = 8,
    checkpoint_every: int = 100,
    family: str = "autoregressive",
    **rl: Any,
) -> Recipe:
    values = {
        "steps": 4,
        "prompts_per_step": 2,
        "group_size": 4,
        "optimiser": {"learning_rate": 1e-3},
        **rl,
    }
    return parse_recipe(
        {
            "name": name,
            "model": {"name": "given", "family": family},
            "rl": values,
            "task": {"name": "tests.toy:open_toy"},
            "sampling": {"max_tokens": max_tokens},
            "run": {"checkpoint_every": checkpoint_every},
            "controls": controls or {},
        }
    )


@functools.cache
def _opened(model: Path, options: str) -> Policy:
    return open_policy(
        parse_recipe({"name": "toy", "model": {"name": str(model), **json.loads(options)}}).model,
        str(model),
    )


def interrupt(monkeypatch: pytest.MonkeyPatch, model: Path, folder: Path, **rl: Any) -> None:
    """A run that Ctrl-C ends before its first step."""
    with monkeypatch.context() as broken:
        broken.setattr(
            "plumbline.training.stage.Stage.spend",
            lambda *_: os.kill(os.getpid(), signal.SIGINT) or (),
        )
        with pytest.raises(KeyboardInterrupt):
            train_toy(model, folder, **rl)


def fresh_policy(model: Path, **options: Any) -> Policy:
    """A policy whose weights are its own; a model is opened once, which takes longer than some
    steps of it."""
    return copy.deepcopy(_opened(model, json.dumps(options)))


def train_toy(
    model: Path,
    folder: Path,
    *,
    options: dict[str, Any] | None = None,
    resume: bool = False,
    model_options: dict[str, Any] | None = None,
    policy: Policy | None = None,
    **settings: Any,
) -> tuple[Policy, Run]:
    """Train for a few steps, with the settings of `toy_recipe`; returns the policy and the (closed)
    run."""
    from plumbline.training.rl import train_rl

    recipe = toy_recipe(**settings)
    policy = policy or fresh_policy(model, **(model_options or {}))
    task = ToyTask(options or {})
    with Run.start(recipe, folder, resume=resume) as run:
        train_rl(policy, Source.of(task, task.examples("train")), run)
    return policy, run


def samplers() -> list[threading.Thread]:
    """The threads that draw for a learner and have not ended."""
    return [thread for thread in threading.enumerate() if thread.name.startswith("sampler")]


def messages(run: Run, kind: str) -> list[str]:
    """Of all events of a kind."""
    return [event["message"] for event in run.files["events"].rows() if event["kind"] == kind]
