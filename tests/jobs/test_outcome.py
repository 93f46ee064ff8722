"""What a job came to, from what its engine says and what it left."""

import hashlib
import json
import sys
from types import SimpleNamespace

import pytest

from plumbline.errors import EngineError
from plumbline.jobs.backends import State
from plumbline.jobs.follow import CODES, event_line, judge_outcome, refresh_job, send_job
from plumbline.jobs.job import JobSpec, SentJob, list_jobs

OK, BAD = State(status="succeeded", code=0), State(status="failed", code=1, message="exit code 1")


@pytest.fixture
def out(tmp_path):
    (tmp_path / "result.json").write_text(json.dumps({"status": "finished"}))
    return tmp_path


def log(out, *, began=True, status=None, words="", job="a", **facts):
    digest = hashlib.sha256((out / "result.json").read_bytes()).hexdigest()
    lines = [event_line(job, "began")] if began else []
    lines += [words] if words else []
    if status is not None:
        lines.append(event_line(job, "ended", **{"status": status, "result": digest, **facts}))
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("state", "said_so", "ended"),
    [
        (OK, {"status": "finished"}, "succeeded"),
        (OK, {"words": "FormFactory app.py not found"}, "produced nothing"),
        (OK, {"began": False}, "produced nothing"),
        (OK, {"status": "finished", "job": "another"}, "produced nothing"),
        (OK, {"status": "finished", "result": "another"}, "produced nothing"),
        (State(status="failed", code=5), {"status": "nothing"}, "produced nothing"),
        (BAD, {"status": "failed", "why": "no records"}, "failed"),
        (BAD, {"words": "error: out of memory"}, "failed"),
        (BAD, {"status": "finished"}, "failed"),
        (BAD, {"began": False}, "never started"),
        (
            State(status="failed", code=4),
            {"began": False, "status": "never started", "why": "no X"},
            "never started",
        ),
        (State(status="stopped"), {}, "stopped"),
        (State(status="stopped"), {"status": "finished"}, "stopped"),
        (BAD, {"status": "stopped", "why": "a rule"}, "stopped"),
        (State(status="running"), {}, "unknown"),
        (State(status="unknown", message="gone"), {"status": "finished"}, "unknown"),
    ],
)
def test_engine_and_record_must_agree(out, state, said_so, ended):
    outcome = judge_outcome("a", state, log(out, **said_so), str(out), here=True)
    assert outcome.ended == ended, outcome
    assert outcome.why


def test_the_last_words_are_the_reason_where_the_job_gave_none(out):
    outcome = judge_outcome(
        "a", OK, log(out, words="FormFactory app.py not found"), str(out), here=True
    )
    assert outcome.why.endswith(": FormFactory app.py not found")
    assert (
        judge_outcome("a", BAD, log(out, words="error: x\nbye"), str(out), here=True).why
        == "error: x"
    )


def test_a_folder_that_cannot_be_seen_from_here_is_taken_on_the_jobs_word(out):
    told = log(out, status="finished")
    (out / "result.json").unlink()
    assert judge_outcome("a", OK, told, str(out), here=False).ended == "succeeded"
    assert judge_outcome("a", OK, told, str(out), here=True).ended == "produced nothing"
    assert judge_outcome("a", OK, told, "s3://bucket/run", here=True).ended == "succeeded"


def test_each_outcome_has_an_exit_status_of_its_own():
    assert len(set(CODES.values())) == len(CODES)
    assert CODES["succeeded"] == 0
    assert not set(CODES.values()) & {1, 2, 130, 141}, "those of plumbline.cli.exits"


# -- what a foreign dashboard answers --------------------------------------------------------------

ODD = "\x1b[31mred\x07\n\u202eend\x9b"


@pytest.fixture
def dashboard(monkeypatch, tmp_path):
    """What Ray's client answers: an exception is raised, anything else is given."""
    answers = {
        "submit_job": "id",
        "get_job_info": TypeError("JobDetails() got an unexpected keyword 'x'"),
        "get_job_logs": "",
    }

    class Client:
        def __init__(self, address):
            self.address = address

        def __getattr__(self, name):
            def answer(*_, **__):
                if isinstance(answers[name], Exception):
                    raise answers[name]
                return answers[name]

            return answer

    monkeypatch.setenv("PLUMBLINE_JOBS", str(tmp_path / "jobs"))
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace())
    monkeypatch.setitem(
        sys.modules, "ray.job_submission", SimpleNamespace(JobSubmissionClient=Client)
    )
    monkeypatch.setattr("plumbline.jobs.backends.check_installed", lambda *_: None)
    return answers


def ray_job(name="a"):
    spec = JobSpec(
        id=name, name=name, on="ray", recipe="r.yaml", out="s3://b/r", address="http://127.0.0.1:1"
    )
    return SentJob(spec=spec, sent="2026-01-01").save()


@pytest.mark.parametrize(
    "error",
    [
        TypeError("a key more"),
        KeyError("a key less"),
        AttributeError("a list"),
        ValueError("<html>" * 10**6),
    ],
)
def test_a_dashboard_that_answers_something_else_is_one_error(dashboard, error):
    dashboard |= dict.fromkeys(("submit_job", "get_job_info", "get_job_logs"), error)
    with pytest.raises(EngineError, match=r"http://127\.0\.0\.1:1") as raised:
        send_job(ray_job().spec, lambda _: None)
    assert len(str(raised.value)) < 1000
    assert refresh_job(ray_job("b"))[0] == "unknown"


@pytest.mark.parametrize(
    "info",
    [[], "x", {}, {"status": ["x"], "message": 3, "driver_exit_code": "x"}, {"status": "NEW"}],
)
def test_a_state_that_ray_does_not_have_yet_is_unknown(dashboard, info):
    dashboard["get_job_info"] = (
        SimpleNamespace(**{"message": "", "driver_exit_code": None, **info})
        if isinstance(info, dict)
        else info
    )
    assert refresh_job(ray_job())[0] == "unknown"


@pytest.mark.parametrize(
    "facts",
    [
        '"rewards": {"a": 1e999, "b": NaN, "c": -0.5, "d": 1%s, "e": "x", "\\ud800": 1}'
        % ("0" * 400),
        '"rewards": [1]',
        '"rewards": 3, "result": {"a": [1e999]}, "why": ["\\u001b[31m"]',
        '"rewards": %s' % ("[" * 10000),
    ],
)
def test_whatever_a_jobs_log_says_it_is_listed_afterwards(dashboard, plumbline, facts):
    line = f'plumbline-job: {{"job": "a", "event": "ended", "status": "finished", {facts}}}'
    dashboard["get_job_logs"] = (
        f'{ODD}\n\ud800\nplumbline-job: {{"job": "a", "event": [1]}}\n{line}\n{ODD}'
    )
    dashboard["get_job_info"] = SimpleNamespace(status="SUCCEEDED", message=ODD, driver_exit_code=0)
    ray_job()
    for _ in range(2):
        for command in (
            ("jobs",),
            ("jobs", "--json"),
            ("jobs", "follow", "a"),
            ("jobs", "follow", "a", "--json"),
        ):
            status, out, err = plumbline(*command)
            assert status in {0, 5}
            assert not set(ODD) - set("[31mred\nend") & set(out + err)
    assert set(list_jobs()[0].outcome.rewards) <= {"c", "?"}


def test_a_damaged_record_hides_no_other_job(dashboard, plumbline, tmp_path):
    ray_job()
    for number, text in enumerate(
        ("", "[]", "{}", '{"spec": {"id": "a"}}', (ray_job().folder / "job.json").read_text())
    ):
        folder = tmp_path / "jobs" / f"bad-{number}"
        folder.mkdir()
        (folder / "job.json").write_text(text)
    status, out, err = plumbline("jobs")
    assert (status, out.split()[:3]) == (0, ["a", "ray", "unknown"])
    assert err.count("; remove ") == 5
    old = json.loads((ray_job().folder / "job.json").read_text())
    old["outcome"] = {
        "ended": "succeeded",
        "why": ODD,
        "engine": ODD,
        "facts": {"rewards": {"a": float("inf")}},
    }
    (ray_job().folder / "job.json").write_text(json.dumps(old))
    assert plumbline("jobs", "--json")[0] == 0
    assert "\x1b" not in plumbline("jobs")[1]
