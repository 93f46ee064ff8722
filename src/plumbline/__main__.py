"""The `plumbline` command, which is `python -m plumbline`, too."""

import os
import sys

if __name__ == "__main__" and not sys.flags.safe_path and sys.path[0] in {"", os.getcwd()}:  # noqa: PTH109
    del sys.path[0]  # `python -m` puts the working directory first, and a file there must hide no module

import signal
from types import FrameType


def _at_once(*_: int | FrameType | None) -> None:
    """End: nothing has begun yet, or all is written."""
    os.write(2, b"\nstopped; the same command starts it again.\n")
    os._exit(130)


def main() -> None:
    """Run the command line; Ctrl-C ends it without a traceback from its first import to its last."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # not where a shell had it ignored
        signal.signal(signal.SIGINT, _at_once)
    from plumbline.cli.main import main as command

    command()


if __name__ == "__main__":
    from plumbline import __main__ as entry  # by its own name, by which `plumbline.cli.exits` knows `_at_once`

    entry.main()
