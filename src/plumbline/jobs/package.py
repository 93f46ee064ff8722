"""What is wrong with a job before it is sent: files that it would not be given, and all that a dry
run of it finds in a copy of what it would be given.

Which files those are, Ray's own patterns say. Its rules are not git's: it reads .gitignore and
.rayignore in the folder and in every folder below it that is sent; files above it, the user's own
and .git/info/exclude are not read. `!` takes back what an earlier line of the same file left out,
and never what another file did. `tests/jobs/test_package.py` compares with what Ray zips.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import chdir, suppress
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml

from plumbline.checks.check import LEVELS, Finding, describe_refusal
from plumbline.checks.findings_output import finding_from_json, render_finding
from plumbline.checks.preflight.settings import list_files_read
from plumbline.config.imports import check_installed, extras, needs_of, own_folders, plugins
from plumbline.errors import DataError, RunError, StorageError
from plumbline.jobs.job import JobSpec
from plumbline.recipe import Recipe, find_recipe
from plumbline.runs.remote import is_address
from plumbline.storage import read_text
from plumbline.version import __version__

LIMIT = 100 * 1024 * 1024
"""Bytes of a package that Ray's dashboard, which takes jobs, accepts (2.60); it is zipped without
compression."""
MOST = 12
"""Folders and rules that are listed of a package."""
SECONDS = 600
"""That the check in the copy may take; it builds the task's records."""
PINNED = re.compile(r"([A-Za-z0-9._-]+)(?:\[[^\]]*\])?\s*===?\s*([^\s;,#*]+)\s*(?:;.*|--hash.*)?$")
PIP_SECONDS = 120
"""That pip may take to say whether pins go together."""
UNCHECKED = "to send it all the same, add --no-preflight"


@dataclass(frozen=True, slots=True)
class Package:
    """The files of a working directory that would be sent."""

    folder: Path
    files: dict[str, int]
    """Bytes of each file by its path from the folder."""
    left_out: dict[str, str]
    """The rule by each path that one leaves out; what is below a folder is not listed by itself."""

    @property
    def bytes(self) -> int:
        """Of all files, before they are compressed."""
        return sum(self.files.values())

    def missing_reasons(self, path: Path) -> dict[str, str]:
        """What of a file or folder is left out, by which rule; empty where all of it is sent."""
        name = os.path.relpath(Path.cwd() / path, self.folder)
        above = [str(one) for one in (Path(name), *Path(name).parents)]
        whole = {one: self.left_out[one] for one in above if one in self.left_out}
        return whole or {
            one: rule for one, rule in self.left_out.items() if one.startswith(f"{name}/")
        }

    def lines(self) -> list[str]:
        """What would be sent, for people: each folder at the top, and what is left out."""
        tops: dict[str, list[int]] = {}
        for name, size in self.files.items():
            top, slash, _ = name.partition("/")
            tops.setdefault(f"{top}/" if slash else top, []).append(size)
        shown = sorted(tops.items(), key=lambda one: -sum(one[1]))
        rows = [
            f"{name:24} {len(sizes):6,} files {sum(sizes) / 2**20:9.2f} MiB"
            for name, sizes in shown
        ]
        out = [f"left out: {name}  ({rule})" for name, rule in self.left_out.items()]
        return [
            line
            for lines, what in ((rows, "more"), (out, "more paths left out"))
            for line in (
                *lines[:MOST],
                *([f"and {len(lines) - MOST:,} {what}"] if len(lines) > MOST else []),
            )
        ]


def list_package(folder: Path, excludes: Sequence[str] = ()) -> Package:
    """The package of a folder.

    Args:
        folder: the working directory.
        excludes: patterns beside Ray's own, as in a .gitignore file.

    Raises:
        ModelError: Ray, whose rules these are, is not installed.
        StorageError: the folder or an ignore file in it cannot be read.
    """
    check_installed("a look at what a cluster is sent", ("ray",))
    from ray._private import ray_constants
    from ray._private.thirdparty.pathspec.patterns import GitWildMatchPattern

    package, names = Package(folder.resolve(), {}, {}), [".gitignore", ".rayignore"]
    if os.environ.get(ray_constants.RAY_RUNTIME_ENV_IGNORE_GITIGNORE) == "1":
        names.pop(0)

    def rules(lines: Sequence[str], place: str) -> list[tuple[Any, str]]:
        """Each pattern with what is said of it, the last line first, because the last that matches
        decides."""
        in_file = Path(place).is_absolute()
        return [
            (GitWildMatchPattern(line), f"{place}{f':{at}' if in_file else ''}: {line.strip()}")
            for at, line in reversed([*enumerate(lines, 1)])
            if line
        ]

    def walk(path: Path, scopes: Sequence[tuple[Path, Sequence[tuple[Any, str]]]]) -> None:
        """Add a path and what is below it; a folder's own ignore files are asked of it, too, as Ray
        does."""
        files = [path / name for name in names if (path / name).is_file()] if path.is_dir() else []
        scopes = [
            *scopes,
            *((path, rules(read_text(one, StorageError).splitlines(), str(one))) for one in files),
        ]
        name = str(path.relative_to(package.folder))
        for base, known in scopes:
            below = str(path.relative_to(base))
            one, said = next((rule for rule in known if any(rule[0].match([below]))), (None, ""))
            if one is not None and one.include:
                package.left_out[name] = said
                return
        if path.is_dir():
            for one in sorted(path.iterdir()):
                walk(one, scopes)
        elif path.is_file():
            package.files[name] = path.stat().st_size

    first = rules(ray_constants.get_runtime_env_default_excludes(), "left out by Ray")
    try:
        walk(package.folder, [(package.folder, [*rules(excludes, "--exclude"), *first])])
    except OSError as error:
        raise StorageError(
            f"cannot read {error.filename}: {error.strerror}", "let the job's folder be readable"
        ) from error
    return package


# -- what is wrong ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Examination:
    """What was found of a job."""

    findings: tuple[Finding, ...] = ()
    """The worst first."""
    package: Package | None = None
    """What would be sent; None where nothing is."""
    looked_at: tuple[str, ...] = ()
    """How much of each task's data the run will see, in words."""

    @property
    def fatal(self) -> bool:
        """Whether the job must not be sent."""
        return any(finding.level == "fatal" for finding in self.findings)

    def lines(self) -> list[str]:
        """The findings, a text each."""
        return [render_finding(finding, ours=True).plain for finding in self.findings]


def examine_job(spec: JobSpec, recipe: Recipe) -> Examination:
    """Look at everything that a job needs; nothing is sent and nothing is kept.

    Raises:
        StorageError: the working directory cannot be read.
        RecipeError: a recipe that this one extends cannot be read.
    """
    package = None if spec.on == "process" else list_package(Path(spec.working_dir), spec.excludes)
    found = [*_secrets(spec, recipe)]
    looked_at: tuple[str, ...] = ()
    with chdir(spec.working_dir):
        if package is not None:
            found += _files(spec, recipe, package)
        if package is None or package.bytes <= LIMIT:
            inside, looked_at = _check_opening(spec, package)
            found += inside
    if spec.requirements is not None:
        found += _requirements(Path(spec.requirements), spec.is_local)
    for at, finding in enumerate(found):
        if (
            finding.level == "fatal"
            and not spec.is_local
            and any(
                one in str(finding.evidence.get(name))
                for one in spec.there
                for name in ("path", "first", "cause")
            )
        ):
            evidence = {"finding": finding.what}
            found[at] = Finding("note", "on-the-cluster", evidence=evidence, check=finding.check)
    found.sort(key=lambda finding: LEVELS.index(finding.level))
    return Examination(findings=tuple(found), package=package, looked_at=looked_at)


def refuse_job(examined: Examination, done: str = "sent") -> None:
    """Refuse a job in which something fatal was found, or that would need a consent that it is not
    given.

    Args:
        examined: what was found.
        done: what is otherwise done with the job: sent, started or written.

    Raises:
        RunError: says all of it, a cause a line.
    """
    fatal = [
        finding
        for finding in examined.findings
        if finding.level == "fatal" or finding.check == "code"
    ]
    if fatal:
        causes = [f"{finding.what} ({finding.check})" for finding in fatal]
        found = f" {causes[0]}" if len(causes) == 1 else "".join(f"\n    {one}" for one in causes)
        advice = [*dict.fromkeys(finding.fix for finding in fatal if finding.fix), UNCHECKED]
        fix = advice[0] if len(advice) == 1 else "".join(f"\n    {one}" for one in advice)
        raise RunError(f"this job would come to nothing, and was not {done}:{found}", fix)


def _secrets(spec: JobSpec, recipe: Recipe) -> Iterator[Finding]:
    absent = [name for name in spec.secrets if not os.environ.get(name)]
    if spec.on == "process" and absent:
        evidence = {"names": absent, "first": absent[0]}
        yield Finding("fatal", "not-set", evidence=evidence, check="secrets")
    elif spec.on != "process" and spec.secrets:
        yield Finding("note", "of-the-nodes", evidence={"names": spec.secrets}, check="secrets")
    if (
        "wandb" in recipe.run.trackers
        and "WANDB_API_KEY" not in spec.secrets
        and "WANDB_MODE" not in spec.env
    ):
        yield Finding("warning", "no-tracker-key", check="secrets")


def _files(spec: JobSpec, recipe: Recipe, package: Package) -> Iterator[Finding]:
    """A package that is too large, and paths that the recipe needs and the package lacks."""
    if package.bytes > LIMIT:
        large = sorted(package.files.items(), key=lambda file: -file[1])[:5]
        yield Finding(
            "fatal",
            check="package-size",
            evidence={
                "folder": str(package.folder),
                "files": len(package.files),
                "mebibytes": package.bytes / 2**20,
                "limit": LIMIT / 2**20,
                "bytes": package.bytes,
                "list": [f"{name} {size / 2**20:.0f} MiB" for name, size in large],
                "first": large[0][0],
                "largest": dict(large),
            },
        )
    file = find_recipe(spec.recipe)
    bundled = not file.resolve().is_relative_to(spec.working_dir)
    for path, key in [
        *list_files_read(recipe, None if bundled else file),
        *((Path(one), "--needs") for one in spec.needs),
    ]:
        if spec.there and str(path).startswith(spec.there):
            continue
        # Modules and recipes are found by the job in its own copy, wherever they were found here.
        inside_only = (
            key in {"the recipe", "extends"} or path.suffix == ".py" or not path.is_absolute()
        )
        if key == "--needs" and not path.exists():
            yield Finding("fatal", "absent", evidence={"path": str(path)}, check="files")
        elif not inside_only and spec.is_local:
            continue  # the job is on this machine
        elif not inside_only or not (Path.cwd() / path).is_relative_to(package.folder):
            evidence = {"path": str(path), "key": key, "folder": str(package.folder)}
            yield Finding("fatal", "outside", evidence=evidence, check="files")
        elif lacking := package.missing_reasons(path):
            first, rule = next(iter(lacking.items()))
            whole = str(path) == first or len(lacking) == 1
            yield Finding(
                "fatal",
                "not-sent",
                check="files",
                evidence={
                    "path": str(path),
                    "paths": None if whole else len(lacking),
                    "first": first,
                    "key": key,
                    "rule": rule,
                    "local": spec.is_local,
                    "left out": dict(list(lacking.items())[:20]),
                },
                causes=("kept-out",),
            )


def _check_opening(spec: JobSpec, package: Package | None) -> tuple[list[Finding], tuple[str, ...]]:
    """What a dry run finds where the job will run: in a copy of its package, or in the folder
    itself."""
    if package is None:
        return _run_dry(spec, Path(spec.working_dir))
    with TemporaryDirectory(prefix="plb-copy-") as scratch:
        for name in package.files:
            target = Path(scratch) / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(package.folder / name, target)
        return _run_dry(spec, Path(scratch))


def _run_dry(spec: JobSpec, folder: Path) -> tuple[list[Finding], tuple[str, ...]]:
    command = [sys.executable, "-P", "-m", "plumbline", "run", spec.recipe, "--dry-run", "--json"]
    here = spec.is_local and not is_address(spec.out)
    command += ["--out", spec.out if here else str(folder / ".plumbline-run")]
    command += [word for one in spec.overrides for word in ("--set", one)]
    command += ["--resume"] * spec.resume
    # PYTHONPATH as the job has it: without the working directory itself, of which the job has a
    # copy.
    given = [
        str(Path.cwd() / one) for one in os.environ.get("PYTHONPATH", "").split(os.pathsep) if one
    ]
    own = str(Path(__file__).parents[3])
    path = [one for one in given if one == own or not Path(one).is_relative_to(spec.working_dir)]
    environment = {
        **os.environ,
        **spec.env,
        "PYTHONPATH": os.pathsep.join(path),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    evidence: dict[str, Any] = {"local": spec.on == "process", "seconds": SECONDS}
    done = _run(command, SECONDS, cwd=folder, env=environment)
    if done is None:
        return [Finding("warning", "no-end", evidence=evidence, check="check")], ()
    try:
        said: dict[str, Any] = json.loads(done.stdout)
        found = [finding_from_json(one) for one in said["findings"]]
    except (ValueError, KeyError, TypeError):
        told = done.stderr.strip() or done.stdout.strip() or "nothing"
        cause, _, fix = told.rpartition("error: ")[2].partition("\n  fix: ")
        lines = cause.strip().splitlines() or ["nothing"]
        evidence |= {
            "status": done.returncode,
            "cause": lines[0 if "error: " in told else -1],
            "fix": fix.strip(),
        }
        return [Finding("fatal", "ends-at-once", evidence=evidence, check="job")], ()
    # of this machine, which is another one
    unsaid = {"ignored-files"} | (set() if spec.is_local else {"memory"})
    kept = [one for one in found if one.check not in unsaid]
    lacking = [
        Finding(
            "warning" if spec.is_local else "note",
            evidence={"need": one},
            check="needs",
            code="needs",
        )
        for one in said["needs"]
    ]
    return [*kept, *lacking], tuple(_caps(one, said["recipe"]) for one in said["prompts"])


def _run(
    command: Sequence[str], seconds: int, **more: Any
) -> subprocess.CompletedProcess[str] | None:
    """What a program printed, and its exit status; None where it did not end in time."""
    with suppress(subprocess.TimeoutExpired):
        return subprocess.run(  # noqa: S603 - ours
            command,
            timeout=seconds,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            **more,
        )
    return None


def _caps(prompts: Mapping[str, Any], recipe: Mapping[str, Any]) -> str:
    """How much of a task's data the run will see, of how much there is."""
    sizes = prompts["sizes"]
    parts = [", ".join(f"{split} {size:,}" for split, size in sizes.items())]
    if recipe["rl"] is not None:
        parts.append(f"RL draws {prompts['drawn']:,.0f} prompts, {prompts['coverage']:.2f} epochs")
    limit, split = recipe["evaluation"]["limit"], recipe["evaluation"]["split"]
    if prompts["inside"] and limit is not None and split in sizes:
        parts.append(
            f"evaluations inside RL ask {prompts['inside']:,} of {sizes[split]:,} of {split}"
        )
    return f"{prompts['name'] or prompts['task']}: {'; '.join(parts)}"


def _requirements(path: Path, here: bool) -> Iterator[Finding]:
    """What is wrong with a requirements file: no such file, lines without a pin, pins that pip
    cannot bring together.

    Args:
        path: of the file.
        here: whether the job runs by this interpreter, which has its packages already.
    """
    try:
        lines = [line.strip() for line in read_text(path).splitlines()]
    except DataError as error:
        yield describe_refusal(error, check="requirements")
        return
    wanted = [line for line in lines if line and not line.startswith(("#", "-"))]
    pins = {
        found[1].lower().replace("_", "-"): found[2]
        for line in wanted
        if (found := PINNED.match(line))
    }
    if loose := [line for line in wanted if not PINNED.match(line) and "@" not in line]:
        yield Finding(
            "warning",
            "not-pinned",
            check="requirements",
            evidence={
                "lines": len(loose),
                "of": len(wanted),
                "file": path.name,
                "first": loose[0],
                "package": re.split(r"[^A-Za-z0-9._-]", loose[0])[0] or loose[0],
            },
        )
    if other := {
        name: (pin, own)
        for name, pin in pins.items()
        if (own := installed_version(name)) not in {None, pin}
    }:
        name, (pin, own) = next(iter(other.items()))
        yield Finding(
            "warning",
            "other-versions",
            check="requirements",
            evidence={"packages": len(other), "first": f"{name}=={pin}", "here": own}
            | {name: {"pinned": pin, "here": own} for name, (pin, own) in other.items()},
        )
    if here:
        return
    command = [
        sys.executable,
        "-P",
        "-m",
        "pip",
        "install",
        "--dry-run",
        "--ignore-installed",
        "--quiet",
        "-r",
    ]
    done = _run([*command, str(path)], PIP_SECONDS)
    if done is None:
        evidence = {"seconds": PIP_SECONDS}
        yield Finding("note", "pip-slow", evidence=evidence, check="requirements")
    elif errors := [line for line in done.stderr.splitlines() if line.startswith("ERROR:")]:
        yield Finding(
            "fatal",
            "pip-refuses",
            check="requirements",
            evidence={
                "file": path.name,
                "path": str(path),
                "cause": errors[-1].removeprefix("ERROR: "),
                "errors": errors[:10],
            },
        )
    elif done.returncode:
        yield Finding("note", "no-pip", check="requirements")


def installed_version(name: str) -> str | None:
    """The version of a package that is installed here."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


# -- a job for Anyscale ----------------------------------------------------------------------------
#
# Two files: `job.yaml` and, where no image is named, a `Containerfile`. Nothing of Anyscale's is
# imported: its SDK adds 154 MB, and its command line reads the file. The fields are those of
# `JobConfig` in anyscale 0.26.112 (job/models.py, _private/workload/workload_config.py).

RAY = "2.60.0"
"""Of the base image where there is no Ray here."""
BASE = ("numpy", "pydantic", "pyyaml", "rich", "typer")
"""What Plumbline itself depends on."""


def plan_files(spec: JobSpec, recipe: Recipe, folder: Path) -> tuple[dict[str, str], str]:
    """The text of each file of a job by its name, and the command that sends them once they are in
    the folder.

    A job is not retried by Anyscale (max_retries 0): it would start over in a folder that holds a
    run. The same command with --resume continues it.

    Raises:
        DataError: what the image needs is not here, so there is nothing to pin it to.
    """
    values = {
        "name": spec.id,
        "entrypoint": shlex.join(spec.command()),
        "image_uri": spec.image,
        "containerfile": None if spec.image else str(folder / "Containerfile"),
        "compute_config": spec.compute,
        "working_dir": spec.working_dir,
        "excludes": list(spec.excludes) or None,
        "requirements": spec.requirements,
        "env_vars": {**spec.env, "PYTHONUNBUFFERED": "1"},
        "py_modules": own_folders(),
        "max_retries": 0,
        "timeout_s": spec.timeout,
        "tags": {"plumbline": __version__, "recipe": recipe.name},
    }
    given = {key: value for key, value in values.items() if value is not None}
    texts = {"job.yaml": yaml.safe_dump(given, sort_keys=False, allow_unicode=True, width=120)}
    if spec.image is None:
        texts["Containerfile"] = _containerfile(spec, recipe)
    return texts, shlex.join(["anyscale", "job", "submit", "-f", str(folder / "job.yaml")])


def _containerfile(spec: JobSpec, recipe: Recipe) -> str:
    """An image with the packages that are installed here, each pinned to its version; Plumbline
    itself is sent."""
    base = f"anyscale/ray:{installed_version('ray') or RAY}-slim-py312-cu128"
    if spec.requirements is not None:
        return f"# Packages: requirements in job.yaml.\nFROM {base}\n"
    tasks = {one.name for one in recipe.each_task.values()}
    needed_by = [
        needs_of(entry) for name, entry in plugins("plumbline.tasks").items() if name in tasks
    ]
    pins = {
        name: installed_version(name)
        for one in (BASE, extras()["train"], *needed_by)
        for name in one
    }
    if absent := sorted(name for name, version in pins.items() if version is None):
        raise DataError(
            f"there is no {absent[0]} here, to whose version the job's image could be pinned",
            "install it, or give the job's packages with --requirements FILE",
        )
    rows = " \\\n    ".join(f"{name}=={version}" for name, version in sorted(pins.items()))
    return f"FROM {base}\nRUN pip install --no-cache-dir \\\n    {rows}\n"
