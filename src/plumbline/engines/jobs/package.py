"""Which files of a working directory a cluster would be sent, by Ray's own patterns, and the rule of what is left out.

Ray's rules are not git's. It reads .gitignore and .rayignore in the folder and in every folder below it that is sent;
files above it, the user's own and .git/info/exclude are not read. `!` takes back what an earlier line of the same file
left out, and never what another file did. `tests/jobs/test_package.py` compares with what Ray zips.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plumbline.config.imports import missing
from plumbline.errors import StorageError
from plumbline.storage import read_text

LIMIT = 100 * 1024 * 1024
"""Bytes of a package that Ray's dashboard, which takes jobs, accepts (2.60); it is zipped without compression."""


@dataclass(frozen=True, slots=True)
class Package:
    """The files that would be sent."""

    folder: Path
    files: dict[str, int]
    """Bytes of each file by its path from the folder."""
    left_out: dict[str, str]
    """The rule by each path that one leaves out; what is below a folder is not listed by itself."""

    @property
    def bytes(self) -> int:
        """Of all files, before they are compressed."""
        return sum(self.files.values())

    def lacking(self, path: Path) -> dict[str, str]:
        """What of a file or folder is left out, by which rule; empty where all of it is sent."""
        name = os.path.relpath(Path.cwd() / path, self.folder)
        above = [str(one) for one in (Path(name), *Path(name).parents)]
        whole = {one: self.left_out[one] for one in above if one in self.left_out}
        return whole or {one: rule for one, rule in self.left_out.items() if one.startswith(f"{name}/")}

    def lines(self, most: int = 12) -> Sequence[str]:
        """What would be sent, for people: totals, and each folder at the top."""
        tops: dict[str, list[int]] = {}
        for name, size in self.files.items():
            top, slash, _ = name.partition("/")
            tops.setdefault(f"{top}/" if slash else top, []).append(size)
        shown = sorted(tops.items(), key=lambda one: -sum(one[1]))
        rows = [f"{name:24} {len(sizes):6,} files {sum(sizes) / 2**20:9.2f} MiB" for name, sizes in shown[:most]]
        more = [f"and {len(shown) - most} more"] if len(shown) > most else []
        out = [f"left out: {name}  ({rule})" for name, rule in list(self.left_out.items())[:most]]
        over = len(self.left_out) - most
        return [*rows, *more, *out, *([f"and {over:,} more paths left out"] if over > 0 else [])]


def package_of(folder: Path, excludes: Sequence[str] = ()) -> Package:
    """The package of a folder.

    Args:
        folder: the working directory.
        excludes: patterns beside Ray's own, as in a .gitignore file.

    Raises:
        ModelError: Ray, whose rules these are, is not installed.
        StorageError: the folder or an ignore file in it cannot be read.
    """
    try:
        from ray._private import ray_constants
        from ray._private.thirdparty.pathspec.patterns import GitWildMatchPattern
    except ModuleNotFoundError as error:
        raise missing("a look at what a cluster is sent", error, extra="ray") from error
    package = Package(folder.resolve(), {}, {})
    names = [".gitignore", ".rayignore"]
    if os.environ.get(ray_constants.RAY_RUNTIME_ENV_IGNORE_GITIGNORE, "0") == "1":
        names.pop(0)

    def rules(lines: Sequence[str], place: str) -> list[tuple[Any, str]]:
        """Each pattern with what is said of it, the last line first, because the last that matches decides."""
        in_file = Path(place).is_absolute()
        texts = [(line, f"{place}:{at}" if in_file else place) for at, line in enumerate(lines, 1) if line]
        return [(GitWildMatchPattern(line), f"{where}: {line.strip()}") for line, where in reversed(texts)]

    def walk(path: Path, scopes: Sequence[tuple[Path, Sequence[tuple[Any, str]]]]) -> None:
        """Add a path and what is below it; a folder's own ignore files are asked of it, too, as Ray does."""
        files = [path / name for name in names if (path / name).is_file()] if path.is_dir() else []
        scopes = [*scopes, *((path, rules(read_text(one, StorageError).splitlines(), str(one))) for one in files)]
        name = str(path.relative_to(package.folder))
        for base, known in scopes:
            below = str(path.relative_to(base))
            matching = next(((one, said) for one, said in known if any(one.match([below]))), None)
            if matching is not None and matching[0].include:
                package.left_out[name] = matching[1]
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
        said = f"cannot read {error.filename}: {error.strerror}"
        raise StorageError(said, "let the job's folder be readable") from error
    return package
