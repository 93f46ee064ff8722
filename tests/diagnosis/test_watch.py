"""Watch rules: each fires on the run planted for it and on no healthy one, live and after; a stop
loses nothing."""

import re

import numpy as np
import pytest

from plumbline.checks.diagnosis.watch import describe_condition, replay_rules
from plumbline.errors import RecipeError, TrainingStopped
from plumbline.policies import open_policy
from plumbline.recipe import load_recipe, parse_recipe
from plumbline.recipe.decision_rules import Condition
from plumbline.reports.write import write_report
from plumbline.runs.record import RunRecord
from plumbline.runs.run import Run
from plumbline.training.pipeline import run_recipe
from plumbline.training.prompts import Source
from tests.diagnosis.planted import SCENARIOS, TASKS, planted
from tests.toy import ToyTask

STEPS = 60


def series(seed, **over):
    """Metrics of training as a healthy run has them, with what `over` says instead."""
    rng = np.random.default_rng(seed)
    values = {
        "train/grad_norm": rng.lognormal(-2, 0.6, STEPS),
        "train/frac_reward_zero_std": rng.choice([0.0, 0.5], STEPS, p=[0.7, 0.3]),
        "train/frac_truncated": rng.choice([0.0, 1 / 32], STEPS, p=[0.9, 0.1]),
    }
    return {name: [float(x) for x in column] for name, column in {**values, **over}.items()}


def rising(end):
    """Levels at evaluations up to step 400, straight to `end` at step 130 and on from there by
    `end` - 0.05."""
    return {step: 0.3 + (end - 0.3) * min(step, 400) / 400 for step in (0, 10, 130, 200, 300, 400)}


STUCK = dict.fromkeys((0, 10, 130, 200, 300), 0.47)
HEALTHY = {task: rising(0.6) for task in TASKS}
SPIKES = [0.1] * STEPS
SPIKES[30:33] = [3.0, 2.5, 4.0]
PLANTED = {
    "plateau": (dict.fromkeys(TASKS, STUCK), {}, 200),
    "extraction": ({**HEALTHY, "extraction": {0: 0.1, 10: 0.1, 90: 0.1, 110: 0.12}}, {}, 110),
    "length": (HEALTHY, {"train/frac_truncated": [0.0] * 30 + [1.0] * 30}, 39),
    "zero_std": (HEALTHY, {"train/frac_reward_zero_std": [0.0] * 10 + [1.0] * 50}, None),
    "gradient": (HEALTHY, {"train/grad_norm": SPIKES}, 33),
}


def with_evaluations(folder):
    """Records put a row of metrics at each evaluation, as the loop does."""
    run = Run(folder, RunRecord.read(folder).recipe)
    steps = sorted({key.step for key in run.evaluation_files()})
    there = {row["step"] for row in run.rows("rl")}
    for step in steps:
        if step not in there:
            run.metrics("rl", step, {f"eval/{task}": 0.0 for task in [*TASKS, "mean_reward"]})
    return run.record()


@pytest.mark.parametrize("rule", PLANTED)
def test_a_rule_fires_on_the_run_that_was_planted_for_it_and_no_other_does(tmp_path, rule):
    levels, columns, step = PLANTED[rule]
    folder = planted(tmp_path / "run", levels, metrics=series(1, **columns))
    rules = replay_rules(with_evaluations(folder))
    stopped = {one.rule: [each for each in one.fired if each.action == "stop"] for one in rules}
    assert [name for name, fired in stopped.items() if fired] == [rule]
    assert step is None or stopped[rule][0].step == step
    assert stopped[rule][0].message.startswith(f"{rule}: ")


@pytest.mark.parametrize("seed", range(20))
def test_nothing_fires_on_healthy_runs(tmp_path, seed):
    folder = planted(tmp_path / f"run{seed}", HEALTHY, metrics=series(seed), n=30)
    assert [each for one in replay_rules(with_evaluations(folder)) for each in one.fired] == []


def test_what_is_inside_the_noise_is_said_once_and_stops_nothing(tmp_path):
    levels = {
        **HEALTHY,
        "extraction": {0: 0.1, 10: 0.15, 110: 0.19, 120: 0.19, 130: 0.4, 140: 0.19},
    }
    folder = planted(tmp_path / "run", levels, n=12, metrics=series(0))
    (found,) = [one for one in replay_rules(with_evaluations(folder)) if one.rule == "extraction"]
    assert [(each.action, each.step) for each in found.fired] == [("noise", 110), ("noise", 140)]
    assert "interval" in found.fired[0].message


def toy(watch, **over):
    return parse_recipe(
        {
            "name": "toy",
            "model": {"name": "given"},
            "rl": {
                "steps": 6,
                "prompts_per_step": 2,
                "group_size": 4,
                "optimiser": {"learning_rate": 1e-3},
            },
            "task": {"name": "tests.toy:open_toy"},
            "sampling": {"max_tokens": 8},
            "run": {"checkpoint_every": 100},
            "watch": watch,
            **over,
        }
    )


def train(tiny_folder, folder, recipe, *, resume=False):
    from plumbline.training.rl import train_rl

    policy = open_policy(
        recipe.model.model_copy(update={"name": str(tiny_folder)}), str(tiny_folder)
    )
    task = ToyTask({})
    with Run.start(recipe, folder, resume=resume) as run:
        train_rl(policy, Source.of(task, task.examples("train")), run)
    return run


LONG = {"expected": "short answers", "advice": "Shorten them."}


def test_a_live_stop_leaves_a_checkpoint_a_result_and_an_event_and_the_run_can_go_on(
    tiny_folder, tmp_path
):
    rule = {**LONG, "stop_if": {"metric": "train/completion_length", "above": 1, "sustained": 3}}
    whole = train(tiny_folder, tmp_path / "whole", toy({}))
    says = r"the rule length: train/completion_length at step 3 .* above 1"
    with pytest.raises(TrainingStopped, match=says) as error:
        train(tiny_folder, tmp_path / "run", toy({"length": rule}))
    assert "--set watch.length=null" in error.value.fix
    run = RunRecord.read(tmp_path / "run")
    assert run.result() is None
    stopped = run.read_stop()
    assert (stopped["status"], stopped["rule"], stopped["stage"], stopped["step"]) == (
        "stopped",
        "length",
        "rl",
        3,
    )
    assert [path.name for path in run.checkpoints("rl").glob("step-*")] == ["step-000003"]
    (event,) = [row for row in run.files["events"].rows() if row["kind"] == "watch"]
    assert (event["rule"], event["action"], event["step"]) == ("length", "stop", 3)
    with pytest.raises(TrainingStopped, match="at step 4"):
        train(tiny_folder, tmp_path / "run", toy({"length": rule}), resume=True)
    gone_on = train(tiny_folder, tmp_path / "run", toy({"length": None}), resume=True)
    assert gone_on.read_stop() is None
    assert gone_on.rows("rl") == whole.rows("rl"), "a stop and a resume change nothing"


def test_a_live_warning_goes_on_and_a_healthy_run_says_nothing(tiny_folder, tmp_path):
    warn = {**LONG, "warn_if": {"metric": "train/completion_length", "above": 1}}
    quiet = {**LONG, "stop_if": {"metric": "train/completion_length", "above": 1000}}
    run = train(tiny_folder, tmp_path / "run", toy({"length": warn, "quiet": quiet}))
    events = [
        (row["rule"], row["action"], row["step"])
        for row in run.files["events"].rows()
        if row["kind"] == "watch"
    ]
    assert events == [("length", "warn", 1)]
    assert len(run.rows("rl")) == 6


def test_a_rule_on_an_evaluation_stops_the_whole_run_and_without_it_the_run_ends_well(
    tiny_folder, tmp_path
):
    rule = {
        "expected": "some letters",
        "stop_if": {"metric": "eval/mean_reward", "after": 1, "below": 0.99},
    }
    values = {
        "model": {"name": str(tiny_folder)},
        "rl": {"steps": 2, "prompts_per_step": 2, "group_size": 2},
        "sampling": {"max_tokens": 4},
        "evaluation": {"every": 1, "final": ["val"]},
    }
    with pytest.raises(
        TrainingStopped, match=r"letters: eval/mean_reward .* 1 .* n = 12 .*: below 0\.99"
    ):
        run_recipe(toy({"letters": rule}, **values), tmp_path / "run")
    assert RunRecord.read(tmp_path / "run").read_stop()["rule"] == "letters"
    run = run_recipe(toy({}, **values), tmp_path / "run", resume=True)
    assert run.result()["status"] == "finished"
    assert [row["step"] for row in run.rows("rl")] == [0, 1, 2]


def test_at_the_last_step_there_is_nothing_left_to_stop(tiny_folder, tmp_path):
    rule = {**LONG, "stop_if": {"metric": "train/completion_length", "above": 1, "sustained": 6}}
    run = train(tiny_folder, tmp_path / "run", toy({"length": rule}))
    assert len(run.rows("rl")) == 6
    assert run.read_stop() is None


def test_the_report_has_a_table_of_the_rules_and_says_what_to_do_next(tmp_path):
    folder = planted(tmp_path / "run", SCENARIOS["A"], metrics=series(0, **PLANTED["gradient"][1]))
    recipe = load_recipe("commerce-v4.1")
    with Run.start(recipe, folder, resume=True) as run:
        run.event("watch", "gradient: ...", rule="gradient", action="stop", step=33, stage="rl")
    write_report(RunRecord.read(folder))
    for name in ("report.html", "report.md"):
        text = (folder / name).read_text()
        assert "Watch rules" in text
        assert "stop at step 33" in text
        assert recipe.watch["gradient"].expected in text
        assert {"html": '<section id="next">', "md": "## What to do"}[name[7:]] in text
        assert f"A. {recipe.decide.branches['A'].says}" in text
        assert str(tmp_path) not in text
    assert (folder / "tables" / "watch.csv").read_text().count("\n") == 6


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ({"expected": "x"}, "stop_if, or warn_if"),
        ({"expected": "x", "stop_if": "reached"}, r"stop_if: .* Condition\n"),
        ({"expected": "x", "stop_if": {"metric": "loss", "above": 1}}, "pattern"),
        ({"expected": "x", "stop_if": {"metric": "train/loss"}}, "give a bound"),
        (
            {"expected": "x", "stop_if": {"metric": "train/loss", "abve": 1}},
            r"unknown key watch\.rule\.stop_if\.abve",
        ),
        (
            {"expected": "x", "stop_if": {"metric": "train/loss", "since": 3, "above": 1}},
            "give a window",
        ),
        (
            {"expected": "x", "stop_if": {"metric": "eval/a", "against": "previous", "above": 1}},
            "no previous one",
        ),
        ({"expected": "x", "stop_if": {"all": ["reached"]}}, r"watch\.rule: reached\b.* decide\b"),
        (
            {
                "expected": "x",
                "stop_if": {"all": [{"metric": "train/loss", "above": 1}], "above": 1},
            },
            "stands alone",
        ),
        ({"expected": "x", "stop_if": {"metric": "__import__('os')", "above": 1}}, "pattern"),
    ],
)
def test_a_rule_that_cannot_be_is_an_error_of_the_recipe(rule, said):
    with pytest.raises(RecipeError, match=said):
        toy({"rule": rule})


def test_conditions_read_as_sentences():
    one = Condition(metric="eval/mean_reward", since=130, after=200, below=0.02)
    in_words = r"eval/mean_reward, .* 130 below 0\.02, .* 200\b.*"
    assert re.fullmatch(in_words, describe_condition(one))
    assert describe_condition(Condition(none=[one])).startswith("neither eval/mean_reward")
    assert describe_condition(None) == ""
