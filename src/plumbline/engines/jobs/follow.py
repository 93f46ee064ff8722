"""A job from its specification to its end: refused or sent, shown while it goes on, judged, stopped."""

import os
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from math import ceil
from pathlib import Path

from plumbline.config.imports import check_installed
from plumbline.engines.jobs import process, ray_jobs
from plumbline.engines.jobs.outcome import PREFIX, Outcome, State, judge, said
from plumbline.engines.jobs.ray_jobs import ours, start_head, stop_head
from plumbline.engines.jobs.spec import JobSpec
from plumbline.engines.jobs.store import Job, started
from plumbline.errors import DataError, EngineError, RunError
from plumbline.runs.remote import is_address
from plumbline.storage import read_text, write_text

Say = Callable[[str], None]
SHORTEST = 4
"""Letters of a secret's value from which on it is blotted out: shorter ones would blot out ordinary words."""
AFTER_THE_LOG = 60.0
"""Seconds after a log's end in which an engine has to say what became of its job."""


def check_back_end(spec: JobSpec) -> None:
    """Ask for what the back end needs of this machine.

    Raises:
        ModelError: names the extra that brings it.
    """
    if spec.on == "ray":
        check_installed("a job on Ray (--on process needs none)", ("ray",))


def send(spec: JobSpec, say: Say) -> Job:
    """Send a job to its process or its cluster, and record it.

    Raises:
        EngineError: it was not taken; a head that was started for it is stopped again.
        ModelError: there is no Ray.
    """
    check_back_end(spec)
    job = Job(spec=spec, sent=datetime.now(UTC).isoformat(timespec="seconds")).save()
    try:
        if spec.on == "process":
            pid = process.send(job)
            return replace(job, pid=pid, started=started(pid)).save()
        if spec.own_head:
            cpus = max(os.cpu_count() or 1, spec.workers + ceil(spec.cpus or 0))
            head = start_head({**os.environ, **spec.env}, cpus, say=say)
            job = replace(job, head=head).save()
        say(f"sending {spec.working_dir} to {job.head.address if job.head else spec.address}")
        ray_jobs.send(job)
    except BaseException as error:
        if job.head is not None:
            stop_head(job.head)
        outcome = Outcome(ended="never started", why=f"it was not sent: {error}".split("\n")[0], engine="unknown")
        replace(job, outcome=outcome, head=None).save()
        raise
    return job


def state(job: Job) -> State:
    """What its engine says of it now."""
    if job.spec.on == "process":
        return process.state(job)
    if job.spec.own_head and (job.head is None or not ours(job.head)):
        return State(status="unknown", message="the Ray head that was started for it is gone")
    return ray_jobs.state(job)


def follow(job: Job, show: Say, say: Say) -> Outcome:
    """Show what a job prints until it is over, and judge it. To interrupt this leaves the job as it is.

    Args:
        job: that was sent.
        show: is given pieces of its log, secrets blotted out.
        say: is told what the log does not: that the job waits, for what.

    Raises:
        EngineError: its cluster does not answer any more.
        DataError: the result that it left is damaged.
    """
    if job.outcome is not None:
        log = read_text(job.log) if job.log.is_file() else ""
        show(_blotted(job, _clean(log.partition(f"{said(job.spec.id, 'summary')}\n")[0])))
        return job.outcome
    if job.spec.on == "ray":
        _await_start(job, say)
        if state(job).status == "unknown":
            return settle(job)
    rest, held, mark = "", "", f"{said(job.spec.id, 'summary')}\n"
    for text in process.follow(job) if job.spec.on == "process" else ray_jobs.follow(job):
        rest += text
        whole, rest = rest[: rest.rfind("\n") + 1], rest[rest.rfind("\n") + 1 :]  # no secret is cut in two
        before, found, after = ("", "", whole) if held else whole.partition(mark)
        held += found + after
        if shown := _clean(before):
            show(_blotted(job, shown))
    outcome = settle(job)
    if outcome.ended != "succeeded" or reachable(job) is None:  # else whoever asked prints the summary
        show(_blotted(job, _clean(held + rest)))
    return outcome


def _await_start(job: Job, say: Say) -> None:
    """Say now and then why a job is still waiting."""
    last, when = "", time.monotonic()
    while (now := state(job)).status == "pending":
        if now.message != last and time.monotonic() - when > 5:
            last = now.message
            say(f"waiting: {last}")
        time.sleep(0.3)


def settle(job: Job) -> Outcome:
    """Judge a job whose log has ended, record that, and stop the head that was started for it."""
    now, until = state(job), time.monotonic() + AFTER_THE_LOG
    while now.status in {"pending", "running"} and time.monotonic() < until:
        time.sleep(0.2)
        now = state(job)
    try:
        outcome = judge(job.spec.id, now, _blotted(job, _log(job)), job.spec.out, job.spec.here)
    except DataError as error:  # the job is over all the same, and so is its head
        outcome = Outcome(ended="produced nothing", why=f"its result is damaged: {error.cause}", engine=now.status)
    if now.over:
        replace(job, outcome=outcome).save()
        if job.head is not None:  # a run at an address works below its folder, and may not all have been published
            stop_head(job.head, keep=outcome.ended != "succeeded" and is_address(job.spec.out))
    return outcome


def _log(job: Job) -> str:
    if job.spec.on == "ray":
        try:
            write_text(job.log, _blotted(job, ray_jobs.logs(job)))
        except EngineError:
            return ""
    return read_text(job.log) if job.log.is_file() else ""


def refresh(job: Job) -> tuple[str, str]:
    """How a job stands, in a word, and why; one that has ended since is judged and recorded."""
    if job.outcome is None and (now := state(job)).status in {"pending", "running", "unknown"}:
        return now.status, now.message if now.status != "running" else ""
    outcome = job.outcome or settle(job)
    return outcome.ended, outcome.why if outcome.ended != "succeeded" else ""


def stop(job: Job) -> Outcome:
    """End a job, and its head if it was started for it.

    Raises:
        RunError: it is over.
        EngineError: its cluster does not answer, or does not end it.
    """
    if job.outcome is not None:
        raise RunError(f"{job.spec.id} is over: {job.outcome.ended}", "`plumbline jobs` lists those that are not")
    if job.spec.on == "process":
        process.stop(job)
    elif job.spec.own_head and (job.head is None or not ours(job.head)):
        outcome = Outcome(ended="unknown", why="the Ray head that was started for it is gone", engine="unknown")
        replace(job, outcome=outcome).save()
        return outcome
    elif not ray_jobs.state(job).over:
        ray_jobs.stop(job)
    return settle(job)


def _clean(text: str) -> str:
    """A log without the lines by which the submitter knows the job, and without Ray's own."""
    return "".join(line for line in text.splitlines(keepends=True) if not _not_for_people(line))


def _not_for_people(line: str) -> bool:
    return line.startswith((PREFIX, "Running entrypoint for job ")) or " job_manager.py:" in line


def _blotted(job: Job, text: str) -> str:
    """A log in which the values of the job's secrets, as far as they are known here, are replaced by their names."""
    for name in job.spec.secrets:
        value = os.environ.get(name, "")
        if len(value) >= SHORTEST:
            text = text.replace(value, f"[{name}]")
    return text


def reachable(job: Job) -> Path | None:
    """The folder of a job's run, where it can be read from here."""
    out = job.spec.out
    return None if is_address(out) or not (Path(out) / "recipe.yaml").is_file() else Path(out)
