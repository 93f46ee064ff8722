"""From what a command line asks to the specification of a job."""

import os
import re
import secrets as randomness
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from plumbline.config.imports import is_trusting
from plumbline.engines.jobs.spec import BACK_ENDS, JobSpec
from plumbline.errors import RecipeError
from plumbline.recipe import Recipe, find, load, names
from plumbline.runs.remote import is_address

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
TELLING = re.compile(r"TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL|API_?KEY|ACCESS_?KEY|PRIVATE_?KEY", re.IGNORECASE)
"""Names whose values are secrets as a rule."""


def specify(
    recipe: str,
    *,
    on: str = "ray",
    out: str | None = None,
    overrides: Sequence[str] = (),
    working_dir: Path = Path(),
    address: str | None = None,
    env: Sequence[str] = (),
    secrets: Sequence[str] = (),
    requirements: Path | None = None,
    **same: Any,
) -> tuple[JobSpec, Recipe]:
    """The job that is asked for, and its recipe; `same` are fields of `JobSpec` as they are.

    Raises:
        RecipeError: the recipe cannot be read or lies where the job cannot read it; no such back end; an address that
            the back end has no use for; a place for the run that the job's machine has not; a variable that is no
            NAME=VALUE, or a secret's value on the command line.
    """
    back_end = next((one for one in BACK_ENDS if one == on), None)
    if back_end is None:
        raise RecipeError(f"there is no back end {on!r}", f"give --on {', '.join(BACK_ENDS)}")
    if address is not None and on != "ray":
        raise RecipeError(f"--address is of a Ray cluster, and the job goes to {on}", "leave it out, or give --on ray")
    where = working_dir.resolve()
    if not where.is_dir():
        raise RecipeError(f"there is no folder {working_dir}", "give --working-dir the folder that is sent")
    loaded = load(recipe, overrides)
    # Ray's own client obeys these before its argument, so a job would go there whatever we wrote down.
    told = os.environ.get("RAY_API_SERVER_ADDRESS") or os.environ.get("RAY_ADDRESS")
    address = (address or told or None) if on == "ray" else None
    fields: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in same.items()}
    spec = JobSpec(
        **fields,
        id=new_id(loaded.name),
        name=loaded.name,
        on=back_end,
        recipe=_sent_recipe(recipe, where),
        out="",
        overrides=tuple(overrides),
        trust_code=is_trusting(),
        working_dir=str(where),
        address=address,
        env=dict(_variable(one) for one in env),
        secrets=tuple(_secret(one) for one in secrets),
        requirements=None if requirements is None else str(requirements.resolve()),
        workers=loaded.scale.verdicts + loaded.scale.samplers + loaded.scale.learners - 1,
    )
    return _with_out(spec, out or f"{loaded.run.folder}/{loaded.name}", out is not None), loaded


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
