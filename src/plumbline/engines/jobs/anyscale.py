"""A job for Anyscale as two files: `job.yaml` and, where no image is named, a `Containerfile`. Nothing of Anyscale's is
imported: its SDK adds 154 MB, and its command line reads the file.

The fields are those of `JobConfig` in anyscale 0.26.112 (job/models.py, _private/workload/workload_config.py).
"""

import shlex
from pathlib import Path

import yaml

import plumbline
from plumbline.config.imports import extras, own_folders
from plumbline.engines.jobs.job import JobSpec
from plumbline.engines.jobs.package import installed
from plumbline.errors import DataError
from plumbline.recipe import Recipe

RAY = "2.60.0"
"""Of the base image where there is no Ray here."""
BASE_IMAGE = "anyscale/ray:{ray}-slim-py312-cu128"
"""The form of the names of Anyscale's images."""
BASE = ("numpy", "pydantic", "pyyaml", "rich", "typer")
"""What Plumbline itself depends on."""


def plan(spec: JobSpec, recipe: Recipe, folder: Path) -> tuple[dict[str, str], str]:
    """The text of each file of a job by its name, and the command that sends them once they are in the folder.

    A job is not retried by Anyscale (max_retries 0): it would begin anew in a folder that holds a run. The same command
    with --resume goes on.

    Raises:
        DataError: what the image needs is not here, so there is nothing to pin it to.
    """
    built = spec.image is None
    values = {
        "name": spec.id,
        "entrypoint": shlex.join(spec.command()),
        "image_uri": spec.image,
        "containerfile": str(folder / "Containerfile") if built else None,
        "compute_config": spec.compute,
        "working_dir": spec.working_dir,
        "excludes": list(spec.excludes) or None,
        "requirements": spec.requirements,
        "env_vars": {**spec.env, "PYTHONUNBUFFERED": "1"},
        "py_modules": own_folders(),
        "max_retries": 0,
        "timeout_s": spec.timeout,
        "tags": {"plumbline": plumbline.__version__, "recipe": recipe.name},
    }
    given = {key: value for key, value in values.items() if value is not None}
    texts = {"job.yaml": yaml.safe_dump(given, sort_keys=False, allow_unicode=True, width=120)}
    if built:
        texts["Containerfile"] = _containerfile(spec, recipe)
    return texts, shlex.join(["anyscale", "job", "submit", "-f", str(folder / "job.yaml")])


def _containerfile(spec: JobSpec, recipe: Recipe) -> str:
    """An image with the packages that are installed here, each pinned to its version; Plumbline itself is sent."""
    base = BASE_IMAGE.format(ray=installed("ray") or RAY)
    if spec.requirements is not None:
        return f"# Packages: requirements in job.yaml.\nFROM {base}\n"
    named = {one.name for one in recipe.each_task.values()}  # a task's extra has its name
    wanted = ("train", *(extra for extra in extras() if extra in named))
    pins = {name: installed(name) for name in {*BASE, *(one for extra in wanted for one in extras()[extra])}}
    if absent := sorted(name for name, version in pins.items() if version is None):
        raise DataError(
            f"there is no {absent[0]} here, to whose version the job's image could be pinned",
            "install it, or give the job's packages with --requirements FILE",
        )
    rows = " \\\n    ".join(f"{name}=={version}" for name, version in sorted(pins.items()))
    return f"FROM {base}\nRUN pip install --no-cache-dir \\\n    {rows}\n"
