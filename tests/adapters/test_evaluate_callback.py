"""Evaluations on held-out rows in real runs of TRL: what is logged, what is kept, and what it
costs."""

import json
import logging
import math
from types import SimpleNamespace

import pytest

from plumbline.adapters.evaluate_callback import EvaluateCallback
from plumbline.errors import DataError, RecipeError
from plumbline.evaluation.statistics import mean_interval, paired_difference
from plumbline.storage import read_jsonl, write_jsonl
from tests.diagnosis.trl_runs import Plan, letters, make_talker, train

CHATS = [{"prompt": [{"role": "user", "content": f"{n}: escreva"}], "n": n} for n in range(8)]


@pytest.fixture(scope="module")
def talker(tiny_folder, tmp_path_factory):
    return make_talker(tiny_folder, tmp_path_factory.mktemp("models") / "talker")


@pytest.fixture
def heldout(tmp_path):
    write_jsonl(tmp_path / "heldout.jsonl", CHATS)
    return tmp_path / "heldout.jsonl"


def trained(talker, folder, heldout, steps=20, **options):
    """The rows that were logged, and the callback; without held-out rows there is none."""
    seen = []

    def patch(trainer):
        if heldout is not None:
            seen.append(EvaluateCallback(trainer, heldout, **options))
            trainer.add_callback(seen[0])

    train(
        talker,
        folder,
        Plan(rewards=(letters,), steps=steps, patch=patch, options={"learning_rate": 5e-3}),
    )
    return json.loads((folder / "trainer_state.json").read_text())["log_history"], *seen


def test_grpo_is_evaluated_and_the_best_checkpoint_is_kept(talker, tmp_path, heldout, caplog):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    caplog.set_level(logging.INFO, "plumbline")
    history, callback = trained(talker, tmp_path / "run", heldout, every=8)
    rows = [row for row in history if "eval_mean_reward" in row]
    assert [row["step"] for row in rows] == [0, 8, 16, 20], "before, every 8 steps, and at the end"
    kept = {
        row["step"]: [
            each["reward"]
            for _, each in read_jsonl(tmp_path / f"run/evaluations/step-{row['step']}.jsonl")
        ]
        for row in rows
    }
    for row in rows:
        mean, change = (
            mean_interval(kept[row["step"]]),
            paired_difference(kept[0], kept[row["step"]]),
        )
        said = (row["eval_mean_reward"], row["eval_mean_reward_low"], row["eval_mean_reward_high"])
        assert said == pytest.approx((mean.mean, mean.low, mean.high))
        assert row["eval_mean_reward_n"] == 8
        if row["step"]:
            assert row["eval_change_p"] == pytest.approx(change.p_value)
            assert row["eval_change_low"] == pytest.approx(change.difference.low)
    facts = json.loads((tmp_path / "run/best/evaluation.json").read_text())
    assert facts["step"] == callback.best.step == rows[-1]["eval_best_step"]
    assert facts["mean_reward"]["mean"] == max(row["eval_mean_reward"] for row in rows)
    assert "plumbline" not in [one.name for one in caplog.records if one.levelno >= logging.WARNING]

    best = AutoModelForCausalLM.from_pretrained(tmp_path / "run/best")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "run/best")
    texts = [
        row["completion"]
        for _, row in read_jsonl(tmp_path / f"run/evaluations/step-{facts['step']}.jsonl")
    ]
    for row, text in zip(CHATS[:3], texts, strict=False):  # one by one: padding changes no answer
        asked = tokenizer.apply_chat_template(
            row["prompt"], add_generation_prompt=True, tokenize=False
        )
        tokens = tokenizer(asked, add_special_tokens=False, return_tensors="pt")
        made = best.generate(
            **tokens, do_sample=False, max_new_tokens=48, pad_token_id=tokenizer.pad_token_id
        )
        assert (
            tokenizer.decode(made[0, tokens["input_ids"].shape[1] :], skip_special_tokens=True)
            == text
        )


def test_the_training_is_the_same_with_and_without_it(talker, tmp_path, heldout):
    with_it, _ = trained(talker, tmp_path / "with", heldout, steps=4, every=2)
    (without,) = trained(talker, tmp_path / "without", None, steps=4)

    def figures(history):
        rows = [row for row in history if "loss" in row]
        return [
            {name: row.get(name) for name in ("step", "loss", "reward", "entropy", "grad_norm")}
            for row in rows
        ]

    assert figures(with_it) == figures(without)
    assert len(figures(without)) == 4


def test_what_goes_wrong_is_said_once_and_the_training_ends(talker, tmp_path, heldout, caplog):
    calls = []

    def broken(completions, **columns):
        calls.append(len(completions))
        if len(calls) > 1:
            raise ValueError("a bug")
        return [0.5] * len(completions)

    history, callback = trained(talker, tmp_path / "run", heldout, steps=6, every=2, score=broken)
    assert [row["step"] for row in history if "eval_mean_reward" in row] == [0]
    assert max(row["step"] for row in history) == 6
    assert calls == [8, 8]
    assert caplog.text.count("training continues: ValueError: a bug") == 1
    assert callback.best.step == 0


def test_supervised_training_is_evaluated_too(talker, tmp_path, heldout):
    trl = pytest.importorskip("trl", reason="TRL is the peer of this test; pip install '.[dev]'")
    import torch
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer

    shown = [
        {"messages": [*row["prompt"], {"role": "assistant", "content": "a b c d a b c"}]}
        for row in CHATS
    ]
    trainer = trl.SFTTrainer(
        model=AutoModelForCausalLM.from_pretrained(talker, dtype=torch.float32),
        args=trl.SFTConfig(
            output_dir=str(tmp_path / "run"),
            max_steps=60,
            per_device_train_batch_size=8,
            learning_rate=5e-3,
            lr_scheduler_type="constant",
            use_cpu=True,
            bf16=False,
            gradient_checkpointing=False,
            report_to="none",
            save_strategy="no",
            logging_steps=20,
            disable_tqdm=True,
        ),
        train_dataset=Dataset.from_list(shown),
        processing_class=AutoTokenizer.from_pretrained(talker),
    )
    with pytest.raises(RecipeError, match="functions that score"):
        EvaluateCallback(trainer, heldout)

    def shown_answer(completions, n):
        assert n == list(range(8))
        return [float(one[0]["content"].strip().startswith("a b c d")) for one in completions]

    trainer.add_callback(
        EvaluateCallback(trainer, heldout, shown_answer, every=60, max_new_tokens=24)
    )
    trainer.train()
    rows = [row for row in trainer.state.log_history if "eval_mean_reward" in row]
    assert [row["step"] for row in rows] == [0, 60]
    assert rows[0]["eval_mean_reward"] == 0
    assert rows[1]["eval_change_low"] > 0, "it learnt the answer, beyond chance"
    facts = json.loads((tmp_path / "run/best/evaluation.json").read_text())
    assert (facts["step"], facts["instead_of"], facts["sure"]) == (60, 0, True)


# -- without a model -------------------------------------------------------------------------------


def called(tmp_path, heldout, monkeypatch, plan, begin=0, main=True, **options):
    """The callback after evaluations of these rewards, the first of them at the beginning."""
    pytest.importorskip("transformers")
    plan, saved = iter(plan), []

    def save(folder):
        from pathlib import Path

        Path(folder).mkdir()
        saved.append(state.global_step)

    args = SimpleNamespace(output_dir=str(tmp_path / "run"))
    state = SimpleNamespace(global_step=begin, is_world_process_zero=main, log_history=[])
    rewards, control = [lambda completions, **_: next(plan)], SimpleNamespace(should_log=True)
    trainer = SimpleNamespace(
        args=args, state=state, control=control, save_model=save, reward_funcs=rewards
    )
    callback = EvaluateCallback(trainer, heldout, every=1, **options)
    monkeypatch.setattr(callback, "_answers", lambda: ["x"] * 8)
    monkeypatch.setattr(
        "transformers.Trainer.log", lambda self, logs: state.log_history.append(logs)
    )
    callback.on_train_begin(args, state, None)
    assert control.should_log, "the trainer's own row is still due"
    return callback, state, args, saved


def go(callback, state, args, steps):
    for _ in range(steps):
        state.global_step += 1
        callback.on_step_end(args, state, None)
    callback.on_train_end(args, state, None)


def test_the_best_is_replaced_by_what_is_better_or_undecided_and_higher(
    tmp_path, heldout, monkeypatch
):
    up, slightly, less, surely_less = [0.6] * 8, [0.6] * 7 + [0.7], [0.6] * 8, [0.1] * 8
    callback, state, args, saved = called(
        tmp_path, heldout, monkeypatch, [[0.2] * 8, up, slightly, less, surely_less]
    )
    go(callback, state, args, 4)
    assert saved == [0, 1, 2]
    facts = json.loads((tmp_path / "run/best/evaluation.json").read_text())
    assert (facts["step"], facts["instead_of"], facts["sure"]) == (2, 1, False)
    assert facts["change"]["low"] < 0 < facts["change"]["mean"]
    assert [row["eval_best_step"] for row in state.log_history] == [0, 1, 2, 2, 2]
    assert {one.name for one in (tmp_path / "run").iterdir()} == {"best", "evaluations"}


def test_it_resumes_with_the_first_and_the_best_of_before(tmp_path, heldout, monkeypatch):
    go(*called(tmp_path, heldout, monkeypatch, [[0.2] * 8, [0.9] * 8, [0.5] * 8])[:3], 2)
    callback, state, args, saved = called(tmp_path, heldout, monkeypatch, [[0.6] * 8], begin=2)
    go(callback, state, args, 1)
    assert saved == []
    assert (callback.first.step, callback.best.step) == (0, 1)
    assert state.log_history[-1]["eval_change"] == pytest.approx(0.4)


def test_answers_without_a_reward_are_left_out(tmp_path, heldout, monkeypatch):
    callback, state, args, _ = called(
        tmp_path, heldout, monkeypatch, [[None, 0, *[1.0] * 6], [1, 1, math.nan, *[1.0] * 5]]
    )
    go(callback, state, args, 1)
    assert [row["eval_mean_reward_n"] for row in state.log_history] == [7, 7]
    assert state.log_history[1]["eval_change"] == pytest.approx(1 / 6)


def test_other_ranks_do_nothing_and_no_checkpoint_is_kept_unasked(tmp_path, heldout, monkeypatch):
    callback, state, args, saved = called(tmp_path, heldout, monkeypatch, [], main=False)
    go(callback, state, args, 2)
    assert (saved, state.log_history, (tmp_path / "run").exists()) == ([], [], False)
    callback, state, args, saved = called(
        tmp_path, heldout, monkeypatch, [[0.1] * 8, [0.2] * 8], keep=None
    )
    go(callback, state, args, 1)
    assert saved == []
    assert "eval_best_step" not in state.log_history[0]


def test_rows_must_have_their_columns(tmp_path, heldout):
    trainer = SimpleNamespace(args=SimpleNamespace())
    with pytest.raises(DataError, match="without its columns"):
        EvaluateCallback(trainer, heldout, letters, cluster="customer")
    with pytest.raises(DataError, match="does not exist"):
        EvaluateCallback(trainer, tmp_path / "none.jsonl", letters)
