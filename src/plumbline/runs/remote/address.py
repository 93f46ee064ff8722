"""What an address is, and which folder of this machine stands for it."""

import hashlib
import os
import re
from pathlib import Path

from plumbline.errors import PlumblineError, RecipeError
from plumbline.storage import read_object

NOTE = ".remote.json"
"""In a folder that stands for an address: which one it is, and what was last known of it."""
WORKING = Path("runs") / ".remote"
"""Where runs at addresses work. Relative, so that a run names its files alike on every machine."""
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://.+", re.DOTALL)


def is_address(place: object) -> bool:
    """Whether something is `scheme://...`; everything else is a path."""
    return isinstance(place, str) and _ADDRESS.fullmatch(place) is not None


def checked(address: str) -> str:
    """An address as it is kept in records: without a slash at its end.

    Raises:
        RecipeError: it holds a password, which would stand in every record, or is no folder's.
    """
    scheme, _, rest = address.rstrip("/").partition("://")
    if "@" in rest.partition("/")[0]:
        raise RecipeError(
            f"the address {scheme}://...@{rest.partition('@')[2]} holds a user or a password, which would stand in "
            "every record of the run",
            "leave them out, and give them by the environment or fsspec's configuration (docs/remote.md)",
        )
    if not rest or ".." in rest.split("/"):
        raise RecipeError(f"{address} is no address of a folder", "write it as scheme://place/folder")
    return f"{scheme}://{rest}"


def only_here(place: str, what: str) -> Path:
    """A folder of this machine, for what cannot be written to an address.

    Raises:
        RecipeError: it is an address.
    """
    if is_address(place):
        raise RecipeError(
            f"{what} cannot be written to the address {place}", "give a folder of this machine with --out"
        )
    return Path(place)


def join(address: str, *parts: str) -> str:
    """An address below an address, or a path below a path."""
    return "/".join([address.rstrip("/"), *parts])


def name_of(address: str) -> str:
    """The last part of an address."""
    return re.sub(r"[^\w.-]", "-", address.rstrip("/").rpartition("/")[2]) or "run"


def folder_for(place: str) -> Path:
    """The folder in which a run works: a path itself, of an address `runs/.remote/NAME-HASH` of the working directory.

    Raises:
        RecipeError: the address may not be used (see `checked`).
    """
    if not is_address(place):
        return Path(place)
    address = checked(place)
    return WORKING / f"{name_of(address)}-{hashlib.sha256(address.encode()).hexdigest()[:8]}"


def cache() -> Path:
    """Where fetched files are kept: PLUMBLINE_CACHE, else `plumbline` in the user's cache. It may be removed."""
    given = os.environ.get("PLUMBLINE_CACHE")
    home = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(given or f"{home}/plumbline").expanduser()


def portable(path: str) -> str:
    """The address of what lies in a folder that stands for one; any other path as it is.

    What a record says of a model must hold on another machine, too.
    """
    place = Path(path)
    if is_address(path) or not place.exists():
        return path
    for folder in (place, *place.parents):
        if (folder / NOTE).is_file():
            try:
                address = str(read_object(folder / NOTE)["address"])
            except (PlumblineError, KeyError):
                return path
            return "/".join([address, *place.relative_to(folder).parts])
    return path
