"""A budget of processor-seconds: where a stage ends, what its rate follows, and what a resume
counts."""

import itertools
import re

import pytest

from plumbline.checks.diagnosis.readers import own
from plumbline.checks.refusals import check_budgets
from plumbline.errors import RecipeError
from plumbline.recipe import SftSection, parse_recipe
from plumbline.runs.run import Run
from plumbline.training import rl
from plumbline.training.prompts import Source
from plumbline.training.sft import train_sft
from tests.toy import ToyTask
from tests.training.toy_runs import fresh_policy, messages, toy_recipe, train_toy

FALLS = {"learning_rate": 1e-3, "schedule": "linear", "warmup": 0}


@pytest.fixture
def ticking(monkeypatch):
    """A clock that goes on by a second whenever it is looked at: a step of SFT takes one, and one
    of RL two."""
    clock = itertools.count()
    monkeypatch.setattr("time.process_time", lambda: float(next(clock)))


def supervise(folder, model, resume=False, every=100, **section):
    policy, task = fresh_policy(model), ToyTask({"size": 8})
    examples = task.examples("train")
    shown = [
        [policy.demonstrate([*e.messages, {"role": "assistant", "content": e.gold}])]
        for e in examples
    ]
    with Run.start(toy_recipe(checkpoint_every=every), folder, resume=resume) as run:
        section = SftSection.model_validate({"batch_size": 4, "optimiser": FALLS, **section})
        train_sft(policy, {"": shown}, section, run, source=Source.of(task, examples))
    return run


def test_sft_ends_with_the_step_that_reaches_the_budget(tmp_path, tiny_folder, ticking):
    run = supervise(tmp_path / "run", tiny_folder, steps=100, seconds=4)
    rows = run.rows("sft")
    assert [row["step"] for row in rows] == [1, 2, 3, 4]
    # The rate follows the share of the seconds: 0, 1/4, 2/4, 3/4, and not that of a hundred steps.
    assert [row["train/learning_rate"] for row in rows] == pytest.approx(
        [1e-3, 0.75e-3, 0.5e-3, 0.25e-3]
    )
    assert [row["cpu/step"] for row in run.files["timings"].rows()] == [1.0] * 4
    assert [row["train/expected_steps"] for row in rows] == [4] * 4
    (said,) = messages(run, "budget")
    assert re.match(r"sft\b.* 4 ", said)


def test_steps_end_a_stage_that_has_seconds_left(tmp_path, tiny_folder, ticking):
    rows = supervise(tmp_path / "run", tiny_folder, steps=4, seconds=100).rows("sft")
    assert [row["train/learning_rate"] for row in rows] == pytest.approx(
        [1e-3, 0.75e-3, 0.5e-3, 0.25e-3]
    )


def test_a_resumed_stage_has_spent_what_its_checkpoint_had(
    tmp_path, tiny_folder, ticking, monkeypatch
):
    """Steps that a kill undid are not counted, because they are done again."""
    record = Run.timings

    def killed(self, stage, step, seconds):
        if step == 3:
            raise SystemExit
        record(self, stage, step, seconds)

    monkeypatch.setattr(Run, "timings", killed)
    with pytest.raises(SystemExit):
        supervise(tmp_path / "run", tiny_folder, every=2, steps=100, seconds=5)
    monkeypatch.setattr(Run, "timings", record)
    rows = supervise(
        tmp_path / "run", tiny_folder, resume=True, every=2, steps=100, seconds=5
    ).rows("sft")
    assert [row["step"] for row in rows] == [1, 2, 3, 4, 5]
    assert rows[2]["train/learning_rate"] == pytest.approx(0.6e-3)
    # Nothing is left to do where it was stopped between its last checkpoint and its model.
    again = supervise(
        tmp_path / "run", tiny_folder, resume=True, every=2, steps=100, seconds=5
    ).rows("sft")
    assert len(again) == 5


def test_rl_ends_there_too_and_is_evaluated_at_its_end(tmp_path, tiny_folder, ticking, monkeypatch):
    policy, run = train_toy(tiny_folder, tmp_path / "run", steps=50, seconds=6, optimiser=FALLS)
    rows = run.rows("rl")
    assert [row["step"] for row in rows] == [1, 2, 3]
    assert [row["train/learning_rate"] for row in rows] == pytest.approx([1e-3, 2e-3 / 3, 1e-3 / 3])
    timings = run.files["timings"].rows()
    assert [(row["cpu/rollouts"], row["cpu/update"]) for row in timings] == [(1.0, 1.0)] * 3
    evaluated = []
    recipe = toy_recipe(steps=50, seconds=6, optimiser=FALLS)
    assert recipe.evaluation.every == 20
    with Run.start(recipe, tmp_path / "other") as other:
        task = ToyTask({})
        rl.train_rl(
            policy,
            Source.of(task, task.examples("train")),
            other,
            lambda done: evaluated.append(done) or {},
        )
    assert evaluated == [0, 3]


@pytest.mark.parametrize("elsewhere", [{"engine": "vllm"}, {"scale": {"samplers": 2}}])
def test_a_budget_of_this_process_is_refused_where_others_work(elsewhere):
    values = {"name": "x", "model": {"name": "m"}, "rl": {"steps": 1, "seconds": 9}}
    check_budgets(parse_recipe(values))
    with pytest.raises(RecipeError, match=rf"rl\.seconds .* {next(iter(elsewhere))}\b"):
        check_budgets(parse_recipe({**values, **elsewhere}))


def test_checks_know_the_steps_that_a_budget_allows(tmp_path, tiny_folder, ticking):
    """A hundred thousand steps are no plan: the rate at the end was called exhausted for 99 % of
    them."""
    run = supervise(tmp_path / "run", tiny_folder, steps=100_000, seconds=40)
    assert not [
        event for event in run.files["events"].rows() if event["kind"] in {"warning", "fatal"}
    ]
    (history,) = own.read(tmp_path / "run")
    assert history.settings["steps"] == history.last_step == 40
