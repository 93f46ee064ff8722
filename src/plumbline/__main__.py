"""The `plumbline` command, which is `python -m plumbline`, too."""

import os
import sys

try:
    here = os.getcwd()  # noqa: PTH109
except OSError:  # neither relative paths nor what is trusted there can be told
    sys.exit(
        "error: the working directory is gone\n  fix: change to a folder that is there, such as cd "
        "~"
    )
if __name__ == "__main__" and not sys.flags.safe_path and sys.path[0] in {"", here}:
    # `python -m` puts the working directory first, and a file there must hide no module
    del sys.path[0]

import signal
from types import FrameType


def _exit_at_once(*_: int | FrameType | None) -> None:
    """End: nothing has begun yet, or all is written."""
    os.write(2, b"\nstopped; the same command starts it again.\n")
    os._exit(130)


def _exit_at_time_limit(*_: int | FrameType | None) -> None:
    """End where the processor's time is over: the next limit kills without a word."""
    sys.exit(
        "error: this process has used all the processor's time that it may\n  fix: raise the limit "
        "(ulimit -t)"
    )


def main() -> None:
    """Run the command line; Ctrl-C ends it without a traceback from its first import to its
    last."""
    signal.signal(signal.SIGXCPU, _exit_at_time_limit)
    # not where a shell had it ignored
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _exit_at_once)
    from plumbline.cli.main import main as command

    command()


if __name__ == "__main__":
    from plumbline import (
        __main__ as entry,  # by its own name, by which `plumbline.cli.exits` knows `_exit_at_once`
    )

    entry.main()
