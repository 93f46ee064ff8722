"""Scalar logs as trainers write them, with one fault each, and the same logs without it."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from plumbline.checks.check import FOLLOWS, examine
from plumbline.checks.diagnosis.facts import measure_spent
from plumbline.checks.diagnosis.history import History, Sample, Series
from plumbline.checks.diagnosis.outcome import measure_outcome
from plumbline.checks.diagnosis.rules import CHECKS
from plumbline.checks.diagnosis.rules.signal import find_zero_variance_groups

STEPS = 120


def healthy(seed=0, steps=STEPS, **over):
    """A run that learns: noisy rewards that rise, an entropy that falls some, a rate that stays."""
    dice = np.random.default_rng(seed)
    place = np.linspace(0, 1, steps)
    series = {
        "reward": 0.3 + 0.3 * place + 0.05 * dice.standard_normal(steps),
        "reward/right": 0.2 + 0.4 * place + 0.06 * dice.standard_normal(steps),
        "reward/form": 0.8 + 0.1 * place + 0.03 * dice.standard_normal(steps),
        "frac_reward_zero_std": np.clip(
            0.2 + 0.1 * place + 0.1 * dice.standard_normal(steps), 0, 1
        ),
        "loss": 0.01 * dice.standard_normal(steps),
        "grad_norm": 0.3 * np.exp(0.4 * dice.standard_normal(steps)),
        "learning_rate": np.full(steps, 1e-5),
        "epoch": 2 * place,
        "entropy": 0.8 - 0.5 * place + 0.03 * dice.standard_normal(steps),
        "completion_length": 120 + 30 * place + 8 * dice.standard_normal(steps),
        "completion_length_max": np.full(steps, 256.0),
        "frac_truncated": np.clip(0.03 + 0.02 * dice.standard_normal(steps), 0, 1),
        "kl": 0.05 * place + 0.002 * np.abs(dice.standard_normal(steps)),
        "clip_fraction": np.abs(0.01 * dice.standard_normal(steps)),
        "logprob_gap": np.abs(0.01 + 0.002 * dice.standard_normal(steps)),
        "eval/reward": 0.3 + 0.25 * place + 0.02 * dice.standard_normal(steps),
    }
    series |= {
        name: np.asarray(value(series[name], place) if callable(value) else value)
        for name, value in over.items()
    }
    at = np.arange(1, steps + 1)
    made = {
        name: Series(at[::10], values[::10]) if name.startswith("eval/") else Series(at, values)
        for name, values in series.items()
    }
    return History(origin="trl", name="rl", kind="rl", series=made, settings={"steps": steps})


def said(history):
    return [
        (one.check, one.level) for one in examine(history, CHECKS).findings if one.level != "note"
    ]


@pytest.mark.parametrize("seed", range(50))
def test_nothing_is_said_of_fifty_healthy_logs(seed):
    assert said(healthy(seed)) == []


@pytest.mark.parametrize("seed", range(20))
def test_nothing_is_said_of_runs_that_do_not_learn_for_want_of_strength(seed):
    dice = np.random.default_rng(seed + 100)
    assert said(healthy(seed, reward=0.4 + 0.08 * dice.standard_normal(STEPS))) == []


def slow_noise(seed, steps):
    """A reward whose neighbouring steps are alike, because prompts come in an order; it goes
    nowhere."""
    dice, values = np.random.default_rng(seed), np.zeros(steps)
    for step in range(1, steps):
        values[step] = 0.8 * values[step - 1] + 0.06 * dice.standard_normal()
    return healthy(seed, steps, reward=0.5 + values)


@pytest.mark.parametrize("steps", [24, 60, 200, 600])
def test_slow_noise_is_rarely_called_a_fall(steps):
    """No fatal finding, and few warnings."""
    found = [one for seed in range(60) for one in said(slow_noise(seed, steps))]
    assert {level for _, level in found} <= {"warning"}
    assert len(found) <= 2


def alike(steps, correlation, dice):
    """AR(1) noise of deviation 1."""
    values, value = np.zeros(steps), dice.standard_normal()
    for step in range(steps):
        value = correlation * value + (1 - correlation**2) ** 0.5 * dice.standard_normal()
        values[step] = value
    return values


def smoothed(values, width):
    return np.convolve(values, np.full(width, 1 / width), mode="valid")


def logged(values, apart=1, kind="rl"):
    at = apart * np.arange(1, len(values) + 1)
    return History(
        origin="trl",
        name=kind,
        kind=kind,
        series={"reward" if kind == "rl" else "loss": Series(at, np.array(values))},
    )


def rise(steps, last=0.7):
    return 0.2 + (last - 0.2) / (1 + np.exp(-10 * (np.linspace(0, 1, steps) - 0.5)))


STILL = {
    **{f"AR {r}": lambda n, dice, r=r: 0.1 * alike(n, r, dice) for r in (0, 0.8, 0.95, 0.99)},
    "heavy tails": lambda n, dice: 0.04 * dice.standard_t(2, n),
    "window of 10": lambda n, dice: smoothed(0.1 * dice.standard_normal(n + 9), 10),
    "window of 30": lambda n, dice: smoothed(0.1 * dice.standard_normal(n + 29), 30),
}
RISES = {
    "white noise": (lambda n, dice: rise(n) + 0.1 * dice.standard_normal(n), 40),
    "AR .8": (lambda n, dice: rise(n) + 0.05 * alike(n, 0.8, dice), 40),
    "smoothed": (lambda n, dice: smoothed(rise(n + 9) + 0.1 * dice.standard_normal(n + 9), 10), 40),
    "smoothed further": (
        lambda n, dice: smoothed(rise(n + 49, 0.9) + 0.1 * dice.standard_normal(n + 49), 50),
        150,
    ),
    "at once": (
        lambda n, dice: 0.2 + 0.5 * (np.arange(n) >= 6) + 0.1 * dice.standard_normal(n),
        60,
    ),
}


@pytest.mark.parametrize("steps", [20, 40, 150, 500])
@pytest.mark.parametrize("noise", STILL)
def test_a_log_that_stands_still_is_rarely_said_to_rise_or_to_fall(noise, steps):
    """At most 8 in 100 of many logs (`python benchmarks/power.py --still`), so 6 of 50 by a chance
    of one in ten."""
    logs = [
        logged(np.clip(0.5 + STILL[noise](steps, np.random.default_rng((1, seed))), 0, 1))
        for seed in range(50)
    ]
    came = [measure_outcome(log) for log in logs]
    assert sum(one.better or one.worse for one in came) <= 6
    falls = [check for check in CHECKS if check.name == "reward-falls"]
    assert sum(bool(examine(log, falls).findings) for log in logs) <= 5


@pytest.mark.parametrize("name", RISES)
def test_a_rise_under_slow_noise_is_seen_and_so_is_a_fall(name):
    make, steps = RISES[name]
    values = [make(steps, np.random.default_rng((2, seed))) for seed in range(25)]
    assert sum(measure_outcome(logged(one)).better for one in values) >= 23
    assert sum(measure_outcome(logged(0.9 - one)).worse for one in values) >= 23


def test_a_fall_to_a_little_above_where_a_log_of_single_steps_began_is_seen():
    place = np.linspace(0, 1, 60)
    course = np.where(place < 0.5, 0.3 + 0.8 * place, 0.7 - 0.6 * (place - 0.5))
    falls = [check for check in CHECKS if check.name == "reward-falls"]
    noise = [0.03 * np.random.default_rng((4, seed)).standard_normal(60) for seed in range(25)]
    seen = [examine(logged(course + one), falls).findings for one in noise]
    assert sum(map(bool, seen)) >= 16


def test_a_loss_that_transformers_wrote_as_0_for_nan_is_no_loss():
    steps, broken = np.arange(1, 41), np.arange(1, 41) > 20
    series = {
        "loss": Series(steps, np.where(broken, 0.0, np.linspace(2, 1, 40))),
        "grad_norm": Series(steps, np.where(broken, np.nan, 1.0)),
    }
    came = measure_outcome(replace(logged(steps * 1.0, kind="sft"), series=series))
    assert came.change.n == 20
    assert came.last > 1


def test_the_first_line_says_why_a_smoothed_log_cannot_be_told():
    values = 0.5 + smoothed(0.1 * np.random.default_rng(3).standard_normal(159), 10)
    came = measure_outcome(logged(values))
    assert (came.better, came.worse, came.still) == (False, False, False)
    assert came.alike > 0.8
    assert f"(correlation {came.alike:.2f})" in came.summary


RISE_AND_FALL = [0.37, 0.38, 0.44, 0.48, 0.54, 0.55, 0.61, 0.65, 0.69, 0.74]
RISE_AND_FALL += [0.79, 0.66, 0.52, 0.41, 0.38, 0.34, 0.38, 0.35, 0.33, 0.33]


@pytest.mark.parametrize(
    ("values", "apart", "verdict"),
    [
        ([0.44, 0.49, 0.43, *[0.0] * 7], 10, "fell"),
        ([0.44, 0.5, 0.58, 0.62, 0.7, 0.74, 0.83, 0.88, 0.92, 0.97], 10, "rose"),
        ([0.44, 0.49, 0.43, *[0.0] * 7], 1, "too-few"),
        ([0.44, 0.49, 0.43, 0.01, 0.0, 0.0], 10, "fell"),
        ([0.44, 0.49, 0.0, 0.01, 0.0], 10, "fell"),
        ([0.44, 0.49, 0.43, 0.41, 0.39, 0.4], 10, "open"),
        (RISE_AND_FALL, 10, "fell"),
        ([*RISE_AND_FALL[:11], *[0.77] * 9], 10, "rose"),
        ([0.82, 0.9, 0.95, 1.0, 1.05, 1.08], 10, "rose"),
        ([0.82, 0.9, 0.95, 1.0], 10, "too-few"),
        ([0.0] * 6, 10, "still"),
        ([0.0] * 2, 10, "too-few"),
        ([0.3, 0.9], 10, "too-few"),
        ([0.5, 0.504, 0.496, 0.5, 0.504, 0.5, 0.496, 0.5, 0.504, 0.5], 10, "still"),
        ([0.0] * 11 + [1.0], 1, "open"),
        ([0.0] * 40, 1, "still"),
        ([0.76 + 0.002 * at + 0.5 * (-1) ** (at // 3) for at in range(100)], 1, "open"),
    ],
)
def test_what_the_first_line_says_of_few_rows_and_of_sizes_that_matter(values, apart, verdict):
    """Rows of TRL's logging_steps=10 are means of ten steps; that nothing rose is said where a
    tenth is excluded."""
    history = logged(values, apart)
    came = measure_outcome(history)
    line = came.summary
    assert came.verdict == verdict
    assert ("logging_steps=1" in line) == (apart > 1 and verdict in {"too-few", "open"})
    assert "0.00000" not in line
    worse = [one.check for one in examine(history, CHECKS).findings if one.level == "fatal"]
    assert worse == (
        ["reward-falls"] if verdict == "fell" else ["no-signal"] if not any(values) else []
    )


def spent(apart=1, settings=None, **series):
    at = apart * np.arange(1, 11)
    columns = {name: Series(at, np.array(values, float)) for name, values in series.items()}
    return measure_spent(
        History(origin="trl", name="rl", kind="rl", series=columns, settings=settings or {})
    )


ALL, HALF = [0.3] * 10, [0.3] * 5 + [0.0] * 5
MINUTES = {"step_time": [60.0] * 9 + [600.0]}


@pytest.mark.parametrize(
    ("given", "taught", "hours", "lost"),
    [
        ({"grad_norm": ALL}, 1.0, None, None),
        ({"grad_norm": HALF}, 0.5, None, None),
        ({"grad_norm": [np.nan] * 2 + [0.3] * 8}, 0.8, None, None),
        ({"reward_std": HALF}, 0.5, None, None),
        ({"reward_std": HALF, "grad_norm": [0.0] * 3 + ALL[3:]}, 0.2, None, None),
        ({"frac_reward_zero_std": [0.25] * 8 + [1.0] * 2}, 0.8, None, None),
        ({"frac_reward_zero_std": [0.25] * 10, "apart": 10}, 0.75, None, None),
        ({"grad_norm": ALL, "learning_rate": [1e-5] * 6 + [0.0] * 4}, 0.6, None, None),
        ({"grad_norm": ALL, "learning_rate": [1e-5] * 9 + [0.0]}, 1.0, None, None),
        ({"grad_norm": HALF, **MINUTES}, 0.5, 19 / 60, 14 / 60),
        ({"grad_norm": HALF, "settings": {"seconds": 7200}}, 0.5, 2.0, 1.0),
        ({"grad_norm": HALF, "settings": {"seconds": 60}}, 0.5, 1 / 60, 1 / 120),
        ({"frac_reward_zero_std": [0] * 5 + [1] * 5, **MINUTES, "apart": 10}, 0.5, 19 / 6, 14 / 6),
    ],
)
def test_the_share_of_the_steps_that_taught_and_the_hours_that_did_not(given, taught, hours, lost):
    came = spent(**given)
    assert came.taught == pytest.approx(taught)
    assert (came.hours, came.lost) == (pytest.approx(hours), pytest.approx(lost))
    assert ("taught nothing" in came.summary) == (lost is not None and lost > 1 / 60)


def test_what_says_nothing_of_a_gradient_has_no_share():
    assert spent(reward=ALL) is None
    assert spent(apart=10, grad_norm=HALF, reward_std=HALF) is None  # means of ten steps


def test_a_loss_that_rises_is_said_to():
    values = np.linspace(2, 3, 40) + 0.05 * np.random.default_rng(0).standard_normal(40)
    came = measure_outcome(logged(values, kind="sft"))
    assert came.worse
    assert ": rose (+" in came.summary


def test_an_evaluation_does_not_disagree_with_a_reward_that_only_wanders():
    checks, found = [check for check in CHECKS if check.name == "eval-disagrees"], 0
    for seed in range(60):
        reward, other = (
            0.5 + 0.1 * alike(150, 0.99, np.random.default_rng((seed, one))) for one in (0, 1)
        )
        series = {
            "reward": Series(np.arange(150), reward),
            "eval/reward": Series(np.arange(150)[::5], other[::5]),
        }
        found += bool(examine(replace(logged(reward), series=series), checks).findings)
    assert found <= 3


@pytest.mark.parametrize("earned", [[2, 31, 60, 89], [*range(0, 100, 10), 51, 53, 55]])
def test_a_reward_that_is_rarely_earned_does_not_fall(earned):
    """Most steps earn nothing, so that neighbours are mostly equal, and the last ones earned
    nothing by chance."""
    assert said(healthy(reward=np.where(np.isin(np.arange(STEPS), earned), 0.03, 0.0))) == []


def test_evaluations_of_many_parts_that_only_jump_about_do_not_disagree():
    """Nine names and five to thirteen evaluations of each, as a run with strata has."""
    found, checks = 0, [check for check in CHECKS if check.name == "eval-disagrees"]
    for seed in range(200):
        dice, steps = np.random.default_rng(seed), int(40 + 10 * (seed % 9))
        parts = {f"eval/part{i}": 0.5 + 0.1 * dice.standard_normal(steps) for i in range(9)}
        found += any(
            one.level != "note" for one in examine(healthy(seed, steps, **parts), checks).findings
        )
    assert found <= 5


def test_a_steep_start_is_no_spike():
    assert said(healthy(grad_norm=lambda v, p: np.where(p < 0.09, 20.0, v))) == []


def late(value):
    """The value from the middle of the run on."""
    return lambda values, place: np.where(place > 0.5, value, values)


FAULTS = {
    "the KL explodes": ({"kl": lambda v, p: np.exp(12 * p) * 0.01}, "kl"),
    "a KL at the first step": ({"kl": lambda v, p: 2 + v}, "kl"),
    "a negative KL": ({"kl": lambda v, p: -0.2 * p - 0.02}, "kl"),
    "weights that were not published": (
        {"logprob_gap": lambda v, p: 0.015 + 0.2 * np.maximum(0, p - 0.4)},
        "gap",
    ),
    "two distributions from the start": ({"logprob_gap": lambda v, p: v + 0.3}, "gap"),
    "the reward collapses": (
        {"reward": lambda v, p: np.where(p > 0.7, 0.02 + 0.02 * np.abs(np.sin(90 * p)), v)},
        "reward-falls",
    ),
    "the entropy runs away": ({"entropy": lambda v, p: 0.5 + 4 * p}, "entropy"),
    "the entropy is gone": (
        {
            "entropy": lambda v, p: 0.5 * np.exp(-9 * p),
            "reward": lambda v, p: 0.4 + 0 * p + (v - v),
        },
        "entropy",
    ),
    "lengths explode": (
        {
            "completion_length": lambda v, p: 40 + 900 * p**2,
            "reward": lambda v, p: 0.4 + (v - 0.3 - 0.3 * p),
        },
        "length",
    ),
    "lengths collapse": ({"completion_length": lambda v, p: 120 * np.exp(-4 * p)}, "length"),
    "all are cut": ({"frac_truncated": late(1.0)}, "truncation"),
    "cut, and shorter than the limit": (
        {
            "frac_truncated": lambda v, p: v + 0.4,
            "completion_length_max": lambda v, p: np.round(150 + 20 * np.sin(70 * p)),
        },
        "truncation",
    ),
    "form eats content": (
        {
            "reward/right": lambda v, p: 0.6 - 0.4 * p + 0.01 * np.sin(50 * p),
            "reward/form": lambda v, p: 0.3 + 0.6 * p,
        },
        "parts-oppose",
    ),
    "the evaluation falls at first": (
        {"eval/reward": lambda v, p: 0.3 + 0.5 * np.exp(-7 * p)},
        "eval-disagrees",
    ),
    "the evaluation falls": ({"eval/reward": lambda v, p: 0.6 - 0.4 * p}, "eval-disagrees"),
    "gradients spike": (
        {"grad_norm": lambda v, p: np.where(np.arange(len(p)) % 17 == 5, 40.0, v)},
        "gradient-spikes",
    ),
    "gradients far above the clip": ({"grad_norm": lambda v, p: v * 200}, "gradient-spikes"),
    "a log's cosine over a third too few steps": (
        {
            "learning_rate": lambda v, p: (
                1e-5 * np.where(p < 0.65, 0.5 * (1 + np.cos(np.pi * p / 0.65)), 1.5e-15)
            )
        },
        "rate-exhausted",
    ),
    "a gradient of zero": ({"grad_norm": late(0.0), "loss": late(0.0)}, "no-signal"),
    "groups without a spread": ({"frac_reward_zero_std": late(0.9)}, "zero-variance-groups"),
    "no part is ever earned": ({"reward/right": lambda v, p: 0 * p}, "dead-part"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_one_fault_is_named_and_no_other_check_cries(name):
    over, check = FAULTS[name]
    for seed in range(3):
        assert {one for one, _ in said(healthy(seed, **over))} == {check}, seed


def every_tenth(**series):
    """A log of TRL with logging_steps=10: means of rewards, and the gradient of the last of ten
    steps."""
    steps = np.arange(10, 10 * len(series["reward"]) + 1, 10)
    columns = {name: Series(steps, np.array(of, float)) for name, of in series.items()}
    return History(origin="trl", name="rl", kind="rl", series=columns)


def test_rows_of_ten_steps_are_not_compared_with_the_gradient_of_one():
    rise = np.linspace(0.4, 1.0, 20)
    gradient = [0.4, 0.0] * 5 + [0.0, 0.0, 0.1, 0.0, 0.0] * 2  # of solved groups, ever more
    healthy = every_tenth(
        reward=rise,
        reward_std=0.6 - 0.55 * rise,
        frac_reward_zero_std=rise - 0.3,
        grad_norm=gradient,
    )
    assert [one for one in examine(healthy, CHECKS).findings if one.level == "fatal"] == []
    still = every_tenth(reward=[0.4] * 20, reward_std=[0.3] * 20, grad_norm=[0.0] * 20)
    assert ("no-signal", "fatal") in said(still), "in all rows it is no chance"


ZERO, CUT, PAID = {"reward": [0.0] * 3}, {"frac_truncated": [0.9] * 3}, {"reward": [0.4, 0.5, 0.4]}
EQUAL = {"reward_std": [0.0] * 3, "frac_reward_zero_std": [1.0] * 3, "grad_norm": [0.0] * 3}


@pytest.mark.parametrize(
    ("log", "worse", "stops"),
    [
        (ZERO, [("no-signal", "fatal")], True),
        (ZERO | EQUAL, [("no-signal", "fatal")], True),
        (ZERO | CUT, [("truncation", "fatal")], True),
        (PAID | CUT, [("truncation", "warning")], False),
        (PAID | {"reward_std": [0.3] * 3, "grad_norm": [0.0] * 3}, [], False),
        ({"reward": [0.0]}, [], False),
    ],
)
def test_three_rows_of_ten_steps_are_thirty_steps(log, worse, stops):
    """But for a gradient, which is that of the last step."""
    assert said(every_tenth(**log)) == worse
    (check,) = [one for one in CHECKS if one.name == "no-signal"]
    assert check.stops(every_tenth(**log), 0) == stops


UP = np.array([0.2, 0.21, 0.25, 0.33, 0.4, 0.52, 0.6, 0.66, 0.71, 0.7, 0.73, 0.72])
WAVE = 0.01 * np.array([1, -2, 0, 2, -1, 0, 1, -1, 2, -2, 1, 0])
TWELVE = {
    "it learns": (
        {
            "reward": UP,
            "reward/right": UP + WAVE,
            "reward/form": 0.8 + UP / 4,
            "completion_length": 80 + 900 * WAVE,
        },
        "",
    ),
    "it learns in longer answers": ({"reward": UP, "completion_length": 300 * UP + 500 * WAVE}, ""),
    "a part is given up": (
        {"reward": UP, "reward/right": 0.8 - UP / 2 + WAVE, "reward/form": UP},
        "parts-oppose",
    ),
    "in seven rows": (
        {"reward": UP[:7], "reward/right": 0.8 - UP[:7] + WAVE[:7] / 2, "reward/form": UP[:7]},
        "parts-oppose",
    ),
    "what is right is charged": (
        {"reward": UP, "reward/right": 0.5 + WAVE, "reward/form": UP + 0.25 + WAVE / 2},
        "parts-oppose",
    ),
    "what is right stays": (
        {"reward": UP, "correctness/accuracy": 0.3 + WAVE[::-1]},
        "reward-hacking",
    ),
    "length is paid": (
        {"reward": UP, "reward/length_reward": UP, "completion_length": 400 * UP - 40},
        "length",
    ),
    "answers end at once": (
        {"reward": UP, "completion_length": 200 * np.exp(-np.arange(12)) + 3},
        "length",
    ),
    "the entropy is gone": ({"reward": 0.4 + WAVE, "entropy": np.exp(-np.arange(12.0))}, "entropy"),
    "it breaks late": (
        {"reward": [*(0.2 + UP[:5]), *(0.6 + WAVE[:5]), 0.15, 0.13, 0.14, 0.12, 0.14, 0.16]},
        "reward-falls",
    ),
    "it collapses": (
        {"reward": [0.38, 0.48, 0.55, 0.53, 0.11, 0.002, 0.002, 0, 0.003, 0, 0.005, 0.002]},
        "reward-falls",
    ),
}


@pytest.mark.parametrize("name", TWELVE)
def test_twelve_rows_that_are_means_of_ten_steps_are_enough(name):
    series, check = TWELVE[name]
    assert {one for one, _ in said(every_tenth(**series))} == ({check} if check else set())


@pytest.mark.parametrize("value", [0.0, 0.5])
@pytest.mark.parametrize("beside", [{}, {"grad_norm": [0.2] * 12}, {"kl": [0.01] * 12}])
def test_a_reward_that_never_varies_is_no_signal(value, beside):
    steps = np.arange(1, 13)
    series = {"reward": [value] * 12, **beside}
    columns = {name: Series(steps, np.array(of)) for name, of in series.items()}
    history = History(origin="table", name="rl", kind="rl", series=columns)
    assert ("no-signal", "fatal") in said(history)
    varied = {**history.series, "reward": Series(steps, value + np.linspace(0, 0.01, 12))}
    assert "no-signal" not in {name for name, _ in said(replace(history, series=varied))}


@pytest.mark.parametrize(("spread", "falls"), [(0.05, set()), (0.003, {"reward-falls"})])
def test_few_rows_of_a_reward_that_is_rarely_earned_do_not_fall(spread, falls):
    log = every_tenth(reward=[0.004, 0.003, 0.0, 0.0, 0.0, 0.0], reward_std=[spread] * 6)
    assert {one for one, _ in said(log)} == falls


def test_gradients_of_0_in_rows_of_several_steps_are_chance_where_most_groups_are_equal():
    """One group a step, nine of ten solved: the last of ten steps has no gradient."""
    log = {"reward": [0.9, 0.95] * 10, "reward_std": [0.03] * 20, "grad_norm": [0.0] * 20}
    assert [
        one.check
        for one in examine(every_tenth(frac_reward_zero_std=[0.95] * 20, **log), CHECKS).findings
    ] != ["no-signal"]
    assert "fatal" not in {
        level for _, level in said(every_tenth(frac_reward_zero_std=[0.95] * 20, **log))
    }
    assert ("no-signal", "fatal") in said(every_tenth(frac_reward_zero_std=[0.2] * 20, **log))


def test_what_to_do_about_rewards_that_are_all_the_same_depends_on_what_they_are():
    """Of a reward of 0 an answer is shown that holds the gold one; one that is paid always has
    other remedies."""
    found = {}
    for value in (0.0, 1.0):
        history = logged([value] * 20)
        answers = [
            Sample(step, "q", f"it is {step % 3}\x1b[0m", value, gold="2") for step in range(1, 21)
        ]
        (finding,) = [
            one
            for one in examine(replace(history, samples=answers), CHECKS).findings
            if one.level == "fatal"
        ]
        assert "'it is 2\\x1b[0m'" in finding.what
        found[value] = finding.fix
    assert "harder prompts" in found[1.0]
    assert "harder prompts" not in found[0.0]


@pytest.mark.parametrize(("steps", "since"), [(39, 30), (40, 21)])
def test_equal_groups_are_counted_over_more_steps_of_a_longer_log(steps, since):
    (found,) = find_zero_variance_groups(
        healthy(steps=steps, frac_reward_zero_std=np.full(steps, 0.8))
    )
    assert found.since == since


@pytest.mark.parametrize(("drift", "level"), [(1.0, "warning"), (0.1, "note")])
def test_rewards_that_hardly_differ_any_more(drift, level):
    """A public hacked run: the reward at its ceiling from the middle on, and the policy goes on."""
    place = np.linspace(0, 1, 60)
    over = 1 / (1 + np.exp(-25 * (place - 0.35)))
    series = {
        "reward": 0.3 + 0.7 * over,
        "reward_std": 0.44 * (1 - over) + 3e-4,
        "kl": drift * place**2,
    }
    columns = {name: Series(np.arange(1, 61), of) for name, of in series.items()}
    history = replace(logged(series["reward"]), series=columns)
    assert {one.check: one.level for one in examine(history, CHECKS).findings}[
        "zero-variance-groups"
    ] == level


def test_a_usual_schedule_is_not_called_exhausted():
    for decay in (
        lambda p: 0.5 * (1 + np.cos(np.pi * p)),
        lambda p: 1 - p,
        lambda p: np.minimum(1, p * 20),
    ):
        assert said(healthy(learning_rate=lambda v, p, decay=decay: 1e-5 * decay(p))) == []


def test_what_follows_from_a_cause_is_a_note():
    """A NaN ends everything else, too; a reader should begin with it."""
    nan = healthy(grad_norm=late(np.nan), reward=late(0.0), frac_truncated=late(1.0))
    examined = examine(nan, CHECKS)
    assert [one.check for one in examined.findings if one.level != "note"] == ["not-finite"]
    assert examined.findings[0].since == 61
    assert any(one.follows == ("not-finite",) for one in examined.findings)
    assert all(one.causes == (FOLLOWS,) and not one.fix for one in examined.findings if one.follows)


def test_a_solved_task_is_no_fault():
    rise = {"reward": lambda v, p: np.where(p > 0.5, 1.0, 0.3 + 1.4 * p), "eval/reward": late(1.0)}
    solved = healthy(frac_reward_zero_std=late(1.0), grad_norm=late(0.0), **rise)
    assert said(solved) == []


NO_FAULTS = {
    "a KL that may be meant": {"kl": lambda v, p: 0.5 + 0.1 * v},
    "gradients of a new adapter": {"grad_norm": lambda v, p: np.where(p < 0.1, 8.0, v)},
    "most prompts are solved": {
        "reward": lambda v, p: 0.2 + 0.65 * np.minimum(1, 2 * p) + 0.1 * (v - 0.3 - 0.3 * p),
        "frac_reward_zero_std": late(0.8),
    },
    "some steps are silent while it learns": {
        "grad_norm": lambda v, p: np.where(np.arange(len(p)) % 10 < 6, 0.0, v),
        "reward": lambda v, p: v + 0.3 * p,
    },
}


@pytest.mark.parametrize("name", NO_FAULTS)
def test_what_runs_of_public_projects_have_without_a_fault(name):
    assert [said(healthy(seed, **NO_FAULTS[name])) for seed in range(3)] == [[]] * 3


def test_a_mean_of_steps_is_no_longest_completion():
    """Logged every fifth step, the longest is a mean, below the limit where one of the five had
    none that was cut."""
    cut = healthy(
        frac_truncated=lambda v, p: v + 0.2,
        completion_length_max=lambda v, p: np.round(150 + 20 * np.sin(70 * p)),
    )
    fifth = {name: Series(one.steps * 5, one.values) for name, one in cut.series.items()}
    assert said(cut) == [("truncation", "warning")]
    assert said(replace(cut, series=fifth)) == []


def test_a_mean_over_batches_is_no_longest_completion_unless_most_are_cut():
    def means(share):
        longest = {"completion_length_max": lambda v, p: 150.375 + 20 * np.sin(70 * p)}
        return healthy(frac_truncated=lambda v, p: v + share, **longest)

    assert said(means(0.2)) == []
    assert said(means(0.75)) == [("truncation", "warning")]
    assert notes(means(0.75))["truncation"].causes == ("second-end",)


def test_how_bad_depends_on_what_followed():
    spikes = healthy(kl=lambda v, p: np.where(np.arange(len(p)) % 31 == 7, 300.0, v))
    assert said(spikes) == [("kl", "warning")]
    # and the reward rises
    assert said(healthy(frac_truncated=np.ones(STEPS))) == [("truncation", "warning")]
    assert said(healthy(frac_truncated=np.ones(STEPS), reward=lambda v, p: v - 0.3 * p)) == [
        ("truncation", "fatal")
    ]


def test_an_evaluation_that_is_past_its_best():
    """The classic shape of over-optimisation: 17 evaluations that rise for a third of the run and
    then fall."""
    dice, place = np.random.default_rng(4), np.linspace(0, 1, 170)
    for peak, expected in ((0.4, [("eval-disagrees", "warning")]), (1.0, [])):
        right = 0.2 + 0.23 * np.minimum(place / peak, 1) - 0.3 * np.maximum(place - peak, 0)
        history = healthy(4, 170)
        held = Series(np.arange(1, 171)[::10], (right + 0.01 * dice.standard_normal(170))[::10])
        assert said(replace(history, series=history.series | {"eval/accuracy": held})) == expected


def test_a_reward_that_is_not_finite_is_the_cause_of_a_loss_that_is_none():
    at, broken = np.arange(STEPS), np.arange(STEPS) >= 60
    over = {
        "loss": lambda v, p: np.where(broken, np.nan, v),
        "grad_norm": lambda v, p: np.where(broken, np.nan, v),
    }
    for reward, cause in (
        (np.where(at == 60, np.inf, 0.4), "reward-function"),
        (np.full(STEPS, 0.4), "overflow"),
    ):
        finding = examine(healthy(reward=reward, **over), CHECKS).findings[0]
        assert (finding.check, finding.level, finding.causes[0]) == ("not-finite", "fatal", cause)
    others = healthy(**{"reward/form": lambda v, p: np.where(at % 3 == 0, np.nan, v)})
    assert said(others) == [], "TRL leaves out a function that is None for all prompts of a step"


def test_a_step_that_a_loss_scaler_skipped_ends_nothing():
    skipped = healthy(
        grad_norm=lambda v, p: np.where(np.isin(np.arange(STEPS), (0, 40)), np.inf, v)
    )
    assert said(skipped) == [("not-finite", "warning")]
    assert said(healthy(grad_norm=lambda v, p: np.where(p > 0.99, np.nan, v))) == [
        ("not-finite", "fatal")
    ]
    shown = healthy(kl=lambda v, p: np.full_like(v, np.nan))
    assert said(shown) == [("not-finite", "warning")], (
        "losses are finite after it, so no weight is NaN"
    )


def test_gradients_are_compared_with_those_of_steps_with_a_signal():
    """One group a step: where it is solved the KL alone is left, a hundredth of the others."""
    silent = np.arange(STEPS) % 10 < 7
    one_group = healthy(
        frac_reward_zero_std=silent * 1.0, grad_norm=lambda v, p: np.where(silent, 0.01, 10 * v)
    )
    assert "gradient-spikes" not in {check for check, _ in said(one_group)}


def answers(text, reward=0.0, prompts=20):
    return [
        Sample(
            step,
            f"prompt {prompt}",
            text(step, prompt, copy),
            reward if not callable(reward) else reward(prompt),
        )
        for step in range(10)
        for prompt in range(prompts)
        for copy in range(4)
    ]


TEXTS = {
    "varied": (lambda step, prompt, copy: f"answer {step} to {prompt} in the {copy}th way", set()),
    "one sign": (lambda step, prompt, copy: "!" * (40 + copy), {"degenerate-output"}),
    "empty": (lambda step, prompt, copy: " " * copy, {"degenerate-output"}),
    "one text for all": (
        lambda step, *at: "thank you for asking" if step > 4 else f"{at}",
        {"degenerate-output"},
    ),
    "copies": (lambda step, prompt, copy: f"answer {step} to {prompt}", {"identical-samples"}),
}


@pytest.mark.parametrize("name", TEXTS)
def test_completions_that_are_none_are_named(name):
    text, checks = TEXTS[name]
    dice = np.random.default_rng(0)
    samples = [
        replace(one, reward=one.reward + 1e-4 * dice.random())
        for one in answers(text, lambda prompt: 0.1)
    ]
    examined = examine(replace(healthy(), samples=samples), CHECKS)
    assert {one.check for one in examined.findings if one.level == "fatal"} == checks


@pytest.mark.parametrize(("reward", "fatal"), [(1.0, set()), (0.0, {"identical-samples"})])
def test_short_prompts_that_are_soon_solved_are_no_collapse(reward, fatal):
    """From the second of three early steps on, all copies of an answer are one text."""
    samples = [
        Sample(
            step,
            f"prompt {prompt}",
            f"{prompt} is it" if step else f"{prompt} {copy}",
            reward if step else float(copy == 0),
        )
        for step in range(12)
        for prompt in range(20)
        for copy in range(4)
    ]
    findings = examine(replace(healthy(), samples=samples), CHECKS).findings
    assert {one.check for one in findings if one.level == "fatal"} == fatal


@pytest.mark.parametrize(
    ("asked", "reward", "fatal"),
    [
        ("Do not sort {}. Thank me for the asking.", 1.0, set()),
        ("Do not sort {}. Thank me for the asking.", 0.0, {"degenerate-output"}),
        ("Sort {}.", 1.0, {"degenerate-output"}),
    ],
)
def test_a_sentence_that_each_prompt_asks_for_is_no_collapse(asked, reward, fatal):
    samples = [
        replace(one, prompt=asked.format(one.prompt))
        for one in answers(TEXTS["one text for all"][0], lambda prompt: reward)
    ]
    findings = examine(replace(healthy(), samples=samples), CHECKS).findings
    assert {one.check for one in findings if one.code == "one-text"} == fatal


def test_a_frequent_right_answer_is_no_collapse():
    """Half of the reviews are positive and have no complaint: one answer is right for all of
    them."""

    def earned(prompt):
        return float(prompt % 2)

    many = [Sample(1, f"prompt {n}", '{"sentiment": "positivo"}', earned(n)) for n in range(200)]
    assert said(replace(healthy(), samples=many)) == []


def notes(history):
    return {one.check: one for one in examine(history, CHECKS).findings}


def test_verdicts_that_fail_are_no_wrong_answers():
    assert said(with_series(healthy(), frac_failed=np.full(STEPS, 0.05))) == [
        ("unjudged", "warning")
    ]
    assert said(with_series(healthy(), frac_failed=np.full(STEPS, 0.5))) == [("unjudged", "fatal")]
    assert said(with_series(healthy(), frac_failed=np.zeros(STEPS))) == []


def with_series(history, **more):
    at = np.arange(1, STEPS + 1)
    return replace(
        history,
        series={**history.series, **{name: Series(at, values) for name, values in more.items()}},
    )


def test_a_clip_that_cannot_act_is_told_from_one_that_does_not():
    once = healthy(clip_fraction=0.0 * np.arange(STEPS))
    assert notes(once)["clip-idle"].level == "note"
    twice = replace(once, settings={**once.settings, "rl.inner_epochs": 2})
    assert said(twice) == [("clip-idle", "warning")]


def test_a_plateau_is_dated_and_its_cause_is_what_ended_there():
    """The commerce log: a cosine that had run out was taken for the model's limit."""
    stands = {
        "reward": lambda v, p: v - 0.3 * p + 0.6 * np.minimum(p, 0.5),
        "eval/reward": lambda v, p: 0.3 + 0.5 * np.minimum(p, 0.5),
        "learning_rate": lambda v, p: (
            1e-5 * np.maximum(0.05, 0.5 * (1 + np.cos(np.pi * np.minimum(1, p / 0.7))))
        ),
    }
    found = notes(healthy(**stands))["plateau"]
    assert found.since == pytest.approx(0.5 * STEPS, abs=0.15 * STEPS)
    assert found.causes[0] == "rate-down"
    assert [seed for seed in range(20) if "plateau" in notes(healthy(seed))] == []


def test_little_data_and_missing_steps_are_said():
    little = healthy(epoch=lambda v, p: 0.135 * p)
    assert notes(little)["coverage"].change == {"rl.steps": round(STEPS / 0.135)}
    ended = replace(healthy(), settings={"steps": 200})
    assert notes(ended)["unfinished"].since == STEPS
    assert not {"coverage", "unfinished"} & notes(healthy()).keys()


def supervised(loss, held=None):
    at = np.arange(1, STEPS + 1)
    series = {
        "loss": Series(at, loss),
        "learning_rate": Series(at, np.full(STEPS, 1e-4)),
        "grad_norm": Series(at, 1 + 0.1 * loss),
    }
    if held is not None:
        series["eval/loss"] = Series(at[::20], held)
    return History(origin="trl", name="sft", kind="sft", series=series, settings={"steps": STEPS})


def test_supervised_losses():
    dice, place = np.random.default_rng(0), np.linspace(0, 1, STEPS)
    falls = 2 * np.exp(-2 * place) + 0.1 * dice.standard_normal(STEPS)
    assert said(supervised(falls, np.linspace(1.5, 1.0, 6))) == []
    assert said(supervised(falls, np.array([1.5, 1.0, 0.9, 1.1, 1.3, 1.5]))) == [
        ("sft-loss", "warning")
    ]
    assert said(supervised(2 + 9 * place + 0.1 * dice.standard_normal(STEPS))) == [
        ("sft-loss", "fatal")
    ]
    broken = np.maximum(25 * np.exp(-2 * place), 6) + dice.standard_normal(STEPS)
    assert said(supervised(np.append(2.0, broken[1:]))) == [("sft-loss", "fatal")]
    assert said(supervised(np.full(STEPS, 1e-6))) == [("sft-loss", "warning")]
    assert said(supervised(np.where(place > 0.5, np.nan, falls))) == [("not-finite", "fatal")]
    # what was trained is finite
    assert said(supervised(falls, np.full(6, np.nan))) == [("not-finite", "warning")]
    assert said(with_series(supervised(np.zeros(STEPS)), grad_norm=np.zeros(STEPS))) == [
        ("sft-loss", "fatal")
    ]


def test_a_classifier_that_grows_surer_is_not_worse():
    loss, held = np.linspace(1, 0.1, STEPS), np.array([0.5, 0.4, 0.45, 0.5, 0.55, 0.6])
    at = np.arange(1, STEPS + 1)[::20]
    for accuracy, expected in (
        (np.linspace(0.8, 0.9, 6), []),
        (np.full(6, 0.8), [("sft-loss", "warning")]),
    ):
        history = supervised(loss, held)
        assert (
            said(replace(history, series=history.series | {"eval/accuracy": Series(at, accuracy)}))
            == expected
        )


def test_every_check_has_a_test_that_names_it():
    """Of what a planted fault must come to, here and in the files beside."""
    text = "".join(
        path.read_text(encoding="utf-8") for path in Path(__file__).parent.glob("test_*.py")
    )
    assert [check.name for check in CHECKS if f'"{check.name}"' not in text] == []
    assert len({check.name for check in CHECKS}) == len(CHECKS)


@pytest.mark.parametrize("by", [0.01, 37.0])
@pytest.mark.parametrize("name", ["", *FAULTS])
def test_another_scale_of_the_reward_changes_no_finding(name, by):
    """Parts, evaluations and deviations scale with it; what can be earned is not known here."""
    history = healthy(**FAULTS[name][0] if name else {})
    scaled = {
        of: Series(one.steps, one.values * by) if re.match(r"reward|part|eval/reward", of) else one
        for of, one in history.series.items()
    }
    assert said(replace(history, series=scaled)) == said(history)
