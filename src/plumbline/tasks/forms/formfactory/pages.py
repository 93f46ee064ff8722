"""The benchmark's pages as they are served here: the same, but that nothing is loaded from anywhere else.

Styles and scripts from content networks are replaced by local copies where the user has given them, and removed where
not; only looks depend on them. A form's own address is taken out of it, so that it is sent to the episode's.
"""

import re
from collections.abc import Collection, Mapping
from html import escape
from pathlib import Path

from plumbline.errors import DataError

ASSETS = "/assets/"
_LINK = re.compile(r"<link\b[^>]*?\bhref\s*=\s*[\"']?((?:https?:)?//[^\"'\s>]+)[^>]*>", re.IGNORECASE)
_SCRIPT = re.compile(
    r"<script\b[^>]*?\bsrc\s*=\s*[\"']?((?:https?:)?//[^\"'\s>]+)[^>]*>.*?</script\s*>", re.IGNORECASE | re.DOTALL
)
_FORM = re.compile(r"<form\b[^>]*>", re.IGNORECASE)
_ACTION = re.compile(r"\s+action\s*=\s*(\"[^\"]*\"|'[^']*'|[^\s>]+)", re.IGNORECASE)


def local_page(html: str, path: str, assets: Collection[str]) -> str:
    """A page that needs nothing from elsewhere.

    Args:
        html: as the app renders it.
        path: of the form; an action that names it is removed.
        assets: names of the files that there are in place of those from content networks.
    """

    def own(found: re.Match[str]) -> str:
        address = found.group(1)
        name = asset_name(address, assets)
        return found.group(0).replace(address, ASSETS + name) if name else ""

    def send_here(found: re.Match[str]) -> str:
        action = _ACTION.search(found.group(0))
        there = action.group(1).strip("\"'") if action else path
        return _ACTION.sub("", found.group(0)) if there in {"", path} else found.group(0)

    return _FORM.sub(send_here, _SCRIPT.sub(own, _LINK.sub(own, html)))


def asset_name(address: str, assets: Collection[str]) -> str:
    """The local copy of an address: by the last part of its path, with or without an ending; "" where there is none."""
    last = address.split("?")[0].rstrip("/").rpartition("/")[2]
    return next((name for name in (last, f"{last}.min.js", f"{last}.js") if name in assets), "")


def read_assets(folder: str | None) -> Mapping[str, bytes]:
    """The files of a folder by name; none without a folder.

    Raises:
        DataError: there is no such folder.
    """
    if folder is None:
        return {}
    root = Path(folder).expanduser()
    if not root.is_dir():
        raise DataError(f"there is no folder {root}", "set task.options.assets to a folder of styles and scripts")
    return {path.name: path.read_bytes() for path in sorted(root.iterdir()) if path.is_file()}


def as_text(content: str) -> str:
    """A reply that is no page, the way a browser shows it."""
    return f'<!doctype html>\n<html lang="en"><body><pre>{escape(content)}</pre></body></html>\n'
