"""The benchmark's pages as they are served here: the same, but that nothing is loaded from anywhere else.

Styles and scripts from content networks are removed; only looks depend on them. A form's own address is taken out of
it, so that it is sent to the episode's.
"""

import re
from html import escape

_LINK = re.compile(r"<link\b[^>]*?\bhref\s*=\s*[\"']?(?:https?:)?//[^\"'\s>]+[^>]*>", re.IGNORECASE)
_SCRIPT = re.compile(
    r"<script\b[^>]*?\bsrc\s*=\s*[\"']?(?:https?:)?//[^\"'\s>]+[^>]*>.*?</script\s*>", re.IGNORECASE | re.DOTALL
)
_FORM = re.compile(r"<form\b[^>]*>", re.IGNORECASE)
_ACTION = re.compile(r"\s+action\s*=\s*(\"[^\"]*\"|'[^']*'|[^\s>]+)", re.IGNORECASE)


def local_page(html: str, path: str) -> str:
    """A page that needs nothing from elsewhere.

    Args:
        html: as the app renders it.
        path: of the form; an action that names it is removed.
    """

    def send_here(found: re.Match[str]) -> str:
        action = _ACTION.search(found.group(0))
        there = action.group(1).strip("\"'") if action else path
        return _ACTION.sub("", found.group(0)) if there in {"", path} else found.group(0)

    return _FORM.sub(send_here, _SCRIPT.sub("", _LINK.sub("", html)))


def as_text(content: str) -> str:
    """A reply that is no page, the way a browser shows it."""
    return f'<!doctype html>\n<html lang="en"><body><pre>{escape(content)}</pre></body></html>\n'
