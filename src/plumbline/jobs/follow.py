"""A job from its sending to its end: shown while it goes on, stopped, and judged by what its engine
says and what its run left, put together. Neither is believed alone.

A job's own lines in its log (`event_line`) carry its id, so that the result of an earlier run in
the same folder is never taken for this job's:

    plumbline-job: {"job": "mine-1123-034500-1a2b", "event": "began", ...}
    plumbline-job: {"job": "mine-1123-034500-1a2b", "event": "ended", "status": "finished", ...}
"""

import json
import os
import re
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from plumbline.errors import DataError, PlumblineError, RunError, make_visible
from plumbline.jobs.backends import ProcessJob, State, open_backend
from plumbline.jobs.job import Ended, JobOutcome, JobSpec, SentJob
from plumbline.runs.remote import is_address
from plumbline.storage import dumps, one_line, read_object, sha256_of, write_text

PREFIX = "plumbline-job: "
NOISE = (PREFIX, "Running entrypoint for job ")
"""Lines of a log that are not for people: those by which the submitter knows the job, and Ray's
own."""
CODES: Mapping[Ended, int] = {
    "succeeded": 0,
    "failed": 3,
    "never started": 4,
    "produced nothing": 5,
    "stopped": 6,
    "unknown": 7,
}
"""Exit statuses of `plumbline submit` and `plumbline jobs follow`, beside those of
`plumbline.cli.exits`."""
COLOUR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
LOOK, MOST_LOST = 0.5, 5
"""Seconds between looks at a job, and how many in a row its cluster may leave unanswered."""
WAITS = 5.0
"""Seconds after which it is said why a job has not begun."""
ENDS = 60.0
"""Seconds that an engine has to end a job."""
SHORTEST = 4
"""Letters of a secret's value from which on it is blotted out: shorter ones would blot out ordinary
words."""

Say = Callable[[str], None]


def send_job(spec: JobSpec, say: Say) -> SentJob:
    """Send a job to its process or its cluster, and record it.

    Raises:
        EngineError: it was not taken.
        ModelError: there is no Ray.
    """
    job = SentJob(spec=spec, sent=datetime.now(UTC).isoformat(timespec="seconds")).save()
    if spec.on == "ray":
        say(f"sending {spec.working_dir} to {spec.address}")
    try:
        return job.save(pid=open_backend(job).send())
    except BaseException as error:
        why = f"it was not sent: {error}".split("\n")[0]
        job.save(outcome=JobOutcome(ended="never started", why=why, engine="unknown"))
        raise


def follow_job(job: SentJob, show: Say, say: Say) -> JobOutcome:
    """Show what a job prints, from its beginning, until it is over, and judge it. To interrupt this
    leaves it as it is.

    Args:
        job: that was sent.
        show: is given pieces of its log, secrets blotted out.
        say: is told what the log does not: that the job waits, for what.
    """
    if job.outcome is not None:
        show(_clean_log(job, ProcessJob(job).log()))
        return job.outcome
    engine, shown, lost, began, waits = open_backend(job), 0, 0, time.monotonic(), ""
    while True:
        now, log = engine.state(), engine.log()
        lost = lost + 1 if now.status == "unknown" else 0
        if now.is_over or lost > MOST_LOST:
            break
        if now.status == "pending" and now.message != waits and time.monotonic() - began > WAITS:
            waits = now.message
            say(f"waiting: {waits}")
        text = _clean_log(job, log[: log.rfind("\n") + 1])  # no secret is cut in two
        show(text[shown:])
        shown = max(shown, len(text))
        time.sleep(LOOK)
    outcome = settle_job(job, now, log)
    # the summary, by whoever asked
    printed = outcome.ended == "succeeded" and find_run_folder(job) is not None
    show(_clean_log(job, log, summary=not printed)[shown:])
    return outcome


def settle_job(job: SentJob, now: State, log: str) -> JobOutcome:
    """Judge a job, and record that where it is over."""
    outcome = judge_outcome(
        job.spec.id, now, _hide_secrets(job, log), job.spec.out, job.spec.is_local
    )
    if now.is_over:
        if job.spec.on == "ray":
            write_text(job.log, _hide_secrets(job, log))
        job.save(outcome=outcome)
    return outcome


def refresh_job(job: SentJob) -> tuple[str, str]:
    """How a job stands, in a word, and why; one that has ended since is judged and recorded."""
    outcome, engine = job.outcome, open_backend(job)
    if outcome is None:
        try:
            now = engine.state()
            if not now.is_over:
                return now.status, now.message if now.status != "running" else ""
            outcome = settle_job(job, now, engine.log())
        # no Ray, a file that is gone: the other jobs are listed, too
        except (PlumblineError, OSError) as error:
            return "unknown", one_line(error)
    return outcome.ended, outcome.why if outcome.ended != "succeeded" else ""


def stop_job(job: SentJob) -> JobOutcome:
    """End a job.

    Raises:
        RunError: it is over.
        EngineError: its cluster does not answer.
    """
    if job.outcome is not None:
        raise RunError(
            f"{job.spec.id} is over: {job.outcome.ended}",
            "`plumbline jobs` lists those that are not",
        )
    engine, until = open_backend(job), time.monotonic() + ENDS
    engine.stop()
    while not (now := engine.state()).is_over and time.monotonic() < until:
        time.sleep(LOOK)
    return settle_job(job, now, engine.log())


def _clean_log(job: SentJob, log: str, *, summary: bool = False) -> str:
    """A log for people, with or without the summary that the run printed at its end."""
    shown = log if summary else log.partition(f"{event_line(job.spec.id, 'summary')}\n")[0]
    lines = COLOUR.sub("", shown).replace("\r", "\n").splitlines(keepends=True)
    lines = [one for one in lines if not one.startswith(NOISE) and " job_manager.py:" not in one]
    return make_visible(_hide_secrets(job, "".join(lines)))


def _hide_secrets(job: SentJob, text: str) -> str:
    """A log in which the values of the job's secrets, as far as they are known here, are replaced
    by their names."""
    for name in job.spec.secrets:
        value = os.environ.get(name, "")
        if len(value) >= SHORTEST:
            text = text.replace(value, f"[{name}]")
    return text


def find_run_folder(job: SentJob) -> Path | None:
    """The folder of a job's run, where it can be read from here."""
    out = job.spec.out
    return None if is_address(out) or not (Path(out) / "recipe.yaml").is_file() else Path(out)


# -- what a job came to ----------------------------------------------------------------------------


def event_line(job: str, event: str, **facts: Any) -> str:
    """A line of a job's log by which the submitter knows it."""
    return PREFIX + dumps({"job": job, "event": event, **facts})


def read_result(folder: Path) -> tuple[dict[str, Any] | None, str]:
    """The result that lies in a run's folder and the hash of its file; None where there is none.

    Raises:
        DataError: it is damaged.
    """
    path = folder / "result.json"
    return (read_object(path), sha256_of(path)) if path.is_file() else (None, "")


def judge_outcome(job: str, state: State, log: str, out: str, here: bool) -> JobOutcome:
    """What a job came to that is over, as far as its engine is concerned.

    Args:
        job: its id.
        state: what the engine says.
        log: all that it printed.
        out: the run's folder.
        here: whether that folder can be read from this machine.
    """
    events = _read_events(job, log)
    began, ended = "began" in events, events.get("ended", {})
    status, why = str(ended.get("status", "")), str(ended.get("why", ""))
    engine = state.status if state.code is None else f"{state.status}, exit status {state.code}"

    def outcome(kind: Ended, why: str) -> JobOutcome:
        return JobOutcome(ended=kind, why=make_visible(one_line(why)), engine=engine, facts=ended)

    if not state.is_over:
        return outcome(
            "unknown", f"the engine says no more than {state.status}: {state.message or 'nothing'}"
        )
    if state.status == "stopped":
        return outcome("stopped", why or "it was told to stop")
    if status == "never started" or (not began and state.status == "failed"):
        return outcome("never started", why or state.message or "its command never ran")
    if status == "stopped":
        return outcome("stopped", why)
    if state.status == "failed" and status not in {"finished", "nothing"}:
        return outcome("failed", why or _last_words(log) or state.message)
    if not ended or status == "nothing":
        well = state.status == "succeeded"
        says = "the engine says that it succeeded" if well else "its process has ended"
        return outcome(
            "produced nothing", f"{says}, and the run left no result: {why or _last_words(log)}"
        )
    if state.status == "failed":
        return outcome(
            "failed", f"the run has a result, and its process ended badly: {state.message}"
        )
    if here and not is_address(out):
        try:
            found, digest = read_result(Path(out))
        except DataError as error:
            return outcome("produced nothing", f"its result is damaged: {error.cause}")
        if found is None or digest != ended.get("result"):
            what = "is not there" if found is None else "is another one than the job wrote"
            return outcome(
                "produced nothing", f"the job says finished, and {Path(out) / 'result.json'} {what}"
            )
    return outcome("succeeded", "engine and record agree")


def _read_events(job: str, log: str) -> dict[str, dict[str, Any]]:
    """What a job said of itself in its log, by event; the lines of other jobs left out."""
    found = {}
    for line in log.splitlines():
        with suppress(ValueError, AttributeError, KeyError, RecursionError):  # cut off by a kill
            if (
                line.startswith(PREFIX)
                and (one := json.loads(line.removeprefix(PREFIX))).get("job") == job
            ):
                found[str(one["event"])] = one
    return found


def _last_words(log: str) -> str:
    """The last error in a log, or else its last line."""
    lines = [
        line.strip() for line in log.splitlines() if line.strip() and not line.startswith(PREFIX)
    ]
    error = next((line for line in reversed(lines) if line.startswith("error:")), None)
    return error or (lines[-1] if lines else "it printed nothing")
