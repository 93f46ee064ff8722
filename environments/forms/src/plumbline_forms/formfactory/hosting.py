"""The benchmark's own Flask app, run inside this process, behind the forms site.

The app as published stores the first value of every name in a file that parallel requests corrupt,
and drops files. So its storing is switched off, and what Flask itself parsed from each request is
taken before the app looks at it. Nothing is written: not into the checkout (no byte code, no
submissions), and not where the user stands. Its pages are served as they are, but that nothing is
loaded from anywhere else, and that a form is sent to its episode.
"""

import contextlib
import importlib.util
import re
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping
from html import escape
from typing import Any

from plumbline.errors import DataError
from plumbline_forms.formfactory.checkout import Checkout
from plumbline_forms.site.page import Entries, FormView
from plumbline_forms.site.site import ReceivedPost, Response
from plumbline_forms.suite.declaration import Form

# -- the app ---------------------------------------------------------------------------------------

STORE = "save_submission_to_json"
"""The app's function that stores a submission."""
_TAP = "plumbline.tapped"
_FIX = "name a checkout of FormFactory in task.options.path (--path)"
_BROKEN = (
    ImportError,
    SyntaxError,
    OSError,
    LookupError,
    NameError,
    RuntimeError,
    TypeError,
    ValueError,
)
_importing = threading.Lock()


Asked = Callable[..., tuple[Response, Entries, Entries]]
"""Asks the app for a path: its reply, and the entries and the names of files that it received. It
may be called from several threads: no request shares anything with another."""


def import_app(checkout: Checkout) -> Asked:
    """Import the app of a checkout by its path, in an empty folder and without byte code beside the
    source.

    This runs the checkout's `app.py`; use one that you trust.

    Raises:
        DataError: it cannot be imported, or is not the app that it should be.
    """
    path, name = checkout.root / "app.py", f"plumbline_formfactory_{checkout.digest}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None  # noqa: PT018 - the name ends in .py
    module = importlib.util.module_from_spec(spec)
    with _importing, tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        before, sys.dont_write_bytecode = sys.dont_write_bytecode, True
        # before it runs: Flask looks here for the folder of its templates
        sys.modules[name] = module
        try:
            spec.loader.exec_module(module)
        except _BROKEN as error:
            del sys.modules[name]
            raise DataError(
                f"{path} cannot be imported: {error}",
                "install what it needs, or take a fresh checkout",
            ) from error
        finally:
            sys.dont_write_bytecode = before
    application: Any = getattr(module, "app", None)
    lacking = [] if hasattr(application, "test_client") else ["Flask application named app"]
    lacking += [] if callable(getattr(module, STORE, None)) else [f"function {STORE}"]
    if lacking:
        raise DataError(
            f"{path} is not the benchmark's app: it has no {' and no '.join(lacking)}", _FIX
        )
    setattr(module, STORE, lambda *_: None)
    application.before_request(_tap)

    def ask(path: str, **request: Any) -> tuple[Response, Entries, Entries]:
        tapped: list[tuple[Entries, Entries]] = []
        client = application.test_client(use_cookies=False)
        answer = client.open(path, environ_overrides={_TAP: tapped}, **request)
        response = Response(
            answer.status_code, answer.get_data(), {"content-type": answer.content_type or ""}
        )
        return response, *(tapped or [({}, {})])[0]

    return ask


def _tap() -> None:
    """Before every request: keep what Flask parsed, every value of every name."""
    from flask import request

    tapped = request.environ.get(_TAP)
    if tapped is None or request.method != "POST":
        return
    entries = {name: tuple(values) for name, values in request.form.to_dict(flat=False).items()}
    files = {
        name: tuple(one.filename for one in sent if one.filename)
        for name, sent in request.files.lists()
    }
    tapped.append((entries, {name: names for name, names in files.items() if names}))


# -- its pages -------------------------------------------------------------------------------------

_LINK = re.compile(r"<link\b[^>]*?\bhref\s*=\s*[\"']?(?:https?:)?//[^\"'\s>]+[^>]*>", re.IGNORECASE)
_SCRIPT = re.compile(
    r"<script\b[^>]*?\bsrc\s*=\s*[\"']?(?:https?:)?//[^\"'\s>]+[^>]*>.*?</script\s*>",
    re.IGNORECASE | re.DOTALL,
)
_FORM = re.compile(r"<form\b[^>]*>", re.IGNORECASE)
_ACTION = re.compile(r"\s+action\s*=\s*(\"[^\"]*\"|'[^']*'|[^\s>]+)", re.IGNORECASE)
POLICY = (
    "default-src 'none'; style-src 'self' 'unsafe-inline'; script-src 'self' 'unsafe-inline'; "
    "font-src 'self'; "
    "img-src 'self' data:; connect-src 'self'; form-action 'self'"
)
"""What a page may load: whatever comes from here, nothing from elsewhere."""


def local_page(html: str, path: str) -> str:
    """A page that needs nothing from elsewhere: styles and scripts of content networks are removed.

    Args:
        html: as the app renders it.
        path: of the form; an action that names it is removed.
    """

    def send_here(found: re.Match[str]) -> str:
        action = _ACTION.search(found.group())
        elsewhere = action is not None and action.group(1).strip("\"'") not in {"", path}
        return found.group() if elsewhere else _ACTION.sub("", found.group())

    return _FORM.sub(send_here, _SCRIPT.sub("", _LINK.sub("", html)))


class HostedForms:
    """See `plumbline_forms.site.site.Application`."""

    def __init__(self, ask: Asked, pages: Mapping[str, bytes]) -> None:
        """Nothing is asked yet.

        Args:
            ask: the app, which receives the forms.
            pages: of the forms, ready to be served, by the form's path.
        """
        self._ask = ask
        self._pages = {path: _page(200, content) for path, content in pages.items()}

    def page(self, view: FormView) -> Response:
        """See `Application.page`; pages depend on nothing, so each was asked for once, when the
        forms were read."""
        return self._pages[view.form.path]

    def take(self, view: FormView, content_type: str, body: bytes) -> ReceivedPost:
        """See `Application.take`: the app checks nothing, so whatever it does not fail on is taken.

        A redirect leads out of the episode, so what it says is shown in its place, and a reply that
        is no page is shown the way a browser does.
        """
        reply, entries, files = self._ask(
            view.form.path, method="POST", content_type=content_type, data=body
        )
        entries, files = in_terms_of(view.form, entries, files)
        text = reply.body.decode("utf-8", "replace")
        if not reply.headers["content-type"].startswith("text/html"):
            text = (
                f'<!doctype html>\n<html lang="en"><body><pre>{escape(text)}</pre></body></html>\n'
            )
        response = _page(200 if 300 <= reply.status < 400 else reply.status, text.encode())
        return ReceivedPost(
            entries,
            files,
            "" if reply.status < 400 else f"the app answered {reply.status}",
            response,
        )

    def other(self, path: str) -> Response | None:
        """See `Application.other`: the app's own static files."""
        return self._ask(path)[0] if path.startswith("/static/") else None


def in_terms_of(form: Form, entries: Entries, files: Entries) -> tuple[Entries, Entries]:
    """What arrived, as a declared form would have it.

    A ticked box is "on", whatever its value is on the page. A form that is sent urlencoded carries
    the names of files as texts; they are files all the same, and an empty one is none.
    """
    kept: dict[str, tuple[str, ...]] = {}
    attached = dict(files)
    for name, values in entries.items():
        kind = form.by_name[name].kind if name in form.by_name else ""
        if kind != "file":
            kept[name] = ("on",) if kind == "checkbox" else values
        elif names := tuple(filter(None, values)):
            attached[name] = attached.get(name, ()) + names
    return kept, attached


def _page(status: int, content: bytes) -> Response:
    return Response(
        status,
        content,
        {"content-type": "text/html; charset=utf-8", "content-security-policy": POLICY},
    )
