"""The command line inside a page: what is asked of it, and what it printed."""

import contextlib
import importlib.util
import io
import os
import shutil
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

WORK = Path("/work")
"""Where a log is laid, a new folder for each."""


def stand_in(name: str, **values: Any) -> None:
    """A module that Python in a browser has not, for what imports it: nothing here locks a file,
    limits the memory or opens a connection."""
    if importlib.util.find_spec(name) is None:
        sys.modules[name] = ModuleType(name)
        sys.modules[name].__dict__.update(values)


stand_in("fcntl", LOCK_SH=1, LOCK_EX=2, LOCK_NB=4, LOCK_UN=8, flock=lambda *_: None)
stand_in("resource")
stand_in("ssl", SSLError=OSError)

from plumbline.checks.check import examine  # noqa: E402, F401 - loaded before the first log comes
from plumbline.checks.diagnosis.rules import CHECKS  # noqa: E402, F401
from plumbline.cli.main import main  # noqa: E402


def run(arguments: list[str]) -> tuple[int, str, str]:
    """Run a command in the working directory.

    Returns:
        The exit status, and the texts of standard output and of standard error.
    """
    out, err, status = io.StringIO(), io.StringIO(), 0
    sys.argv = ["plumbline", *arguments]
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main()
        except SystemExit as left:
            status = left.code if isinstance(left.code, int) else int(left.code is not None)
    return status, out.getvalue(), err.getvalue()


def check(files: dict[str, bytes]) -> tuple[int, str, str]:
    """Run `plumbline check --json` on a log.

    Args:
        files: the bytes of each by its path; of several at the top the folder of all is checked.

    Returns:
        As `run`.
    """
    os.chdir("/")
    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir()
    os.chdir(WORK)
    for name, content in files.items():
        path = WORK / Path(os.path.normpath("/" + name)).relative_to("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    names = [path.name for path in WORK.iterdir()]
    return run(["check", names[0] if len(names) == 1 else ".", "--json"])
