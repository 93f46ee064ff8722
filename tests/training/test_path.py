"""From prompt to gradient: the files that the docs list are those that a sample goes through."""

import ast
import re
import sys
from pathlib import Path

import plumbline
from plumbline.runs.run import Run
from plumbline.tasks import open_task
from plumbline.training import rl
from plumbline.training.optimiser import Optimiser
from plumbline.training.prompts import Source
from tests.training.toy_runs import fresh_policy, toy_recipe

SOURCE = Path(plumbline.__file__).parent
PAGE = (Path(__file__).parents[2] / "docs" / "architecture.md").read_text(encoding="utf-8")
MOST = 18
NOUN = re.compile(
    r"\b(Example|Request|Trajectory|Verdict|Outcome|Score|Failure|Rollout|StepRollouts|Group|Target|"
    r"Terms|Batch|Loss|StepReport)\b"
)
"""What a sample is called, and what it consists of."""


def listed():
    section = PAGE.split("## How one example flows")[1].split("\n1. ")[0]
    return {path for path in re.findall(r"[a-z_/]+\.py", section) if not path.startswith("tests/")}


def takes_or_returns_a_sample(path, lines):
    """Whether one of the functions that begin in these lines names a sample in its signature."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef):
            first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
            arguments = [*node.args.args, *node.args.kwonlyargs]
            said = [*(each.annotation for each in arguments), node.returns]
            if first in lines and any(NOUN.search(ast.unparse(each)) for each in said if each):
                return True
    return False


def test_a_sample_goes_through_the_files_that_the_docs_list(tiny_folder, tmp_path, monkeypatch):
    (tmp_path / "lengths.py").write_text(
        "def reward(completions, **_):\n    return [len(one) % 5 / 4 for one in completions]\n"
    )
    rows = "".join(f'{{"prompt": "{number}"}}\n' for number in range(12))
    (tmp_path / "rows.jsonl").write_text(rows)
    monkeypatch.syspath_prepend(str(tmp_path))
    options = {"train": str(tmp_path / "rows.jsonl"), "score": "lengths:reward"}
    task = open_task("jsonl", {**options, "val": 0.2, "test": 0.2}, tmp_path / "data")
    ran: dict[str, set[int]] = {}
    hand_over, step = rl.hand_over, Optimiser.step

    def watch(frame, event, _):
        if event == "call":
            ran.setdefault(frame.f_code.co_filename, set()).add(frame.f_code.co_firstlineno)

    def begin(*given):
        sys.setprofile(watch)
        hand_over(*given)

    def end(*given):
        sys.setprofile(None)
        return step(*given)

    monkeypatch.setattr(rl, "hand_over", begin)
    monkeypatch.setattr(Optimiser, "step", end)
    try:
        with Run.start(toy_recipe(steps=1), tmp_path / "run") as run:
            source = Source.of(task, task.examples("train"))
            rl.train_rl(fresh_policy(tiny_folder), source, run)
    finally:
        sys.setprofile(None)
    found = {
        path.relative_to(SOURCE).as_posix()
        for name, lines in ran.items()
        if (path := Path(name)).is_relative_to(SOURCE) and takes_or_returns_a_sample(path, lines)
    }
    assert found == listed()
    assert len(found) <= MOST
