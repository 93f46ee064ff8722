"""An environment of a user's: `fourth/`, installed into an environment of its own, is found, audited and trained."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def command(tmp_path_factory):
    """`plumbline` in a fresh environment that sees what is installed here, and `fourth/` beside it."""
    place = tmp_path_factory.mktemp("fourth")
    shutil.copytree(HERE / "fourth", place / "source")
    python = place / "env" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", place / "env"], check=True)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    link = f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n"
    (place / "env" / "lib" / version / "site-packages" / "here.pth").write_text(link)
    install = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        python,
        "install",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
    ]
    environment = {
        key: value for key, value in os.environ.items() if not key.startswith(("PLUMBLINE", "PYTHON", "PIP"))
    }
    environment |= {"PYTHONPATH": os.environ.get("PYTHONPATH", ""), "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    done = subprocess.run([*install, place / "source"], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    shutil.rmtree(place / "source")

    def run(*words):
        line = [python, "-m", "plumbline", *words]
        done = subprocess.run(line, cwd=place, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def test_its_recipe_and_its_oracle_are_there(command):
    assert "letters-tiny" in command("recipe")
    oracle = json.loads(command("eval", "oracle", "--task", "letters", "--split", "test", "--json"))
    assert (oracle["task"], oracle["reward"]["mean"]) == ("letters", 1)


def test_its_reward_is_audited(command):
    audits = json.loads(command("audit", "letters", "--json"))["audits"]
    found = [(one["check"], one["level"]) for one in audits["letters"]["findings"]]
    assert found == [("writing", "warning")], "it asks for the letters alone, and takes nothing else"


def test_it_is_trained(command):
    command("run", "letters-tiny")
    evaluated = json.loads(command("eval", "runs/letters-tiny/models/rl", "--split", "val", "--json"))
    assert (evaluated["task"], evaluated["n"]) == ("letters", 12)
