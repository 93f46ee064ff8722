"""Imports that may fail: what a user names as `module:name`, and what comes with an extra; and the
user's consent.

Nothing is asked of an address that a file names, before the user names it, begins the run, or
consents to all. Nobody's code runs unasked. What the user typed runs; what a file names (a recipe,
a model's metadata, a run) runs only if it is of an installed package that declares Plumbline, or
with the user's consent to all of it (`--trust-code`).
"""

import importlib
import os
import re
import site
import sys
import traceback
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib.machinery import ModuleSpec
from importlib.metadata import Distribution, EntryPoint, distributions
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from plumbline.errors import ModelError, PlumblineError, RecipeError, UntrustedCodeError

CONSENT = "PLUMBLINE_TRUST_CODE"
"""The variable that holds what the user consented to, so that workers, jobs and sweeps inherit it:
`ALL`, or what was typed, an entry a line."""
ALL = "1"
_NAME = re.compile(r"(?<![^\s=,(\[{\"'])[^\W\d]\w*(?:\.[^\W\d]\w*)*:[^\W\d]\w*(?![\w:/.-])")
_RECIPE = (".yaml", ".yml")
"""What a name of code never ends with before the colon: `FILE.yaml:NAME` is a task in a file."""
_FILE = re.compile(r"(?<![\w./-])((?:[\w.-]*/)*\w+)\.py:")
_SET = re.compile(r"(?:^|[.=])((?:path|python|arguments|trust_remote_code)=.+)")
_PLACE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^\s\"',\[\]{}]+")
_read: dict[Path, str] = {}
_folders: set[Path] = set()
"""Where the files that were read lie."""

DISTRIBUTION = "plumbline-rl"
_OURS = "plumbline-"
"""What our own distributions are called: Plumbline and its environments."""


@cache
def extras() -> dict[str, tuple[str, ...]]:
    """Which modules each extra of the package brings, as its metadata say; nothing where it is not
    installed."""
    found: dict[str, list[str]] = {}
    for module, extra in _needs(_own_distributions().get(DISTRIBUTION)):
        if extra:
            found.setdefault(extra, []).append(module)
    return {extra: tuple(modules) for extra, modules in found.items()}


def _needs(one: Distribution | None) -> Iterator[tuple[str, str]]:
    """The modules that a distribution needs, each with the extra that brings it; "" where it always
    does."""
    for line in (one and one.requires) or ():
        name, _, condition = line.partition(";")
        extra = re.search(r"extra == ['\"]([\w-]+)['\"]", condition)
        if not name.startswith(_OURS) and (extra is None or extra[1] != "dev"):
            yield re.split(r"[^\w.-]", name)[0].replace("-", "_").lower(), extra[1] if extra else ""


def needs_of(entry: EntryPoint) -> list[str]:
    """The modules that the package which declares an entry needs: always, or by an extra with the
    entry's name."""
    return [
        module
        for module, extra in _needs(entry.dist)
        if extra in {"", entry.name.replace("_", "-")}
    ]


@cache
def _own_distributions() -> dict[str, Distribution]:
    """Plumbline and its environments as they are installed, by name."""
    return {one.name: one for one in reversed([*distributions()]) if _is_ours(one)}


def _is_ours(one: Distribution) -> bool:
    return (one.name or "").startswith(_OURS)  # what is left of an uninstalled one has no name


def own_folders() -> list[str]:
    """Plumbline and its environments as they are installed here, for a machine without them:
    packages, and the metadata that declare tasks.

    Raises:
        ModelError: Plumbline is not installed, and only found on the path.
    """
    if DISTRIBUTION not in _own_distributions():
        raise ModelError("Plumbline is not installed here", "pip install -e . in a clone of it")
    names = sorted({"plumbline", *(name.replace("-", "_") for name in _own_distributions())})
    found = [
        Path(str(spec.origin)).parent for name in names if (spec := find_spec(name)) and spec.origin
    ]
    paths = [(one, path) for one in _own_distributions().values() for path in one.files or ()]
    found += sorted(
        Path(str(one.locate_file(path.parent))) for one, path in paths if path.name == "METADATA"
    )
    return [*map(str, found)]


def find_requirement(module: str) -> str | None:
    """What pip installs, in a clone, to bring a module or the package that it is in; None where
    nothing of ours does.

    The environment `plumbline-NAME` is the folder environments/NAME.
    """
    root = module.partition(".")[0]
    for name, one in sorted(_own_distributions().items(), key=lambda item: item[0] != DISTRIBUTION):
        for needs, extra in _needs(one):
            if needs == root:
                folder = (
                    "." if name == DISTRIBUTION else f"./environments/{name.removeprefix(_OURS)}"
                )
                return f"'{folder}[{extra}]'" if extra else folder
    return None


def missing_module_error(
    what: str,
    error: ImportError | str,
    kind: type[PlumblineError] = ModelError,
    *,
    lighter: str = "",
) -> PlumblineError:
    """The error that says what is not installed, and which extra or environment brings it.

    Args:
        what: needs it.
        error: of its import, or the module's name.
        kind: of the error.
        lighter: another way to install it, with less.
    """
    module = error if isinstance(error, str) else str(error.name)
    brings = find_requirement(module)
    # From a clone: Plumbline is on no package index yet.
    advice = (
        f"pip install {brings} in a clone of Plumbline"
        if brings
        else f"pip install {module.partition('.')[0]}"
    )
    return kind(
        f"{what} needs {module}, which is not installed",
        f"{advice}; or {lighter}" if lighter else advice,
    )


def import_needed(module: str, what: str, kind: type[PlumblineError] = ModelError) -> Any:
    """A module that an extra brings, imported; `what` needs it.

    Raises:
        PlumblineError: of this kind: it is not installed.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise missing_module_error(what, error, kind) from error


def check_installed(what: str, modules: Sequence[str]) -> None:
    """Ask whether modules are there, without importing them.

    Raises:
        ModelError: names the first that is not, and its extra.
    """
    for module in modules:
        if find_spec(module) is None:
            raise missing_module_error(what, module)


def module_names(names: str) -> str:
    """Names of code with files written as modules: `rewards/math.py:score` is
    `rewards.math:score`; a file outside of the working directory stays as it is."""
    here = Path.cwd()

    def to_module(file: re.Match[str]) -> str:
        path = Path(os.path.normpath(here / file[1]))
        parts = path.relative_to(here).parts if path.is_relative_to(here) else ("",)
        return f"{'.'.join(parts)}:" if all(map(str.isidentifier, parts)) else file[0]

    return _FILE.sub(to_module, names)


def import_named(name: str, what: str) -> Any:
    """The object that is named as `module:name`; `what` is what it should be.

    They are also looked for in the working directory, after everything that is installed, and with
    consent to all code beside a recipe that names them. Every exception of the import is caught
    here, because beyond lies a module of the user's, which may do anything.

    Raises:
        UntrustedCodeError: a file names it, and the user did not consent.
        RecipeError: there is no such module or no such name in it, or the module fails while it is
            imported.
    """
    module, _, attribute = name.partition(":")
    here = str(Path.cwd())
    beside = [str(folder) for folder in _folders_beside(module) if is_trusting()]
    places = ", ".join(dict.fromkeys([here, *beside]))
    advice = (
        "write it as module:name; modules are looked for among the installed packages and then in "
        f"{places}"
    )
    if (
        not attribute
        or not all(part.isidentifier() for part in module.split("."))
        or _is_file(module)
    ):
        if "/" in name:
            advice = "start the command in the folder of the file, and leave the folder out"
        raise RecipeError(f"{name} names no {what}", advice)
    if not is_allowed(name):
        raise untrusted_code_error(f"the {what} {name}", name, code_file(module))
    if not {"", here} & set(sys.path):
        sys.path.append(here)
    sys.path += [folder for folder in beside if folder not in sys.path]
    return _import_attribute(name, what, advice)


def import_own(name: str, what: str) -> Any:
    """The object that Plumbline's own code names as `module:name`; no name of a file's comes here.

    Raises:
        RecipeError: see `import_named`.
    """
    return _import_attribute(name, what, "install Plumbline again")


def plugins(group: str) -> dict[str, EntryPoint]:
    """What installed packages declare in a group of entry points, such as `plumbline.tasks`, by
    name.

    A folder that the user works in declares nothing: see `is_allowed`.
    """
    entries = _entries(tuple(sys.path))
    return {
        entry.name: entry
        for entry, place in entries
        if entry.group == group and _is_installed(place)
    }


@cache
def _entries(path: tuple[str, ...]) -> list[tuple[EntryPoint, Path]]:
    """What the distributions on a path declare for Plumbline, and where they lie."""
    return [
        (entry, Path(str(one.locate_file(""))))
        for one in distributions(path=list(path))
        for entry in one.entry_points
        if entry.group.startswith("plumbline.")
    ]


def load_entry_point(entry: EntryPoint, what: str) -> Any:
    """The object that an installed package declares; `what` is what it should be.

    Raises:
        RecipeError: see `import_named`.
    """
    return _import_attribute(
        entry.value, what, f"install the package that declares {entry.name} again"
    )


def _import_attribute(name: str, what: str, advice: str) -> Any:
    module, _, attribute = name.partition(":")
    try:
        return getattr(importlib.import_module(module), attribute)
    except ModuleNotFoundError as error:
        if find_requirement(error.name or "") is not None:
            raise missing_module_error(f"the {what} {name}", error, RecipeError) from error
        package = (error.name or module).partition(".")[0]
        raise RecipeError(
            f"cannot open the {what} {name}: {error}",
            f"pip install {package}, where it is a package that this Python lacks; else {advice}",
        ) from error
    except AttributeError as error:
        if module not in sys.modules:  # it broke while it was imported
            raise _import_error(name, what, module, error) from error
        place = getattr(sys.modules[module], "__file__", None)
        raise RecipeError(
            f"cannot open the {what} {name}: module {module} has no "
            f"{attribute}{f' ({place})' if place else ''}",
            advice,
        ) from error
    # a script that reads its command line, or ends, when it is imported
    except (Exception, SystemExit) as error:
        raise _import_error(name, what, module, error) from error


# -- consent ---------------------------------------------------------------------------------------


def note_typed(words: Iterable[str]) -> None:
    """Note what the user wrote: every `module:name` and every address in these words, and of
    `KEY=VALUE` those that `check_consent` asks for, by the last part of the key."""
    words = list(words)
    note_addresses(words)
    words += [module_names(word) for word in words]
    names = [
        one for word in words for one in _NAME.findall(word) if not _is_file(one.partition(":")[0])
    ]
    _note([*names, *(one for word in words for one in _SET.findall(word) if "\n" not in one)])


def note_addresses(words: Iterable[str]) -> None:
    """Note the addresses in these words, which may be asked: what was typed, or the recipe of a run
    that begins."""
    _note([place for word in words for place in _PLACE.findall(word)])


def _note(entries: list[str]) -> None:
    if not is_trusting():
        os.environ[CONSENT] = "\n".join(dict.fromkeys([*filter(None, _noted_texts()), *entries]))


def _noted_texts() -> list[str]:
    return os.environ.get(CONSENT, "").split("\n")


def trust() -> None:
    """Consent to all code, in this process and in those that it starts."""
    os.environ[CONSENT] = ALL


def is_trusting() -> bool:
    """Whether the user consented to all code."""
    return os.environ.get(CONSENT) == ALL


@contextmanager
def consent(everything: bool) -> Iterator[None]:
    """What is typed in this block holds for the block; with `everything` whatever a file names is
    imported in it."""
    before = os.environ.get(CONSENT)
    if everything:
        trust()
    try:
        yield
    finally:
        os.environ.pop(CONSENT, None)
        if before is not None:
            os.environ[CONSENT] = before


def note_file_text(path: Path, text: str) -> None:
    """Note what a file says, so that a refusal can tell which file names the code."""
    _read.pop(path, None)
    _read[path] = text
    _folders.add(path.resolve().parent)


def is_consented(entry: str) -> bool:
    """Whether the user typed a `module:name`, a `KEY=VALUE` or, with any value, a `KEY=`; or
    consented to all code."""
    return is_trusting() or any(
        entry == one or (entry[-1:] == "=" and one.startswith(entry)) for one in _noted_texts()
    )


def check_consent(entry: str, what: str, written: str, place: object) -> None:
    """Refuse code that is not named as `module:name`: a folder's, an interpreter.

    Args:
        entry: see `is_consented`.
        what: see `untrusted_code_error`, like the others.
        written: how the file writes it.
        place: where the code lies.

    Raises:
        UntrustedCodeError: a file names it, and the user did not consent.
    """
    if not is_consented(entry):
        raise untrusted_code_error(what, written, place)


def check_reach(place: str, what: str) -> None:
    """Refuse to ask an address that a file names.

    Args:
        place: the address; one that the user typed counts for all below it.
        what: lies there.

    Raises:
        UntrustedCodeError: neither did the user type it, nor consent to all.
    """
    if not is_trusting() and not any(
        one and f"{place}/".startswith(f"{one.rstrip('/')}/") for one in _noted_texts()
    ):
        raise UntrustedCodeError(
            f"{_naming_file(place)} names {what} at {place}, and nothing is asked of an address because "
            "a file says so",
            "if you trust it, give it on the command line (--set), or add --trust-code (in Python: "
            "trust_code=True)",
        )


def is_allowed(name: str) -> bool:
    """Whether what is named as `module:name` may be imported. Nothing is imported to decide it."""
    opens = any(entry.value == name for entry in plugins("plumbline.tasks").values())
    return opens or is_consented(name) or _is_declared(name.partition(":")[0].partition(".")[0])


def untrusted_code_error(what: str, written: str, place: object) -> UntrustedCodeError:
    """The error for code that a file names without the user's consent.

    Args:
        what: the file names.
        written: how the file writes it.
        place: where the code lies; None where that is not known.
    """
    lies, first = f"whose code is {place}", ""
    if place is None:
        lies = "whose code is not found"
        first = "start the command where its code lies, or put that beside the recipe; "
    return UntrustedCodeError(
        f"{_naming_file(written)} names {what}, {lies}; nothing of it was run",
        f"{first}if it is yours, or you have read it, add --trust-code (in Python: trust_code=True)",
    )


def _naming_file(written: str) -> str:
    """The file that says something, the last that was read."""
    return next((str(path) for path, text in reversed(_read.items()) if written in text), "a file")


def code_file(module: str) -> Path | None:
    """The file of a module, found without an import: among what is installed, then in the working
    directory, then beside a file that names it."""
    top, *inner = module.split(".")
    spec = _spec(top)
    if spec is not None and not inner:
        return Path(str(spec.origin))
    own = spec.submodule_search_locations or () if spec and inner else ()
    for place in [
        *(Path(folder, *inner) for folder in own),
        *(Path(folder, top, *inner) for folder in (Path.cwd(), *_folders_beside(module))),
    ]:
        for file in (place.with_name(f"{place.name}.py"), place / "__init__.py"):
            if file.is_file():
                return file
    return None


def _is_file(module: str) -> bool:
    return module.casefold().endswith(_RECIPE)


def _folders_beside(module: str) -> list[Path]:
    """The folders of the files that name something of a module; the last that was read is the
    first."""
    return [
        path.resolve().parent
        for path, text in reversed(_read.items())
        if f"{module}:" in module_names(text)
    ]


def _spec(top: str) -> ModuleSpec | None:
    """Of a module at the top with a file of its own: no namespace, which any folder is, and nothing
    built in."""
    try:
        spec = find_spec(top)
    except (ImportError, ValueError, AttributeError):
        return None
    return spec if spec is not None and spec.has_location and spec.origin else None


def _is_declared(top: str) -> bool:
    """Whether an installed distribution brings a module at the top and declares that it is for
    Plumbline.

    Other packages do not count: a file could name `os:system` or `pandas:read_pickle`, and say what
    they are called with. Nor does our own, most of whose functions are for no file.
    """
    spec = _spec(top)
    if spec is None or not _is_installed(Path(str(spec.origin))):
        return False
    return any(
        not _is_ours(one) and _declares(one) and top in _modules(one)
        for one in distributions()
        if _is_installed(Path(str(one.locate_file(""))))
    )


def _is_installed(place: Path) -> bool:
    """Whether a place is outside of the working directory and of the folders of the files that were
    read; an environment of Python may lie within them."""
    above = {(place := place.resolve()), *place.parents}
    return not above.isdisjoint(_environments()) or above.isdisjoint({Path.cwd(), *_folders})


@cache
def _environments() -> list[Path]:
    """Where packages are installed."""
    return [Path(one).resolve() for one in (*site.getsitepackages(), site.getusersitepackages())]


def _declares(one: Distribution) -> bool:
    return any(entry.group.startswith("plumbline") for entry in one.entry_points) or any(
        re.match(r"plumbline([-_.]+rl)?(?![\w.-])", needs, re.IGNORECASE)
        for needs in one.requires or ()
    )


def _modules(one: Distribution) -> set[str]:
    """Modules at the top that a distribution brings; those that its entry points name, for one that
    is editable."""
    files = {
        path.parts[0].partition(".")[0]
        for path in one.files or ()
        if path.suffix in {".py", ".so", ".pyd"}
    }
    entries = {
        entry.module.partition(".")[0]
        for entry in one.entry_points
        if entry.group.startswith("plumbline")
    }
    return files | entries | {*(one.read_text("top_level.txt") or "").split()}


def _import_error(name: str, what: str, module: str, error: BaseException) -> RecipeError:
    last = traceback.extract_tb(error.__traceback__)[-1]
    where = "" if isinstance(error, SyntaxError) else f" ({last.filename}, line {last.lineno})"
    said = " ".join(str(error).split())
    return RecipeError(
        f"cannot open the {what} {name}: its module fails with {type(error).__name__}: "
        f"{said}{where}",
        f"correct it until `python -c 'import {module}'` is silent",
    )
