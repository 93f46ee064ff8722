"""Every command that takes a run or a model, on what one small run of the demo's recipe leaves; and
what README prints.

The run is real: LoRA on a tiny model, SFT, then expert iteration, with baselines and the oracle
beside each evaluation.
"""

import contextlib
import importlib
import json
import re
import shlex
import shutil
from pathlib import Path

import pytest

from plumbline import api, version
from plumbline.policies.pretrained.tiny import make_tiny
from plumbline.recipe import TinySection, load_recipe
from plumbline.runs.evaluations import read_evaluation
from plumbline.storage import write_jsonl
from plumbline.tasks import NOWHERE, open_task
from tests.runs.test_hub import stand_in as stand_in
from tests.serve.serving import by_command, client_of

ROOT = Path(__file__).parents[1]
RUN = "runs/strict-json-demo"
OVERRIDES = (
    *("model.dtype=float32", "model.threads=1", "sft.steps=3", "sft.batch_size=4", "rl.steps=2"),
    *(
        "rl.prompts_per_step=2",
        "rl.group_size=2",
        "run.checkpoint_every=1",
        "sampling.max_tokens=128",
    ),
    *("evaluation.final_limit=8", "evaluation.untrained=8"),
)
REWARDS = """
def accuracy(completions, answer, **kwargs):
    return [float(text.removeprefix("#### ") == gold) for text, gold in zip(completions, answer, strict=True)]


def form(completions, **kwargs):
    return [float(text.startswith("#### ")) for text in completions]
"""
NEW = [
    "--model",
    "models/smollm2-135m",
    "--data",
    "rows.jsonl",
    "--reward",
    "main_rewards:accuracy",
]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A user's folder: a model, rows, a reward, and the demo's run, which is a few steps long
    here."""
    folder = tmp_path_factory.mktemp("user")
    examples = open_task("strict-json", {"reward": "slope"}, NOWHERE).examples("train")[:60]
    texts = [
        text for example in examples for text in (example.messages[-1]["content"], example.gold)
    ]
    section = TinySection(hidden=32, layers=2, heads=2, vocabulary=600, context=512)
    make_tiny(folder / "models" / "smollm2-135m", section, texts, seed=0)
    rows = [{"question": f"What is {one} + 4?", "answer": str(one + 4)} for one in range(60)]
    write_jsonl(folder / "rows.jsonl", rows)
    (folder / "main_rewards.py").write_text(REWARDS)
    with contextlib.chdir(folder):
        api.run("strict-json-demo", overrides=OVERRIDES)
    return folder


@pytest.fixture(autouse=True)
def _there(place, monkeypatch):
    monkeypatch.chdir(place)
    monkeypatch.syspath_prepend(str(place))


def test_the_run_has_baselines(place):
    evaluation = read_evaluation(place / RUN / "evaluations" / "rl.test.greedy.json")
    assert len(evaluation.rows) == 8
    assert {path.name for path in (place / RUN / "models").iterdir()} == {"sft", "rl"}


@pytest.mark.parametrize(
    "command",
    [
        f"report {RUN}",
        f"check {RUN}",
        f"check {RUN} --json",
        f"decide {RUN}",
        f"decide {RUN} --json",
        f"compare {RUN} {RUN}",
        (
            f"compare {RUN}/evaluations/sft.test.greedy.json {RUN}/evaluations/rl.test.greedy.json "
            "--table md"
        ),
        "runs runs --json",
        f"route {RUN} {RUN}/models/sft",
        f"route {RUN} --out routes.yaml",
        f"eval {RUN} --limit 2 --split test",
        f"eval {RUN}/models/sft --limit 2 --split test --json",
        f"recipe diff strict-json-demo {RUN}/recipe.yaml",
    ],
)
def test_a_command_on_a_run(plumbline, command):
    code, out, err = plumbline(*command.split())
    if command.endswith("models/sft") and command.startswith("route"):
        assert code == 1  # a model is no run
        return
    assert code == 0, err
    assert out


def test_an_export_of_each_kind_is_a_model_again(plumbline, place, stand_in):
    """Its card has the floor and the ceiling, its reward is measured, and it is pushed."""
    more = ["--dtype", "bfloat16", "--evaluate", 2, "--push", "user/mine"]
    code, out, err = plumbline("export", RUN, "--out", "merged", *more)
    assert code == 0, err
    assert out.splitlines()[-1] == f"uploaded to {stand_in.address}/user/mine"
    (row,) = re.findall(
        r"^\| strict-json \| test .*$", (place / "merged" / "README.md").read_text(), re.MULTILINE
    )
    floor, ceiling = row.split(" | ")[5:]
    assert re.fullmatch(r"0\.\d{3} \([\w-]+\)", floor)
    assert ceiling == "1.000 |"
    for kind in ("adapter", "gguf"):
        code, _, err = plumbline("export", RUN, "--out", kind, "--kind", kind)
        assert code == 0, err
    for model in ("merged", "adapter", "gguf/gguf-f16.gguf"):
        code, out, err = plumbline(
            "eval", model, "--task", "strict-json", "--limit", 2, "--max-tokens", 8, "--json"
        )
        assert code == 0, err
        assert json.loads(out)["n"] == 2


def test_a_pilot_on_another_recipe_writes_one_that_runs(plumbline, place):
    """Of what `init` wrote, with a reward function of the user's."""
    out = place / "tried.yaml"
    code, _, err = plumbline("init", *NEW, "--gold", "#### {answer}", "--out", out)
    assert code == 0, err
    short = [
        word
        for one in ("sampling.max_tokens=8", "evaluation.final_limit=2", "run.preflight=false")
        for word in ("--set", one)
    ]
    code, told, err = plumbline("pilot", "tried.yaml", "--minutes", 600, *short)
    assert code == 0, err
    assert len(told.splitlines()) <= 16
    assert told.splitlines()[-1] == "next: plumbline run pilot.yaml --trust-code"
    code, told, err = plumbline("pilot", "tried.yaml", "--minutes", 600, *short, "--json")
    assert code == 0, err
    found = json.loads(told)
    assert found["figures"]["answers"] == 8 * found["figures"]["prompts"]
    assert found["foretold"][0]["way"] == "sft", "an untrained model has no right answer"
    written = load_recipe("pilot.yaml")
    assert written.to_dict() == found["recipe"]
    assert (written.rl, written.sft.batch_size) == (None, 16)
    code, _, err = plumbline("run", "pilot.yaml", "--set", "sft.steps=1", "--out", "piloted")
    assert code == 0, err


def test_a_pilot_refuses_a_reward_that_cannot_be_trusted(plumbline, place):
    """An answer that lists every number earns all."""
    code = "def anywhere(completions, answer, **_):\n    pairs = zip(completions, answer)\n"
    (place / "anywhere.py").write_text(
        code + "    return [float(one in text) for text, one in pairs]\n"
    )
    new = [*NEW[:4], "--reward", "anywhere:anywhere", "--gold", "#### {answer}"]
    plumbline("init", *new, "--out", "anywhere.yaml")
    code, _, err = plumbline("pilot", "anywhere.yaml", "--out", "none.yaml")
    assert code == 1
    assert "the reward cannot be trusted" in err
    assert not (place / "none.yaml").exists()


def test_a_run_is_served(place, monkeypatch, capfd):
    with by_command(monkeypatch, RUN) as address:
        said = client_of(address).chat.completions.create(
            model="strict-json-demo", messages=[{"role": "user", "content": "?"}], max_tokens=4
        )
    assert said.usage.completion_tokens <= 4


@pytest.mark.parametrize("model", [RUN, f"{RUN}/models/sft"])
def test_a_recipe_that_goes_on_with_a_run_trains(plumbline, place, tmp_path, model):
    """An adapter is written into the recipe as what it is."""
    out = tmp_path / "second.yaml"
    code, _, err = plumbline(
        "init", *NEW[2:], "--model", model, "--gold", "#### {answer}", "--out", out
    )
    assert code == 0, err
    short = ("rl.steps=1", "rl.prompts_per_step=2", "rl.group_size=2", "sampling.max_tokens=8")
    (place / "second.yaml").write_text(out.read_text())
    sets = [
        word
        for one in (*short, "evaluation.final_limit=2", "run.preflight=false")
        for word in ("--set", one)
    ]
    code, _, err = plumbline("run", "second.yaml", "--out", tmp_path / "run", *sets)
    assert code == 0, err
    assert (tmp_path / "run" / "models" / "rl" / "adapter_model.safetensors").is_file()


def test_what_a_run_and_init_print_to_do_next_runs(plumbline):
    code, out, err = plumbline(
        "run", "strict-json-demo", "--resume", *(w for one in OVERRIDES for w in ("--set", one))
    )
    assert code == 0, err
    printed = re.findall(r"^(?:more)? +plumbline (.+)$", out, re.MULTILINE)
    code, out, _ = plumbline("init", *NEW, "--gold", "#### {answer}", "--out", "first.yaml")
    assert code == 0
    printed += re.findall(r"  plumbline (.+)$", out, re.MULTILINE)
    assert [one.split()[0] for one in printed] == ["check", "eval", "audit", "recipe", "run"]
    for command in printed[:4]:
        code, out, err = plumbline(
            *shlex.split(command), *(["--limit", 2] if command.startswith("eval") else [])
        )
        assert (code, bool(out)) == (0, True), err
    code, out, err = plumbline(*shlex.split(printed[4]), "--dry-run")
    assert code in {0, 1}, err
    assert "findings:" in out or "Nothing" in out, "it says what stands against it"


README = (ROOT / "README.md").read_text()
BLOCKS = [
    one for one in re.findall(r"^```\w*\n(.*?)^```", README, re.M | re.S) if "plumbline " in one
]
"""Commands of each block but those that install and download."""
SHOWN = [re.findall(r"^plumbline (?!get)(.+?)(?:  # .*)?$", one, re.MULTILINE) for one in BLOCKS]


def test_the_readmes_commands_are_known():
    names = [[command.split()[0] for command in block] for block in SHOWN]
    assert names == [["check"], ["audit"], ["init", "run"]]


@pytest.mark.parametrize("block", SHOWN, ids=lambda block: block[0].split()[0])
def test_a_block_of_the_readme_runs_in_a_fresh_clone(
    plumbline, place, tmp_path, monkeypatch, block
):
    for name in {"examples", *re.findall(r"tests/public_reports/\S+", block[0])}:
        shutil.copytree(ROOT / name, tmp_path / name)
    (tmp_path / "models").symlink_to(place / "models")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    for command in block:
        code, out, err = plumbline(*shlex.split(command))
        assert code == (command.startswith("audit")), err  # which has a fatal finding
        assert out, err
        if command.startswith("audit"):
            printed = [line.split() for line in out.splitlines()]
            shown = re.findall(r"^  (?:gold answers|baseline) .+$", README, re.MULTILINE)
            assert len(shown) == 3
            assert all(line.split() in printed for line in shown)


def test_the_readme_names_this_version_and_the_callback():
    assert re.search(r"Version (\S+) ", README)[1] == version.__version__
    assert importlib.import_module("plumbline.adapters.callback").CheckCallback
    assert "from plumbline.adapters.callback import CheckCallback\n" in README


def test_what_the_demo_prints_to_do_next_is_there(plumbline):
    """The commands of `make demo`: those that train are recipes that exist."""
    makefile = re.search(
        r"^demo: .*?\n\n", (ROOT / "Makefile").read_text(), re.MULTILINE | re.DOTALL
    )[0]
    commands = re.findall(r"\$\(BIN\)/plumbline ([^\"\n]+)", makefile)
    assert [one.split()[0] for one in commands] == [
        "get",
        "run",
        "init",
        "run",
        "run",
    ]
    for command in commands:
        name, *rest = command.split()
        if name == "run":
            assert plumbline("recipe", rest[0])[0] == 0
