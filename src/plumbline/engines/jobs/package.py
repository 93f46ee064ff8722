"""Which files of a working directory a cluster would be sent: the rules of Ray's `working_dir`, without Ray.

They are not git's. Ray (2.60, `_private/runtime_env/packaging.py`) reads .gitignore and .rayignore in the folder and in
every folder below it that is not left out itself; those above it, the user's global one and .git/info/exclude are not
read. A pattern that ends with a slash leaves out what is in a folder. `!` takes back what an earlier line of the same
file left out, and never what another file did. `tests/jobs/test_package.py` compares with what Ray zips.
"""

import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from plumbline.errors import StorageError
from plumbline.storage import read_text

LIMIT = 100 * 1024 * 1024
"""Bytes of a package that Ray's dashboard, which takes jobs, accepts (2.60); it is zipped without compression."""
DEFAULTS = (".git", ".venv", "venv", "__pycache__")
"""What Ray 2.60 leaves out unless RAY_OVERRIDE_RUNTIME_ENV_DEFAULT_EXCLUDES says otherwise."""
IGNORE_FILES = (".gitignore", ".rayignore")


@dataclass(frozen=True, slots=True)
class Rule:
    """One line of an ignore file, or one exclude."""

    said: str
    """Where it stands and what it says."""
    leaves_out: bool
    matches: re.Pattern[str]


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

    def has(self, path: Path) -> bool:
        """Whether a file, or anything below a folder, would be sent."""
        name = self._name(path)
        return name in self.files or name == "." or any(file.startswith(f"{name}/") for file in self.files)

    def lacking(self, path: Path) -> dict[str, str]:
        """What of a file or folder is left out, by which rule; empty where all of it is sent."""
        name = self._name(path)
        above = [str(one) for one in (Path(name), *Path(name).parents)]
        whole = {one: self.left_out[one] for one in above if one in self.left_out}
        return whole or {one: rule for one, rule in self.left_out.items() if one.startswith(f"{name}/")}

    def _name(self, path: Path) -> str:
        return os.path.relpath(Path.cwd() / path, self.folder)


def package_of(folder: Path, excludes: Sequence[str] = ()) -> Package:
    """The package of a folder.

    Args:
        folder: the working directory.
        excludes: patterns beside Ray's own, as in a .gitignore file.

    Raises:
        StorageError: the folder or an ignore file in it cannot be read.
    """
    told = os.environ.get("RAY_OVERRIDE_RUNTIME_ENV_DEFAULT_EXCLUDES")
    defaults = DEFAULTS if told is None else [one.strip() for one in told.split(",") if one.strip()]
    first = [*_rules(defaults, "left out by Ray"), *_rules(excludes, "--exclude")]
    package = Package(folder.resolve(), {}, {})
    _walk(package, package.folder, [(package.folder, first)])
    return package


def _walk(package: Package, path: Path, scopes: Sequence[tuple[Path, Sequence[Rule]]]) -> None:
    """Add a path and what is below it; a folder's own ignore files are asked of it, too, as Ray does."""
    name = str(path.relative_to(package.folder))
    try:
        if path.is_dir():
            scopes = [*scopes, *((path, rules) for rules in _own_rules(path))]
        rule = next((found for base, rules in scopes if (found := _decides(rules, str(path.relative_to(base))))), None)
        if rule is not None:
            package.left_out[name] = rule.said
        elif path.is_dir():
            for one in sorted(path.iterdir()):
                _walk(package, one, scopes)
        elif path.is_file():
            package.files[name] = path.stat().st_size
    except OSError as error:
        raise StorageError(f"cannot read {path}: {error.strerror}", "let the job's folder be readable") from error


def _own_rules(folder: Path) -> Iterator[list[Rule]]:
    """The rules of each ignore file of a folder: one file takes nothing back that the other leaves out."""
    for name in IGNORE_FILES:
        skipped = name == ".gitignore" and os.environ.get("RAY_RUNTIME_ENV_IGNORE_GITIGNORE", "0") == "1"
        if not skipped and (folder / name).is_file():
            yield list(_rules(read_text(folder / name, StorageError).splitlines(), str(folder / name)))


def _decides(rules: Sequence[Rule], name: str) -> Rule | None:
    """The rule that leaves a path out: of those that match the last one, unless it takes the path back."""
    last = next((rule for rule in reversed(rules) if rule.matches.fullmatch(name)), None)
    return last if last is not None and last.leaves_out else None


def _rules(lines: Sequence[str], place: str) -> Iterator[Rule]:
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if not text or text.startswith("#") or text == "/":
            continue
        where = place if place.startswith(("left", "--")) else f"{place}:{number}"
        leaves_out = not text.startswith("!")
        pattern = text.removeprefix("!").removeprefix("\\")
        yield Rule(f"{where}: {text}", leaves_out, _expression(pattern, leaves_out))


def _expression(pattern: str, leaves_out: bool) -> re.Pattern[str]:
    """A pattern of an ignore file (gitignore(5)) as an expression of a path from where the file lies."""
    parts = pattern.split("/")
    if not parts[0]:
        parts = parts[1:]
    elif len(parts) == 1 or (len(parts) == 2 and not parts[1]):
        parts = parts if parts[0] == "**" else ["**", *parts]  # a name alone means it at any depth
    if len(parts) > 1 and not parts[-1]:
        parts[-1] = "**"  # a folder: all that is below it
    if parts == ["**"]:
        return re.compile(".+", re.DOTALL)
    found, slash = "", False
    for place, part in enumerate(parts):
        last = place == len(parts) - 1
        if part == "**":
            found += "(?:.+/)?" if place == 0 else "/.*" if last else "(?:/.+)?"
            slash = place > 0 and not last
            continue
        glob = "[^/]+" if part == "*" else "".join(_glob(part))
        below = "(?:/.*)?" if last and leaves_out and part != "*" else ""
        found, slash = f"{found}{'/' if slash else ''}{glob}{below}", True
    return re.compile(found)


_GLOB: Sequence[tuple[re.Pattern[str], Callable[[str], str]]] = (
    (re.compile(r"\\(.)", re.DOTALL), re.escape),
    (re.compile(r"(\*)"), lambda _: "[^/]*"),
    (re.compile(r"(\?)"), lambda _: "[^/]"),
    (re.compile(r"\[(!?\]?[^\]]*)\]"), lambda inside: _set(inside)),
    (re.compile(r"([^\\])|\\$", re.DOTALL), lambda one: re.escape(one or "")),
)


def _glob(part: str) -> Iterator[str]:
    """One name of a pattern; each piece as the first of `_GLOB` that fits."""
    place = 0
    while place < len(part):
        found, written = next((m, write) for shape, write in _GLOB if (m := shape.match(part, place)))
        yield written(found[1])
        place = found.end()


def _set(inside: str) -> str:
    negated = inside.startswith("!")
    held = inside[negated:]
    held = ("\\" + held if held.startswith("^") else held.replace("\\", "\\\\")).replace("[", "\\[")
    return f"[{'^' if negated else ''}{held}]"
