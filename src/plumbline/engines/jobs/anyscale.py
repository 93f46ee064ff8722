"""A job for Anyscale as two files: `job.yaml` and, where no image is named, a `Containerfile`. Nothing of Anyscale's is
imported: its SDK adds 154 MB, and its command line reads the file.

The fields are those of `JobConfig` in anyscale 0.26.112 (job/models.py, _private/workload/workload_config.py).
"""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import yaml
from pydantic import ConfigDict

import plumbline
from plumbline.config.imports import extras
from plumbline.config.overrides import read_yaml
from plumbline.config.section import section
from plumbline.engines.jobs.pins import installed, pins
from plumbline.engines.jobs.spec import JobSpec
from plumbline.errors import RecipeError
from plumbline.recipe import Recipe
from plumbline.storage import SMALL, clear_os_errors, read_text, write_text

RAY = "2.60.0"
"""Of the base image where there is no Ray here."""
BASE_IMAGE = "anyscale/ray:{ray}-slim-py312-cu128"
"""The form of the names of Anyscale's images."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnyscaleJob:
    """Anyscale's own fields, and no others."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")
    name: str
    entrypoint: str
    image_uri: str | None = None
    containerfile: str | None = None
    compute_config: str | Mapping[str, Any] | None = None
    working_dir: str | None = None
    excludes: Sequence[str] | None = None
    requirements: str | Sequence[str] | None = None
    env_vars: Mapping[str, str] | None = None
    py_modules: Sequence[str] | None = None
    py_executable: str | None = None
    cloud: str | None = None
    project: str | None = None
    registry_login_secret: str | None = None
    ray_version: str | None = None
    connections: Sequence[str] | None = None
    priority: int | None = None
    max_retries: int = 1
    timeout_s: int | None = None
    job_queue_config: Mapping[str, Any] | None = None
    tags: Mapping[str, str] | None = None

    def __post_init__(self) -> None:
        if self.image_uri is not None and self.containerfile is not None:
            raise RecipeError("a job has image_uri and containerfile", "give one of them")
        if self.max_retries < 0:
            raise RecipeError(f"max_retries is {self.max_retries}", "give 0 or more")

    def to_yaml(self) -> str:
        """What `anyscale job submit -f` reads; what is not set is left out."""
        values = {key: value for key, value in asdict(self).items() if value not in (None, [], {})}
        return yaml.safe_dump(values, sort_keys=False, allow_unicode=True, width=120)


def read_job(path: Path) -> AnyscaleJob:
    """A job's YAML, checked.

    Raises:
        RecipeError: it is no YAML, lacks a field, or has one that Anyscale does not know.
    """
    values = read_yaml(read_text(path, RecipeError, SMALL), str(path))
    if not isinstance(values, dict):
        raise RecipeError(f"{path} is no mapping of fields", "see docs/jobs.md")
    known = ", ".join(AnyscaleJob.__dataclass_fields__)
    return section(AnyscaleJob, values, str(path), advice=f"Anyscale's fields are {known}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What was written, and what to do with it."""

    files: Sequence[str]
    command: str
    texts: Mapping[str, str] = field(default_factory=dict)
    """By file name."""


def plan(spec: JobSpec, recipe: Recipe, folder: Path) -> Written:
    """The files of a job, not yet written.

    A job is not retried by Anyscale (max_retries 0): it would begin anew in a folder that holds a run. The same command
    with --resume goes on.

    Raises:
        RecipeError: the fields do not go together.
        DataError: what the image needs is not here, so there is nothing to pin it to.
    """
    built = spec.cloud.image is None
    job = AnyscaleJob(
        name=spec.id,
        entrypoint=shlex.join(spec.command()),
        image_uri=spec.cloud.image,
        containerfile=str(folder / "Containerfile") if built else None,
        compute_config=spec.cloud.compute,
        working_dir=spec.working_dir,
        excludes=list(spec.excludes) or None,
        requirements=spec.requirements,
        env_vars={**spec.env, "PYTHONUNBUFFERED": "1"},
        py_modules=[str(Path(plumbline.__file__).parent)],
        max_retries=0,
        timeout_s=spec.cloud.timeout,
        tags={"plumbline": plumbline.__version__, "recipe": recipe.name},
    )
    texts = {"job.yaml": job.to_yaml()}
    if built:
        texts["Containerfile"] = containerfile(spec, recipe)
    command = shlex.join(["anyscale", "job", "submit", "-f", str(folder / "job.yaml")])
    return Written(files=[str(folder / name) for name in texts], command=command, texts=texts)


def write(planned: Written, folder: Path) -> None:
    """Write the files, and read the YAML again as Anyscale would.

    Raises:
        StorageError: the folder cannot be written.
    """
    with clear_os_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    for name, text in planned.texts.items():
        write_text(folder / name, text)
    read_job(folder / "job.yaml")


def containerfile(spec: JobSpec, recipe: Recipe) -> str:
    """An image with the packages that are installed here, each pinned to its version; Plumbline itself is sent."""
    base = BASE_IMAGE.format(ray=installed("ray") or RAY)
    if spec.requirements is not None:
        return f"# Packages: requirements in job.yaml.\nFROM {base}\n"
    named = {one.name for one in recipe.each_task.values()}  # a task's extra has its name
    wanted = pins(("train", *(extra for extra in extras() if extra in named)))
    rows = " \\\n    ".join(f"{name}=={version}" for name, version in sorted(wanted.items()))
    return f"FROM {base}\nRUN pip install --no-cache-dir \\\n    {rows}\n"
