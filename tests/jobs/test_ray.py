"""Jobs on a real Ray head of this machine; one is started for all of these tests."""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import pytest

pytest.importorskip("ray", reason="Ray is not installed")

import plumbline as plumbline_package
from plumbline import api
from plumbline.engines import processes
from plumbline.jobs.backends import RayJob
from plumbline.jobs.job import SentJob, find_job, specify_job
from plumbline.jobs.package import list_package

SECRET = "hunter2hunter2"


@pytest.fixture(scope="module")
def head():
    """The address of a head whose jobs have the secret in their environment; it and all that it
    started end."""
    folder = Path(tempfile.mkdtemp(prefix="plb-ray-"))  # short, for the paths of its sockets
    ports = {processes.free_port() for _ in range(20)}
    names = (
        "dashboard-port",
        "port",
        "dashboard-agent-listen-port",
        "ray-client-server-port",
        "metrics-export-port",
    )
    given = dict(zip(names, ports, strict=False))
    words = {
        "node-ip-address": "127.0.0.2",
        "dashboard-host": "127.0.0.1",
        "num-cpus": 1,
        "temp-dir": folder,
        **given,
    }
    command = [
        sys.executable,
        "-P",
        "-m",
        "ray.scripts.scripts",
        "start",
        "--head",
        "--block",
        "--disable-usage-stats",
    ]
    command += [
        "--object-store-memory=200000000",
        *(f"--{name}={value}" for name, value in words.items()),
    ]
    environment = {
        "PLB_TEST_TOKEN": SECRET,
        "PYTHONPATH": str(Path(plumbline_package.__file__).parents[1]),
    }
    with (folder / "log").open("wb") as log:
        started = subprocess.Popen(
            command,
            env={**os.environ, **environment},
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    address = f"http://127.0.0.1:{given['dashboard-port']}"
    try:
        until = time.monotonic() + 300
        while not answers(address):
            assert started.poll() is None, (folder / "log").read_text()
            assert time.monotonic() < until
            time.sleep(0.2)
        yield address
    finally:
        started.terminate()
        try:
            started.wait(40)
        finally:
            started.kill()
            shutil.rmtree(folder, ignore_errors=True)


def answers(address):
    try:
        with urllib.request.urlopen(f"{address}/api/jobs/", timeout=5) as answer:
            return answer.status == 200
    except OSError:
        return False


@pytest.fixture
def ray(head, monkeypatch, project):
    """The head is that of the environment."""
    monkeypatch.setenv("RAY_ADDRESS", head)


@pytest.mark.slow
def test_a_recipe_runs_as_a_job_and_ends_with_the_report_of_a_run(
    project, ray, plumbline, monkeypatch
):
    monkeypatch.setenv("PLB_TEST_TOKEN", SECRET)
    code, out, err = plumbline(
        "submit", "tickets.yaml", "--no-preflight", "--secret", "PLB_TEST_TOKEN"
    )
    assert code == 0, err
    assert "rl 1/1  reward" in err, "progress"
    assert f"report  {project / 'runs' / 'tickets' / 'report.html'}" in out
    assert "report  " not in err, "what the job itself printed of its report is not shown twice"
    assert re.search(r"succeeded \(.* exit status 0\)", err)
    here = api.run("tickets.yaml", out="runs/here", quiet=True)
    there = json.loads((project / "runs" / "tickets" / "result.json").read_text())
    assert there["evaluations"] == json.loads(json.dumps(here.result()["evaluations"]))
    job = find_job("last")
    kept = "".join(path.read_text() for path in job.folder.iterdir())
    assert "the token is [PLB_TEST_TOKEN]" in err
    assert SECRET not in err + kept
    with RayJob(job)._ray_client() as client:
        assert SECRET not in str(client.get_job_info(job.spec.id))
    assert plumbline("jobs", "follow")[:2] == (0, out), "as often as one likes"


def test_the_failure_of_the_forms_log_is_no_success_whatever_ray_says(project, ray, plumbline):
    """Data git-ignored, the entry point prints an error, Ray says SUCCEEDED; the files are those
    that were foretold."""
    code, out, err = plumbline("submit", "failure.yaml", "--no-preflight")
    job = find_job("last")
    assert RayJob(job).state().status == "succeeded"
    assert (code, out) == (5, "")
    assert re.search(r"produced nothing \(.* app\.py", err)
    (listed,) = [line.split()[1:] for line in err.splitlines() if line.startswith("files:")]
    # the job writes its own, too
    sent = {name for name in list_package(project).files if "__pycache__" not in name}
    assert {name for name in listed if "__pycache__" not in name} == sent
    assert "data/formfactory/app.py" not in listed


def test_a_job_is_left_running_found_again_and_stopped(project, ray, plumbline):
    code, name, _ = plumbline(
        "submit", "failure.yaml", "--no-preflight", "--detach", "--set", "task.options.sleeps=1"
    )
    assert code == 0
    assert plumbline("jobs")[1].split()[2] in {"pending", "running"}
    code, out, _ = plumbline("jobs", "stop", name.strip())
    assert (code, out.startswith(f"{name.strip()}: stopped")) == (0, True)
    assert plumbline("jobs", "follow")[0] == 6


def test_a_cluster_that_does_not_answer_is_an_error_with_its_address(project, plumbline):
    code, _, err = plumbline(
        "submit", "tickets.yaml", "--no-preflight", "--address", "http://127.0.0.1:9"
    )
    assert code == 1
    assert "http://127.0.0.1:9" in err
    assert find_job("last").outcome.ended == "never started"


def test_a_job_whose_cluster_is_gone_is_unknown_and_breaks_no_list(project, plumbline):
    spec, _ = specify_job(recipe="tickets.yaml", address="http://127.0.0.1:9")
    SentJob(spec=spec, sent="2026-01-01T00:00:00+00:00").save()
    code, out, _ = plumbline("jobs")
    assert (code, out.split()[2], "127.0.0.1:9" in out) == (0, "unknown", True)
    assert plumbline("jobs", "follow", spec.id)[0] == 7
    assert plumbline("jobs", "stop", spec.id)[0] == 1
