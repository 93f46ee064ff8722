"""How a command ends: with its result, or with one error that says the cause and what to do. Never
with a traceback.

A traceback is a defect of Plumbline's; whatever stands in a file, an argument or an environment
variable is not. What is read is checked where it is read (`storage.clear_read_errors`, the recipe's
sections, `imports.import_named`); here is the end of all of them.

    0    the result is on standard output
    1    an error of `plumbline.errors`
    2    the command line itself is wrong (typer says how)
    3-7  what became of a job that was submitted or followed: failed, never started, produced nothing, stopped,
         unknown (`plumbline.jobs.follow`)
    130  interrupted; a job that was followed goes on
    141  the reader of our output went away
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

from plumbline.config.imports import find_requirement, missing_module_error
from plumbline.errors import PlumblineError, StorageError, break_lines

_RESUMED = frozenset({"run", "sweep"})
"""Commands that take `--resume`."""
_PATIENCE = 5.0
"""Seconds that an interrupt waits for an import to end."""


@contextmanager
def clear_exits() -> Iterator[None]:
    """Turn what ends the block into an exit status, and errors into one message on standard
    error."""
    with _delay_interrupts():
        yield from _exit_on_errors()


def _exit_on_errors() -> Iterator[None]:
    # a locale or a file name must not decide whether a result can be said
    for stream in (sys.stdout, sys.stderr):
        if reconfigure := getattr(stream, "reconfigure", None):
            reconfigure(errors="backslashreplace")
    try:
        try:
            yield
        finally:
            if sys.stdout is not None:
                # not at the interpreter's end, where nobody could say what went wrong
                sys.stdout.flush()
    except PlumblineError as error:
        _fail(error)
    except KeyboardInterrupt:
        _exit_interrupted()
    except SystemExit as left:
        # typer made it of one
        if isinstance(getattr(left.__context__, "__cause__", None), KeyboardInterrupt):
            _exit_interrupted()
        if isinstance(left.__context__, BrokenPipeError):  # typer ends of it with 1
            _exit_without_output()
        raise
    except BrokenPipeError:  # `plumbline parse ... | head`
        _exit_without_output()
    except OSError as error:
        if error.filename is None:
            _drop_output()
        what = f"cannot use {error.filename}" if error.filename else "cannot write the output"
        _fail(
            StorageError(
                f"{what}: {error.strerror or error}", "give another place, or free some space there"
            )
        )
    except ModuleNotFoundError as error:
        if find_requirement(error.name or "") is None:
            raise
        _fail(missing_module_error("this command", error))


def _exit_interrupted() -> NoReturn:
    resumed = len(sys.argv) > 1 and sys.argv[1] in _RESUMED
    how = (
        "what is finished, and the last checkpoint, are kept. Resume with the same command"
        if resumed
        else "the same command starts it again"
    )
    option = " and --resume" if resumed and "--resume" not in sys.argv else ""
    print(f"\nstopped; {how}{option}.", file=sys.stderr)
    raise SystemExit(130) from None


@contextmanager
def _delay_interrupts() -> Iterator[None]:
    """Let Ctrl-C raise KeyboardInterrupt anywhere but within an import.

    Inside an import it would be lost in a C extension's start, or leave half a module behind that
    breaks what comes next: it is raised when the import has ended. A caller's own handler is left
    alone.
    """
    before = signal.getsignal(signal.SIGINT)
    ours = (
        before is signal.default_int_handler
        or getattr(before, "__module__", "") == "plumbline.__main__"
    )
    if not ours or threading.current_thread() is not threading.main_thread():
        yield
        return
    first: float | None = None

    def interrupt(_: int, frame: FrameType | None) -> None:
        nonlocal first
        if _is_importing(frame) and (first is None or time.monotonic() - first < _PATIENCE):
            if first is None:
                os.write(2, b"\nstopping\n")
            first = first or time.monotonic()
            again = threading.Timer(
                0.02, signal.pthread_kill, (threading.get_ident(), signal.SIGINT)
            )
            again.daemon = True
            again.start()
            return
        first = None
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _is_importing(frame: FrameType | None) -> bool:
    """Whether a frame is, or was called by, the import of a module."""
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


def _exit_without_output() -> NoReturn:
    _drop_output()
    raise SystemExit(141) from None


def _drop_output() -> None:
    """Let what is still to be written to standard output go nowhere: it cannot be written where it
    should."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _fail(error: PlumblineError) -> NoReturn:
    print(break_lines(f"error: {error}", sys.stderr), file=sys.stderr)
    raise SystemExit(1)
