"""The page for users is true: its files, its commands and its Python do what it says; its names are
all there are."""

import json
import re
import runpy
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

import plumbline
from plumbline.checks.audit import cheats
from plumbline.cli.main import app
from plumbline.policies.opening import ModelOptions
from plumbline.runs.record import RunRecord
from plumbline.storage import write_jsonl
from plumbline.tasks.jsonl.rows import JsonlOptions

GUIDE = Path(__file__).parents[2] / "docs" / "your-task.md"
TEXT = GUIDE.read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", TEXT, flags=re.DOTALL)


@pytest.fixture
def files(tmp_path, monkeypatch):
    """The page's files in a folder, which is the working directory; nothing is consented to."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PLUMBLINE_TRUST_CODE", "")
    monkeypatch.setattr(sys, "path", [*sys.path])
    for block in (*blocks("python"), *blocks("yaml")):
        name = block.splitlines()[0].removeprefix("# ")
        (tmp_path / name).write_text(block, encoding="utf-8")
    yield tmp_path
    sys.modules.pop("my_task", None)


def numbers(text: str) -> list[float]:
    return [float(number) for number in re.findall(r"-?\d+\.\d+", text)]


def command(line: str) -> str:
    program, *arguments = line.split()
    if program == "python":
        runpy.run_path(arguments[0], run_name="__main__")
        return ""
    assert program == "plumbline"
    result = CliRunner().invoke(app, arguments, env={"COLUMNS": "200", "PLUMBLINE_TRUST_CODE": ""})
    assert result.exit_code == 0, result.output
    return result.stdout if "--json" in arguments else result.output


def test_the_page_does_what_it_says(files, capsys, monkeypatch):
    monkeypatch.setattr(cheats, "VERDICTS", 600)
    (commands,) = blocks("sh")
    printed = [command(line) for line in commands.splitlines()]
    assert (files / "tickets.jsonl").read_text().count("\n") == 200
    assert re.search(r"baseline: constant +0.520", printed[1])
    assert re.search(r"ceiling \(oracle\) +1.000", printed[1])
    assert "warning: 12 of 17 hostile" in printed[2]
    assert "quotes around 80%" in printed[2]
    first = RunRecord.read(Path("runs/tickets")).evaluations()
    before, after = (
        next(e for k, e in first.items() if str(k) == f"{stage}.test.greedy")
        for stage in ("base", "rl")
    )
    assert after.mean_reward > before.mean_reward + 0.1
    verdict = "GRPO raised the greedy reward on 50 held-out test examples"
    shown, found = (
        " ".join(text.split()).partition(verdict)[2].split(";")[0] for text in (TEXT, printed[3])
    )
    assert numbers(found) == pytest.approx(numbers(shown), abs=0.03), "processors round otherwise"
    assert f"{after.mean_reward:.3f}" in printed[4]

    capsys.readouterr()
    runpy.run_path("tickets.py", run_name="__main__")
    baselines, means = capsys.readouterr().out.splitlines()
    assert set(yaml.safe_load(baselines)) == {
        "blank",
        "echo",
        "constant",
        "shuffled-gold",
        "every-gold",
    }
    was, _, difference, _ = means.split(maxsplit=3)
    assert float(was) == before.mean_reward
    assert difference == f"{float(means.split()[1]) - float(was):.3f}"
    assert Path("runs/tickets-again/report.html").is_file()


def test_a_recipe_names_the_task_of_answers_from_elsewhere(files):
    command("python make_rows.py")
    answers = [
        json.loads(
            command("plumbline eval oracle --task tickets.yaml --trust-code --split test --json")
        )["n"]
    ]
    task = plumbline.load_recipe("tickets.yaml").task
    rows = plumbline.open_task(task.name, **task.options).examples("test")
    write_jsonl(
        files / "answers.jsonl", ({"id": row.id, "completion": f"{row.gold} team"} for row in rows)
    )
    line = "score --task tickets.yaml --trust-code --completions answers.jsonl --split test --json"
    scored = json.loads(command(f"plumbline {line}"))
    assert (answers, scored["n"]) == ([50], 50)
    assert scored["reward"]["mean"] == pytest.approx(0.8)
    options = ["--set", "task.options.weights={right: 1, brief: 1}"]
    again = CliRunner().invoke(app, [*line.split(), *options])
    assert json.loads(again.stdout)["reward"]["mean"] == pytest.approx(0.5)


def test_a_function_of_the_script_itself_may_score(files):
    (files / "tickets.jsonl").write_text('{"prompt": "a"}\n{"prompt": "b"}\n{"prompt": "c"}\n')
    (files / "script.py").write_text(
        "import plumbline\n"
        "def score(completion): return float(bool(completion))\n"
        "task = plumbline.open_task('jsonl', train='tickets.jsonl', score=score)\n"
        "values = [task.judge(task.examples('val')[0], text)[1].total for text in ('', 'x')]\n"
        "rubric = task.rubric\n"
        "def inside():\n"
        "    return plumbline.open_task('jsonl', train='tickets.jsonl', score=lambda completion: "
        "1)\n"
    )
    found = runpy.run_path("script.py", run_name="__main__")
    assert found["values"] == [0.0, 1.0]
    assert found["rubric"].startswith("__main__:score/1+")
    with pytest.raises(plumbline.PlumblineError, match="<lambda>"):
        found["inside"]()


# -- the public interface --------------------------------------------------------------------------


def test_public_names_are_few_documented_and_real():
    assert len(plumbline.__all__) <= 15
    table = TEXT[TEXT.index("## Public names") :]
    for name in plumbline.__all__:
        found = getattr(plumbline, name)
        assert (found.__doc__ or "").strip(), f"{name} has no docstring"
        assert f"`{name}`" in table, f"{name} is not documented"
        assert name in plumbline.__doc__
        assert name in dir(plumbline)
    documented = {
        name for row in table.splitlines()[4:] for name in re.findall(r"`(\w+)`", row.split("|")[1])
    }
    assert documented == set(plumbline.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = plumbline.nothing


def test_every_option_is_documented():
    table = TEXT[TEXT.index("## Options of the task") : TEXT.index("## Three signatures")]
    assert all(f"`{name}`" in table for name in JsonlOptions.model_fields)
    assert all(
        field.name in plumbline.evaluate.__doc__
        for field in fields(ModelOptions)
        if field.name != "greedy"
    )


def test_the_import_costs_nothing():
    code = (
        "import plumbline, sys; print(sorted({'torch', 'numpy', 'pydantic', 'rich', 'typer'} & "
        "set(sys.modules)))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    )
    assert result.stdout.strip() == "[]"


def test_what_a_mapping_or_a_file_may_be_given():
    with pytest.raises(plumbline.PlumblineError, match="overrides"):
        plumbline.run({"name": "x", "model": {"name": "m"}}, overrides=["seed=1"])
    assert plumbline.load_recipe("commerce-demo").name == "commerce-demo"


def test_a_misspelt_baseline_is_suggested_and_no_hub_is_asked(workplace):
    task = plumbline.open_task("jsonl", **workplace.options(gold="answer"))
    assert plumbline.evaluate("oracle", task, split="val").mean_reward == 1
    with pytest.raises(plumbline.PlumblineError, match="oracle"):
        plumbline.evaluate("orcale", task, split="val")
    with pytest.raises(plumbline.PlumblineError, match=r"temprature .*temperature"):
        plumbline.evaluate("oracle", task, split="val", temprature=1.0)
    with pytest.raises(plumbline.PlumblineError, match="max_tokens: "):
        plumbline.evaluate("oracle", task, split="val", max_tokens="many")
    with pytest.raises(plumbline.PlumblineError, match=r"temperature .*-1\.0\n  fix: .*inf$"):
        plumbline.evaluate("oracle", task, split="val", temperature=-1)
