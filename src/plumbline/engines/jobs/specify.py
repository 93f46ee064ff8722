"""From what a command line asks to the specification of a job."""

import os
import re
import secrets as randomness
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from plumbline.config.imports import is_trusting
from plumbline.engines.jobs.spec import BACK_ENDS, Cloud, JobSpec
from plumbline.errors import RecipeError
from plumbline.recipe import Recipe, find, load, names
from plumbline.runs.remote import is_address

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
TELLING = re.compile(r"TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL|API_?KEY|ACCESS_?KEY|PRIVATE_?KEY", re.IGNORECASE)
"""Names whose values are secrets as a rule."""


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
    cloud: Cloud = field(default_factory=Cloud)


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
        trust_code=is_trusting(),
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
        workers=recipe.scale.verdicts + recipe.scale.samplers + recipe.scale.learners - 1,
        cloud=asked.cloud,
    )
    return _with_out(spec, asked.out or f"{recipe.run.folder}/{recipe.name}", asked.out is not None), recipe


def new_id(name: str) -> str:
    """A job's name that no other job has: recipe, time, four letters."""
    clean = re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-")[:40] or "job"
    return f"{clean}-{datetime.now(UTC):%m%d-%H%M%S}-{randomness.token_hex(2)}"


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
    if not is_address(out):
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
