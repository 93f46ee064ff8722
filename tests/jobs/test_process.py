"""Jobs as processes of this machine: what their outcome is, and that they outlive who watches."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from plumbline.checks.diagnosis.finding import Finding
from plumbline.engines.jobs import checks, follow, process, ray_jobs
from plumbline.engines.jobs.checks import Examined
from plumbline.engines.jobs.outcome import State
from plumbline.engines.jobs.ray_jobs import stop_head
from plumbline.engines.jobs.specify import specify
from plumbline.engines.jobs.store import Head, Job, find, leads, started, works
from plumbline.errors import EngineError, RunError

PROCESS = ("--on", "process", "--no-preflight")


def until(condition, seconds=30.0):
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end
        time.sleep(0.1)
    return found


def test_a_job_that_prints_an_error_and_ends_well_has_produced_nothing(project, plumbline):
    (project / "data" / "formfactory" / "app.py").unlink()
    code, out, err = plumbline("submit", "failure.yaml", *PROCESS)
    assert code == 5
    assert "FormFactory app.py not found" in err
    assert "produced nothing (the engine says that it succeeded, and the run left no result" in err
    assert out == ""
    code, out, _ = plumbline("jobs", "--json")
    (job,) = json.loads(out)["jobs"]
    assert (code, job["status"], job["outcome"]["engine"]) == (0, "produced nothing", "succeeded, exit status 0")


def test_a_job_that_can_still_speak_tells_its_engine_that_it_failed(project, plumbline):
    (project / "data" / "formfactory" / "app.py").unlink()
    code, _, err = plumbline("submit", "failure.yaml", *PROCESS, "--set", "task.options.politely=true")
    assert code == 5
    assert "produced nothing (" in err
    assert "the engine: failed, exit status 5)" in err


def test_a_job_that_lacks_a_secret_never_starts(project, plumbline, monkeypatch):
    monkeypatch.delenv("PLB_TEST_TOKEN", raising=False)
    code, _, err = plumbline("submit", "tickets.yaml", *PROCESS, "--secret", "PLB_TEST_TOKEN")
    assert code == 4
    assert "never started (the environment of the job lacks PLB_TEST_TOKEN" in err


def test_a_job_that_raises_has_failed_with_its_error(project, plumbline):
    code, _, err = plumbline("submit", "tickets.yaml", *PROCESS, "--set", "task.options.train=nowhere.jsonl")
    assert code == 3
    assert "failed (" in err
    assert "nowhere.jsonl" in err.rpartition("failed (")[2], "the run's own cause is the reason"


def test_a_job_outlives_who_watches_and_is_stopped_by_its_name(project, plumbline, monkeypatch):
    code, name, _ = plumbline("submit", "failure.yaml", *PROCESS, "--detach", "--set", "task.options.sleeps=true")
    assert code == 0
    job = find(name.strip()[:-2])
    until(lambda: "sleeping" in job.log.read_text())
    assert plumbline("jobs")[1].split()[2] == "running"
    monkeypatch.setattr(process, "follow", interrupted)
    code, _, err = plumbline("jobs", "follow", "last")
    assert code == 130
    assert f"the job goes on: `plumbline jobs follow {job.spec.id}`" in err
    monkeypatch.undo()
    monkeypatch.setenv("PLUMBLINE_JOBS", str(project.parent / "jobs"))
    code, out, _ = plumbline("jobs", "stop", job.spec.id)
    assert (code, out.startswith(f"{job.spec.id}: stopped")) == (0, True), out
    assert process.state(job).code == 130, "it was interrupted, and had the time to say so"
    assert plumbline("jobs", "follow", job.spec.id)[0] == 6
    assert plumbline("jobs", "stop", job.spec.id)[0] == 1


def interrupted(_):
    yield "a line\n"
    raise KeyboardInterrupt


def test_a_job_that_is_killed_has_failed(project, plumbline):
    _, name, _ = plumbline("submit", "failure.yaml", *PROCESS, "--detach", "--set", "task.options.sleeps=true")
    job = find(name.strip())
    until(lambda: "sleeping" in job.log.read_text())
    os.killpg(job.pid, signal.SIGKILL)
    until(lambda: process.state(job).over)
    assert plumbline("jobs", "follow")[0] == 3


def test_a_job_whose_shell_was_killed_runs_on_and_can_be_stopped(project, plumbline):
    """The shell only waits for the run and writes down how it ended."""
    _, name, _ = plumbline("submit", "failure.yaml", *PROCESS, "--detach", "--set", "task.options.sleeps=true")
    job = find(name.strip())
    until(lambda: "sleeping" in job.log.read_text())
    os.kill(job.pid, signal.SIGKILL)
    until(lambda: not leads(job.pid, job.started))
    assert plumbline("jobs")[1].split()[2] == "running"
    assert plumbline("jobs", "stop", job.spec.id)[0] == 0
    assert not works(job.pid, job.started)
    assert plumbline("jobs")[1].split()[2] != "running"


def test_a_zombie_does_not_run(monkeypatch):
    child = subprocess.Popen(["true"], start_new_session=True)
    monkeypatch.setattr(os, "waitpid", lambda *_: (0, 0))  # as where it is no child of ours
    until(lambda: f"{child.pid} (true) Z" in Path(f"/proc/{child.pid}/stat").read_text())
    assert not works(child.pid, "")
    monkeypatch.undo()
    child.wait()


def test_the_values_of_secrets_are_blotted_out_of_what_is_shown(project, plumbline, monkeypatch):
    monkeypatch.setenv("PLB_TEST_TOKEN", "hunter2hunter2")
    broken = ("--set", "rl.steps=1", "--set", "task.options.gold=nothing")
    _, _, err = plumbline("submit", "tickets.yaml", *PROCESS, "--secret", "PLB_TEST_TOKEN", *broken)
    assert "the token is [PLB_TEST_TOKEN]" in err
    assert "hunter2hunter2" not in err
    assert "hunter2hunter2" not in (find("last").folder / "job.json").read_text()


def test_a_name_that_means_no_job_or_several_is_an_error(project, plumbline):
    code, _, err = plumbline("jobs", "follow", "nothing")
    assert (code, "there is no job called nothing" in err) == (1, True)
    assert plumbline("jobs")[:2] == (0, "")


def test_without_ray_the_command_names_the_extra(project, plumbline, monkeypatch):
    monkeypatch.setattr("plumbline.config.imports.find_spec", lambda name: None)
    code, _, err = plumbline("submit", "tickets.yaml")
    assert code == 1
    assert "needs ray, which is not installed" in err
    assert "pip install '.[ray]'" in err


def test_a_dry_run_prints_what_would_be_sent_and_sends_nothing(project, plumbline, unopened):
    code, out, _ = plumbline("submit", "tickets.yaml", "--on", "process", "--dry-run", "--json")
    said = json.loads(out)
    assert (code, said["fatal"], said["package"]) == (0, False, None)
    assert said["spec"]["recipe"] == "tickets.yaml"
    assert said["data"] == ["jsonl: train 16"]
    assert not (project / "runs").exists()
    assert not (project.parent / "jobs").exists()


@pytest.mark.parametrize("on", ["ray", "anyscale"])
def test_a_dry_run_says_what_is_wrong(project, plumbline, on):
    where = ("--on", on, "--out", "/mnt/shared/a") if on == "anyscale" else ()
    code, out, _ = plumbline("submit", "failure.yaml", *where, "--needs", "data/formfactory", "--dry-run")
    assert code == 1
    assert "left out: data/formfactory/app.py" in out
    assert "fatal: data/formfactory would not be sent" in out
    assert not (project / "runs").exists()


def test_what_is_sent_is_the_recipe_as_the_job_opens_it(project):
    spec, recipe = specify(recipe=str(project / "tickets.yaml"), on="process")
    assert (spec.recipe, spec.name) == ("tickets.yaml", recipe.name)


def test_a_job_whose_own_head_is_gone_is_unknown_and_breaks_no_list(project, plumbline):
    spec, _ = specify(recipe="tickets.yaml")
    gone = Head(pid=2**22 + 1, port=9, folder=str(project / "nowhere"))
    Job(spec=spec, sent="2026-01-01T00:00:00+00:00", head=gone).save()
    code, out, _ = plumbline("jobs")
    assert (code, out.split()[2], "the Ray head that was started for it is gone" in out) == (0, "unknown", True)
    assert plumbline("jobs", "follow", spec.id)[0] == 7
    assert plumbline("jobs", "stop", spec.id)[0] == 0
    assert plumbline("jobs", "stop", spec.id)[0] == 1, "once"


def test_a_job_whose_run_goes_to_an_address_has_the_result_that_is_published_there(project, plumbline, tmp_path):
    code, _, err = plumbline("submit", "tickets.yaml", *PROCESS, "--out", f"file://{tmp_path}/published")
    assert code == 0, err
    assert "succeeded (engine and record agree" in err
    assert not (tmp_path / "published" / "result.json").exists()  # it lies among the objects, by its hash


def test_a_damaged_result_ends_a_job_and_is_said(project, plumbline, monkeypatch):
    honest = follow.judge

    def judge(job, state, log, out, here):
        (Path(out) / "result.json").write_text("{")
        return honest(job, state, log, out, here)

    monkeypatch.setattr(follow, "judge", judge)
    code, _, err = plumbline("submit", "tickets.yaml", *PROCESS)
    assert code == 5
    assert "produced nothing (its result is damaged: " in err
    assert plumbline("jobs")[0] == 0


# -- processes and heads that are not there any more, or not ours --------------------------------------------------


@pytest.fixture
def sleeper():
    """A process that leads a group, as a job and a head do."""
    process = subprocess.Popen(["sleep", "60"], start_new_session=True)
    yield process
    process.kill()
    process.wait()


def test_a_process_that_was_given_the_number_of_another_is_not_signalled(project, sleeper):
    spec, _ = specify(recipe="tickets.yaml", on="process")
    job = Job(spec=spec, sent="", pid=sleeper.pid, started="before")
    (project / "head").mkdir()
    (project / "head" / "token").touch()
    process.stop(job)
    stop_head(Head(pid=sleeper.pid, port=9, folder=str(project / "head"), started="before"))
    assert (process.state(job).status, sleeper.poll()) == ("failed", None)
    process.stop(Job(spec=spec, sent="", pid=sleeper.pid, started=started(sleeper.pid)))
    assert started(sleeper.pid) == ""


@pytest.mark.parametrize(
    ("out", "status", "kept"),
    [("s3://bucket/run", "failed", True), ("s3://bucket/run", "succeeded", False), ("run", "failed", False)],
)
def test_the_folder_of_a_head_is_kept_where_a_run_may_lie_in_it_alone(project, sleeper, monkeypatch, out, status, kept):
    """A run at an address works below it, and one that did not end well may not all have been published."""
    spec, _ = specify(recipe="tickets.yaml", out=out)
    folder = project / "head"
    folder.mkdir()
    (folder / "token").touch()
    head = Head(pid=sleeper.pid, port=9, folder=str(folder), started=started(sleeper.pid))
    job = Job(spec=spec, sent="", head=head).save()
    monkeypatch.setattr(ray_jobs, "state", lambda job: State(status=status, code=0))
    monkeypatch.setattr(ray_jobs, "logs", lambda job: "")
    succeeded = follow.Outcome(ended="succeeded", why="", engine="succeeded")
    if status == "succeeded":
        monkeypatch.setattr(follow, "judge", lambda *_: succeeded)
    follow.settle(job)
    assert (sleeper.wait(timeout=10) is not None, folder.exists()) == (True, kept)


def test_a_head_has_as_many_processors_as_the_recipe_has_workers(project, monkeypatch):
    asked = []

    def start(environment, cpus, say):
        asked.append(cpus)
        raise EngineError("no head")

    monkeypatch.setattr(follow, "start_head", start)
    monkeypatch.setattr(follow, "check_back_end", lambda spec: None)
    for overrides in (("scale.verdicts=600", "scale.learners=3"), ()):
        spec, _ = specify(recipe="tickets.yaml", overrides=overrides, cpus=1.5)
        with pytest.raises(EngineError, match="no head"):
            follow.send(spec, print)
    assert asked == [604, max(2, os.cpu_count())]


def test_what_is_wrong_with_a_job_stands_a_cause_a_line():
    one, two = (Finding("files", "fatal", f"{name} would not be sent", fix="take it back") for name in ("a", "b"))
    with pytest.raises(RunError) as refused:
        checks.refuse(Examined(findings=(one, two), package=None, looked_at=()))
    assert refused.value.cause.endswith("sent:\n    a would not be sent (files)\n    b would not be sent (files)")
    assert refused.value.fix.splitlines()[1:] == ["    take it back", f"    {checks.UNCHECKED}"]
    with pytest.raises(RunError, match=r"not sent: a would not be sent \(files\)\n"):
        checks.refuse(Examined(findings=(one,), package=None, looked_at=()))
