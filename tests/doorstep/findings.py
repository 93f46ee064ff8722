"""The command line, run in this process, and what of its findings is looked for."""

import contextlib
import io
import os
import re
import sys
from pathlib import Path

from plumbline.cli import main

LOUD = ("fatal", "warning")
"""The levels above a note."""

NEVER = "(?!)"
"""A pattern that no text has."""


def run(*arguments: object, folder: Path) -> tuple[int, str, str]:
    """Run `plumbline ARGUMENTS` in a folder: exit status, standard output, standard error.

    An exception that the command line does not catch is left to the caller.
    """
    arguments_before, folder_before = sys.argv, Path.cwd()
    sys.argv = ["plumbline", *map(str, arguments)]
    os.chdir(folder)
    code: object = 0
    try:
        with (
            contextlib.redirect_stdout(io.StringIO()) as out,
            contextlib.redirect_stderr(io.StringIO()) as err,
        ):
            try:
                main.main()
            except SystemExit as exit_:
                code = exit_.code
    finally:
        sys.argv = arguments_before
        os.chdir(folder_before)
    return int(code is not None and bool(code)), out.getvalue(), err.getvalue()


def listed(value: str | list[str]) -> list[str]:
    """The entries of an answer that has one or several."""
    return [value] if isinstance(value, str) else value


def names(finding: dict, wanted: list[str]) -> bool:
    """Whether a finding is one that is wanted: by the name of its check, or by a /pattern/ of its
    words."""
    causes = [text for one in finding["causes"] for text in (one["code"], one["text"])]
    words = " ".join([finding["check"], finding["code"], finding["what"], *causes])
    patterns = [one.strip("/") for one in wanted if one.startswith("/")]
    return finding["check"] in wanted or any(
        re.search(one, words, re.IGNORECASE) for one in patterns
    )


def show(findings: list[dict]) -> str:
    """What is said above a note."""
    loud = [
        f"{one['level']}: {one['check']}: {one['what'][:110]}"
        for one in findings
        if one["level"] in LOUD
    ]
    return "; ".join(loud) or "nothing found"
