"""What a job came to, from what its engine says and what it left."""

import hashlib
import json

import pytest

from plumbline.engines.jobs.backends import State
from plumbline.engines.jobs.follow import CODES, judge, said

OK, BAD = State(status="succeeded", code=0), State(status="failed", code=1, message="exit code 1")


@pytest.fixture
def out(tmp_path):
    (tmp_path / "result.json").write_text(json.dumps({"status": "finished"}))
    return tmp_path


def log(out, *, began=True, status=None, words="", job="a", **facts):
    digest = hashlib.sha256((out / "result.json").read_bytes()).hexdigest()
    lines = [said(job, "began")] if began else []
    lines += [words] if words else []
    if status is not None:
        lines.append(said(job, "ended", **{"status": status, "result": digest, **facts}))
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
        (State(status="failed", code=4), {"began": False, "status": "never started", "why": "no X"}, "never started"),
        (State(status="stopped"), {}, "stopped"),
        (State(status="stopped"), {"status": "finished"}, "stopped"),
        (BAD, {"status": "stopped", "why": "a rule"}, "stopped"),
        (State(status="running"), {}, "unknown"),
        (State(status="unknown", message="gone"), {"status": "finished"}, "unknown"),
    ],
)
def test_engine_and_record_must_agree(out, state, said_so, ended):
    outcome = judge("a", state, log(out, **said_so), str(out), here=True)
    assert outcome.ended == ended, outcome
    assert outcome.why


def test_the_last_words_are_the_reason_where_the_job_gave_none(out):
    outcome = judge("a", OK, log(out, words="FormFactory app.py not found"), str(out), here=True)
    assert outcome.why.endswith("left no result: FormFactory app.py not found")
    assert judge("a", BAD, log(out, words="error: x\nbye"), str(out), here=True).why == "error: x"


def test_a_folder_that_cannot_be_seen_from_here_is_taken_on_the_jobs_word(out):
    told = log(out, status="finished")
    (out / "result.json").unlink()
    assert judge("a", OK, told, str(out), here=False).ended == "succeeded"
    assert judge("a", OK, told, str(out), here=True).ended == "produced nothing"
    assert judge("a", OK, told, "s3://bucket/run", here=True).ended == "succeeded"


def test_each_outcome_has_an_exit_status_of_its_own():
    assert len(set(CODES.values())) == len(CODES)
    assert CODES["succeeded"] == 0
    assert not set(CODES.values()) & {1, 2, 130, 141}, "those of plumbline.cli.exits"
