"""A job: what a command line asks for as one frozen value with nothing secret in it, and the record
of what was sent.

The jobs of this user are recorded in $PLUMBLINE_JOBS, or $XDG_STATE_HOME/plumbline/jobs, or
~/.local/state/plumbline/jobs: a folder each, with `job.json` and the log.
"""

import os
import re
import secrets as randomness
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, get_args
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, field_validator

from plumbline.config.imports import is_trusting
from plumbline.errors import RecipeError, RunError
from plumbline.recipe import Recipe, find_recipe, list_recipe_names, load_recipe
from plumbline.runs.remote import is_address
from plumbline.storage import clear_os_errors, one_line, read_object, write_json

BackEnd = Literal["ray", "process", "anyscale"]
Ended = Literal["succeeded", "failed", "never started", "produced nothing", "stopped", "unknown"]
LOOPBACK = {"127.0.0.1", "localhost", "::1", "0.0.0.0", "127.0.0.2"}  # noqa: S104 - it is compared with
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
TELLING = re.compile(
    r"TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL|API_?KEY|ACCESS_?KEY|PRIVATE_?KEY", re.IGNORECASE
)
"""Names whose values are secrets as a rule."""


class JobSpec(BaseModel):
    """A job, as it is recorded and sent; secrets are in it by name only."""

    model_config = ConfigDict(frozen=True)

    id: str
    name: str
    """Of the recipe."""
    on: BackEnd
    recipe: str
    """A path below `working_dir`, or the name of a bundled recipe."""
    out: str
    """The run's folder: an absolute path, or an address."""
    overrides: tuple[str, ...] = ()
    resume: bool = False
    trust_code: bool = False
    """Whether the job imports what the recipe names; what was typed is in `overrides`, and typed
    again."""
    working_dir: str = ""
    """Absolute; what is sent of it is decided by `package.py`."""
    excludes: tuple[str, ...] = ()
    """Further patterns of what is not sent, as in a .gitignore file."""
    needs: tuple[str, ...] = ()
    """Paths that the job reads and its recipe does not name."""
    there: tuple[str, ...] = ()
    """Beginnings of paths that the cluster has, and this machine need not have."""
    address: str | None = None
    """Of a Ray cluster; auto finds one on this machine."""
    env: Mapping[str, str] = {}
    """Variables that anybody may see: Ray and Anyscale show them."""
    secrets: tuple[str, ...] = ()
    """Names of variables that the job must find in its environment."""
    requirements: str | None = None
    """A file of pinned packages that the cluster installs for the job."""
    cpus: float | None = None
    gpus: float | None = None
    """Reserved on a Ray cluster for the job's own process."""
    image: str | None = None
    """For Anyscale, of a registry; without one the Containerfile beside the job's YAML is built."""
    compute: str | None = None
    """The name of one of Anyscale's compute configurations; without one its own default."""
    timeout: int | None = None
    """Seconds after which Anyscale ends the job."""

    @property
    def is_local(self) -> bool:
        """Whether the job runs on this machine, and so sees its files."""
        near = self.address == "auto" or urlsplit(str(self.address)).hostname in LOOPBACK
        return self.on == "process" or (self.on == "ray" and near)

    def command(self) -> list[str]:
        """What the back end starts; on this machine by the interpreter of this process."""
        needed = [word for name in self.secrets for word in ("--secret", name)]
        # -P: a folder `plumbline` in the working directory is none of ours; modules are looked for
        # there last.
        return [
            sys.executable if self.is_local else "python",
            "-P",
            "-m",
            "plumbline.cli.job_entry",
            "--job",
            self.id,
            *needed,
            "--",
            "run",
            self.recipe,
            "--out",
            self.out,
            *(word for one in self.overrides for word in ("--set", one)),
            *["--resume"] * self.resume,
            *["--trust-code"] * self.trust_code,
        ]


class JobOutcome(BaseModel):
    """What a job came to."""

    model_config = ConfigDict(frozen=True)

    ended: Ended
    why: str
    engine: str
    """The status that the engine gave."""
    facts: Mapping[str, Any] = {}
    """What the run said of its result: folder, model, mean rewards by evaluation."""

    @field_validator("facts", mode="before")
    @classmethod
    def _replace_non_finite(cls, value: Any) -> Any:
        """Numbers beyond every float, which a log may hold and no record, are None."""
        return replace_non_finite(value)

    @property
    def rewards(self) -> dict[str, float]:
        """The mean rewards, as far as they are numbers."""
        means = self.facts.get("rewards")
        known = means.items() if isinstance(means, dict) else ()
        return {key: mean for key, mean in known if isinstance(mean, int | float)}


class SentJob(BaseModel):
    """A job that was sent."""

    model_config = ConfigDict(frozen=True)

    spec: JobSpec
    sent: str
    """When, in UTC."""
    pid: int | None = None
    """Of a local process, which leads a process group of its own."""
    outcome: JobOutcome | None = None

    @property
    def folder(self) -> Path:
        """Where it is recorded."""
        return jobs_folder() / self.spec.id

    @property
    def log(self) -> Path:
        """What it printed, as far as that is here."""
        return self.folder / "log.txt"

    def save(self, **changed: Any) -> "SentJob":
        """Record it, with what has changed."""
        job = self.model_copy(update=changed)
        with clear_os_errors(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_json(self.folder / "job.json", job.model_dump())
        return job


def replace_non_finite(value: Any) -> Any:
    """The same JSON with None for numbers that are not finite, or larger than every float."""
    match value:
        case dict():
            return {
                str(key).encode(errors="replace").decode(): replace_non_finite(one)
                for key, one in value.items()
            }
        case list():
            return [replace_non_finite(one) for one in value]
        case int() | float():
            return value if abs(value) <= sys.float_info.max else None
    return value


def jobs_folder() -> Path:
    """The folder of all jobs."""
    own = os.environ.get("PLUMBLINE_JOBS")
    state = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(own or f"{state}/plumbline/jobs").expanduser().absolute()


def list_jobs(say: Callable[[str], None] = lambda _: None) -> list[SentJob]:
    """All jobs, the newest last.

    Args:
        say: is told of records that are damaged; they are left out.
    """
    found = []
    for path in jobs_folder().glob("*/job.json"):
        try:
            job = SentJob.model_validate(read_object(path))
            if job.spec.id == path.parent.name:
                found.append(job)
            else:
                say(f"{path} is of {job.spec.id}; remove {path.parent}")
        except ValueError as error:
            say(f"{path} is no job's record: {one_line(error)}; remove {path.parent}")
    return sorted(found, key=lambda job: job.sent)


def find_job(name: str) -> SentJob:
    """The job with this id, or the only one whose id begins so; `last` is the newest.

    Raises:
        RunError: there is none, or there are several.
    """
    known = list_jobs()
    found = known[-1:] if name == "last" else [one for one in known if one.spec.id == name]
    found = found or [one for one in known if one.spec.id.startswith(name)]
    if len(found) != 1:
        what = f"are {len(found)} jobs" if found else "is no job"
        raise RunError(f"there {what} called {name}", "`plumbline jobs` lists them")
    return found[0]


def specify_job(
    recipe: str,
    *,
    on: str | None = None,
    out: str | None = None,
    overrides: Sequence[str] | None = None,
    working_dir: Path = Path(),
    address: str | None = None,
    env: Sequence[str] = (),
    secrets: Sequence[str] = (),
    requirements: Path | None = None,
    **same: Any,
) -> tuple[JobSpec, Recipe]:
    """The job that is asked for, and its recipe; `same` are fields of `JobSpec` as they are.

    Raises:
        RecipeError: the recipe cannot be read or lies where the job cannot read it; no such back
            end; an address that the back end has no use for; a place for the run that the job's
            machine has not; a variable that is no NAME=VALUE, or a secret's value on the command
            line.
    """
    if on not in {None, *get_args(BackEnd)}:
        raise RecipeError(
            f"there is no back end {on!r}", f"give --on {', '.join(get_args(BackEnd))}"
        )
    if address is not None and on not in {None, "ray"}:
        raise RecipeError(
            f"--address is of a Ray cluster, and the job goes to {on}",
            "leave it out, or give --on ray",
        )
    address = address or os.environ.get("RAY_API_SERVER_ADDRESS") or os.environ.get("RAY_ADDRESS")
    on = on or ("ray" if address else "process")
    where = working_dir.resolve()
    if not where.is_dir():
        raise RecipeError(
            f"there is no folder {working_dir}", "give --working-dir the folder that is sent"
        )
    loaded = load_recipe(recipe, overrides or ())
    short = re.sub(r"[^A-Za-z0-9_-]+", "-", loaded.name).strip("-")[:40] or "job"
    spec = JobSpec(
        **same,
        id=f"{short}-{datetime.now(UTC):%m%d-%H%M%S}-{randomness.token_hex(2)}",
        name=loaded.name,
        on=on,  # type: ignore[arg-type]  # one of them
        recipe=_sent_recipe(recipe, where),
        out=out or f"{loaded.run.folder}/{loaded.name}",
        overrides=tuple(overrides or ()),
        trust_code=is_trusting(),
        working_dir=str(where),
        address=(address or "auto") if on == "ray" else None,
        env=dict(map(_variable, env)),
        secrets=tuple(map(_secret, secrets)),
        requirements=None if requirements is None else str(requirements.resolve()),
    )
    if is_address(spec.out):
        return spec, loaded
    if not spec.is_local and not Path(spec.out).is_absolute():
        what = f"--out {out}" if out else f"without --out the run goes to {spec.out}, which"
        raise RecipeError(
            f"{what} is a folder in the job's copy of the working directory, which the cluster "
            "throws away",
            "give --out a folder that all machines share, such as /mnt/shared/runs/a, or an "
            "address, such as s3://bucket/runs/a",
        )
    place = str((where / spec.out).resolve()) if spec.is_local else spec.out
    return spec.model_copy(update={"out": place}), loaded


def _sent_recipe(source: str, where: Path) -> str:
    """The recipe as the job opens it."""
    file = find_recipe(source).resolve()
    if file.is_relative_to(where):
        return str(file.relative_to(where))
    if source in list_recipe_names():
        return source
    raise RecipeError(
        f"{file} lies outside of {where}, which is what the job is sent",
        "copy the recipe there, or give --working-dir a folder that holds it",
    )


def _variable(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not NAME.fullmatch(name):
        raise RecipeError(f"cannot read the variable {name!r}", "write --env NAME=VALUE")
    if TELLING.search(name):
        raise RecipeError(
            f"{name} looks like a secret, and what --env sets is kept by the cluster and shown to "
            "all who can open it",
            f"set {name} in the environment and write --secret {name}",
        )
    return name, value


def _secret(name: str) -> str:
    if not NAME.fullmatch(name):
        raise RecipeError(
            f"--secret takes the name of a variable, and {name.partition('=')[0]!r} with what "
            "follows is none",
            "write --secret NAME; its value stays in the environment",
        )
    return name
