"""Jobs as processes of this machine: what their outcome is, and that they outlive who watches."""

import json
import os
import re
import signal
import subprocess
import time
from types import SimpleNamespace

import pytest

from plumbline.checks.check import REFUSED, Finding
from plumbline.errors import RunError, StorageError
from plumbline.jobs import package
from plumbline.jobs.backends import ProcessJob
from plumbline.jobs.job import SentJob, find_job, specify_job
from plumbline.jobs.package import Examination

PROCESS = ("--on", "process", "--no-preflight")


def until(condition, seconds=60.0):
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end
        time.sleep(0.1)
    return found


def test_a_job_that_prints_an_error_and_ends_well_has_produced_nothing(project, plumbline):
    (project / "data" / "formfactory" / "app.py").unlink()
    code, out, err = plumbline("submit", "failure.yaml", *PROCESS)
    assert code == 5
    assert "app.py not" in err
    assert re.search(r"produced nothing \(.* succeeded", err)
    assert out == ""
    code, out, _ = plumbline("jobs", "--json")
    (job,) = json.loads(out)["jobs"]
    assert (code, job["status"], job["outcome"]["engine"]) == (
        0,
        "produced nothing",
        "succeeded, exit status 0",
    )


def test_a_job_that_can_still_speak_tells_its_engine_that_it_failed(project, plumbline):
    (project / "data" / "formfactory" / "app.py").unlink()
    code, _, err = plumbline(
        "submit", "failure.yaml", *PROCESS, "--set", "task.options.politely=true"
    )
    assert code == 5
    assert "produced nothing (" in err
    assert "failed, exit status 5)" in err


def test_a_job_that_lacks_a_secret_never_starts(project, plumbline, monkeypatch):
    monkeypatch.delenv("PLB_TEST_TOKEN", raising=False)
    code, _, err = plumbline("submit", "tickets.yaml", *PROCESS, "--secret", "PLB_TEST_TOKEN")
    assert code == 4
    assert re.search(r"never started \(.* PLB_TEST_TOKEN", err)


def test_a_job_that_raises_has_failed_with_its_error(project, plumbline):
    code, _, err = plumbline(
        "submit", "tickets.yaml", *PROCESS, "--set", "task.options.train=nowhere.jsonl"
    )
    assert code == 3
    assert "failed (" in err
    assert "nowhere.jsonl" in err.rpartition("failed (")[2], "the run's own cause is the reason"


@pytest.fixture
def sleeping(project, plumbline):
    """A job that was sent, and sleeps."""
    code, name, _ = plumbline(
        "submit", "failure.yaml", *PROCESS, "--detach", "--set", "task.options.sleeps=true"
    )
    assert code == 0
    job = find_job(name.strip()[:-2])
    until(lambda: "sleeping" in job.log.read_text())
    return job


def test_a_job_outlives_who_watches_and_is_stopped_by_its_name(
    sleeping, project, plumbline, monkeypatch
):
    job = sleeping
    assert plumbline("jobs")[1].split()[2] == "running"
    monkeypatch.setattr(ProcessJob, "log", interrupted)
    code, _, err = plumbline("jobs", "follow", "last")
    assert code == 130
    assert f"`plumbline jobs follow {job.spec.id}`" in err
    monkeypatch.undo()
    monkeypatch.setenv("PLUMBLINE_JOBS", str(project.parent / "jobs"))
    code, out, _ = plumbline("jobs", "stop", job.spec.id)
    assert (code, out.startswith(f"{job.spec.id}: stopped")) == (0, True), out
    assert ProcessJob(job).state().code == 130, "it was interrupted, and had the time to say so"
    assert plumbline("jobs", "follow", job.spec.id)[0] == 6
    assert plumbline("jobs", "stop", job.spec.id)[0] == 1


def interrupted(_):
    raise KeyboardInterrupt


def test_a_job_that_is_killed_has_failed(sleeping, plumbline):
    os.killpg(sleeping.pid, signal.SIGKILL)
    until(lambda: ProcessJob(sleeping).state().is_over)
    assert plumbline("jobs", "follow")[0] == 3


def test_a_job_whose_shell_was_killed_runs_on_and_can_be_stopped(sleeping, plumbline):
    """The shell only waits for the run and writes down how it ended."""
    os.kill(sleeping.pid, signal.SIGKILL)
    os.waitpid(sleeping.pid, 0)
    assert plumbline("jobs")[1].split()[2] == "running"
    assert plumbline("jobs", "stop", sleeping.spec.id)[0] == 0
    assert not ProcessJob(sleeping).is_alive()
    assert plumbline("jobs")[1].split()[2] != "running"


def test_a_job_folder_of_pipes_is_not_waited_for(tmp_path):
    job = ProcessJob(SimpleNamespace(folder=tmp_path, log=tmp_path / "log"))
    for name in ("lock", "log", "exit"):
        os.mkfifo(tmp_path / name)
    assert not job.is_alive()
    assert job.state().status == "failed"
    with pytest.raises(StorageError, match="named pipe"):
        job.log()


def test_the_values_of_secrets_are_blotted_out_of_what_is_shown(project, plumbline, monkeypatch):
    monkeypatch.setenv("PLB_TEST_TOKEN", "hunter2hunter2")
    broken = ("--set", "rl.steps=1", "--set", "task.options.gold=nothing")
    _, _, err = plumbline("submit", "tickets.yaml", *PROCESS, "--secret", "PLB_TEST_TOKEN", *broken)
    assert "the token is [PLB_TEST_TOKEN]" in err
    assert "hunter2hunter2" not in err
    assert "hunter2hunter2" not in (find_job("last").folder / "job.json").read_text()


def test_without_ray_the_command_names_the_extra(project, plumbline, monkeypatch):
    monkeypatch.setattr("plumbline.config.imports.find_spec", lambda name: None)
    code, _, err = plumbline("submit", "tickets.yaml", "--on", "ray")
    assert code == 1
    assert "needs ray" in err
    assert "pip install '.[ray]'" in err


def test_a_dry_run_prints_what_would_be_sent_and_sends_nothing(project, plumbline, unopened):
    code, out, _ = plumbline("submit", "tickets.yaml", "--on", "process", "--dry-run", "--json")
    said = json.loads(out)
    assert (code, said["fatal"], said["package"]) == (0, False, None)
    assert said["spec"]["recipe"] == "tickets.yaml"
    assert said["data"] == ["jsonl: train 16"]
    assert not (project / "runs").exists()
    assert not (project.parent / "jobs").exists()
    assert plumbline("jobs")[:2] == (0, "")


@pytest.mark.parametrize("on", ["ray", "anyscale"])
def test_a_dry_run_says_what_is_wrong(project, plumbline, unopened, on):
    where = ("--on", on, "--out", "/mnt/shared/a")
    code, out, _ = plumbline(
        "submit", "failure.yaml", *where, "--needs", "data/formfactory", "--dry-run"
    )
    assert code == 1
    assert "left out: data/formfactory/app.py" in out
    assert "fatal: data/formfactory " in out
    assert not (project / "runs").exists()


def test_what_is_sent_is_the_recipe_as_the_job_opens_it(project):
    spec, recipe = specify_job(recipe=str(project / "tickets.yaml"), on="process")
    assert (spec.recipe, spec.name) == ("tickets.yaml", recipe.name)


def test_a_run_at_an_address_is_a_success_and_a_damaged_result_in_a_folder_is_none(
    project, plumbline, tmp_path
):
    code, _, err = plumbline(
        "submit", "tickets.yaml", *PROCESS, "--out", f"file://{tmp_path}/published"
    )
    assert code == 0, err
    assert "succeeded (" in err
    # it lies among the objects, by its hash
    assert not (tmp_path / "published" / "result.json").exists()
    # The same job, had it gone to a folder, where its result was damaged since.
    (tmp_path / "result.json").write_text("{")
    job = find_job("last")
    job.save(spec=job.spec.model_copy(update={"out": str(tmp_path)}), outcome=None)
    code, _, err = plumbline("jobs", "follow")
    assert code == 5
    assert re.search(r"produced nothing \(.*damaged", err)
    assert plumbline("jobs")[0] == 0


def test_a_process_that_was_given_the_number_of_another_is_not_signalled(project):
    sleeper = subprocess.Popen(["sleep", "60"], start_new_session=True)
    spec, _ = specify_job(recipe="tickets.yaml", on="process")
    job = SentJob(spec=spec, sent="", pid=sleeper.pid).save()
    ProcessJob(job).stop()
    assert (ProcessJob(job).state().status, sleeper.poll()) == ("failed", None)
    sleeper.kill()
    sleeper.wait()


def test_a_job_on_this_machine_is_not_said_to_be_sent(project, plumbline, unopened, monkeypatch):
    monkeypatch.delenv("PLB_TEST_TOKEN", raising=False)
    code, _, err = plumbline(
        "submit", "tickets.yaml", "--on", "process", "--secret", "PLB_TEST_TOKEN"
    )
    assert code == 1
    assert err.startswith("checking the job")
    assert "not started:" in err
    assert "PLB_TEST_TOKEN" in err


def test_what_is_wrong_with_a_job_stands_a_cause_a_line():
    one, two = (
        Finding("fatal", REFUSED, check="files", evidence={"cause": name, "fix": "take it back"})
        for name in ("a", "b")
    )
    with pytest.raises(RunError) as refused:
        package.refuse_job(Examination(findings=(one, two)))
    assert refused.value.cause.splitlines()[1:] == [
        "    a (files)",
        "    b (files)",
    ]
    assert refused.value.fix.splitlines()[1:] == ["    take it back", f"    {package.UNCHECKED}"]
    with pytest.raises(RunError, match=r": a \(files\)\n"):
        package.refuse_job(Examination(findings=(one,)))
