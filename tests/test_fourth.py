"""An environment of a user's: `fourth/`, installed into an environment of its own, is found,
audited and trained."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

HERE = Path(__file__).parent
COMMANDS = {
    "recipe": "recipe",
    "oracle": "eval oracle --task letters --split test --json",
    "audit": "audit letters --json",
    "run": "run letters-tiny",
    "trained": "eval runs/letters-tiny/models/rl --split val --json",
}
ONE_AFTER_THE_OTHER = """
import contextlib, io, json, sys
from plumbline.checks.audit import cheats
from plumbline.cli.main import main
cheats.VERDICTS = 300
said = {}
for name, command in json.loads(sys.argv[1]).items():
    sys.argv = ["plumbline", *command.split()]
    with contextlib.redirect_stdout(io.StringIO()) as out:
        try:
            main()
        except SystemExit as ended:
            if ended.code:
                raise
    said[name] = out.getvalue()
print(json.dumps(said))
"""
"""In one process, which imports torch once; the search for cheats is short."""


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    """What the commands print in a fresh environment that sees what is installed here, and
    `fourth/` beside it."""
    place = tmp_path_factory.mktemp("fourth")
    shutil.copytree(HERE / "fourth", place / "source")
    python = place / "env" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", place / "env"], check=True)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    link = f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n"
    (place / "env" / "lib" / version / "site-packages" / "here.pth").write_text(link)
    theirs = ("PLUMBLINE", "PYTHON", "PIP")
    environment = {key: value for key, value in os.environ.items() if not key.startswith(theirs)}
    environment |= {
        "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    }

    def run(*line):
        done = subprocess.run(
            line, cwd=place, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    pip = (
        sys.executable,
        "-m",
        "pip",
        "--python",
        python,
        "install",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
    )
    run(*pip, place / "source")
    shutil.rmtree(place / "source")
    return json.loads(run(python, "-c", ONE_AFTER_THE_OTHER, json.dumps(COMMANDS)))


def test_its_recipe_and_its_oracle_are_there(said):
    assert "letters-tiny" in said["recipe"]
    oracle = json.loads(said["oracle"])
    assert (oracle["task"], oracle["reward"]["mean"]) == ("letters", 1)


def test_its_reward_is_audited(said):
    audits = json.loads(said["audit"])["audits"]
    found = [(one["check"], one["level"]) for one in audits["letters"]["findings"]]
    assert found == [("writing", "warning")], (
        "it asks for the letters alone, and takes nothing else"
    )


def test_it_is_trained(said):
    evaluated = json.loads(said["trained"])
    assert (evaluated["task"], evaluated["n"]) == ("letters", 12)
