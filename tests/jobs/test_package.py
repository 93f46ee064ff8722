"""The files that would be sent are those that Ray zips."""

import logging
import zipfile
from pathlib import Path

import pytest
import yaml

pytest.importorskip("ray", reason="Ray is not installed")

from plumbline.jobs.package import list_package

FILES = """
a.py b.txt data/rows.jsonl data/formfactory/app.py data/formfactory/templates/x.html models/m/model.safetensors
notes/a.py notes/keep/a.txt notes/keep/b.txt deep/one/two/three.log deep/one/three.log odd/[x].txt odd/x.txt
odd/#hash odd/!bang odd/a*b odd/ab .git/config sub/.venv/lib.py sub/__pycache__/a.pyc runs/r/metrics.jsonl
sub/secret.txt sub/open.txt
""".split()  # noqa: SIM905 - a name a line would be a page
PATTERNS = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))


@pytest.fixture
def tree(tmp_path):
    for name in FILES:
        path = tmp_path / "tree" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    (tmp_path / "tree" / "deep" / ".gitignore").write_text("two/\n!three.log\n")
    (tmp_path / "tree" / "sub" / ".rayignore").write_text("secret*\n")
    (tmp_path / "tree" / "empty").mkdir()
    return tmp_path / "tree"


def zipped(folder, excludes, target):
    """The names in the package that Ray itself makes; its own function, so that another version is
    noticed here."""
    packaging = pytest.importorskip(
        "ray._private.runtime_env.packaging", reason="Ray is not installed"
    )
    quiet = logging.getLogger("tests.jobs.quiet")
    quiet.setLevel(logging.CRITICAL)
    packaging._zip_files(
        str(folder),
        [".git", ".venv", "venv", "__pycache__", *excludes],
        str(target),
        include_gitignore=True,
        logger=quiet,
    )
    with zipfile.ZipFile(target) as package:
        return {name for name in package.namelist() if not name.endswith("/")}


@pytest.mark.parametrize("patterns", PATTERNS)
@pytest.mark.parametrize("how", [".gitignore", ".rayignore", "exclude"])
def test_the_files_are_those_that_ray_zips(tree, tmp_path, patterns, how):
    excludes = patterns.splitlines() if how == "exclude" else []
    if how != "exclude":
        (tree / how).write_text(patterns + "\n")
    package = list_package(tree, excludes)
    assert set(package.files) == zipped(tree, excludes, tmp_path / "package.zip")
    assert package.bytes == sum((tree / name).stat().st_size for name in package.files)


def test_each_path_that_is_left_out_has_its_rule(tree):
    (tree / ".gitignore").write_text("*.log\ndata/formfactory/\n")
    package = list_package(tree, ["models"])
    assert (
        package.left_out["data/formfactory/app.py"] == f"{tree / '.gitignore'}:2: data/formfactory/"
    )
    assert package.left_out["models"] == "--exclude: models"
    assert package.missing_reasons(tree / "data" / "rows.jsonl") == {}
    assert set(package.missing_reasons(tree / "data")) == {
        "data/formfactory/app.py",
        "data/formfactory/templates",
    }
    assert set(package.missing_reasons(tree / "models" / "m" / "model.safetensors")) == {"models"}
    (reason,) = package.missing_reasons(tree / ".git" / "config").items()
    assert (reason[0], reason[1].split()[-2:]) == (".git", ["Ray:", ".git"])


def test_what_ray_is_told_by_the_environment_holds_here_too(tree, monkeypatch):
    (tree / ".gitignore").write_text("b.txt\n")
    monkeypatch.setenv("RAY_RUNTIME_ENV_IGNORE_GITIGNORE", "1")
    monkeypatch.setenv("RAY_OVERRIDE_RUNTIME_ENV_DEFAULT_EXCLUDES", "runs")
    package = list_package(tree)
    assert {"b.txt", ".git/config"} <= set(package.files)
    assert package.left_out["runs"].endswith("Ray: runs")
