"""The figures of check-evidence.md on live checks: `pytest -s benchmarks/live_table.py`
(minutes; not in CI)."""

import time
from dataclasses import replace

import numpy as np
import pytest

from plumbline.checks.diagnosis.live import Live
from plumbline.checks.diagnosis.readers import own
from plumbline.recipe.decision_rules import ChecksSection
from tests.diagnosis.test_callback import watched
from tests.diagnosis.test_checks import slow_noise
from tests.diagnosis.test_live import replay
from tests.diagnosis.test_trl import HEALTHY, PLANTED

pytest_plugins = ["tests.diagnosis.conftest"]


@pytest.mark.parametrize("name", [*PLANTED, *HEALTHY])
def test_at_which_step(talker, tmp_path, name):
    plan = PLANTED[name][0] if name in PLANTED else HEALTHY[name]
    callback = watched(talker, tmp_path / "run", replace(plan, steps=60))
    said = (
        ", ".join(f"{one.check} ({one.level}) at {step}" for one, step in callback.said)
        or "nothing"
    )
    print(f"\n{name}: {said}; {'stopped' if callback.stopped else 'not stopped'}")


def test_slow_noise():
    for steps in (24, 60, 200, 600):
        found = [replay(slow_noise(seed, steps)) for seed in range(60)]
        warned, stopped = (
            sum(bool(said) for said, _ in found),
            sum(stop is not None for _, stop in found),
        )
        print(f"\n{steps} steps: of 60 logs {warned} with a warning, {stopped} stopped")


@pytest.mark.parametrize(("steps", "count", "length"), [(600, 167, 300), (100, 64, 4000)])
def test_cost(steps, count, length):
    dice = np.random.default_rng(0)
    words = [
        "the",
        "price",
        "of",
        "this",
        "order",
        "is",
        "not",
        "paid",
        "customer",
        "writes",
        "again",
        "delivery",
    ]
    names = (
        "reward",
        "grad_norm",
        "loss",
        "entropy",
        "learning_rate",
        "frac_truncated",
        "grad_signal",
        "grad_noise",
    )
    live = Live(
        own.start_history({"rl": {"steps": steps}}, "rl"), ChecksSection(), {}, own.metric_namer({})
    )
    looks = []
    for step in range(1, steps + 1):
        texts = [" ".join(dice.choice(words, length // 6)) for _ in range(count)]
        rewards = dice.random(count)
        rows = [
            {
                "step": step,
                "id": f"p{number // 8}",
                "text": text,
                "reward": reward,
                "parts": {},
                "finish": "stop",
            }
            for number, (text, reward) in enumerate(zip(texts, rewards, strict=True))
        ]
        live.add({"step": step, **{f"train/{name}": float(dice.random()) for name in names}})
        live.add_samples(map(own.parse_sample, rows))
        if step % 10 == 0:
            began = time.process_time()
            live.look()
            looks.append(1000 * (time.process_time() - began))
    print(
        f"\n{steps} steps with {count} completions of {length} characters: a look takes "
        f"{np.median(looks):.0f} ms of "
        f"CPU in the median, {max(looks):.0f} ms at most; all {len(looks)} together "
        f"{sum(looks) / 1000:.1f} s"
    )
