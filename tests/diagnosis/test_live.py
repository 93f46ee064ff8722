"""Checks while a run goes on: what is planted is said soon, once, and stops the run where it must;
nothing else is."""

import json
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from plumbline.checks.check import examine
from plumbline.checks.diagnosis.history import Sample, Series
from plumbline.checks.diagnosis.live import Live, validate_check_names
from plumbline.checks.diagnosis.readers import read_histories
from plumbline.checks.diagnosis.rules import CHECKS
from plumbline.checks.diagnosis.rules.signal import LOOK, slope_t
from plumbline.errors import RecipeError, TrainingStopped
from plumbline.policies import open_policy
from plumbline.recipe import SftSection, parse_recipe
from plumbline.recipe.decision_rules import ChecksSection
from plumbline.runs.record import RunRecord
from plumbline.runs.run import Run
from plumbline.storage import read_jsonl
from plumbline.training.pipeline import run_recipe
from plumbline.training.prompts import Source
from tests.diagnosis.test_checks import FAULTS, healthy, slow_noise
from tests.toy import ToyTask
from tests.training.toy_runs import toy_recipe


def replay(history, memory=None, begin=0, **section):
    """What is said of a stage while it goes on, and where it is stopped."""
    memory = {} if memory is None else memory
    live = Live(
        replace(history, series={}, samples=()), ChecksSection(**section), memory, lambda name: name
    )
    rows, samples, said = defaultdict(dict), defaultdict(list), []
    for name, series in history.series.items():
        for step, value in zip(series.steps.tolist(), series.values.tolist(), strict=True):
            rows[step][name] = value
    for sample in history.samples:
        samples[sample.step].append(sample)
    for step in sorted(rows):
        live.add({"step": step, **rows[step]})
        live.add_samples(samples[step])
        if step > begin and step % live.section.every == 0:
            look = live.look(last=step == history.last_step)
            said += [(one.check, one.level, step) for one in look.new]
            if look.stop is not None:
                return said, (look.stop.check, step)
    return said, None


STOPS = {
    "the KL explodes": 90,
    "weights that were not published": 120,
    "two distributions from the start": 20,
    "the reward collapses": 110,
    "all are cut": 100,
    "a log's cosine over a third too few steps": 90,
    "a gradient of zero": 70,
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_said_while_the_run_goes_on_and_what_is_fatal_stops_it(name):
    over, check = FAULTS[name]
    said, stopped = replay(healthy(0, **over))
    assert {one for one, _, _ in said} == {check}
    assert len(said) == len({level for _, level, _ in said}), (
        "once, and again where it became worse"
    )
    assert stopped == ((check, STOPS[name]) if name in STOPS else None)


@pytest.mark.parametrize("seed", range(8))
def test_nothing_is_said_of_healthy_logs_at_any_look(seed):
    assert replay(healthy(seed, steps=240)) == ([], None)
    flat = 0.4 + 0.08 * np.random.default_rng(seed + 100).standard_normal(240)
    assert replay(healthy(seed, steps=240, reward=flat)) == ([], None)


def test_what_a_single_look_sees_is_not_said():
    place = np.arange(120)
    assert replay(
        healthy(0, frac_reward_zero_std=np.where((place >= 20) & (place < 28), 0.9, 0.2))
    ) == (
        [],
        None,
    )


def test_slow_noise_stops_nothing():
    found = [replay(slow_noise(seed, 200)) for seed in range(12)]
    assert [stopped for _, stopped in found] == [None] * 12
    assert sum(len(said) for said, _ in found) <= 1


PASSING = {
    # Eleven steps of fourteen: at step 70 there are eleven in a row.
    "few prompts a step, often silent": {
        "frac_reward_zero_std": lambda v, p: np.where(np.arange(len(p)) % 14 > 2, 1.0, v)
    },
    "a rate that starts again": {
        "learning_rate": lambda v, p: 1e-5 * 0.5 * (1 + np.cos(np.pi * (2 * p % 1)))
    },
    "answers that learn to end slowly": {
        "frac_truncated": lambda v, p: np.where(p < 0.6, 1 - 0.15 * p, 0.1),
        "reward": lambda v, p: v - 0.3 * p,
    },
    "16 bits that overflowed at first": {
        "grad_norm": lambda v, p: np.where(np.arange(len(p)) < 2, np.inf, v)
    },
    "a spike of the KL": {"kl": lambda v, p: np.where(abs(np.arange(len(p)) - 44) < 2, 30.0, v)},
    "a reward that is rarely earned": {
        "reward": lambda v, p: np.where(np.arange(len(p)) % 29 == 2, 0.03, 0.0)
    },
    "a gap of one step": {"logprob_gap": lambda v, p: np.where(np.arange(len(p)) == 44, 3.0, v)},
}


@pytest.mark.parametrize("name", PASSING)
def test_what_passes_stops_nothing(name):
    assert replay(healthy(1, **PASSING[name]))[1] is None


CERTAIN = {
    "NaN in the gradient": (
        {"grad_norm": lambda v, p: np.where(p > 0.2, np.nan, v)},
        ("not-finite", 30),
    ),
    "one reward that is infinite": (
        {"reward": lambda v, p: np.where(np.arange(len(p)) == 24, np.inf, v)},
        ("not-finite", 30),
    ),
    "no signal from the start": (
        {"frac_reward_zero_std": 1.0, "grad_norm": 0.0, "reward": 0.0},
        ("no-signal", 10),
    ),
    "a rate of zero": ({"learning_rate": 0.0}, ("rate-exhausted", 20)),
}


@pytest.mark.parametrize("name", CERTAIN)
def test_what_is_certain_stops_the_run_at_once(name):
    over, stopped = CERTAIN[name]
    planted = healthy(
        2,
        **{name: value if callable(value) else np.full(120, value) for name, value in over.items()},
    )
    assert replay(planted)[1] == stopped
    assert replay(planted, stop=False)[1] is None
    assert replay(planted, ignore=[stopped[0]]) == ([], None), "nor what follows from it"


def test_completions_are_looked_at_as_they_come():
    empty = [
        Sample(step, f"p{number % 4}", "", 0.1) for step in range(1, 121) for number in range(16)
    ]
    said, stopped = replay(replace(healthy(0), samples=empty))
    assert ("identical-samples", "fatal", 20) in said
    assert stopped == ("identical-samples", 20)
    words = [
        Sample(
            step,
            f"p{number % 8}",
            " ".join(f"{step * number + word}" for word in range(400)),
            number / 16,
        )
        for step in range(1, 121)
        for number in range(16)
    ]
    worse = [replace(one, text="") if one.step > 60 else one for one in words]
    said, stopped = replay(replace(healthy(0), samples=worse))
    besides = ("zero-variance-groups", "repeated-prompts")
    assert [check for check, _, _ in said if check not in besides] == ["degenerate-output"] * 2
    assert stopped == ("degenerate-output", 100)


def test_a_resumed_run_remembers_what_was_said_and_what_stands():
    planted = healthy(0, **FAULTS["two distributions from the start"][0])
    memory = {}
    begun = {
        name: Series(one.steps[one.steps <= 10], one.values[one.steps <= 10])
        for name, one in planted.series.items()
    }
    assert replay(replace(planted, series=begun), memory) == ([("gap", "warning", 10)], None)
    assert replay(planted, json.loads(json.dumps(memory)), begin=10) == (
        [("gap", "fatal", 20)],
        ("gap", 20),
    )


def test_a_name_that_is_no_check_is_an_error_that_lists_them(tmp_path):
    with pytest.raises(
        RecipeError, match=r"no check no_signal.*(.|\n)*no-signal, zero-variance-groups"
    ):
        validate_check_names(ChecksSection(ignore=["no_signal"]))
    values = {**toy_recipe().model_dump(), "checks": {"ignore": ["no_signal"]}}
    with pytest.raises(RecipeError, match="no check no_signal"):
        run_recipe(parse_recipe(values), tmp_path / "run")
    assert not (tmp_path / "run").exists()


# -- our own runs ----------------------------------------------------------------------------------


def own(tiny_folder, folder, *, checks=None, options=None, resume=False, **over):
    recipe = toy_recipe(steps=14, group_size=8).model_dump()
    recipe["model"]["name"] = str(tiny_folder)
    recipe["task"]["options"] = options or {}
    checks = dict(checks or {})
    # the random model's answers are all cut at the limit, and drawn at random
    ignored = ["truncation", "untrained", *checks.pop("ignore", ())]
    recipe |= {
        "evaluation": {"every": 0, "final": []},
        "checks": {"every": 5, "ignore": ignored, **checks},
        **over,
    }
    run_recipe(parse_recipe(recipe), folder, resume=resume)
    return RunRecord.read(folder)


def events(run, *kinds):
    return [
        (row["kind"], row["check"], row["step"])
        for row in run.files["events"].rows()
        if row["kind"] in kinds
    ]


DULL = {"reward": "constant"}


def test_a_planted_fault_stops_the_run_after_a_checkpoint_and_without_the_check_it_goes_on(
    tiny_folder, tmp_path
):
    with pytest.raises(TrainingStopped, match=r"no-signal: .*100%") as error:
        own(tiny_folder, tmp_path / "run", options=DULL)
    assert "checks.ignore=[truncation, untrained, no-signal]" in error.value.fix
    run = RunRecord.read(tmp_path / "run")
    stopped = run.read_stop()
    wanted = {"status": "stopped", "check": "no-signal", "stage": "rl", "step": 10}
    assert {name: stopped[name] for name in wanted} == wanted
    assert [path.name for path in run.checkpoints("rl").glob("step-*")] == ["step-000010"]
    with pytest.raises(RecipeError, match="no check nosignal"):
        own(
            tiny_folder,
            tmp_path / "run",
            options=DULL,
            checks={"ignore": ["nosignal"]},
            resume=True,
        )
    run = own(
        tiny_folder, tmp_path / "run", options=DULL, checks={"ignore": ["no-signal"]}, resume=True
    )
    assert (run.read_stop(), run.result()["status"], len(run.rows("rl"))) == (None, "finished", 14)
    assert events(run, "fatal", "warning") == [("fatal", "no-signal", 10)], "and only once"


def test_what_is_wrong_on_purpose_is_said_and_not_stopped(tiny_folder, tmp_path):
    run = own(tiny_folder, tmp_path / "run", options=DULL, controls={"shuffle_advantages": True})
    assert len(run.rows("rl")) == 14
    assert events(run, "fatal") == [("fatal", "no-signal", 10)]
    run = own(tiny_folder, tmp_path / "off", options=DULL, checks={"every": 0})
    assert (len(run.rows("rl")), events(run, "fatal")) == (14, [])


def test_a_healthy_run_is_not_stopped_and_a_dead_part_is_said_once(tiny_folder, tmp_path):
    run = own(tiny_folder, tmp_path / "run")
    assert (run.result()["status"], events(run, "fatal")) == ("finished", [])
    run = own(tiny_folder, tmp_path / "dead", options={"reward": "dead_part"}, checks={"every": 2})
    assert events(run, "warning", "fatal") == [("warning", "dead-part", 12)]


def test_supervised_training_that_falls_apart_is_stopped(tiny_folder, tmp_path):
    from plumbline.training.sft import train_sft

    policy = open_policy(
        parse_recipe({"name": "x", "model": {"name": str(tiny_folder)}}).model, str(tiny_folder)
    )
    chat = [
        {"role": "user", "content": "escreva"},
        {"role": "assistant", "content": "nota 10, sim"},
    ]
    optimiser = {"learning_rate": 5.0, "schedule": "constant"}
    section = SftSection(steps=60, batch_size=2, optimiser=optimiser)
    shown = [policy.demonstrate(chat)] * 4
    with (
        Run.start(toy_recipe(), tmp_path / "run") as run,
        pytest.raises(TrainingStopped, match="check sft-loss: "),
    ):
        train_sft(
            policy,
            {"": [[one] for one in shown]},
            section,
            run,
            source=Source.of(ToyTask({}), shown),
        )
    stop = RunRecord.read(tmp_path / "run").read_stop()
    assert (stop["stage"], stop["check"]) == ("sft", "sft-loss")
    (history,) = read_histories(tmp_path / "run")
    found = {one.check: one.code for one in examine(history, CHECKS).findings}
    assert found["sft-loss"] == "broken"


# -- noise -----------------------------------------------------------------------------------------

STUDY = Path(__file__).parents[2] / "experiments" / "grpo_real.jsonl"


def aimless(rewards, signal, noise=None):
    """The steps at which it is said that nothing points anywhere."""
    columns = {
        "reward": rewards,
        "grad_signal": signal,
        "grad_noise": noise if noise is not None else np.ones(len(rewards)),
    }
    base = healthy(0, steps=len(rewards))
    rate = base.series["learning_rate"]
    series = {
        name: replace(rate, values=np.array(values, dtype=float))
        for name, values in columns.items()
    }
    said, _ = replay(replace(base, series={**series, "learning_rate": rate}))
    return [step for check, _, step in said if check == "mostly-noise"]


class TestMostlyNoise:
    rng = np.random.default_rng(5)
    nothing = rng.standard_normal(60) - 0.2
    something = rng.standard_normal(60) + 0.7
    level = 0.4 + 0.08 * rng.standard_normal(60) - 0.001 * np.arange(60)
    rising = level + 0.01 * np.arange(60)

    def test_it_speaks_where_nothing_points_anywhere_at_two_looks_and_still(self):
        assert aimless(self.level, self.nothing) == [2 * LOOK + 10]

    def test_rewards_that_rise_or_gradients_that_agree_keep_it_silent(self):
        assert not aimless(self.rising, self.nothing)
        assert not aimless(self.level, self.something)

    def test_the_trend_is_the_t_of_a_regression(self):
        stats = pytest.importorskip("scipy.stats", reason="SciPy says the same; pip install scipy")
        fit = stats.linregress(np.arange(60), self.rising)
        assert slope_t(self.rising) == pytest.approx(fit.slope / fit.stderr)
        assert slope_t(np.full(40, 0.3)) == 0

    def test_on_the_arms_of_the_study_it_is_silent_where_the_reward_rose_and_speaks_where_it_was_shuffled(
        self,
    ):
        arms = [row for _, row in read_jsonl(STUDY) if row["trainer"] == "plumbline"]
        spoke = {}
        for row in arms:
            spoke[row["arm"], row["seed"]] = bool(
                aimless(row["reward"], row["grad_signal"], row["grad_noise"])
            )
        assert all(spoke[row["arm"], row["seed"]] for row in arms if row["shuffled"])
        assert not any(
            spoke[row["arm"], row["seed"]] for row in arms if row["sampled"]["difference"][1] > 0
        )
        assert len({row["shuffled"] for row in arms}) == 2
