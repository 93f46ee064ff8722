"""The commands that send a run elsewhere and look after it: `plumbline submit`, `plumbline jobs`."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from plumbline.cli import options as take
from plumbline.cli.output import print_json, print_tables
from plumbline.errors import visible

if TYPE_CHECKING:
    from plumbline.engines.jobs.checks import Examined
    from plumbline.engines.jobs.outcome import Outcome
    from plumbline.engines.jobs.spec import JobSpec
    from plumbline.engines.jobs.store import Job
    from plumbline.recipe import Recipe

WHERE, SENT, CLOUD = "Where it runs", "What is sent", "Anyscale"
submit_app = typer.Typer(cls=take.Group)
jobs_app = typer.Typer(
    cls=take.Group,
    help="List the jobs that were submitted, follow them, stop them.",
    epilog="Examples: `plumbline jobs` · `plumbline jobs follow last` · `plumbline jobs stop mine-1123`",
)
JobName = Annotated[str, typer.Argument(metavar="JOB", help="Its id, or how that begins; last is the newest.")]


Out = Annotated[
    str | None, typer.Option(help="The run's folder; on another machine one that all share, or an address.")
]
Resume = Annotated[bool, typer.Option("--resume", help="Go on with a run that was stopped.")]
On = Annotated[str, typer.Option(rich_help_panel=WHERE, help="ray, process (on this machine) or anyscale.")]
Address = Annotated[
    str | None,
    typer.Option(
        metavar="auto|URL",
        rich_help_panel=WHERE,
        help="Of a Ray cluster's dashboard; auto finds one on this machine; without one a head is started here.",
    ),
]
Cpus = Annotated[float | None, typer.Option(min=0, rich_help_panel=WHERE, help="Cores for the job itself.")]
Gpus = Annotated[float | None, typer.Option(min=0, rich_help_panel=WHERE, help="GPUs for the job itself.")]
WorkingDir = Annotated[
    Path, typer.Option(rich_help_panel=SENT, help="What is sent of: less what .gitignore and .rayignore name.")
]
Exclude = Annotated[
    list[str] | None, typer.Option(rich_help_panel=SENT, help="A pattern of what is not sent; repeatable.")
]
Needs = Annotated[
    list[str] | None,
    typer.Option(metavar="PATH", rich_help_panel=SENT, help="What your own code reads; refused where not sent."),
]
There = Annotated[
    list[str] | None,
    typer.Option(metavar="PATH", rich_help_panel=SENT, help="A place that the cluster has; not looked for here."),
]
Env = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME=VALUE", rich_help_panel=SENT, help="A variable that anybody may see; repeatable."),
]
Secret = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME", rich_help_panel=SENT, help="A variable that the job needs; its value is never sent."),
]
Requirements = Annotated[
    Path | None, typer.Option(rich_help_panel=SENT, help="Pinned packages that the cluster installs first.")
]
Image = Annotated[str | None, typer.Option(rich_help_panel=CLOUD, help="An image; else one is described.")]
Compute = Annotated[str | None, typer.Option(rich_help_panel=CLOUD, help="A compute configuration's name.")]
Timeout = Annotated[int | None, typer.Option(min=1, rich_help_panel=CLOUD, help="Seconds, then it ends.")]
To = Annotated[Path, typer.Option(rich_help_panel=CLOUD, help="Where job.yaml goes, in a folder of its own.")]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Send nothing: print what would be sent, where, and what is wrong.")
]
NoPreflight = Annotated[
    bool, typer.Option("--no-preflight", help="Send it without looking; its outcome is judged all the same.")
]
Detach = Annotated[bool, typer.Option("--detach", help="Do not follow it; `plumbline jobs follow` does.")]


@submit_app.command(
    epilog="Examples: `plumbline submit mine.yaml` · `plumbline submit mine.yaml --dry-run` · "
    "`plumbline submit mine.yaml --address http://head:8265 --out /mnt/shared/runs/mine --secret HF_TOKEN` · "
    "`plumbline submit mine.yaml --on anyscale --out /mnt/shared_storage/mine --compute a10g`"
)
def submit(
    source: take.Recipe,
    overrides: take.Overrides = None,
    out: Out = None,
    resume: Resume = False,
    on: On = "ray",
    address: Address = None,
    cpus: Cpus = None,
    gpus: Gpus = None,
    working_dir: WorkingDir = Path(),
    exclude: Exclude = None,
    needs: Needs = None,
    there: There = None,
    env: Env = None,
    secret: Secret = None,
    requirements: Requirements = None,
    image: Image = None,
    compute: Compute = None,
    timeout: Timeout = None,
    to: To = Path("runs/anyscale"),
    dry_run: DryRun = False,
    no_preflight: NoPreflight = False,
    detach: Detach = False,
    trust_code: take.TrustCode = False,  # noqa: ARG001
    as_json: take.Json = False,
) -> None:
    """Run a recipe as a job: on a Ray cluster, in a process of its own, or on Anyscale.

    Before anything is sent, what the job would be given is looked at, and a dry run made in a copy of it. Its
    log is followed; Ctrl-C leaves it running. The exit status is 0 where engine and result agree that it is finished;
    3 where it failed, 4 where it never started, 5 where it ran and left no result, 6 where it was stopped, 7 where
    nobody can tell, and 130 where you stopped watching.
    """
    from plumbline.engines.jobs.checks import Examined, examine, findings_said, refuse
    from plumbline.engines.jobs.follow import check_back_end, send
    from plumbline.engines.jobs.spec import Cloud
    from plumbline.engines.jobs.specify import specify

    spec, recipe = specify(
        source,
        on=on,
        out=out,
        overrides=overrides or (),
        resume=resume,
        working_dir=working_dir,
        excludes=exclude or (),
        needs=needs or (),
        there=there or (),
        address=address,
        env=env or (),
        secrets=secret or (),
        requirements=requirements,
        cpus=cpus,
        gpus=gpus,
        cloud=Cloud(image=image, compute=compute, timeout=timeout),
    )
    check_back_end(spec)
    if not no_preflight:
        _say("looking at what would be sent")
    examined = Examined(findings=(), package=None, looked_at=()) if no_preflight else examine(spec, recipe)
    if dry_run:
        _show_plan(spec, recipe, examined, to, as_json)
        raise typer.Exit(1 if examined.fatal else 0)
    refuse(examined)
    for line in (*examined.looked_at, *findings_said(examined)):
        _say(line)
    if spec.on == "anyscale":
        _write_anyscale(spec, recipe, to, as_json)
        return
    job = send(spec, _say)
    _say(f"job {spec.id}: `plumbline jobs follow {spec.id}` shows it, `plumbline jobs stop {spec.id}` ends it")
    if not detach:
        _follow(job, as_json)
    elif as_json:
        print_json(_plain(job))
    else:
        print(spec.id)


def _say(text: str) -> None:
    print(visible(text), file=sys.stderr, flush=True)


def _show(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()


def _follow(job: "Job", as_json: bool) -> None:
    """Follow a job to its end; print its report, and end with its exit status."""
    from plumbline.engines.jobs.follow import follow

    try:
        outcome = follow(job, _show, _say)
    except KeyboardInterrupt:
        name = job.spec.id
        _say(f"\nnot followed any more; the job goes on: `plumbline jobs follow {name}`, `plumbline jobs stop {name}`")
        raise SystemExit(130) from None
    _report(job, outcome, as_json)
    raise typer.Exit(outcome.code)


def _report(job: "Job", outcome: "Outcome", as_json: bool) -> None:
    from plumbline.engines.jobs.follow import reachable

    folder = reachable(job)
    if as_json:
        found = _plain(job, outcome)
        if outcome.ended == "succeeded" and folder is not None:
            from plumbline.storage import read_object

            found |= {"report": str(folder / "report.html"), **read_object(folder / "result.json")}
        print_json(found)
        return
    if outcome.ended == "succeeded" and folder is not None:
        from plumbline.reports.write import run_summary
        from plumbline.runs.run import Run

        print_tables(run_summary(Run.read(folder)), wrap=False)
    elif outcome.ended == "succeeded":
        print(f"{job.spec.out}: finished")
        for key, mean in outcome.facts.get("rewards", {}).items():
            print(f"{key:32} {mean:.3f}")
    _say(f"job {job.spec.id}: {outcome.ended} ({outcome.why}; the engine: {outcome.engine})")


def _plain(job: "Job", outcome: "Outcome | None" = None) -> dict[str, Any]:
    from dataclasses import asdict

    known = outcome or job.outcome
    return {
        "job": job.spec.id,
        "on": job.spec.on,
        "address": job.head.address if job.head else job.spec.address,
        "out": job.spec.out,
        "sent": job.sent,
        "outcome": None if known is None else asdict(known),
    }


def _show_plan(spec: "JobSpec", recipe: "Recipe", examined: "Examined", to: Path, as_json: bool) -> None:
    """What `--dry-run` prints."""
    import shlex

    from plumbline.engines.jobs.anyscale import plan as plan_anyscale
    from plumbline.engines.jobs.checks import findings_said
    from plumbline.engines.jobs.ray_jobs import runtime_env
    from plumbline.reports.findings import plain

    package = examined.package
    cloud = spec.on == "anyscale"
    files, command = plan_anyscale(spec, recipe, to.absolute() / spec.id) if cloud else ({}, "")
    if as_json:
        sent = None if package is None else {"files": package.files, "left_out": package.left_out}
        found = [plain(finding) for finding in examined.findings]
        texts = {"command": command, **files} if cloud else {}
        data = list(examined.looked_at)
        plan = {"spec": spec.plain(), "package": sent, "data": data, "findings": found, "fatal": examined.fatal}
        print_json({**plan, **texts})
        return
    where = "a Ray head on this machine, started for it" if spec.own_head else spec.address or "this machine"
    print(f"job      {spec.name} on {spec.on}: {'the files below' if cloud else where}")
    print(f"runs     {shlex.join(spec.command())}", f"writes   {spec.out}", sep="\n")
    if spec.on == "ray":
        print(f"is given {runtime_env(spec)}")
    if spec.secrets:
        print(f"secrets  {', '.join(spec.secrets)}, by name; no value is sent")
    if package is not None:
        total = f"{len(package.files):,} files, {package.bytes / 2**20:.1f} MiB"
        print(f"sends    {total} of {spec.working_dir}", *(f"  {one}" for one in package.lines()), sep="\n")
    for name, text in files.items():
        print(f"--- {name}", text.rstrip(), sep="\n")
    if cloud:
        print(f"command  {command}")
    for line in examined.looked_at:
        print(f"data     {line}")
    print("findings", *(f"  {one}" for one in list(findings_said(examined)) or ["none"]), sep="\n")


def _write_anyscale(spec: "JobSpec", recipe: "Recipe", to: Path, as_json: bool) -> None:
    from plumbline.engines.jobs.anyscale import plan, write

    texts, command = plan(spec, recipe, to.absolute() / spec.id)
    files = write(texts, to.absolute() / spec.id)
    if as_json:
        print_json({"job": spec.id, "files": files, "command": command})
    else:
        print(*files, f"send it with: {command}", sep="\n")


@jobs_app.callback(invoke_without_command=True)
def jobs(context: typer.Context, as_json: take.Json = False) -> None:
    """List the jobs that were submitted, follow them, stop them."""
    if context.invoked_subcommand is not None:
        return
    from plumbline.engines.jobs.follow import refresh
    from plumbline.engines.jobs.store import jobs as known

    rows = [(job, *refresh(job)) for job in known()]
    if as_json:
        print_json({"jobs": [{**_plain(job), "status": status, "why": why} for job, status, why in rows]})
    elif not rows:
        _say("no job was submitted; `plumbline submit RECIPE` does that")
    for job, status, why in [] if as_json else rows:
        print(f"{job.spec.id:36} {job.spec.on:8} {status:16} {job.spec.out}" + (f"  ({why})" if why else ""))


@jobs_app.command("follow", epilog="Example: `plumbline jobs follow last`")
def follow_job(name: JobName = "last", as_json: take.Json = False) -> None:
    """Show what a job prints, from its beginning, until it is over; Ctrl-C leaves it running."""
    from plumbline.engines.jobs.store import find

    _follow(find(name), as_json)


@jobs_app.command("stop", epilog="Example: `plumbline jobs stop mine-1123`")
def stop_job(name: JobName, as_json: take.Json = False) -> None:
    """End a job, and the Ray head that was started for it; its run can go on with --resume."""
    from plumbline.engines.jobs.follow import stop
    from plumbline.engines.jobs.store import find

    job = find(name)
    outcome = stop(job)
    if as_json:
        print_json(_plain(job, outcome))
    else:
        print(f"{job.spec.id}: {outcome.ended} ({outcome.why})")


def add(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    app.add_typer(submit_app)
    app.add_typer(jobs_app, name="jobs")
