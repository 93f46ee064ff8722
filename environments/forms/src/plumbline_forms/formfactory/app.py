"""The benchmark's own Flask app, run inside this process, with a tap on what it receives.

The app as published stores the first value of every name in a file that parallel requests corrupt, and drops files.
So its storing is switched off, and what Flask itself parsed from each request is taken before the app looks at it.
Nothing is written: not into the checkout (no byte code, no submissions), and not where the user stands.
"""

import contextlib
import importlib.util
import sys
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from plumbline.errors import DataError
from plumbline_forms.formfactory.checkout import Checkout
from plumbline_forms.site.page import Entries

STORE = "save_submission_to_json"
"""The app's function that stores a submission."""
_TAP = "plumbline.tapped"
_importing = threading.Lock()


@dataclass(slots=True)
class Reply:
    """What the app answered, and what it had received."""

    status: int
    content_type: str
    body: bytes
    entries: Entries = field(default_factory=dict)
    files: Entries = field(default_factory=dict)
    """Names of the files by control; a control without a file is not here."""


class FlaskApp:
    """The app of a checkout. Safe to call from several threads: no request shares anything with another."""

    def __init__(self, application: Any) -> None:
        self._application = application

    def get(self, path: str) -> Reply:
        """Ask for a page."""
        return self._ask(path, method="GET")

    def post(self, path: str, content_type: str, body: bytes) -> Reply:
        """Send a form."""
        return self._ask(path, method="POST", content_type=content_type, data=body)

    def _ask(self, path: str, **request: Any) -> Reply:
        tapped: list[tuple[Entries, Entries]] = []
        client = self._application.test_client(use_cookies=False)
        answer = client.open(path, environ_overrides={_TAP: tapped}, **request)
        entries, files = tapped[0] if tapped else ({}, {})
        return Reply(answer.status_code, answer.content_type or "", answer.get_data(), entries, files)


def import_app(checkout: Checkout) -> FlaskApp:
    """Import the app of a checkout by its path.

    This runs the checkout's `app.py`; use one that you trust.

    Raises:
        DataError: it cannot be imported, or is not the app that it should be.
    """
    module = _import(checkout.app, f"plumbline_formfactory_{checkout.digest}")
    application: Any = getattr(module, "app", None)
    lacking = [] if hasattr(application, "test_client") else ["Flask application named app"]
    lacking += [] if callable(getattr(module, STORE, None)) else [f"function {STORE}"]
    if lacking:
        raise DataError(
            f"{checkout.app} is not the benchmark's app: it has no {' and no '.join(lacking)}",
            "name a checkout of FormFactory in task.options.path (--path)",
        )
    setattr(module, STORE, _store_nothing)
    application.before_request(_tap)
    return FlaskApp(application)


def _store_nothing(*_: Any) -> None:
    """In place of the app's own function."""


def _tap() -> None:
    """Before every request: keep what Flask parsed, every value of every name."""
    from flask import request

    tapped = request.environ.get(_TAP)
    if tapped is None or request.method != "POST":
        return
    entries = {name: tuple(values) for name, values in request.form.to_dict(flat=False).items()}
    files = {name: tuple(one.filename for one in sent if one.filename) for name, sent in request.files.lists()}
    tapped.append((entries, {name: names for name, names in files.items() if names}))


def _import(path: Path, name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise DataError(f"{path} is no Python file", "name a checkout of FormFactory in task.options.path (--path)")
    module = importlib.util.module_from_spec(spec)
    with _importing, _leaving_no_trace():
        sys.modules[name] = module  # before it runs: Flask looks here for the folder of its templates
        try:
            spec.loader.exec_module(module)
        except (
            ImportError,
            SyntaxError,
            OSError,
            LookupError,
            NameError,
            RuntimeError,
            TypeError,
            ValueError,
        ) as error:
            del sys.modules[name]
            raise DataError(
                f"{path} cannot be imported: {error}", "install what it needs, or take a fresh checkout"
            ) from error
    return module


@contextlib.contextmanager
def _leaving_no_trace() -> Iterator[None]:
    """In an empty folder, and without byte code beside the source."""
    before = sys.dont_write_bytecode
    sys.dont_write_bytecode = True
    try:
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            yield
    finally:
        sys.dont_write_bytecode = before
