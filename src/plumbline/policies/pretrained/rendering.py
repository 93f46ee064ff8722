"""Chat templates, rendered by a process of their own (`render_process`), which one of ours starts
when it needs it."""

import atexit
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from plumbline.errors import DataError, ModelError
from plumbline.policies.pretrained.tokenizer import LONGEST
from plumbline.storage import clear_os_errors, one_line

PROGRAM = Path(__file__).with_name("render_process.py")
MEMORY = 2**29
"""Bytes of addresses; the interpreter with jinja2 takes some 40 MB."""
FULL = 3
"""The exit status of a process that has no more."""
SECONDS = 2.0
"""Of the processor, for one chat; honest templates take some milliseconds."""
TEMPLATE = "give another template (model.chat_template: a Jinja file, or chatml)"
KEPT = 1024
"""Chats whose text is kept: a prompt is asked for again for each of its answers, and by forks."""


@lru_cache(maxsize=KEPT)
def render(template: str, date: str, values: str) -> str:
    """The text of a chat.

    Args:
        template: its source.
        date: the day (YYYY-MM-DD) that it is for it.
        values: what it is told, as JSON.

    Raises:
        DataError: the template refuses these messages, or makes more of them than any prompt is.
        ModelError: it fails, or takes more time or memory than it may.
    """
    limits = json.dumps(
        {"seconds": SECONDS, "longest": LONGEST, "template": template, "date": date}
    )
    answer = _process(os.getpid()).ask(f'{limits[:-1]}, "values": {values}}}\n'.encode())
    if "refused" in answer:
        raise DataError(
            f"the chat template refuses these messages: {one_line(answer['refused'])}",
            "give the messages that it takes, or set model.chat_template to a Jinja file that "
            "takes these",
        )
    if "failed" in answer:
        raise ModelError(
            f"the chat template fails: {answer['kind']}: {one_line(answer['failed'])}",
            TEMPLATE,
        )
    if "longer" in answer:
        raise DataError(
            f"a chat of {answer['longer']:,} characters is longer than any prompt",
            "correct the chat template",
        )
    return str(answer["text"])


@cache
def _process(owner: int) -> "_Process":
    """That of a process of ours: a fork has one of its own."""
    process = _Process()
    atexit.register(lambda: process.close() if os.getpid() == owner else None)
    return process


class _Process:
    """Answers one request after another; one that has ended is started again for the next."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._child: Any = None

    def ask(self, request: bytes) -> Mapping[str, Any]:
        """Send a request, and wait for its answer.

        Raises:
            ModelError: the process did not live to answer.
        """
        line = b""
        with self._lock, clear_os_errors(Path(sys.executable)):
            child = self._child = self._child or _start()
            try:
                with suppress(BrokenPipeError):
                    child.stdin.write(request)
                    child.stdin.flush()
                    line = child.stdout.readline()
            finally:
                # an interrupt, too: what is still to come would be taken for the next request's
                # answer
                if not line:
                    self._child = None
                    _end(child)
        if not line:
            ends = {
                -signal.SIGPROF: f"it takes over {SECONDS:g} s of the processor",
                FULL: f"it takes over {MEMORY >> 20} MiB of memory",
            }
            how = ends.get(
                child.returncode,
                f"the process that renders it ended with status {child.returncode}",
            )
            raise ModelError(f"the chat template fails: {how}", TEMPLATE)
        return json.loads(line)

    def close(self) -> None:
        """End the process."""
        with self._lock:
            child, self._child = self._child, None
            if child is not None:
                _end(child)


def _start() -> Any:
    command = [sys.executable, "-P", "-s", str(PROGRAM), str(MEMORY), str(FULL)]
    return subprocess.Popen(  # noqa: S603 - ours
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONHASHSEED": "0"},  # the order of sets
        start_new_session=True,  # an interrupt from the keyboard is ours alone
    )


def _end(child: Any) -> None:
    with suppress(OSError), child:  # closes its pipes, and waits
        child.kill()  # which is nothing to one that has ended itself
