"""The callback in real runs of TRL: what is planted stops them after a checkpoint, and healthy ones
go on."""

import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest

from plumbline.adapters.callback import CheckCallback
from plumbline.errors import RecipeError
from tests.diagnosis.trl_runs import Plan, half, letters, train


@pytest.fixture(autouse=True)
def _trainer():
    pytest.importorskip("torch", reason="a trainer has torch; pip install '.[train]'")


def watched(talker, folder, plan, **options):
    """The callback after a run with it."""
    callback = CheckCallback(**options)

    def patch(trainer):
        trainer.add_callback(callback)
        if plan.patch is not None:
            plan.patch(trainer)

    train(talker, folder, replace(plan, patch=patch))
    return callback


def test_a_healthy_run_is_not_stopped_and_what_cannot_be_checked_is_said(talker, tmp_path, caplog):
    callback = watched(talker, tmp_path / "run", Plan(rewards=(letters,), steps=20))
    assert (callback.said, callback.stopped) == ([], None)
    said = [one.message for one in caplog.records if one.name == "plumbline"]
    assert len(said) == 1
    assert "parser" in said[0]
    assert "degenerate-output" not in said[0], "TRL wrote its completions, and they were read"
    assert not list((tmp_path / "run").glob("checkpoint-*"))


def test_a_planted_fault_stops_a_real_run_after_a_checkpoint(talker, tmp_path, caplog):
    callback = watched(talker, tmp_path / "run", Plan(rewards=(half,)))
    assert callback.stopped.check == "no-signal"
    assert [path.name for path in (tmp_path / "run").glob("checkpoint-*")] == ["checkpoint-10"]
    assert [(one.check, one.level) for one, _ in callback.said] == [("no-signal", "fatal")]
    assert caplog.text.count("training stops after a checkpoint: no-signal") == 1


# -- as transformers calls it, without a model -----------------------------------------------------


def called(callback, steps=30, main=True, report_to=(), row=None, begin=0):
    """What a trainer calls, with rows of no gradient; the step after which it was told to stop."""
    args = SimpleNamespace(output_dir="nowhere", report_to=list(report_to), to_dict=dict)
    state = SimpleNamespace(
        global_step=begin, max_steps=steps, is_world_process_zero=main, log_history=[]
    )
    control = SimpleNamespace(should_save=False, should_training_stop=False)
    callback.on_train_begin(args, state, control)
    for step in range(begin + 1, steps + 1):
        state.global_step = step
        assert callback.on_step_begin(args, state, control, model=None) is None
        logs = row or {"reward": 0.5, "grad_norm": 0.0, "loss": 0.0, "learning_rate": 1e-4}
        callback.on_log(args, state, control, logs=logs)
        if control.should_training_stop:
            assert control.should_save
            return step
    callback.on_train_end(args, state, control)
    return None


def test_a_number_that_is_none_is_looked_at_at_once():
    """A reward stops at once; a gradient after three, since a loss scaler of 16 bits skips single
    steps."""
    assert called(CheckCallback(), row={"reward": float("inf"), "grad_norm": 0.1, "loss": 0.0}) == 1
    assert called(CheckCallback(), row={"reward": 0.5, "grad_norm": float("nan"), "loss": 0.0}) == 3


def test_it_can_be_told_not_to_stop_or_what_to_ignore():
    callback = CheckCallback(stop=False)
    assert called(callback) is None
    assert [(one.check, one.level) for one, _ in callback.said] == [("no-signal", "fatal")]
    callback = CheckCallback(ignore=["no-signal"])
    assert (called(callback), callback.said) == (None, [])
    with pytest.raises(RecipeError, match="no check nosignal"):
        CheckCallback(ignore=["nosignal"])


def test_an_error_in_a_check_is_said_once_and_costs_the_training_nothing(monkeypatch, caplog):
    def fail(*_):
        raise ValueError("a bug")

    monkeypatch.setattr("plumbline.checks.diagnosis.live.examine", fail)
    assert called(CheckCallback()) is None
    (said,) = caplog.records
    assert said.levelname == "WARNING"
    assert said.message.endswith("ValueError: a bug")


def test_on_several_ranks_the_main_one_decides_and_speaks_for_all(monkeypatch, caplog):
    import torch.distributed as ranks

    told = []
    monkeypatch.setattr(ranks, "is_initialized", lambda: True)
    monkeypatch.setattr(ranks, "get_world_size", lambda: 2)
    monkeypatch.setattr(ranks, "broadcast_object_list", lambda said, src: told.append(list(said)))
    assert called(CheckCallback()) == 10
    assert told == [[False]] * 9 + [[True]], (
        "asked at every log, because ranks that do not look cannot know when"
    )
    caplog.clear()

    def hears(said, src):
        assert said == [False]
        said[0] = len(told) == 19
        told.append(said)

    monkeypatch.setattr(ranks, "broadcast_object_list", hears)
    assert called(CheckCallback(), main=False) == 10
    assert not caplog.records


def test_findings_are_alerts_of_the_trackers_that_are_reported_to(monkeypatch, tmp_path):
    sent = []
    levels = {"ERROR": "ERROR", "WARN": "WARN"}
    run = SimpleNamespace(alert=lambda title, text, level: sent.append((title, level)))
    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(run=run, AlertLevel=levels))
    called(CheckCallback(), report_to=["wandb"])
    assert [(title[:17], level) for title, level in sent] == [("fatal: no-signal:", "ERROR")]
    assert len(sent[0][0]) < 64
    called(CheckCallback(), report_to=["none"])
    assert len(sent) == 1
    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(run=None))
    assert called(CheckCallback(), report_to=["wandb"]) == 10


def test_it_knows_the_adapter_and_preference_training():
    callback = CheckCallback()
    args = SimpleNamespace(
        output_dir="nowhere", report_to=[], to_dict=lambda: {"learning_rate": 1e-6}
    )
    state = SimpleNamespace(global_step=0, max_steps=60, is_world_process_zero=True, log_history=[])
    model = SimpleNamespace(peft_config={"default": SimpleNamespace(r=16)})
    callback.on_train_begin(args, state, None, model=model)
    row = {"loss": 0.5, "rewards/chosen": 0.1, "rewards/rejected": 0.0, "kl": 0.2}
    callback.on_log(args, state, SimpleNamespace(should_training_stop=False), logs=row)
    history = callback._live.current_history()
    assert history.kind == "sft"
    assert history.settings["model.lora.rank"] == 16


def test_training_that_goes_on_does_not_repeat_itself():
    callback = CheckCallback()
    row = {"step": 1, "reward": 0.5, "grad_norm": 0.0, "loss": 0.0}
    args = SimpleNamespace(output_dir="nowhere", report_to=[], to_dict=dict)
    history = [{**row, "step": step} for step in range(1, 21)]
    state = SimpleNamespace(
        global_step=20, max_steps=60, is_world_process_zero=True, log_history=history
    )
    callback.on_train_begin(args, state, None)
    for step in range(21, 31):
        state.global_step = step
        callback.on_log(args, state, SimpleNamespace(should_training_stop=False), logs=row)
    assert callback.said == []
    assert callback.stopped.check == "no-signal", "but what stands stops it again"
