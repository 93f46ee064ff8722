"""The commands as a user types them: what they print, where, and what they say about bad input."""

import importlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from environments.commerce.tests.conftest import OPTIONS
from plumbline.cli import main as cli
from plumbline.cli.exits import clear_exits
from plumbline.cli.options import ANSWERS, MODEL, OUTPUT, TASK
from plumbline.runs.evaluations import read_evaluation
from plumbline.runs.metadata import ModelMetadata
from plumbline.storage import read_jsonl, write_json, write_jsonl
from plumbline.tasks import open_task, task_names
from plumbline_commerce.build import build_commerce
from plumbline_commerce.options import CommerceOptions
from tests.gguf_files import write_gguf

ROOT = Path(__file__).parents[1]
EVAL_FLAGS = (
    "allow-overlap chat-template data device dtype engine executor family greedy inspect json "
    "limit max-tokens n out "
    "path replays report rows-at-once seed set split steps suite table tables task temperature "
    "trust-code"
)


SERVE_FLAGS = (
    "agent chat-template device dtype engine family grace host log log-contents max-bytes max-n "
    "max-requests "
    "max-tokens port rows-at-once timeout token-env trust-code"
)
SWEEP_FLAGS = "address at-once json out resume seeds set trust-code vary"
EXPORT_FLAGS = "base dtype evaluate gguf json kind out prove public push trust-code"
SUBMIT_FLAGS = (
    "address compute cpus detach dry-run env exclude gpus image json needs no-preflight on out "
    "requirements resume "
    "secret set there timeout to trust-code working-dir"
)


@pytest.fixture(scope="session")
def data(tmp_path_factory):
    """A small data folder, as `plumbline data commerce` writes it."""
    folder = tmp_path_factory.mktemp("cli") / "data"
    build_commerce(CommerceOptions(**OPTIONS), folder)
    return folder


@pytest.fixture(scope="session")
def short(tmp_path_factory):
    """The same with prompts that fit into the context of the tiny model."""
    folder = tmp_path_factory.mktemp("cli") / "short"
    build_commerce(CommerceOptions(**OPTIONS, instructions="short"), folder)
    return folder


def test_data_commerce_writes_a_folder_counts_by_job_and_takes_options_of_the_prompts(
    plumbline, tmp_path
):
    command = [
        "data",
        "commerce",
        "--orders",
        1500,
        "--extraction",
        20,
        "--push",
        20,
        "--out",
        tmp_path / "d",
    ]
    code, out, _ = plumbline(*command, "--set", "task.options.instructions=short")
    assert code == 0
    assert [line.strip() for line in out.splitlines()[1:]] == [
        "extraction: train 16, val 2, test 2",
        "push: train 16, val 2, test 2",
    ]
    assert out.splitlines()[0].endswith("d: train 32, val 4, test 4")
    code, out, _ = plumbline(*command, "--json")
    built = json.loads(out)
    assert built["jobs"] == {
        job: {"train": 16, "val": 2, "test": 2} for job in ("extraction", "push")
    }
    assert built["splits"] == {"train": 32, "val": 4, "test": 4}
    files = {"commerce.db", "train.jsonl", "val.jsonl", "test.jsonl"}
    assert {path.name for path in (tmp_path / "d").iterdir()} >= files
    assert built["options"]["instructions"] == "short", "what is there is not built again"
    code, _, err = plumbline(*command, "--set", "task.options.instructions=full")
    assert (code, "instructions: short there" in err) == (1, True)


def test_data_forms_writes_a_file_for_each_split(plumbline, tmp_path):
    narrow = ["--set", "task.options.forms=[meeting-room, change-ticket, thesis-defence]", "--set"]
    narrow += ["task.options.records=20", "--out", tmp_path / "d"]
    code, out, _ = plumbline("data", "forms", *narrow, "--json")
    assert code == 0
    assert json.loads(out)["splits"] == {"train": 32, "val": 4, "test": 4, "held-out-forms": 20}
    rows = [
        json.loads(line)
        for line in (tmp_path / "d" / "held-out-forms.jsonl").read_text().splitlines()
    ]
    assert {row["stratum"] for row in rows} == {"thesis-defence"}
    assert all(row["messages"][-1]["role"] == "assistant" for row in rows)
    write_jsonl(
        tmp_path / "gold.jsonl",
        [{"id": row["id"], "text": row["messages"][-1]["content"]} for row in rows],
    )
    score = [
        "score",
        "--task",
        "forms",
        "--split",
        "held-out-forms",
        "--completions",
        tmp_path / "gold.jsonl",
    ]
    code, out, _ = plumbline(*score, "--json", *narrow[:4])
    assert code == 0
    assert json.loads(out)["reward"]["mean"] == 1.0


@pytest.mark.parametrize(
    "name",
    [
        "oracle",
        "blank",
        "constant",
        "shuffled-gold",
        "echo",
        "keyword-stuffing",
        "facts-only",
        "first-sentence",
    ],
)
def test_eval_of_the_oracle_and_each_baseline_prints_one_object(plumbline, data, name):
    code, out, _ = plumbline(
        "eval", name, "--task", "commerce", "--split", "val", "--data", data, "--json"
    )
    assert code == 0
    summary = json.loads(out)
    assert out.count("\n") == 1
    assert summary["n"] == 20
    assert summary["reward"]["mean"] == (
        1.0 if name == "oracle" else pytest.approx(summary["baselines"][name])
    )
    assert set(summary["readings"]) == {"strict", "lenient"}


@pytest.mark.parametrize("name", ["oracle", "blank"])
def test_eval_of_one_example_is_json(plumbline, data, name):
    """With one example a baseline may equal the oracle, and the skill is null then: NaN is no
    JSON."""
    code, out, _ = plumbline("eval", name, "--task", "commerce", "--data", data, "--n", 1, "--json")
    assert code == 0
    assert json.loads(out, parse_constant=pytest.fail)["n"] == 1


def test_eval_of_a_model_directory(plumbline, data, short, tiny_folder, tmp_path):
    task, arguments = (
        ("--task", "commerce"),
        ("--limit", 3, "--max-tokens", 4, "--out", tmp_path / "e.json"),
    )
    code, _, err = plumbline("eval", tiny_folder, *task, "--data", data, *arguments)
    assert code == 1
    assert "3 of 3 prompts" in err, "the tiny model's context is shorter than these prompts"
    code, out, _ = plumbline("eval", tiny_folder, *task, "--data", short, *arguments, "--json")
    assert code == 0
    summary = json.loads(out)
    assert summary["n"] == 3
    assert summary["truncated"] > 0
    assert len(read_evaluation(tmp_path / "e.json").rows) == 3


def test_the_first_sampled_answers_of_many_are_those_of_few(plumbline, tiny_folder, tmp_path):
    task = ("--task", "tests.toy:open_toy", "--set", "task.options.size=20")
    arguments = (*task, "--temperature", 1, "--seed", 0, "--max-tokens", 8)
    answers = []
    for count, rows in ((5, 64), (20, 3)):
        out = tmp_path / f"{count}.json"
        code, _, _ = plumbline(
            "eval", tiny_folder, *arguments, "--n", count, "--rows-at-once", rows, "--out", out
        )
        assert code == 0
        answers.append([(row.id, row.completion) for row in read_evaluation(out).rows])
    assert [len(each) for each in answers] == [5, 20]
    assert answers[0] == answers[1][:5]
    assert len({text for _, text in answers[1]}) > 10


def test_eval_of_a_gguf_file(plumbline, short, tiny_folder, tmp_path):
    arguments = ("--task", "commerce", "--data", short, "--limit", 3, "--max-tokens", 4, "--json")
    models = (tiny_folder, write_gguf(tiny_folder, tmp_path / "tiny.gguf"))
    found = [json.loads(plumbline("eval", model, *arguments)[1]) for model in models]
    assert found[1].pop("source") != found[0].pop("source")
    assert found[1] == found[0]


def test_score_needs_no_torch_and_counts_unknown_ids(plumbline, data, tmp_path):
    rows = [row for _, row in read_jsonl(data / "val.jsonl")][:5]
    answers = tmp_path / "answers.jsonl"
    lines = [{"id": row["id"], "completion": row["messages"][-1]["content"]} for row in rows[:4]]
    lines.append(
        {"id": rows[4]["id"], "completion": rows[4]["messages"][-1]["content"].replace(".", ",")}
    )
    lines.append({"id": "somebody-else", "completion": "{}"})
    write_jsonl(answers, lines)
    code, out, err = plumbline(
        "score", "--task", "commerce", "--completions", answers, "--data", data, "--json"
    )
    assert code == 0
    summary = json.loads(out)
    assert summary["n"] == 5
    assert summary["unknown_ids"] == 1
    assert "1 rows name" in err
    assert (
        summary["readings"]["lenient"]["mean"]
        > summary["readings"]["strict"]["mean"]
        == pytest.approx(0.8)
    )
    assert summary["how"]["strict"] == 4


def test_score_says_how_much_it_covers_and_of_training_rows(plumbline, data, tmp_path):
    """A mean over a few answers is none of the split, and one over training rows shows memory."""
    golds = {}
    for split in ("train", "val"):
        rows = [row for _, row in read_jsonl(data / f"{split}.jsonl")]
        golds[split] = [
            {"id": row["id"], "completion": row["messages"][-1]["content"]} for row in rows
        ]
    answers = tmp_path / "answers.jsonl"

    def score(lines, *arguments):
        write_jsonl(answers, lines)
        return plumbline(
            "score", "--task", "commerce", "--completions", answers, "--data", data, *arguments
        )

    code, out, err = score(golds["val"][:5], "--json")
    summary = json.loads(out)
    assert (code, summary["reward"]["mean"]) == (0, 1.0)
    assert summary["coverage"] == {
        "splits": {"val": {"answered": 5, "of": 20}},
        "missing": 15,
        "mean_missing_as_0": 0.25,
        "train_rows": 0,
    }
    assert "5 of 20 of val" in summary["warnings"][0]
    assert "5 of 20 of val" in err

    _, out, err = score([*golds["val"], *golds["train"][:3]])
    assert "answered of val" in out
    assert "3 of 160" in out
    assert "the 157 missing" in out
    assert re.search(r"training rows\W+3\b", out)
    assert re.search(r"\b3 answers .* train\b", err)

    _, out, err = score(golds["val"], "--split", "val", "--json")
    assert json.loads(out)["warnings"] == []
    assert err == ""
    _, out, _ = score(golds["train"], "--split", "train", "--json")
    assert json.loads(out)["coverage"]["train_rows"] == 160


def test_compare_of_two_files_and_of_what_cannot_be_compared(plumbline, data, tmp_path):
    for name in ("oracle", "constant"):
        plumbline(
            "eval", name, "--task", "commerce", "--data", data, "--out", tmp_path / f"{name}.json"
        )
    code, out, _ = plumbline(
        "compare", tmp_path / "constant.json", tmp_path / "oracle.json", "--json"
    )
    assert code == 0
    paired = json.loads(out)["comparisons"]["evaluation"]
    assert paired["difference"]["low"] > 0.4
    assert paired["p_value"] < 0.001
    assert paired["after"] == 1.0
    assert paired["after"] - paired["before"] == pytest.approx(paired["difference"]["mean"])
    _, out, _ = plumbline("compare", tmp_path / "constant.json", tmp_path / "oracle.json")
    assert f"{paired['before']:.3f}" in out
    assert " 1.000 " in out, "both means stand beside the difference, on a terminal of 80 columns"
    plumbline(
        "eval",
        "oracle",
        "--task",
        "commerce",
        "--data",
        data,
        "--split",
        "test",
        "--out",
        tmp_path / "test.json",
    )
    code, _, err = plumbline("compare", tmp_path / "constant.json", tmp_path / "test.json")
    assert code == 1
    assert "share 0 examples" in err


def test_parse_of_a_file_of_text_on_stdin_and_with_a_schema(plumbline, tmp_path):
    rows = tmp_path / "texts.jsonl"
    rows.write_text('{"id": "a", "text": "{\\"nota\\": 4,5}"}\n{"id": "b", "text": "nada"}\n')
    schema = tmp_path / "schema.json"
    schema.write_text('{"type": "object", "properties": {"nota": {"type": "number"}}}')
    code, out, _ = plumbline("parse", rows, "--schema", schema)
    assert code == 0
    assert [json.loads(line) for line in out.splitlines()] == [
        {"id": "a", "value": {"nota": 4.5}, "how": "decimal_comma"},
        {"id": "b", "value": None, "how": "none"},
    ]
    code, out, _ = plumbline("parse", stdin='```json\n{"a": [4,5]}\n```')
    assert json.loads(out)["value"] == {"a": [4, 5]}


def test_recipe_lists_prints_and_overrides(plumbline):
    code, out, _ = plumbline("recipe")
    assert code == 0
    assert "commerce-demo" in out
    assert "\nForms and pages\n" in out
    assert "commerce-demo-control" not in out
    assert "commerce-demo-control" in plumbline("recipe", "--all")[1]
    assert len(json.loads(plumbline("recipe", "--all", "--json")[1])) > len(
        json.loads(plumbline("recipe", "--json")[1])
    )
    code, out, _ = plumbline("recipe", "commerce-tiny", "--set", "rl.steps=7")
    assert "steps: 7" in out
    assert out.startswith("# yaml-language-server: $schema=recipe.schema.json\n")
    code, out, _ = plumbline("recipe", "commerce-tiny", "--commented")
    assert "# Answers to each" in out


def test_init_writes_a_recipe_once_and_run_names_the_command_where_rows_stand_for_one(
    plumbline, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    write_jsonl(
        tmp_path / "rows.jsonl", [{"question": f"{n}?", "answer": str(n)} for n in range(30)]
    )
    (tmp_path / "rewards_of_init.py").write_text(
        "def right(completion, answer):\n    return completion == answer\n"
    )
    code, _, err = plumbline("run", "rows.jsonl")
    assert (code, "--data rows.jsonl --reward" in err) == (1, True)
    command = ("init", "--model", "m", "--data", "rows.jsonl", "--reward", "rewards_of_init:right")
    code, out, _ = plumbline(*command)
    assert code == 0
    assert out.endswith("Train:  plumbline run recipe.yaml --trust-code\n")
    assert "  steps: 200" in (tmp_path / "recipe.yaml").read_text()
    code, _, err = plumbline(*command)
    assert (code, "recipe.yaml is" in err) == (1, True)


def test_the_schema_of_recipes_is_written_where_nothing_else_is(plumbline, tmp_path):
    file = tmp_path / "recipe.schema.json"
    for _ in range(2):
        assert plumbline("recipe", "--schema", "--out", file)[0] == 0
    assert json.loads(file.read_text()) == json.loads(plumbline("recipe", "--schema")[1])
    file.write_text('{"mine": 1}')
    code, _, err = plumbline("recipe", "--schema", "--out", file)
    assert (code, file.read_text()) == (1, '{"mine": 1}')
    assert f"{file} is there" in " ".join(err.split())
    assert plumbline("recipe", "--out", file)[0] == 1


def test_a_model_is_not_evaluated_on_what_it_was_trained_on(plumbline, data, tmp_path, tiny_folder):
    examples = open_task("commerce", OPTIONS, data).examples("val")
    model = tmp_path / "run" / "models" / "rl"
    shutil.copytree(tiny_folder, model)
    trained_on = frozenset(e.fingerprint() for e in examples[:2])
    card = ModelMetadata(
        recipe="x 0", stage="rl", task="commerce", options=OPTIONS, trained_on=trained_on
    )
    write_json(model / "plumbline.json", card.to_json())
    code, _, err = plumbline("eval", model, "--data", data)
    assert code == 1
    assert "on 2 of these 20" in err


def test_a_folder_data_beside_a_model_is_its_runs_only_if_there_is_a_run(
    tmp_path, data, tiny_folder
):
    """`models/mine` and `data/` in one folder are how people keep things, not a run."""
    from plumbline.evaluation.command import open_task_for

    model = tmp_path / "models" / "mine"
    model.mkdir(parents=True)
    card = ModelMetadata(recipe="x 0", stage="rl", task="commerce", options=OPTIONS)
    write_json(model / "plumbline.json", card.to_json())
    shutil.copytree(data, tmp_path / "data")
    found = open_task_for(str(model), "commerce", {}, None, lambda *_: None)
    assert str(found.folder) == "data/commerce-of-0"
    (tmp_path / "recipe.yaml").write_text("")
    found = open_task_for(str(model), "commerce", {}, None, lambda *_: None)
    assert found.folder == tmp_path / "data"


def test_the_public_commands_and_their_options_are_these(plumbline):
    """A golden list: a flag that appears, disappears or changes its name is seen here first."""
    import typer

    group = typer.main.get_command(cli.app)
    flags = {
        name: sorted(
            option
            for parameter in command.params
            for option in parameter.opts
            if option.startswith("--")
        )
        for name, command in group.commands.items()
        if not hasattr(command, "commands")
    }
    assert flags == {
        "check": ["--completions", "--json", "--map", "--set", "--trust-code", "--verbose"],
        "recipe": ["--all", "--commented", "--json", "--out", "--schema", "--set"],
        "run": ["--dry-run", "--json", "--out", "--resume", "--set", "--trust-code"],
        "pilot": ["--json", "--minutes", "--out", "--set", "--trust-code"],
        "get": ["--json", "--out"],
        "init": [
            "--config",
            "--data",
            "--from",
            "--gold",
            "--model",
            "--out",
            "--prompt",
            "--reward",
            "--trust-code",
        ],
        "convert": ["--context", "--heads", "--out", "--tokenizer"],
        "sweep": [f"--{name}" for name in SWEEP_FLAGS.split()],
        "eval": [f"--{name}" for name in EVAL_FLAGS.split()],
        "score": [
            "--completions",
            "--data",
            "--json",
            "--out",
            "--rows",
            "--set",
            "--split",
            "--task",
            "--trust-code",
        ],
        "parse": ["--schema"],
        "report": [],
        "runs": ["--json", "--mode", "--report", "--split", "--table"],
        "compare": ["--json", "--report", "--table"],
        "audit": [
            "--data",
            "--json",
            "--limit",
            "--out",
            "--rows",
            "--seed",
            "--set",
            "--split",
            "--trust-code",
        ],
        "decide": ["--json", "--out", "--tree"],
        "route": ["--json", "--out"],
        "export": [f"--{name}" for name in EXPORT_FLAGS.split()],
        "serve": [f"--{name}" for name in SERVE_FLAGS.split()],
        "submit": [f"--{name}" for name in SUBMIT_FLAGS.split()],
    }
    helps = [
        parameter.help or "" for command in group.commands.values() for parameter in command.params
    ]
    assert not [text for text in helps if "<" in text], (
        "angle brackets in help would be eaten as HTML"
    )
    for name in [
        "",
        "data",
        *flags,
        "data commerce",
        "data forms",
        "jobs",
        "jobs follow",
        "jobs stop",
    ]:
        code, out, _ = plumbline(*name.split(), "--help")
        assert code == 0
        assert "Example" in out, f"{name} --help shows an example"
        assert "<bool>" not in out, "a flag takes no word"
    _, out, _ = plumbline("eval", "--help")
    assert not [name for name in task_names() if name not in out], "each task is named"
    headings = [line.strip("╭╮─ ") for line in out.splitlines() if line.startswith("╭")]
    assert headings == ["Arguments", "Options", TASK, ANSWERS, MODEL, OUTPUT]


def test_the_help_lists_the_commands_in_panels(plumbline):
    code, out, _ = plumbline("--help")
    assert code == 0
    panels, heading = {}, ""
    for line in out.splitlines():
        if line.startswith("╭"):
            heading = line.strip("╭╮─ ")
        elif line.startswith("│ ") and line[2] not in " -":
            panels.setdefault(heading, []).append(line.split()[1])
    assert list(panels) == ["Find out", "Train", "Evaluate", "Share", "Cluster"], (
        "no command is left over"
    )
    assert panels["Find out"][0] == "check"
    assert {"run", "sweep"} < set(panels["Train"])
    assert panels["Share"] == ["export", "serve"]
    assert panels["Cluster"] == ["submit", "jobs"]


def test_a_shell_completes_commands(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["plumbline"])
    for name, value in {
        "_PLUMBLINE_COMPLETE": "complete_bash",
        "COMP_WORDS": "plumbline ch",
        "COMP_CWORD": "1",
    }.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit):
        cli.main()
    assert capsys.readouterr().out.split() == ["check"]


# -- how a command ends ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "during", "cause"),
    [
        (
            "os.mkdir('gone'); os.chdir('gone'); os.rmdir('../gone')",
            "",
            "directory is gone",
        ),
        (
            "",
            (
                "import plumbline.cli.main as cli\ncli.main = lambda: "
                "signal.raise_signal(signal.SIGXCPU)"
            ),
            "processor's",
        ),
    ],
)
def test_a_place_or_a_time_that_is_gone_is_one_error(tmp_path, before, during, cause):
    code = (
        f"import os, signal\n{before}\nfrom plumbline import __main__ as "
        f"entry\n{during}\nentry.main()"
    )
    command = [sys.executable, "-P", "-c", code, "recipe"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    ended = subprocess.run(
        command, capture_output=True, text=True, cwd=tmp_path, env=environment, check=False
    )
    assert ended.returncode == 1
    assert ended.stderr.count("\n") == 2
    assert cause in ended.stderr
    assert "fix: " in ended.stderr


ENTRY = """import signal
from plumbline.__main__ import _exit_at_once, main
signal.signal(signal.SIGINT, _exit_at_once)
print("here", flush=True)
main()
"""


@pytest.mark.parametrize(
    ("command", "resumed", "moments"),
    [("run commerce-tiny --out r", True, 3), ("eval oracle --task forms", False, 1)],
)
def test_ctrl_c_at_any_moment_ends_a_command_with_one_line(tmp_path, command, resumed, moments):
    """While the command itself works; one also while it imports, which is alike for all, and at
    once."""
    draw = random.Random(command)
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    for moment in (draw.uniform(0.5, 3), draw.uniform(0, 0.5), 0.0)[:moments]:
        with subprocess.Popen(
            [sys.executable, "-c", ENTRY, *command.split()],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
            env=environment,
        ) as running:
            assert running.stdout.readline() == "here\n"
            time.sleep(moment)
            running.send_signal(signal.SIGINT)
            _, err = running.communicate(timeout=60)
        ended = {0, -signal.SIGINT}  # the latter at the interpreter's own end, when all is written
        assert running.returncode in ({130} if resumed else {130, *ended}), err
        assert_stopped(running.returncode, err, resumed)


def test_ctrl_c_while_a_run_trains_says_how_to_resume(tmp_path):
    """A real signal to a real process, once the first step is logged."""
    metrics = tmp_path / "r" / "metrics.jsonl"
    few = "orders: 300, extraction: 30"
    values = [
        f"task.options={{{few}}}",
        f"model.tiny.task_options={{{few}}}",
        "model.tiny={steps: 20, context: 1024}",
    ]
    small = [part for value in values for part in ("--set", value)]
    command = [sys.executable, "-m", "plumbline", "run", "commerce-tiny", "--out", "r", *small]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    ) as running:
        while running.poll() is None and not (metrics.is_file() and metrics.stat().st_size):
            time.sleep(0.1)
        running.send_signal(signal.SIGINT)
        _, err = running.communicate(timeout=120)
    assert running.returncode == 130
    last = err.strip().splitlines()[-1]
    assert last.startswith("stopped; ")
    assert "--resume" in last


def assert_stopped(code, err, resumed):
    assert "Traceback" not in err
    if code == 130:
        last = err.strip().splitlines()[-1]
        assert last.startswith("stopped; ")
        assert ("--resume" in last) == (resumed and "same command starts" not in last)


@pytest.mark.parametrize(
    ("command", "where", "resumed"),
    [
        (
            "sweep commerce-tiny --vary rl.beta=0,1 --out {}",
            "plumbline.training.sweep.run_recipe",
            True,
        ),
        ("audit forms", "plumbline_forms.task.FormsTask.judge", False),
        ("check commerce-tiny", "plumbline.checks.preflight.report.run_preflight", False),
        ("data commerce --out {}", "plumbline_commerce.build.make_commerce", False),
    ],
)
def test_ctrl_c_within_the_work_of_a_command_ends_it_with_one_line(
    plumbline, tmp_path, monkeypatch, command, where, resumed
):
    def interrupt(*_, **__):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(30)

    monkeypatch.setattr(where, interrupt)
    (tmp_path / "d").mkdir()
    code, _, err = plumbline(*command.format(tmp_path / "d").split())
    assert (code, "--resume" in err) == (130, resumed)
    assert_stopped(code, err, resumed)


def test_ctrl_c_within_an_import_is_raised_after_it(tmp_path, monkeypatch, capsys):
    (tmp_path / "swallows.py").write_text(
        "import os, signal, time\ntry:\n    os.kill(os.getpid(), signal.SIGINT)\n    "
        "time.sleep(0.1)\n"
        "except BaseException:\n    pass\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(SystemExit) as left, clear_exits():  # noqa: PT012  # the interrupt comes late
        importlib.import_module("swallows")
        time.sleep(30)
        pytest.fail("the interrupt did not wake what waited")
    assert left.value.code == 130
    assert "stopped" in capsys.readouterr().err
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_error_drives_no_terminal(plumbline, tmp_path):
    (tmp_path / "log.csv").write_text("step,\x1b]0;owned\x07\n1,2\n")
    code, _, err = plumbline("check", tmp_path / "log.csv")
    assert code == 1
    assert "\x1b" not in err
    assert "\x07" not in err
    assert "\u2039U+001B\u203a]0;owned" in err
