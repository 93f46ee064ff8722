"""What is installed: a wheel with every file of the packages, few dependencies; CI and Docker files
that agree."""

import os
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
PROJECTS = [ROOT, *sorted(path.parent for path in ROOT.glob("environments/*/pyproject.toml"))]
TASKS = "from plumbline.tasks import task_names; print(*task_names())"
LOG = ROOT / "tests" / "public_reports" / "10-openr1-255-format-eats-accuracy"
WORKFLOW = ROOT / ".github" / "workflows" / "ci.yml"


def declared(project: Path) -> dict:
    return tomllib.loads((project / "pyproject.toml").read_text())


PROJECT = declared(ROOT)


def tasks_of(project: Path) -> list[str]:
    return [*declared(project)["project"].get("entry-points", {}).get("plumbline.tasks", ())]


def run(*command: object, cwd: Path) -> str:
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTHON", "PLUMBLINE"))
    }
    result = subprocess.run(
        [str(word) for word in command], cwd=cwd, env=environment, capture_output=True, text=True
    )
    if (
        result.returncode
        and "pip" in command
        and re.search(r"No matching distribution|connection", result.stderr)
    ):
        pytest.skip(f"no package index answers: {result.stderr.splitlines()[-1]}")
    assert not result.returncode, result.stderr
    return result.stdout


@pytest.fixture(scope="module")
def wheels(tmp_path_factory) -> dict[Path, Path]:
    """The wheel of each project: the core's and the environments'."""
    folder = tmp_path_factory.mktemp("wheels")
    run(
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--wheel-dir",
        folder,
        *PROJECTS,
        cwd=folder,
    )
    return {
        one: next(folder.glob(f"{declared(one)['project']['name'].replace('-', '_')}-*.whl"))
        for one in PROJECTS
    }


@pytest.mark.network
@pytest.mark.slow
def test_each_wheel_has_every_file_of_its_package(wheels):
    for project, wheel in wheels.items():
        packages = [
            project / name
            for name in declared(project)["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
        ]
        source = {
            path.relative_to(package.parent).as_posix()
            for package in packages
            for path in package.rglob("*")
            if path.is_file() and "__pycache__" not in path.parts
        }
        packed = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
        assert packed == source


@pytest.mark.network
@pytest.mark.slow
def test_an_empty_environment_checks_and_audits(wheels, tmp_path):
    run(sys.executable, "-m", "venv", tmp_path / "env", cwd=tmp_path)
    python, plumbline = tmp_path / "env" / "bin" / "python", tmp_path / "env" / "bin" / "plumbline"
    run(python, "-m", "pip", "install", "--quiet", wheels[ROOT], cwd=tmp_path)
    assert "parts-oppose" in run(plumbline, "check", LOG, cwd=tmp_path)
    assert set(run(python, "-c", TASKS, cwd=tmp_path).split()) == {"jsonl", *tasks_of(ROOT)}
    installed = run(python, "-m", "pip", "list", "--format", "freeze", cwd=tmp_path).lower()
    assert len(installed.split()) <= 25
    assert "torch" not in installed

    run(python, "-m", "pip", "install", "--quiet", *wheels.values(), cwd=tmp_path)
    assert set(run(python, "-c", TASKS, cwd=tmp_path).split()) == {
        "jsonl",
        *(t for one in PROJECTS for t in tasks_of(one)),
    }
    bundled = {path.stem for path in ROOT.glob("environments/*/src/*/recipes/*.yaml")}
    listed = {
        line.split()[0]
        for line in run(plumbline, "recipe", "--all", cwd=tmp_path).splitlines()
        if line.strip()
    }
    assert bundled <= listed
    for project in PROJECTS:
        for recipe in sorted(project.glob("src/*/recipes/*.yaml"))[:1]:
            assert "task" in run(plumbline, "recipe", recipe.stem, cwd=tmp_path)
    assert "writing" in run(plumbline, "audit", "strict-json", cwd=tmp_path)
    for task in ("strict-json", "commerce", "forms"):  # pages of MiniWoB++ need a browser
        assert "oracle" in run(
            plumbline, "eval", "oracle", "--task", task, "--limit", "20", cwd=tmp_path
        )
    assert (
        "torch" not in run(python, "-m", "pip", "list", "--format", "freeze", cwd=tmp_path).lower()
    )


def test_the_guide_names_every_extra():
    table = (ROOT / "docs" / "install.md").read_text()
    named = {
        name
        for row in re.findall(r"^\| (`[^|]+) \|", table, re.MULTILINE)
        for name in re.findall(r"`([\w-]+)`", row)
    }
    assert named == set(PROJECT["project"]["optional-dependencies"])


def test_ci_tries_the_declared_versions_with_targets_of_make():
    declared = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["project"]["classifiers"]))
    jobs = yaml.safe_load(WORKFLOW.read_text())["jobs"]
    assert jobs["test"]["strategy"]["matrix"]["python"] == declared
    makefile = (ROOT / "Makefile").read_text()
    targets = {
        word
        for line in re.findall(r"^\.PHONY: (.+)$", makefile, re.MULTILINE)
        for word in line.split()
    }
    commands = [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step]
    called = {command.split()[-1] for command in commands if command.startswith("make ")}
    assert len(commands) == len(jobs)
    assert called == {"lint", "test", "test-check", "test-slow", "docs"} & targets


def test_the_image_copies_what_exists_and_is_not_ignored():
    dockerfile = (ROOT / "Dockerfile").read_text()
    sources = [
        word
        for line in re.findall(r"^COPY (.+) \S+$", dockerfile, re.MULTILINE)
        for word in line.split()
    ]
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    assert ignored[0] == "*"
    assert {f"!{word}" for word in sources} == {line for line in ignored if line.startswith("!")}
    assert all((ROOT / word).exists() for word in sources)
    extras = re.search(r"^ARG EXTRAS=(\S+)$", dockerfile, re.MULTILINE)
    assert extras
    assert set(extras[1].split(",")) <= set(PROJECT["project"]["optional-dependencies"])
    (version,) = re.findall(r"^FROM python:(3\.\d+)-slim$", dockerfile, re.MULTILINE)
    assert f"Programming Language :: Python :: {version}" in PROJECT["project"]["classifiers"]
