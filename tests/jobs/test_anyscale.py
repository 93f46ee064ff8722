"""A job for Anyscale is two files, whose fields are those that it knows."""

import json
from importlib.metadata import distributions
from pathlib import Path

import yaml

from plumbline.jobs.job import specify_job
from plumbline.jobs.package import plan_files

FIELDS = set(
    """name entrypoint image_uri containerfile compute_config working_dir excludes requirements env_vars py_modules
    py_executable cloud project registry_login_secret ray_version connections priority max_retries timeout_s
    job_queue_config tags""".split()  # noqa: SIM905 - a name a line would be a page
)
"""Of Anyscale's `JobConfig`; its command line refuses any other."""
ASKED = {"recipe": "tickets.yaml", "on": "anyscale", "out": "/mnt/shared_storage/a"}


def test_the_files_say_all_of_the_job_and_no_secret(project, tmp_path, monkeypatch):
    monkeypatch.setenv("PLB_TEST_TOKEN", "hunter2hunter2")
    cloud = {"compute": "a10g", "timeout": 3600}
    spec, recipe = specify_job(
        **ASKED, secrets=["PLB_TEST_TOKEN"], env=["HF_HOME=/mnt/hub"], **cloud
    )
    texts, command = plan_files(spec, recipe, tmp_path / "sent")
    assert command == f"anyscale job submit -f {tmp_path / 'sent' / 'job.yaml'}"
    values = yaml.safe_load(texts["job.yaml"])
    assert values.keys() <= FIELDS
    assert values["entrypoint"].startswith("python -P -m plumbline.cli.job_entry --job tickets-")
    assert (
        "--secret PLB_TEST_TOKEN -- run tickets.yaml --out /mnt/shared_storage/a"
        in values["entrypoint"]
    )
    assert (values["compute_config"], values["timeout_s"], values["max_retries"]) == (
        "a10g",
        3600,
        0,
    )
    assert values["env_vars"] == {"HF_HOME": "/mnt/hub", "PYTHONUNBUFFERED": "1"}
    assert "hunter2hunter2" not in "".join(texts.values())
    sent = [Path(folder) for folder in values["py_modules"]]
    assert {folder.name for folder in sent if (folder / "__init__.py").exists()} == {
        *("plumbline", "plumbline_answers", "plumbline_browser"),
        *("plumbline_commerce", "plumbline_forms", "plumbline_miniwob"),
    }
    metadata = [folder for folder in sent if folder.suffix == ".dist-info"]
    there = [
        one
        for one in distributions(path=[str(metadata[0].parent)])
        if one.name.startswith("plumbline-")
    ]
    assert len(metadata) == len(there)
    assert {
        entry.name for one in there for entry in one.entry_points.select(group="plumbline.tasks")
    } == {
        *(
            "commerce",
            "forms",
            "miniwob",
            "reasoning_gym",
            "short-answers",
            "strict-json",
            "verifiers",
        )
    }
    image = texts["Containerfile"]
    assert image.startswith("FROM anyscale/ray:")
    assert all("==" in row for row in image.split("\n    ")[1:])


def test_an_image_of_ones_own_takes_the_place_of_the_containerfile(project, tmp_path):
    spec, recipe = specify_job(**ASKED, image="registry/mine:1")
    texts, _ = plan_files(spec, recipe, tmp_path)
    assert set(texts) == {"job.yaml"}
    assert "image_uri: registry/mine:1" in texts["job.yaml"]


def test_the_command_writes_them_and_says_how_to_send_them(project, plumbline, unopened):
    code, out, _ = plumbline(
        "submit", "tickets.yaml", "--on", "anyscale", "--out", "/mnt/shared/a", "--json"
    )
    said = json.loads(out)
    assert code == 0
    written = project / "runs" / "anyscale" / said["job"] / "job.yaml"
    assert str(written) in said["files"]
    assert yaml.safe_load(written.read_text())["name"] == said["job"]
    assert said["command"].endswith("job.yaml")
