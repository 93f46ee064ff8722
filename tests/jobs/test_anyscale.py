"""A job for Anyscale is two files, whose fields are those that it knows."""

import json

import pytest
import yaml

from plumbline.engines.jobs.anyscale import AnyscaleJob, plan, read_job, write
from plumbline.engines.jobs.spec import Cloud
from plumbline.engines.jobs.specify import Asked, specify
from plumbline.errors import RecipeError

ASKED = {"recipe": "tickets.yaml", "on": "anyscale", "out": "/mnt/shared_storage/a"}


def test_the_files_say_all_of_the_job_and_no_secret(project, tmp_path, monkeypatch):
    monkeypatch.setenv("PLB_TEST_TOKEN", "hunter2hunter2")
    cloud = Cloud(compute="a10g", timeout=3600)
    spec, recipe = specify(Asked(**ASKED, secrets=["PLB_TEST_TOKEN"], env=["HF_HOME=/mnt/hub"], cloud=cloud))
    planned = plan(spec, recipe, tmp_path / "sent")
    write(planned, tmp_path / "sent")
    assert planned.command == f"anyscale job submit -f {tmp_path / 'sent' / 'job.yaml'}"
    values = yaml.safe_load((tmp_path / "sent" / "job.yaml").read_text())
    assert values.keys() <= set(AnyscaleJob.__dataclass_fields__)
    assert values["entrypoint"].startswith("python -m plumbline.engines.jobs.entry --job tickets-")
    assert "--secret PLB_TEST_TOKEN -- run tickets.yaml --out /mnt/shared_storage/a" in values["entrypoint"]
    assert (values["compute_config"], values["timeout_s"], values["max_retries"]) == ("a10g", 3600, 0)
    assert values["env_vars"] == {"HF_HOME": "/mnt/hub", "PYTHONUNBUFFERED": "1"}
    text = "".join(one.read_text() for one in (tmp_path / "sent").iterdir())
    assert "hunter2hunter2" not in text
    image = (tmp_path / "sent" / "Containerfile").read_text()
    assert image.startswith("FROM anyscale/ray:")
    assert all("==" in row for row in image.split("\n    ")[1:])


def test_an_image_of_ones_own_takes_the_place_of_the_containerfile(project, tmp_path):
    spec, recipe = specify(Asked(**ASKED, cloud=Cloud(image="registry/mine:1")))
    planned = plan(spec, recipe, tmp_path)
    assert set(planned.texts) == {"job.yaml"}
    assert "image_uri: registry/mine:1" in planned.texts["job.yaml"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("name: a\nentrypoint: b\nmax_retrys: 2\n", "unknown key max_retrys (did you mean max_retries?)"),
        ("name: a\n", "entrypoint"),
        ("name: a\nentrypoint: b\nimage_uri: c\ncontainerfile: d\n", "image_uri and containerfile"),
        ("name: a\nentrypoint: b\nmax_retries: soon\n", "max_retries"),
        ("- a\n", "is no mapping"),
    ],
)
def test_fields_that_anyscale_does_not_know_are_refused(tmp_path, text, said):
    (tmp_path / "job.yaml").write_text(text)
    with pytest.raises(RecipeError) as refused:
        read_job(tmp_path / "job.yaml")
    assert said in str(refused.value)


def test_the_command_writes_them_and_says_how_to_send_them(project, plumbline, unopened):
    code, out, _ = plumbline("submit", "tickets.yaml", "--on", "anyscale", "--out", "/mnt/shared/a", "--json")
    said = json.loads(out)
    assert code == 0
    assert read_job(project / "runs" / "anyscale" / said["job"] / "job.yaml").name == said["job"]
    assert said["command"].endswith("job.yaml")
