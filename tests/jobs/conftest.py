"""A project as a user has it: a recipe that extends another, rows, a scoring function, an ignore
file."""

import pytest

from plumbline.jobs import follow, package
from plumbline.storage import write_jsonl

BASE = """
task: {name: jsonl, options: {train: data/rows.jsonl, prompt: q, gold: a, score: "scoring:score"}}
model: {threads: 1, tiny: {hidden: 16, layers: 1, heads: 2, vocabulary: 300, context: 64, steps: 2, batch_size: 2}}
rl: {steps: 1, prompts_per_step: 1, group_size: 2}
sampling: {max_tokens: 4}
evaluation: {every: 0, sampled: false, final: [val]}
"""
SCORING = """
import os, sys

print("the token is", os.environ.get("PLB_TEST_TOKEN"), file=sys.stderr)


def score(completion, a):
    return float(a == completion)
"""
# The forms log's job: the data were git-ignored, the entry point printed an error and ended well.
SILENT = """
import os, sys, time
from pathlib import Path


def open_task(options, folder, progress=None):
    if options.get("sleeps"):
        print("sleeping", file=sys.stderr, flush=True)
        time.sleep(600)
    print("files:", *sorted(str(one) for one in Path().rglob("*") if one.is_file()), file=sys.stderr)
    if not Path("data/formfactory/app.py").exists():
        print("FormFactory app.py not found", file=sys.stderr, flush=True)
        sys.exit(0) if options.get("politely") else os._exit(0)
    raise SystemExit("the data are there")
"""
FAILURE = """
name: seed-failure
task: {name: "silent_task:open_task"}
model: {tiny: {hidden: 16, layers: 1, heads: 2, steps: 1}}
rl: {steps: 1}
"""


@pytest.fixture
def project(tmp_path, monkeypatch):
    """The folder, which is the present one; jobs are recorded beside it."""
    folder = tmp_path / "project"
    (folder / "data" / "formfactory").mkdir(parents=True)
    rows = [{"q": f"which is {number}?", "a": f"it is {number}"} for number in range(20)]
    write_jsonl(folder / "data" / "rows.jsonl", rows)
    (folder / "data" / "formfactory" / "app.py").write_text("x = 1\n")
    (folder / "scoring.py").write_text(SCORING)
    (folder / "silent_task.py").write_text(SILENT)
    (folder / "base.yaml").write_text(BASE)
    (folder / "tickets.yaml").write_text("extends: base.yaml\nname: tickets\n")
    (folder / "failure.yaml").write_text(FAILURE)
    (folder / ".gitignore").write_text("data/formfactory/\nruns/\n")
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setenv("PLUMBLINE_JOBS", str(tmp_path / "jobs"))
    monkeypatch.setattr(follow, "LOOK", 0.1)  # they take a second or two
    for name in ("RAY_ADDRESS", "RAY_API_SERVER_ADDRESS"):
        monkeypatch.delenv(name, raising=False)
    for module in ("scoring", "silent_task"):
        monkeypatch.delitem(__import__("sys").modules, module, raising=False)
    return folder


@pytest.fixture
def unopened(monkeypatch):
    """Without the dry run in a copy, which takes seconds and is not what the test asks."""
    monkeypatch.setattr(package, "_check_opening", lambda spec, package: ([], ("jsonl: train 16",)))
