"""A reward on the answers that a training stored: joined by prompt, whatever the layout, beside
what was paid then."""

import json

import pytest

from plumbline.storage import write_jsonl

REWARDS = r"""
import re
def right(completions, answer, **_):
    return [float(re.findall(r"\d+", text)[-1:] == [one]) for text, one in zip(completions, answer)]
def twice(completions, answer, **_): return [2 * one for one in right(completions, answer)]
def careless(completions, **_): return [float(text.split("####")[1]) for text in completions]
"""
ROWS = [{"prompt": f"What is {n} + {n}?", "answer": str(2 * n)} for n in range(1, 9)]


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mended.py").write_text(REWARDS)
    write_jsonl(tmp_path / "rows.jsonl", ROWS)
    return tmp_path


def answers():
    """Two answers to each prompt in four steps: the first of them is right from step 3 on; all
    earned 0."""
    for step in range(1, 5):
        for n, row in enumerate(ROWS, 1):
            for text in (f"It is {2 * n if step > 2 else 0}.", "I do not know."):
                yield {"step": step, "prompt": row["prompt"], "completion": text, "reward": 0.0}


def as_lines(folder, rows):
    write_jsonl(folder / "completions.jsonl", rows)
    return folder / "completions.jsonl"


def as_trl(folder, rows):
    """A file of Parquet a step, whose prompts a chat template has rendered."""
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
    import pyarrow

    (folder / "out" / "completions").mkdir(parents=True)
    for step in range(1, 5):
        asked = "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"
        some = [
            {**row, "prompt": asked.format(row["prompt"])} for row in rows if row["step"] == step
        ]
        some = [{**row, "right": row.pop("reward"), "advantage": 0.0} for row in some]
        table = pyarrow.Table.from_pylist(some)
        parquet.write_table(
            table, folder / "out" / "completions" / f"completions_{step:05}.parquet"
        )
    return folder / "out"


@pytest.mark.parametrize("layout", [as_lines, as_trl])
@pytest.mark.parametrize("function", ["right", "twice"])
def test_what_a_mended_reward_makes_of_stored_answers(plumbline, place, layout, function):
    rows = list(answers())
    path = layout(place, [*rows, {**rows[0], "prompt": "Who are you?"}])
    gold = ("--set", "task.options.gold=answer")
    code, out, err = plumbline(
        "score",
        f"mended:{function}",
        "--rows",
        "rows.jsonl",
        "--completions",
        path,
        *gold,
        "--json",
    )
    assert code == 0, err
    found = json.loads(out)
    assert (found["answers"], found["unknown_prompts"], found["failed"]) == (64, 1, 0)
    spans = [
        (name, one["stored"], one["now"], one["groups_differ"])
        for name, one in found["spans"].items()
    ]
    assert spans == [("all", 0.0, 0.25, 0.5), ("step 1", 0.0, 0.0, 0.0), ("step 4", 0.0, 0.5, 1.0)]


def test_completions_that_need_pyarrow_say_so(plumbline, place, monkeypatch):
    path = as_trl(place, answers())
    monkeypatch.setattr(
        "plumbline.config.imports.find_spec", lambda name: None if name == "pyarrow" else name
    )
    code, _, err = plumbline("score", "mended:right", "--rows", "rows.jsonl", "--completions", path)
    assert (code, "--with pyarrow" in err, "no completions" in err) == (1, True, False), err


def test_what_cannot_be_scored_is_said(plumbline, place):
    path = as_lines(place, answers())
    stored = ("--rows", "rows.jsonl", "--completions", path)
    code, out, err = plumbline("score", "mended:careless", *stored, "--json")
    assert code == 0, err
    assert json.loads(out)["failed"] == 64
    others = [{**row, "prompt": f"Something else {n}"} for n, row in enumerate(ROWS)]
    write_jsonl(place / "rows.jsonl", others)
    code, _, err = plumbline("score", "mended:right", *stored)
    assert (code, "64 completions" in err) == (1, True), err
    for given in (
        ("mended:right", "--completions", path),
        ("--completions", path),
        (*stored, "--task", "jsonl"),
    ):
        code, _, err = plumbline("score", *given)
        assert code != 0
        assert "fix:" in err
