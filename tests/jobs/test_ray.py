"""Jobs on a real Ray head of this machine; one is started for all of these tests, as the command starts it."""

import json
import os
import urllib.error
import urllib.request
from pathlib import Path

import pytest

pytest.importorskip("ray", reason="Ray is not installed")

import plumbline as plumbline_package
from plumbline import api
from plumbline.engines.jobs import follow, ray_jobs
from plumbline.engines.jobs import ray_jobs as heads
from plumbline.engines.jobs.package import package_of
from plumbline.engines.jobs.store import find

SECRET = "hunter2hunter2"


@pytest.fixture(scope="module")
def head():
    environment = {
        **os.environ,
        "PLB_TEST_TOKEN": SECRET,
        "PYTHONPATH": str(Path(plumbline_package.__file__).parents[1]),
    }
    started = heads.start_head(environment, cpus=1)
    yield started
    heads.stop_head(started)
    assert not heads.ours(started)
    assert not Path(started.folder).exists()


@pytest.fixture
def ray(head, monkeypatch):
    """The head in place of one that each job would start and stop; how often both were asked."""
    asked = {"started": 0, "stopped": 0}

    def start(environment, cpus=None, say=print):
        asked["started"] += 1
        return head

    def stop(stopped, *, keep=False):
        assert stopped == head
        asked["stopped"] += 1

    monkeypatch.setattr(follow, "start_head", start)
    monkeypatch.setattr(follow, "stop_head", stop)
    monkeypatch.setattr(follow, "stop_head", stop)
    return asked


def test_a_recipe_runs_as_a_job_and_ends_with_the_report_of_a_run(project, ray, plumbline, monkeypatch):
    monkeypatch.setenv("PLB_TEST_TOKEN", SECRET)
    code, out, err = plumbline("submit", "tickets.yaml", "--no-preflight", "--secret", "PLB_TEST_TOKEN")
    assert code == 0, err
    assert ray == {"started": 1, "stopped": 1}
    assert "rl 1/1  reward" in err, "progress"
    assert f"report  {project / 'runs' / 'tickets' / 'report.html'}" in out
    assert "report  " not in err, "what the job itself printed of its report is not shown twice"
    assert "succeeded (engine and record agree; the engine: succeeded, exit status 0)" in err
    here = api.run("tickets.yaml", out="runs/here", quiet=True)
    there = json.loads((project / "runs" / "tickets" / "result.json").read_text())
    assert there["evaluations"] == json.loads(json.dumps(here.result()["evaluations"]))
    job = find("last")
    kept = "".join(path.read_text() for path in job.folder.iterdir())
    assert "the token is [PLB_TEST_TOKEN]" in err
    assert SECRET not in err + kept
    assert SECRET not in str(ray_jobs.client(job).get_job_info(job.spec.id))
    assert plumbline("jobs", "follow")[:2] == (0, out), "as often as one likes"


def test_the_failure_of_the_forms_log_is_no_success_whatever_ray_says(project, ray, plumbline):
    """Data git-ignored, the entry point prints an error, Ray says SUCCEEDED; the files are those that were foretold."""
    assert plumbline("submit", "failure.yaml")[0] == 1, "found before it is sent"
    assert ray["started"] == 0
    code, out, err = plumbline("submit", "failure.yaml", "--no-preflight")
    job = find("last")
    assert ray_jobs.state(job).status == "succeeded"
    assert (code, out) == (5, "")
    assert "produced nothing (the engine says that it succeeded, and the run left no result: FormFactory app.py" in err
    (listed,) = [line.split()[1:] for line in err.splitlines() if line.startswith("files:")]
    sent = {name for name in package_of(project).files if "__pycache__" not in name}  # the job writes its own, too
    assert {name for name in listed if "__pycache__" not in name} == sent
    assert "data/formfactory/app.py" not in listed


def test_a_job_is_left_running_found_again_and_stopped(project, ray, plumbline):
    code, name, _ = plumbline("submit", "failure.yaml", "--no-preflight", "--detach", "--set", "task.options.sleeps=1")
    assert (code, ray["stopped"]) == (0, 0)
    assert plumbline("jobs")[1].split()[2] in {"pending", "running"}
    code, out, _ = plumbline("jobs", "stop", name.strip())
    assert (code, out.startswith(f"{name.strip()}: stopped"), ray["stopped"]) == (0, True, 1)
    assert plumbline("jobs", "follow")[0] == 6


def test_the_head_takes_nothing_from_who_does_not_show_its_token(project, plumbline, head):
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(f"{head.address}/api/jobs/", timeout=10)
    assert refused.value.code == 401
    code, _, err = plumbline("submit", "tickets.yaml", "--no-preflight", "--address", head.address)
    assert (code, "Missing authentication token" in err, "RAY_AUTH_MODE=token" in err) == (1, True, True)
    assert (Path(head.folder) / "token").stat().st_mode & 0o077 == 0


def test_a_cluster_that_does_not_answer_is_an_error_with_its_address(project, plumbline):
    code, _, err = plumbline("submit", "tickets.yaml", "--no-preflight", "--address", "http://127.0.0.1:9")
    assert code == 1
    assert "the Ray cluster at http://127.0.0.1:9 does not do it" in err
    assert find("last").outcome.ended == "never started"
