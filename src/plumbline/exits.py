"""How a command ends: with its result, or with one error that says the cause and what to do. Never with a traceback.

A traceback is a defect of Plumbline's; whatever stands in a file, an argument or an environment variable is not. What
is read is checked where it is read (`storage.clear_read_errors`, the recipe's sections, `imports.named`); here is the
end of all of them.

    0    the result is on standard output
    1    an error of `plumbline.errors`
    2    the command line itself is wrong (typer says how)
    3-7  what became of a job that was submitted or followed: failed, never started, produced nothing, stopped,
         unknown (`plumbline.jobs.outcome`)
    130  interrupted; a job that was followed goes on
    141  the reader of our output went away
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from plumbline.errors import PlumblineError, StorageError
from plumbline.imports import extra_of, missing


@contextmanager
def clear_exits() -> Iterator[None]:
    """Turn what ends the block into an exit status, and errors into one message on standard error."""
    for stream in (sys.stdout, sys.stderr):  # a locale or a file name must not decide whether a result can be said
        if reconfigure := getattr(stream, "reconfigure", None):
            reconfigure(errors="backslashreplace")
    try:
        try:
            yield
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()  # not at the interpreter's end, where nobody could say what went wrong
    except PlumblineError as error:
        _fail(error)
    except KeyboardInterrupt:
        print("\nstopped; what is finished is kept. Go on with the same command and --resume.", file=sys.stderr)
        raise SystemExit(130) from None
    except BrokenPipeError:  # `plumbline parse ... | head`
        _drop_output()
        raise SystemExit(141) from None
    except OSError as error:
        if error.filename is None:
            _drop_output()
        what = f"cannot use {error.filename}" if error.filename else "cannot write the output"
        _fail(StorageError(f"{what}: {error.strerror or error}", "give another place, or free some space there"))
    except ModuleNotFoundError as error:
        if extra_of(error.name or "") is None:
            raise
        _fail(missing("this command", error))


def _drop_output() -> None:
    """Let what is still to be written to standard output go nowhere: it cannot be written where it should."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _fail(error: PlumblineError) -> NoReturn:
    print(f"error: {error}", file=sys.stderr)
    raise SystemExit(1)
