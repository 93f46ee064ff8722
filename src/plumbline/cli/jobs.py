"""The commands that send a run elsewhere and look after it: `plumbline submit`,
`plumbline jobs`."""

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

from typer import Argument, Context, Exit, Option, Typer

from plumbline.cli import options as take
from plumbline.cli.output import print_json, print_tables, print_text, print_to_stderr

if TYPE_CHECKING:
    from plumbline.jobs.job import JobOutcome, JobSpec, SentJob
    from plumbline.jobs.package import Examination

submit_app = Typer(cls=take.CommandGroup)
jobs_app = Typer(
    cls=take.CommandGroup,
    help="List the jobs that were submitted, follow them, stop them.",
    epilog=(
        "Examples: `plumbline jobs` · `plumbline jobs follow last` · `plumbline jobs stop "
        "mine-1123`"
    ),
)
JobName = Annotated[
    str, Argument(metavar="JOB", help="Its id, or how that begins; last is the newest.")
]


of_place, of_sent, of_cloud = (
    partial(Option, rich_help_panel=heading)
    for heading in ("Where it runs", "What is sent", "Anyscale")
)
ON = (
    "ray, process (on this machine) or anyscale; by default ray where an address is known, else "
    "process."
)
ADDRESS = "Of a Ray cluster's dashboard; auto finds one on this machine."
WORKING_DIR = "What is sent of: less what .gitignore and .rayignore name."
OUT = "The run's folder; on another machine one that all share, or an address."
NEEDS = "What your own code reads; refused where not sent."
THERE = "A place that the cluster has; not looked for here."
SECRETS = "A variable that the job needs; its value is never sent."
TO = "Where job.yaml goes, in a folder of its own."
DRY_RUN = "Send nothing: print what would be sent, where, and what is wrong."
UNSEEN = "Send it without looking; its outcome is judged all the same."
LOOKS = {
    "process": ("checking the job, by a dry run in its folder", "started"),
    "ray": ("checking what is to be sent, by a dry run in a copy of it", "sent"),
    "anyscale": ("checking what job.yaml is to name, by a dry run in a copy of it", "written"),
}
"""What is done before a job begins, and what is then done with it, by where it goes."""
OF_COMMAND = {"source", "to", "dry_run", "no_preflight", "detach", "trust_code", "as_json"}
"""Arguments of `plumbline submit` that are not the job's."""


@submit_app.command(
    rich_help_panel=take.CLUSTER,
    epilog="Examples: `plumbline submit mine.yaml` · `plumbline submit mine.yaml --dry-run` · "
    "`plumbline submit mine.yaml --address http://head:8265 --out /mnt/shared/runs/mine --secret "
    "HF_TOKEN` · "
    "`plumbline submit mine.yaml --on anyscale --out /mnt/shared_storage/mine --compute a10g`",
)
def submit(
    source: take.Recipe,
    overrides: take.Overrides = None,
    out: Annotated[str | None, Option(help=OUT)] = None,
    resume: take.Resume = False,
    on: Annotated[str | None, of_place(help=ON)] = None,
    address: Annotated[str | None, of_place(metavar="auto|URL", help=ADDRESS)] = None,
    cpus: Annotated[float | None, of_place(min=0, help="Cores for the job itself.")] = None,
    gpus: Annotated[float | None, of_place(min=0, help="GPUs for the job itself.")] = None,
    working_dir: Annotated[Path, of_sent(help=WORKING_DIR)] = Path(),
    excludes: Annotated[
        list[str], of_sent("--exclude", help="A pattern of what is not sent; repeatable.")
    ] = [],  # noqa: B006
    needs: Annotated[list[str], of_sent(metavar="PATH", help=NEEDS)] = [],  # noqa: B006
    there: Annotated[list[str], of_sent(metavar="PATH", help=THERE)] = [],  # noqa: B006
    env: Annotated[
        list[str],
        of_sent(metavar="NAME=VALUE", help="A variable that anybody may see; repeatable."),
    ] = [],  # noqa: B006
    secrets: Annotated[list[str], of_sent("--secret", metavar="NAME", help=SECRETS)] = [],  # noqa: B006
    requirements: Annotated[
        Path | None, of_sent(help="Pinned packages that the cluster installs first.")
    ] = None,
    image: Annotated[str | None, of_cloud(help="An image; else one is described.")] = None,
    compute: Annotated[str | None, of_cloud(help="A compute configuration's name.")] = None,
    timeout: Annotated[int | None, of_cloud(min=1, help="Seconds, then it ends.")] = None,
    to: Annotated[Path, of_cloud(help=TO)] = Path("runs/anyscale"),
    dry_run: Annotated[bool, Option("--dry-run", help=DRY_RUN)] = False,
    no_preflight: Annotated[bool, Option("--no-preflight", help=UNSEEN)] = False,
    detach: Annotated[
        bool, Option("--detach", help="Do not follow it; `plumbline jobs follow` does.")
    ] = False,
    trust_code: take.TrustCode = False,
    as_json: take.Json = False,
) -> None:
    """Run a recipe as a job: in a process of its own, on a Ray cluster, or on Anyscale.

    Before anything is sent, what the job would be given is looked at, and a dry run made in a copy
    of it. Its log is followed; Ctrl-C leaves it running. The exit status is 0 where engine and
    result agree that it is finished; 3 where it failed, 4 where it never started, 5 where it ran
    and left no result, 6 where it was stopped, 7 where nobody can tell, and 130 where you stopped
    watching.
    """
    asked = {name: value for name, value in locals().items() if name not in OF_COMMAND}
    from plumbline.jobs.follow import send_job
    from plumbline.jobs.job import specify_job
    from plumbline.jobs.package import Examination, examine_job, plan_files, refuse_job
    from plumbline.storage import clear_os_errors, write_text

    spec, recipe = specify_job(source, **asked)
    looks, done = LOOKS[spec.on]
    if not no_preflight:
        print_to_stderr(looks)
    examined = Examination() if no_preflight else examine_job(spec, recipe)
    folder = to.absolute() / spec.id
    files, command = plan_files(spec, recipe, folder) if spec.on == "anyscale" else ({}, "")
    if dry_run:
        _show_plan(spec, examined, files, command, as_json)
        raise Exit(examined.fatal)
    refuse_job(examined, done)
    for line in (*examined.looked_at, *examined.lines()):
        print_to_stderr(line)
    if spec.on == "anyscale":
        with clear_os_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            write_text(folder / name, text)
        written = [str(folder / name) for name in files]
        plain = {"job": spec.id, "files": written, "command": command}
        text = "\n".join([*written, f"send it with: {command}\n"])
        print_json(plain) if as_json else print_text(text)
        return
    job = send_job(spec, print_to_stderr)
    print_to_stderr(
        f"job {spec.id}: `plumbline jobs follow {spec.id}` shows it, `plumbline jobs stop "
        f"{spec.id}` ends it"
    )
    if not detach:
        _follow(job, as_json)
    print_json(_job_values(job)) if as_json else print(spec.id)


def _show_plan(
    spec: "JobSpec", examined: "Examination", files: dict[str, str], command: str, as_json: bool
) -> None:
    """What `--dry-run` prints."""
    import shlex

    from plumbline.checks.findings_output import finding_to_json
    from plumbline.jobs.backends import runtime_env

    package = examined.package
    if as_json:
        sent = None if package is None else {"files": package.files, "left_out": package.left_out}
        plan = {
            "spec": spec.model_dump(),
            "package": sent,
            "data": list(examined.looked_at),
            "findings": [finding_to_json(finding) for finding in examined.findings],
            "fatal": examined.fatal,
        }
        print_json(plan | ({"command": command, **files} if files else {}))
        return
    where = "the files below" if files else spec.address or "this machine"
    lines = [
        f"job      {spec.name} on {spec.on}: {where}",
        f"runs     {shlex.join(spec.command())}",
        f"writes   {spec.out}",
    ]
    if spec.on == "ray":
        lines.append(f"is given {runtime_env(spec)}")
    if spec.secrets:
        lines.append(f"secrets  {', '.join(spec.secrets)}, by name; no value is sent")
    if package is not None:
        total = f"{len(package.files):,} files, {package.bytes / 2**20:.1f} MiB"
        lines += [
            f"sends    {total} of {spec.working_dir}",
            *(f"  {one}" for one in package.lines()),
        ]
    for name, text in files.items():
        lines += [f"--- {name}", text.rstrip()]
    if files:
        lines.append(f"command  {command}")
    lines += [f"data     {line}" for line in examined.looked_at]
    lines += ["findings", *(f"  {one}" for one in examined.lines() or ["none"])]
    print_text("".join(f"{line}\n" for line in lines))


def _show(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()


def _follow(job: "SentJob", as_json: bool) -> NoReturn:
    """Follow a job to its end; print its report, and end with its exit status."""
    from plumbline.jobs.follow import CODES, find_run_folder, follow_job

    name = job.spec.id
    try:
        outcome = follow_job(job, _show, print_to_stderr)
    except KeyboardInterrupt:
        print_to_stderr(
            f"\nno longer followed; the job continues: `plumbline jobs follow {name}`, `plumbline "
            f"jobs stop {name}`"
        )
        raise SystemExit(130) from None
    folder = find_run_folder(job) if outcome.ended == "succeeded" else None
    if as_json:
        from plumbline.storage import read_object

        result = {} if folder is None else read_object(folder / "result.json")
        report = {} if folder is None else {"report": str(folder / "report.html")}
        print_json({**_job_values(job, outcome), **report, **result})
    elif folder is not None:
        from plumbline.reports.write import run_summary
        from plumbline.runs.record import RunRecord

        print_tables(*run_summary(RunRecord(folder)).renderables)
    elif outcome.ended == "succeeded":
        print_text(f"{job.spec.out}: finished\n")
        print_text("".join(f"{key:32} {mean:.3f}\n" for key, mean in outcome.rewards.items()))
    if not as_json:
        print_to_stderr(
            f"job {name}: {outcome.ended} ({outcome.why}; the engine: {outcome.engine})"
        )
    raise Exit(CODES[outcome.ended])


def _job_values(job: "SentJob", outcome: "JobOutcome | None" = None) -> dict[str, Any]:
    """A job as JSON values."""
    spec, known = job.spec, outcome or job.outcome
    return {
        "job": spec.id,
        "on": spec.on,
        "address": spec.address,
        "out": spec.out,
        "sent": job.sent,
        "outcome": known and known.model_dump(),
    }


@jobs_app.callback(invoke_without_command=True)
def jobs(context: Context, as_json: take.Json = False) -> None:
    """List the jobs that were submitted, follow them, stop them."""
    if context.invoked_subcommand is not None:
        return
    from plumbline.jobs.follow import refresh_job
    from plumbline.jobs.job import list_jobs as known

    rows = [(job, *refresh_job(job)) for job in known(print_to_stderr)]
    if as_json:
        found = [{**_job_values(job), "status": status, "why": why} for job, status, why in rows]
        print_json({"jobs": found})
        return
    if not rows:
        print_to_stderr("no job was submitted; `plumbline submit RECIPE` does that")
    for job, status, why in rows:
        because = f"  ({why})" if why else ""
        print_text(f"{job.spec.id:36} {job.spec.on:8} {status:16} {job.spec.out}{because}\n")


@jobs_app.command("follow", epilog="Example: `plumbline jobs follow last`")
def follow_job(name: JobName = "last", as_json: take.Json = False) -> None:
    """Show what a job prints, from its beginning, until it is over; Ctrl-C leaves it running."""
    from plumbline.jobs.job import find_job

    _follow(find_job(name), as_json)


@jobs_app.command("stop", epilog="Example: `plumbline jobs stop mine-1123`")
def stop_job(name: JobName, as_json: take.Json = False) -> None:
    """End a job; its run can go on with --resume."""
    from plumbline.jobs.follow import stop_job
    from plumbline.jobs.job import find_job

    job = find_job(name)
    outcome = stop_job(job)
    print_json(_job_values(job, outcome)) if as_json else print_text(
        f"{job.spec.id}: {outcome.ended} ({outcome.why})\n"
    )
