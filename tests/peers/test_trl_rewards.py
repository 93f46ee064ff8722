"""Reward functions that TRL ships are scoring functions of the task jsonl as they are, and mean the
same."""

import math
from pathlib import Path

import pytest
import torch

from plumbline.checks.audit.trial import check_reward
from plumbline.errors import DataError
from plumbline.storage import write_jsonl
from plumbline.tasks import open_task
from tests.peers.trainer import grpo_trainer


def test_trls_own_reward_functions_score_here_as_they_do_there(tmp_path):
    rewards = pytest.importorskip("trl.rewards")
    rows = [
        {"prompt": [{"role": "user", "content": f"{n}?"}], "solution": str(n)} for n in range(10)
    ]
    write_jsonl(tmp_path / "rows.jsonl", rows)
    options = {
        "train": str(tmp_path / "rows.jsonl"),
        "score": "trl.rewards:think_format_reward",
        "val": 0.2,
    }
    task = open_task("jsonl", options, Path())
    texts = ["<think>\nyes\n</think>\n7", "<think>\nno", "", "</think><think>"]
    theirs = rewards.think_format_reward(
        [[{"role": "assistant", "content": text}] for text in texts]
    )
    example = task.examples("train")[0]
    assert [task.judge(example, text)[1].total for text in texts] == theirs == [1.0, 0.0, 0.0, 0.0]
    assert [score.total for _, score in task.judge_group(example, texts)] == theirs
    unknown, golds = check_reward(task)
    assert all(name in unknown.what for name in ("think_format_reward", "task.options.range"))
    assert golds.check == "no-oracle"


def text_of(completion):
    return completion if isinstance(completion, str) else completion[0]["content"]


def accuracy(prompts, completions, answer, **columns):
    return [
        2.0 * text_of(one).endswith(right) for one, right in zip(completions, answer, strict=True)
    ]


def form(completions, **columns):
    return [0.5 * ("####" in text_of(one)) for one in completions]


def signed(completions, answer, **columns):
    return torch.tensor(
        [
            1.0 if text_of(one).endswith(right) else -1.0
            for one, right in zip(completions, answer, strict=True)
        ]
    )


def sometimes(completions, **columns):
    return [
        None if "?" in text_of(one) else math.nan if "!" in text_of(one) else 1.0
        for one in completions
    ]


async def brief(completions, **columns):
    return [len(text_of(one)) < 4 for one in completions]


TEXTS = ["#### 1", "1", "####", "0", "#### 1?", "1!", "?", "no"]
RANGES = {
    "accuracy": [0, 2],
    "form": [0, 0.5],
    "signed": [-1, 1],
    "sometimes": [0, 1],
    "brief": [0, 1],
}
RANGES_OF_TWO = {name: RANGES[name] for name in ("accuracy", "form")}


@pytest.mark.filterwarnings("ignore:sometimes returned NaN")
@pytest.mark.parametrize("chat", [False, True])
@pytest.mark.parametrize(
    ("functions", "weights"),
    [
        ([accuracy, form], None),
        ([accuracy, form], [0.5, 3.0]),
        ([signed, form, brief], None),
        ([accuracy, sometimes, signed], [1.0, 2.0, 0.25]),
        ([accuracy, form, brief], [1.0, 0.0, -0.5]),
        ([sometimes, signed], [-1.0, -0.5]),
    ],
)
def test_sums_are_those_of_trl_up_to_the_scale(tmp_path, tiny_folder, functions, weights, chat):
    """The same line from TRL's sum to the reward for every answer: advantages of a group are the
    same."""
    prompt = [{"role": "user", "content": "1?"}] if chat else "1?"
    of = {
        "per_device_train_batch_size": len(TEXTS),
        "num_generations": len(TEXTS),
        "reward_weights": weights,
    }
    peer = grpo_trainer(tiny_folder, tmp_path / "trl", functions, ["a"], **of)
    completions = [[{"role": "assistant", "content": text}] if chat else text for text in TEXTS]
    inputs = [{"prompt": prompt, "answer": "1"}] * len(TEXTS)
    said = peer._calculate_rewards(inputs, [prompt] * len(TEXTS), completions, [[0]] * len(TEXTS))
    theirs = (said * peer.reward_weights).nansum(dim=1).double()

    names = [one.__name__ for one in functions]
    asked = [[{"role": "user", "content": f"{n}?"}] if chat else f"{n}?" for n in range(9)]
    write_jsonl(tmp_path / "rows.jsonl", [{"prompt": one, "answer": "1"} for one in asked])
    ranges = {name: RANGES[name] for name in names}
    options = {
        "train": str(tmp_path / "rows.jsonl"),
        "score": [f"{__name__}:{name}" for name in names],
        "range": ranges,
        **({} if weights is None else {"weights": weights}),
    }
    task = open_task("jsonl", options, Path())
    ours = [score.total for _, score in task.judge_group(task.examples("train")[0], TEXTS)]
    weighed = dict(zip(names, weights or [1.0] * len(names), strict=True))
    low, high = (
        sum(end(weighed[name] * each for each in ranges[name]) for name in names)
        for end in (min, max)
    )
    assert ours == pytest.approx(((theirs - low) / (high - low)).tolist())
    assert len(set(ours)) > 2


def test_a_number_outside_of_0_to_1_stops_at_once_with_all_ranges(tmp_path):
    write_jsonl(tmp_path / "rows.jsonl", [{"prompt": f"{n}?", "answer": str(n)} for n in range(9)])
    names = [f"{__name__}:{name}" for name in ("accuracy", "form")]
    options = {"train": str(tmp_path / "rows.jsonl"), "score": names}
    for gold in (None, "#### {answer}"):
        task = open_task("jsonl", {**options, **({} if gold is None else {"gold": gold})}, Path())
        with pytest.raises(
            DataError, match=r" accuracy .* 2, .* \[0, 1\] \(.*:accuracy\)"
        ) as error:
            check_reward(task)
        assert "set task.options.range: {accuracy: [0, 2], form: [0, 0.5]}" in error.value.fix
    task = open_task("jsonl", {**options, "gold": "#### {answer}", "range": RANGES_OF_TWO}, Path())
    assert task.effective_weights == pytest.approx({"accuracy": 0.8, "form": 0.2})
    example = task.examples("train")[0]
    assert [task.judge(example, text)[1].total for text in (example.gold, "####")] == pytest.approx(
        [1.0, 0.2]
    )
