"""A job from its specification to its engine: refused, or sent and recorded."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from math import ceil

from plumbline.config.imports import check_installed
from plumbline.engines.jobs import process, ray_jobs
from plumbline.engines.jobs.checks import UNCHECKED, Examined
from plumbline.engines.jobs.follow import Say
from plumbline.engines.jobs.head import start_head, stop_head
from plumbline.engines.jobs.outcome import Outcome
from plumbline.engines.jobs.spec import JobSpec
from plumbline.engines.jobs.store import Job, started
from plumbline.errors import RunError
from plumbline.reports.findings import text_of


def refuse(examined: Examined) -> None:
    """Refuse to send a job in which something fatal was found, or that would need a consent that it is not given.

    Raises:
        RunError: says all of it, a cause a line.
    """
    fatal = [finding for finding in examined.findings if finding.level == "fatal" or finding.check == "code"]
    if fatal:
        found = _lines([f"{finding.what} ({finding.check})" for finding in fatal])
        advice = _lines([*dict.fromkeys(finding.fix for finding in fatal if finding.fix), UNCHECKED])
        raise RunError(f"this job would come to nothing, and was not sent:{found}", advice.removeprefix(" "))


def _lines(texts: Sequence[str]) -> str:
    """One text as it is, several on a line each."""
    return f" {texts[0]}" if len(texts) == 1 else "".join(f"\n    {text}" for text in texts)


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


def findings_said(examined: Examined) -> Iterator[str]:
    """Findings, a text each."""
    for finding in examined.findings:
        yield text_of(finding, ours=True).plain
