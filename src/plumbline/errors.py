"""What can go wrong, as types; each message names the cause and, in `fix`, what to do about it.

    PlumblineError
    ├── RecipeError        an unknown key, a value out of range, a recipe that extends itself
    │   └── UntrustedCodeError  a file names code that the user did not consent to
    ├── DataError          a malformed row (with its file and line), an empty dataset, splits that overlap
    │   └── RewardError    a scoring function that returns what is no reward, such as a number outside its range
    ├── ModelError         a missing model, a tokenizer without a chat template, a checkpoint of another model
    ├── StorageError       a full disk, a folder that cannot be written
    ├── DeviceMemoryError  a pass, a model or a batch of answers that the device's memory cannot hold
    ├── RunError           a run directory that exists, belongs to another recipe, or cannot be resumed
    ├── IncomparableError  two evaluations of different rubrics or different examples
    └── TrainingStopped    the result would be false: a NaN, a sampler that is not the scorer, no signal at all; or a
                           watch rule of the recipe says so

A user's mistake raises one of these at the boundary; a programmer's mistake is an `assert`; a
failed rollout is not an exception but data (`records.Failure`).
"""

import json
import re
import shutil
import textwrap
from typing import IO

_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff]"
    "|[\ud800-\udfff\ufff9-\ufffb\ufffe\uffff\U000e0000-\U000e007f]"
)


def make_visible(text: str) -> str:
    """The same text with nothing in it that cannot be seen, but line breaks, tabs and the joiners
    that emoji and scripts need: a control character becomes its code, `<U+202E>`.

    Text of models, files and servers is hostile: printed as it is, it could drive the terminal.
    """
    return _HIDDEN.sub(_code, text.replace("\r\n", "\n"))


def break_lines(text: str, stream: IO[str]) -> str:
    """The text as it is printed: in a terminal long lines break between words, and keep the indent
    that they begin with."""
    if not stream.isatty():
        return text
    width, broken = shutil.get_terminal_size().columns, []
    for line in text.split("\n"):
        indent = line[: len(line) - len(line.lstrip())]
        fitting = textwrap.wrap(
            line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
        )
        broken += fitting or [""]
    return "\n".join(broken)


def to_visible_line(text: str) -> str:
    """The same text as `make_visible` has it, on one line."""
    return " ".join(make_visible(text).split())


def escape_hidden(text: str) -> str:
    """The same JSON with escapes for what cannot be seen."""
    return _HIDDEN.sub(lambda match: json.dumps(match.group())[1:-1], text)


def _code(match: re.Match[str]) -> str:
    point = ord(match.group())
    return "\ufffd" if point >= 0xD800 else f"\u2039U+{point:04X}\u203a"


class PlumblineError(Exception):
    """An error that a user can fix: `cause` says what is wrong, `fix` what to do; both are
    made visible. `code` tells a program which one of its kind it is, where a program asks."""

    def __init__(self, cause: str, fix: str = "", code: str = "") -> None:
        cause, fix = make_visible(cause), make_visible(fix)
        super().__init__(f"{cause}\n  fix: {fix}" if fix else cause)
        self.cause = cause
        self.fix = fix
        self.code = code

    def __reduce__(self) -> tuple[type["PlumblineError"], tuple[str, str, str]]:
        """Pickle by cause, fix and code, so that an error survives the way back from another
        process."""
        return type(self), (self.cause, self.fix, self.code)


class RecipeError(PlumblineError, ValueError):
    """The recipe does not say what it should."""


class UntrustedCodeError(RecipeError):
    """A file names code, and the user consented to none."""


class DataError(PlumblineError, ValueError):
    """Records that cannot be read, or that would make the result false."""


class RewardError(DataError):
    """A scoring function returned what is no reward: the task is wrong, whatever the answer was."""


class ModelError(PlumblineError):
    """A model, tokenizer or checkpoint that cannot be used."""


class StorageError(PlumblineError, OSError):
    """The disk refused a write or a read."""


class DeviceMemoryError(PlumblineError):
    """The memory of the device cannot hold what was asked of it."""


class RunError(PlumblineError):
    """A run directory that cannot be started, resumed or read."""


class IncomparableError(PlumblineError, ValueError):
    """Two results that must not be compared."""


class EngineError(PlumblineError):
    """An engine, worker or cluster that is not there, broke, or does something else than it was
    told to."""


class TrainingStopped(PlumblineError):  # noqa: N818 - it says what happened, which is what the reader wants
    """Training was stopped because going on would make the result false or waste the run."""
