"""Healthy and broken runs of two trainers, and what four doctors say of each of them.

    python -m benchmarks.doctors FOLDER [--doctors ENVIRONMENT] [--seeds-from N] [--only NAME ...] [--list]

Trains every run that FOLDER has not (so it can be stopped and started again), examines all of them,
asks the other doctors where their environment is named, and prints a Markdown table, also to
FOLDER/table.md. The environment:

    python -m venv ENVIRONMENT
    ENVIRONMENT/bin/pip install runmedic==0.1.1 provenir==0.8.0 pydantic transformers \
        git+https://github.com/microsoft/post-training-toolkit@7ab985521a548dd56252e8e9411a77c68fc46501

The package of that name on PyPI is an empty placeholder, and the real one imports transformers,
though no torch.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "passive")
# two threads on tiny matrices wait for each other more than they work
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["CUDA_VISIBLE_DEVICES"] = ""

from benchmarks.doctors import our_jobs, trl_jobs
from benchmarks.doctors.job import Job
from benchmarks.doctors.look import SAID, as_trainer_state, look, said, unusual
from benchmarks.doctors.table import OTHERS, table


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument(
        "--doctors",
        type=Path,
        help="environment of the other doctors; without it they are not asked",
    )
    parser.add_argument(
        "--only", nargs="+", metavar="NAME", help="runs whose names contain one of these"
    )
    parser.add_argument(
        "--seeds-from",
        type=int,
        default=0,
        metavar="N",
        help="add N, so many hundred, to every seed",
    )
    parser.add_argument("--list", action="store_true", help="name the runs and make none")
    arguments = parser.parse_args()
    models = arguments.folder / "models"
    more = arguments.seeds_from
    jobs = sorted(
        [*trl_jobs.jobs(models, more), *our_jobs.jobs(models, more)], key=lambda job: not job.fault
    )
    if arguments.only:
        jobs = [job for job in jobs if any(part in job.name for part in arguments.only)]
    if arguments.list:
        print("\n".join(job.name for job in jobs))
        return
    began = time.perf_counter(), time.process_time()
    failed = {}
    for number, job in enumerate(jobs, 1):
        try:
            seconds = _made(job, arguments.folder / "runs" / job.name)
            print(
                f"[{number}/{len(jobs)}] {job.name}: {seconds:.0f} s", file=sys.stderr, flush=True
            )
        except Exception as error:  # noqa: BLE001 - the others are made all the same
            failed[job.name] = f"{type(error).__name__}: {error}"
            print(
                f"[{number}/{len(jobs)}] {job.name} FAILED: {failed[job.name]}",
                file=sys.stderr,
                flush=True,
            )
    jobs = [job for job in jobs if job.name not in failed]
    trained = time.process_time()
    seen = []
    for number, job in enumerate(jobs, 1):
        seen.append(look(job, arguments.folder / "runs" / job.name))
        print(f"\rexamined {number}/{len(jobs)}", end="", file=sys.stderr, flush=True)
    examined = time.process_time()
    print("\nasking the others", file=sys.stderr, flush=True)
    answers = _asked(jobs, arguments.folder, arguments.doctors)
    lines = list(table(seen, answers, _trainers(jobs, arguments.folder)))
    (arguments.folder / "table.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))
    wall = time.perf_counter() - began[0]
    print(
        f"\n{wall / 60:.1f} minutes; of CPU {(trained - began[1]) / 60:.1f} to train, "
        f"{examined - trained:.0f} s to "
        f"examine the records up to each of {sum(one.steps for one in seen)} steps",
        file=sys.stderr,
    )
    if failed:
        sys.exit(f"{len(failed)} runs could not be made: {failed}")


def _made(job: Job, folder: Path) -> float:
    """Make a run where it is not there, with all that it says in a file; the seconds that it
    took."""
    if (folder / SAID).is_file():
        return 0.0
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    began = time.perf_counter()
    output = folder.with_name(f"{folder.name}.{SAID}")
    with _everything_into(output):
        job.make(folder)
    output.rename(folder / SAID)
    return time.perf_counter() - began


@contextmanager
def _everything_into(path: Path) -> Iterator[None]:
    """Standard output and error of this process, of libraries' loggers and of C too, into a
    file."""
    sys.stdout.flush()
    sys.stderr.flush()
    kept = os.dup(1), os.dup(2)
    with path.open("wb") as file:
        try:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
            with warnings.catch_warnings():
                warnings.simplefilter("always")
                yield
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            for number, old in enumerate(kept, 1):
                os.dup2(old, number)
                os.close(old)


def _asked(jobs: Sequence[Job], folder: Path, doctors: Path | None) -> dict[str, dict[str, Any]]:
    if doctors is None:
        return {job.name: {name: [] for name in (*OTHERS, "ptt, by its callback")} for job in jobs}
    told = [
        as_trainer_state(job, folder / "runs" / job.name, folder / "told" / job.name)
        for job in jobs
    ]
    script = Path(__file__).with_name("ask.py")
    answer = subprocess.run(
        [doctors / "bin" / "python", script],
        input=json.dumps(told),
        capture_output=True,
        text=True,
        check=False,
    )
    if answer.returncode:
        sys.exit(f"the other doctors broke down:\n{answer.stderr[-2000:]}")
    return json.loads(answer.stdout[answer.stdout.index("{") :])


def _trainers(jobs: Sequence[Job], folder: Path) -> dict[str, list[str]]:
    """Of each run what its trainer said that no healthy run of that trainer did."""
    lines = {job.name: said(job, folder / "runs" / job.name) for job in jobs}
    healthy = {
        trainer: {
            line
            for job in jobs
            if not job.fault and job.trainer == trainer
            for line in lines[job.name]
        }
        for trainer in ("trl", "plumbline")
    }
    return {job.name: unusual(lines[job.name], healthy[job.trainer]) for job in jobs}


if __name__ == "__main__":
    main()
