"""The packages of a job: versions of a requirements file beside what is installed here, and pins made of that."""

import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from plumbline.checks.diagnosis.finding import Finding
from plumbline.config.imports import extras as known_extras
from plumbline.errors import DataError
from plumbline.storage import read_text

BASE = ("numpy", "pydantic", "pyyaml", "rich", "typer")
"""What Plumbline itself depends on."""
PINNED = re.compile(r"([A-Za-z0-9._-]+)(?:\[[^\]]*\])?\s*===?\s*([^\s;,#*]+)\s*(?:;.*|--hash.*)?$")
NAMED = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
SECONDS = 120


def requirement_findings(path: Path, here: bool) -> Iterator[Finding]:
    """What is wrong with a requirements file: no such file, lines without a pin, pins that pip cannot bring together.

    Args:
        path: of the file.
        here: whether the job runs by this interpreter, which has its packages already.
    """
    try:
        lines = [line.strip() for line in read_text(path).splitlines()]
    except DataError as error:
        yield Finding("requirements", "fatal", error.cause, fix=error.fix)
        return
    wanted = [line for line in lines if line and not line.startswith(("#", "-"))]
    pins = {found[1].lower().replace("_", "-"): found[2] for line in wanted if (found := PINNED.match(line))}
    if loose := [line for line in wanted if not PINNED.match(line) and "@" not in line]:
        yield Finding(
            "requirements",
            "warning",
            f"{len(loose)} of {len(wanted)} lines of {path.name} are not pinned to a version, such as {loose[0]}: the "
            "cluster may install others than were tried here",
            fix=f"write {NAMED.match(loose[0])[0] if NAMED.match(loose[0]) else loose[0]}==VERSION",  # type: ignore[index]
        )
    other = {name: (pin, own) for name, pin in pins.items() if (own := installed(name)) not in {None, pin}}
    if other:
        name, (pin, own) = next(iter(other.items()))
        yield Finding(
            "requirements",
            "warning",
            f"{len(other)} packages are pinned to other versions than those that this was tried with here, such as "
            f"{name}=={pin} ({own} here)",
            evidence={name: {"pinned": pin, "here": own} for name, (pin, own) in other.items()},
        )
    if not here:
        yield from _resolved(path)


def _resolved(path: Path) -> Iterator[Finding]:
    """Whether pip finds one set of packages for the file; it installs nothing."""
    if find_spec("pip") is None:
        yield Finding("requirements", "note", "whether the pins go together was not asked: there is no pip here")
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
        str(path),
    ]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)  # noqa: S603
    except subprocess.TimeoutExpired:
        yield Finding("requirements", "note", f"pip did not say in {SECONDS} s whether the pins go together")
        return
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if line.startswith("ERROR:")] or ["ERROR: nothing"]
        yield Finding(
            "requirements",
            "fatal",
            f"pip cannot install {path.name}: {said[-1].removeprefix('ERROR: ')}",
            evidence={"said": said[:10]},
            fix=f"python -m pip install --dry-run -r {path}",
        )


def installed(name: str) -> str | None:
    """The version of a package that is installed here."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def pins(extras: tuple[str, ...]) -> dict[str, str]:
    """What a job needs, pinned to what is installed here, by name.

    Raises:
        DataError: one of them is not here, so there is nothing to pin it to.
    """
    found = {}
    for name in (*BASE, *(module for extra in extras for module in known_extras()[extra])):
        version = installed(name)
        if version is None:
            raise DataError(
                f"there is no {name} here, to whose version the job's image could be pinned",
                "install it, or give the job's packages with --requirements FILE",
            )
        found[name] = version
    return found
