"""What is found before anything is sent."""

import re
from pathlib import Path

import pytest

import plumbline
from plumbline.jobs import package
from plumbline.jobs.job import specify_job
from plumbline.jobs.package import LIMIT, examine_job

REMOTE = {"address": "http://head:8265", "out": "/mnt/shared/a"}


def fatal(recipe="tickets.yaml", on="ray", **asked):
    examined = examine_job(*specify_job(recipe=recipe, on=on, **asked))
    return [(one.check, one.what) for one in examined.findings if one.level == "fatal"], examined


@pytest.fixture
def opened_once(monkeypatch):
    """The dry run in a copy, which takes seconds, is made of one job; a test's next ones are told
    the same."""
    honest, said = package._check_opening, []

    def opened(spec, sent):
        if not said:
            said.append(honest(spec, sent))
        return said[0]

    monkeypatch.setattr(package, "_check_opening", opened)
    return said


def test_a_job_that_lacks_nothing_may_be_sent(project):
    found, examined = fatal()
    assert found == []
    assert {"base.yaml", "data/rows.jsonl", "scoring.py", "tickets.yaml"} <= set(
        examined.package.files
    )
    (line,) = examined.looked_at
    assert line.startswith("jsonl: train 16, val 2, test 2; ")
    assert re.search(r" 1 prompts, 0\.06 epochs$", line)


def test_the_failure_of_the_forms_log_is_found_before_the_job_is_sent(project, opened_once):
    """Twice: the path by its rule, and the entry point's own error from a dry run in a copy of what
    would be sent."""
    found, _ = fatal("failure.yaml", needs=["data/formfactory"])
    (files, path), (job, error) = found
    assert (files, job) == ("files", "job")
    assert path.startswith("data/formfactory ")
    assert path.endswith(".gitignore:1: data/formfactory/")
    assert error.endswith("app.py not found")
    assert [check for check, _ in fatal("failure.yaml")[0]] == ["job"], (
        "nobody has to name the path"
    )
    opened_once.clear()
    assert fatal("failure.yaml", on="process")[0][0][1].endswith("data are there"), (
        "which sees the folder itself"
    )


def test_what_a_module_imports_must_be_sent_too(project, monkeypatch):
    """Nobody named the helper; and it is found on this machine, whose PYTHONPATH the copy does not
    have."""
    (project / "scoring.py").write_text(
        "import helper_of_scoring\n\n\ndef score(completion, a):\n    return 1.0\n"
    )
    (project / "helper_of_scoring.py").write_text("")
    monkeypatch.setenv("PYTHONPATH", f"{project}:{Path(plumbline.__file__).parents[1]}")
    (project / ".gitignore").write_text("helper*\n")
    assert any("No module named 'helper_of_scoring'" in what for _, what in fatal()[0])


@pytest.mark.parametrize(
    ("ignored", "key"),
    [
        ("data/", "task.options.train"),
        ("*.jsonl", "task.options.train"),
        ("scoring.py", "task.options.score"),
        ("base.yaml", "extends"),
        ("tickets.yaml", "the recipe"),
    ],
)
def test_every_path_that_the_recipe_names_must_be_sent(project, ignored, key, unopened):
    (project / ".gitignore").write_text(f"{ignored}\n")
    found, _ = fatal()
    files = [what for check, what in found if check == "files"]
    assert len(files) == 1
    assert f"({key})" in files[0]
    assert files[0].endswith(f".gitignore:1: {ignored}")


def test_a_model_that_git_ignores_is_reached_by_its_absolute_path_on_this_machine_only(
    project, tiny_folder, unopened
):
    place = project / "models"
    place.symlink_to(tiny_folder.parent)
    (project / ".gitignore").write_text("models/\n")
    ours = ["model={name: models/tiny}"]
    assert "models/tiny" in dict(fatal(overrides=ours)[0])["files"]
    absolute = [f"model={{name: {place / 'tiny'}}}"]
    assert "files" not in dict(fatal(overrides=absolute)[0])
    assert "of this machine" in dict(fatal(overrides=absolute, **REMOTE)[0])["files"]
    assert "files" not in dict(fatal(overrides=absolute, there=[str(place)], **REMOTE)[0])


def test_a_place_of_the_cluster_does_not_excuse_paths_of_this_machine(project, unopened):
    elsewhere = project.parent / "elsewhere"
    elsewhere.mkdir()
    found, _ = fatal(needs=[str(elsewhere)], there=[str(project)], **REMOTE)
    assert [check for check, _ in found] == ["files"]


def test_a_checkpoint_that_the_cluster_has_is_not_looked_for_here(project, opened_once):
    there = ["model={name: /mnt/models/big}"]
    assert fatal(overrides=there, **REMOTE)[0][0][0] == "model"
    assert fatal(overrides=there, there=["/mnt/models"], **REMOTE)[0] == []


def test_a_package_that_ray_refuses_is_refused_first(project, unopened):
    with (project / "weights.bin").open("wb") as file:
        file.truncate(LIMIT + 1)
    (check, what), *more = fatal()[0]
    assert (check, more) == ("package-size", [])
    assert "weights.bin 100 MiB" in what
    assert fatal(excludes=["*.bin"])[0] == []


def test_secrets_must_be_there_where_the_job_takes_them_from_this_shell(
    project, monkeypatch, unopened
):
    monkeypatch.delenv("PLB_TEST_TOKEN", raising=False)
    asked = {"on": "process", "secrets": ["PLB_TEST_TOKEN"]}
    (found,) = fatal(**asked)[1].findings
    assert (found.check, found.code, found.evidence["names"]) == (
        "secrets",
        "not-set",
        ["PLB_TEST_TOKEN"],
    )
    assert fatal(secrets=["PLB_TEST_TOKEN"], **REMOTE)[0] == [], (
        "there it is the cluster's, and the job looks"
    )
    monkeypatch.setenv("PLB_TEST_TOKEN", "hunter2hunter2")
    assert fatal(**asked)[0] == []


def test_requirements_are_read_and_their_pins_compared(project, unopened):
    (project / "pins.txt").write_text("# ours\nnumpy==1.0.0\nrich\n")
    examined = fatal(requirements=project / "pins.txt")[1]
    found = {one.code: one.evidence for one in examined.findings if one.check == "requirements"}
    assert [found["not-pinned"][name] for name in ("lines", "of", "file")] == [1, 2, "pins.txt"]
    assert found["other-versions"]["first"] == "numpy==1.0.0"
    assert fatal(requirements=project / "none.txt")[0][0][0] == "requirements"
