"""One specification: what it refuses, what it never holds."""

import json

import pytest

from plumbline.errors import RecipeError
from plumbline.jobs.job import JobSpec, specify_job


def spec_of(**asked):
    return specify_job(recipe="tickets.yaml", **asked)[0]


def test_a_specification_is_recorded_and_read_again(project, monkeypatch):
    monkeypatch.setenv("PLUMBLINE_TRUST_CODE", "")
    spec = spec_of(
        overrides=["rl.steps=2"], env=["A=b=c"], secrets=["HF_TOKEN"], excludes=["x"], cpus=1.5
    )
    assert JobSpec.model_validate(json.loads(json.dumps(spec.model_dump()))) == spec
    assert spec.env == {"A": "b=c"}
    assert spec.command()[-5:] == [
        "tickets.yaml",
        "--out",
        str(project / "runs/tickets"),
        "--set",
        "rl.steps=2",
    ]
    assert spec.command()[4:8] == ["--job", spec.id, "--secret", "HF_TOKEN"]


def test_a_job_on_this_machine_writes_where_the_shell_stands(project):
    assert spec_of(out="runs/b").out == str(project / "runs" / "b")
    assert spec_of(on="process").is_local
    assert spec_of(address="http://127.0.0.1:8265").is_local
    assert not spec_of(address="http://head:8265", out="/mnt/shared/b").is_local
    assert spec_of(address="http://head:8265", out="s3://bucket/b").out == "s3://bucket/b"


def test_an_address_of_the_environment_is_the_jobs(project, monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", "http://head:8265")
    spec = spec_of(out="/mnt/shared/b")
    assert (spec.address, spec.on) == ("http://head:8265", "ray")
    monkeypatch.delenv("RAY_ADDRESS")
    assert (spec_of().on, spec_of(on="ray").address) == ("process", "auto")


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (
            {"address": "http://head:8265", "out": "runs/a"},
            "--out runs/a is a folder",
        ),
        ({"env": ["HF_TOKEN=hf_secretvalue"]}, "HF_TOKEN looks like a secret"),
        ({"secrets": ["HF_TOKEN=hf_secretvalue"]}, "--secret takes"),
    ],
)
def test_what_cannot_be_is_refused_and_no_value_is_repeated(project, asked, said):
    with pytest.raises(RecipeError) as refused:
        spec_of(**asked)
    assert said in str(refused.value)
    assert "hf_secretvalue" not in str(refused.value)


def test_a_recipe_outside_of_what_is_sent_is_refused(project, tmp_path):
    (tmp_path / "other.yaml").write_text((project / "failure.yaml").read_text())
    with pytest.raises(RecipeError, match="lies outside of"):
        specify_job(recipe=str(tmp_path / "other.yaml"))
    (project / "sub").mkdir()
    with pytest.raises(RecipeError, match="lies outside of"):
        spec_of(working_dir=project / "sub")
    assert specify_job(recipe="commerce-tiny")[0].recipe == "commerce-tiny"
