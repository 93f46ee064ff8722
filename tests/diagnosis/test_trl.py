"""Real runs of TRL: what was planted is found and nothing else, and nothing is found where nothing
was."""

import math
from functools import partial

import pytest

from plumbline.checks.check import examine
from plumbline.checks.diagnosis.readers import read_histories
from plumbline.checks.diagnosis.rules import CHECKS
from tests.diagnosis import trl_runs as runs
from tests.diagnosis.trl_kinds import KINDS, ONE_LETTER, SOUND
from tests.diagnosis.trl_runs import Plan, half, letters, never, short, sometimes, train

HEALTHY = {
    "as it is": Plan(),
    "two parts": Plan(rewards=(letters, short)),
    "linear": Plan(options={"lr_scheduler_type": "linear"}),
    "cosine and KL": Plan(options={"lr_scheduler_type": "cosine", "beta": 0.04}),
    "each batch twice": Plan(options={"num_iterations": 2}),
}
SOON = 14
"""Steps of a run in which what is fatal is seen after ten of them."""
PLANTED = {
    "constant reward": (Plan(rewards=(half,), steps=SOON), "no-signal", "fatal"),
    "reward 0": (Plan(rewards=(never,), steps=SOON), "no-signal", "fatal"),
    # TRL says frac_reward_zero_std 0 here.
    "groups of equal rewards": (
        Plan(rewards=(runs.by_prompt,), options={"scale_rewards": "batch"}, steps=SOON),
        "no-signal",
        "fatal",
    ),
    "parts that cancel": (Plan(rewards=(letters, runs.opposite), steps=SOON), "no-signal", "fatal"),
    "dead part": (Plan(rewards=(letters, never), steps=16), "dead-part", "warning"),
    "infinite reward": (Plan(rewards=(sometimes(math.inf),), steps=SOON), "not-finite", "fatal"),
    "reward NaN": (Plan(rewards=(sometimes(math.nan), short)), "lost-reward", "warning"),
    "loss NaN": (Plan(patch=runs.poison(12), steps=SOON), "not-finite", "fatal"),
    "rate 0 for the last part": (Plan(patch=runs.exhausted(0.6)), "rate-exhausted", "fatal"),
    "rate of nothing": (Plan(options={"learning_rate": 1e-9}), "small-updates", "warning"),
    "length is paid": (Plan(rewards=(runs.long,), steps=60), "truncation", "fatal"),
    "temperature 0": (
        Plan(options={"temperature": 1e-4}, steps=SOON),
        "identical-samples",
        "fatal",
    ),
}

FOLLOWS = {"length is paid": {("reward-hacking", "warning"), ("degenerate-output", "warning")}}
"""What else may be said: the answers of this run are one letter in the end."""


def found(model, folder, plan):
    (examined,) = [
        examine(history, CHECKS) for history in read_histories(train(model, folder / "run-1", plan))
    ]
    assert len(examined.context.samples) == 16 * examined.context.logged_steps
    assert "degenerate-output" in {
        *examined.clear,
        *(finding.check for finding in examined.findings),
    }
    return [
        (finding.check, finding.level) for finding in examined.findings if finding.level != "note"
    ]


LONG = {
    "linear",
    "cosine and KL",
    "each batch twice",
    "rate of nothing",
    "length is paid",
    "temperature 0",
}
"""Runs of six to twenty seconds, of whose kind there is a shorter one, or the same fault in
test_checks.py."""


def quick_and_slow(names):
    return [pytest.param(name, marks=pytest.mark.slow) if name in LONG else name for name in names]


@pytest.mark.parametrize("name", quick_and_slow(HEALTHY))
def test_nothing_is_found_in_a_healthy_run(talker, tmp_path, name):
    assert found(talker, tmp_path, HEALTHY[name]) == []


@pytest.mark.parametrize("name", quick_and_slow(PLANTED))
def test_what_is_planted_is_found_and_nothing_else(talker, tmp_path, name):
    plan, check, level = PLANTED[name]
    seen = set(found(talker, tmp_path, plan))
    assert {(check, level)} <= seen <= {(check, level)} | FOLLOWS.get(name, set())


QUICK = {
    "optimiser of other weights",
    "part charged",
    "part NaN",
    "sorted by kind",
    "exact reading",
}
"""One of each kind; of the others there is a log in test_more_checks.py."""
ONLY = {"None for half of the prompts", "other prompts are evaluated", "lenient reading"}


def few(names, quick):
    return [name if name in quick else pytest.param(name, marks=pytest.mark.slow) for name in names]


@pytest.fixture(scope="session")
def one_letter(tiny_folder, tmp_path_factory):
    """A model that answers with one letter, so that its answers are right at times."""
    return runs.make_talker(
        tiny_folder,
        tmp_path_factory.mktemp("models") / "letter",
        partial(runs.any_letters, least=1, most=1),
    )


def looked_at(model, folder, plan):
    (history,) = read_histories(train(model, folder / "run-1", plan))
    return {finding.check: finding.level for finding in examine(history, CHECKS).findings}, history


@pytest.mark.parametrize("name", few(KINDS, QUICK))
def test_kinds_that_completions_and_parts_show(request, tmp_path, name):
    plan, check, level = KINDS[name]
    model = request.getfixturevalue("one_letter" if name in ONE_LETTER else "talker")
    assert looked_at(model, tmp_path, plan)[0].get(check) == level


@pytest.mark.parametrize("name", few(SOUND, ONLY))
def test_nothing_of_these_kinds_is_found_where_it_is_not(request, tmp_path, name):
    model = request.getfixturevalue("one_letter" if name in ONE_LETTER else "talker")
    found, history = looked_at(model, tmp_path, SOUND[name])
    assert {check for _, check, _ in KINDS.values() if found.get(check, "note") != "note"} == set()
    # TRL overwrites the completions of a step at which it evaluates.
    assert {one.step for one in history.evaluated} == (
        {6, 12, 13} if name == "other prompts are evaluated" else set()
    )


def test_a_resume_within_a_window_of_rollouts_is_found(talker, tmp_path):
    """TRL's T7: a checkpoint at step 6, where each batch of rollouts is used in four steps."""
    options = {
        "steps_per_generation": 2,
        "num_iterations": 2,
        "save_strategy": "steps",
        "save_steps": 6,
    }
    train(talker, tmp_path, Plan(steps=6, options=options))
    train(talker, tmp_path, Plan(steps=16, options=options, resume=tmp_path / "checkpoint-6"))
    (examined,) = [examine(history, CHECKS) for history in read_histories(tmp_path)]
    (found,) = [finding for finding in examined.findings if finding.level != "note"]
    assert (found.check, found.level, found.since) == ("window-cut", "warning", 7)
