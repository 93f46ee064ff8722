"""What a job is, in one frozen value: everything that a back end is told, and nothing that is secret."""

import os
import re
import secrets as randomness
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from plumbline.errors import RecipeError
from plumbline.recipe import Recipe, find, load, names

BackEnd = Literal["ray", "process", "anyscale"]
BACK_ENDS: tuple[BackEnd, ...] = ("ray", "process", "anyscale")
ENTRY = "plumbline.job_entry"
"""What a job runs: `python -m` this, with the arguments of `JobSpec.arguments`."""
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
TELLING = re.compile(r"TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL|API_?KEY|ACCESS_?KEY|PRIVATE_?KEY", re.IGNORECASE)
"""Names whose values are secrets as a rule."""
LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1", "0.0.0.0", "127.0.0.2"})  # noqa: S104 - it is compared with


@dataclass(frozen=True, slots=True, kw_only=True)
class Cloud:
    """What only Anyscale asks for."""

    image: str | None = None
    """Of a registry; without one the Containerfile beside the job's YAML is built."""
    compute: str | None = None
    """The name of a compute configuration; without one Anyscale's own default."""
    timeout: int | None = None
    """Seconds after which the job is ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    """A job, as it is recorded and sent; secrets are in it by name only."""

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
    working_dir: str = ""
    """Absolute; what is sent of it is decided by `package.py`."""
    excludes: tuple[str, ...] = ()
    """Further patterns of what is not sent, as in a .gitignore file."""
    needs: tuple[str, ...] = ()
    """Paths that the job reads and its recipe does not name."""
    there: tuple[str, ...] = ()
    """Beginnings of paths that the cluster has, and this machine need not have."""
    address: str | None = None
    """Of a Ray cluster; None starts one on this machine for the job."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Variables that anybody may see: Ray and Anyscale show them."""
    secrets: tuple[str, ...] = ()
    """Names of variables that the job must find in its environment."""
    requirements: str | None = None
    """A file of pinned packages that the cluster installs for the job."""
    cpus: float | None = None
    gpus: float | None = None
    """Reserved for the job's own process."""
    cloud: Cloud = Cloud()

    @property
    def here(self) -> bool:
        """Whether the job runs on this machine, and so sees its files."""
        if self.on == "process":
            return True
        return self.on == "ray" and (self.address in {None, "auto"} or urlsplit(str(self.address)).hostname in LOOPBACK)

    @property
    def own_head(self) -> bool:
        """Whether a Ray cluster of one machine is started for the job, and stopped after it."""
        return self.on == "ray" and self.address is None

    def arguments(self) -> list[str]:
        """Of `python -m plumbline.job_entry`."""
        needed = [word for name in self.secrets for word in ("--secret", name)]
        run = ["run", self.recipe, "--out", self.out, *(word for one in self.overrides for word in ("--set", one))]
        return ["--job", self.id, *needed, "--", *run, *(["--resume"] if self.resume else [])]

    def command(self) -> list[str]:
        """What the back end starts; on this machine by the interpreter of this process."""
        return [sys.executable if self.here else "python", "-m", ENTRY, *self.arguments()]

    def plain(self) -> dict[str, Any]:
        """As JSON values."""
        return {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(self).items()}

    @classmethod
    def from_plain(cls, values: Mapping[str, Any]) -> "JobSpec":
        """The inverse of `plain`."""
        made: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value for key, value in values.items()
        }
        return cls(**{**made, "cloud": Cloud(**values["cloud"])})


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a command line asks of a job, not yet looked at."""

    recipe: str
    on: str = "ray"
    out: str | None = None
    overrides: Sequence[str] = ()
    resume: bool = False
    working_dir: Path = Path()
    excludes: Sequence[str] = ()
    needs: Sequence[str] = ()
    there: Sequence[str] = ()
    address: str | None = None
    env: Sequence[str] = ()
    secrets: Sequence[str] = ()
    requirements: Path | None = None
    cpus: float | None = None
    gpus: float | None = None
    cloud: Cloud = Cloud()


def specify(asked: Asked) -> tuple[JobSpec, Recipe]:
    """The job that is asked for, and its recipe.

    Raises:
        RecipeError: the recipe cannot be read or lies where the job cannot read it; no such back end; an address that
            the back end has no use for; a place for the run that the job's machine has not; a variable that is no
            NAME=VALUE, or a secret's value on the command line.
    """
    on = next((one for one in BACK_ENDS if one == asked.on), None)
    if on is None:
        raise RecipeError(f"there is no back end {asked.on!r}", f"give --on {', '.join(BACK_ENDS)}")
    if asked.address is not None and on != "ray":
        raise RecipeError(f"--address is of a Ray cluster, and the job goes to {on}", "leave it out, or give --on ray")
    where = asked.working_dir.resolve()
    if not where.is_dir():
        raise RecipeError(f"there is no folder {asked.working_dir}", "give --working-dir the folder that is sent")
    recipe = load(asked.recipe, asked.overrides)
    # Ray's own client obeys these before its argument, so a job would go there whatever we wrote down.
    told = os.environ.get("RAY_API_SERVER_ADDRESS") or os.environ.get("RAY_ADDRESS")
    address = (asked.address or told or None) if on == "ray" else None
    spec = JobSpec(
        id=new_id(recipe.name),
        name=recipe.name,
        on=on,
        recipe=_sent_recipe(asked.recipe, where),
        out="",
        overrides=tuple(asked.overrides),
        resume=asked.resume,
        working_dir=str(where),
        excludes=tuple(asked.excludes),
        needs=tuple(asked.needs),
        there=tuple(asked.there),
        address=address,
        env=dict(_variable(one) for one in asked.env),
        secrets=tuple(_secret(one) for one in asked.secrets),
        requirements=None if asked.requirements is None else str(asked.requirements.resolve()),
        cpus=asked.cpus,
        gpus=asked.gpus,
        cloud=asked.cloud,
    )
    return _with_out(spec, asked.out or f"{recipe.run.folder}/{recipe.name}", asked.out is not None), recipe


def new_id(name: str) -> str:
    """A job's name that no other job has: recipe, time, four letters."""
    clean = re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-")[:40] or "job"
    return f"{clean}-{datetime.now(UTC):%m%d-%H%M%S}-{randomness.token_hex(2)}"


def is_url(place: str) -> bool:
    """Whether a place is an address such as s3://bucket/runs/a."""
    return "://" in place


def _sent_recipe(source: str, where: Path) -> str:
    """The recipe as the job opens it."""
    file = find(source).resolve()
    if file.is_relative_to(where):
        return str(file.relative_to(where))
    if source in names():
        return source
    raise RecipeError(
        f"{file} lies outside of {where}, which is what the job is sent",
        "copy the recipe there, or give --working-dir a folder that holds it",
    )


def _with_out(spec: JobSpec, out: str, given: bool) -> JobSpec:
    """The job with its run's folder, which must not lie in the copy that the cluster makes and throws away."""
    if not is_url(out):
        if not spec.here and not Path(out).is_absolute():
            what = f"--out {out} is" if given else f"without --out the run goes to {out}, which is"
            raise RecipeError(
                f"{what} a folder in the job's copy of the working directory, which the cluster throws away",
                "give --out a folder that all machines share, such as /mnt/shared/runs/a, or an address, such as "
                "s3://bucket/runs/a",
            )
        out = str((Path(spec.working_dir) / out).resolve()) if spec.here else out
    return replace(spec, out=out)


def _variable(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not NAME.fullmatch(name):
        raise RecipeError(f"cannot read the variable {name!r}", "write --env NAME=VALUE")
    if TELLING.search(name):
        raise RecipeError(
            f"{name} looks like a secret, and what --env sets is kept by the cluster and shown to all who can open it",
            f"set {name} in the environment and write --secret {name}",
        )
    return name, value


def _secret(name: str) -> str:
    if not NAME.fullmatch(name):
        shown = name.partition("=")[0]
        raise RecipeError(
            f"--secret takes the name of a variable, and {shown!r} with what follows is none",
            "write --secret NAME; its value stays in the environment",
        )
    return name
