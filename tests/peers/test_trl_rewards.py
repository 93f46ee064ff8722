"""Reward functions that TRL ships are scoring functions of the task jsonl as they are."""

from pathlib import Path

import pytest

from plumbline.storage import write_jsonl
from plumbline.tasks import open_task

rewards = pytest.importorskip("trl.rewards")


def test_trls_own_reward_functions_score_here_as_they_do_there(tmp_path):
    rows = [{"prompt": [{"role": "user", "content": f"{n}?"}], "solution": str(n)} for n in range(10)]
    write_jsonl(tmp_path / "rows.jsonl", rows)
    options = {"train": str(tmp_path / "rows.jsonl"), "score": "trl.rewards:think_format_reward", "val": 0.2}
    task = open_task("jsonl", options, Path())
    texts = ["<think>\nyes\n</think>\n7", "<think>\nno", "", "</think><think>"]
    theirs = rewards.think_format_reward([[{"role": "assistant", "content": text}] for text in texts])
    example = task.examples("train")[0]
    assert [task.judge(example, text)[1].total for text in texts] == theirs == [1.0, 0.0, 0.0, 0.0]
    assert [score.total for _, score in task.judge_group(example, texts)] == theirs
    assert task.precheck(0) == ["no gold answers: no ceiling, no oracle, and nothing that SFT could show"]
