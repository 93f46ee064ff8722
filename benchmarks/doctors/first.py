"""Whether our first finding of each planted fault is the planted one, and its first cause, too.

    python -m benchmarks.doctors.first FOLDER

Of the runs that `python -m benchmarks.doctors FOLDER` made; what is expected is in `faults.yaml`,
under `first`, in codes. `cause` there judges sentences, of all doctors alike.
"""

import sys
from pathlib import Path

import yaml

from benchmarks.doctors import our_jobs, trl_jobs
from benchmarks.doctors.look import Case, read
from benchmarks.doctors.table import FOLDER
from plumbline.checks.check import examine
from plumbline.checks.diagnosis.rules import CHECKS


def main() -> None:
    folder = Path(sys.argv[1])
    faults = yaml.safe_load((FOLDER / "faults.yaml").read_text())
    jobs = [*trl_jobs.jobs(folder / "models"), *our_jobs.jobs(folder / "models")]
    found, named, caused = 0, 0, 0
    for job in jobs:
        run = folder / "runs" / job.name
        if not job.fault or not run.is_dir():
            continue
        case = Case("planted", job.name, job.trainer, run, {}, stage=job.stage)
        findings = examine(read(case), CHECKS).findings
        first = next((one for one in findings if one.level != "note"), None)
        wanted = faults[job.fault]["first"]
        found += 1
        named += first is not None and first.check in wanted
        right = (
            first is not None
            and first.causes[:1]
            and first.causes[0] in wanted.get(first.check, ())
        )
        caused += bool(right)
        if not right:
            said = "nothing" if first is None else f"{first.check}: {', '.join(first.causes)}"
            print(f"{job.name}: {said}; wanted {wanted}")
    print(
        f"{found} runs: the first finding is the planted one in {named}, its first cause in {caused}"
    )


if __name__ == "__main__":
    main()
