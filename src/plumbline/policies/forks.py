"""Answers that are drawn by forked processes, one for each core: they read the same weights and
share no interpreter.

Drawing a token is a thousand operations of 10 to 100 us, one after the other. Two threads that
share each of them wait for one another most of the time, and two Python threads wait for the
interpreter; two processes wait for nothing. A fork costs some 20 ms, and what a child writes is its
own (its cache of keys and values), so the memory grows by that. A child ends with its work, and
dies with its parent.
"""

import ctypes
import os
import pickle
import signal
import struct
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection, Pipe, wait
from typing import Any

from plumbline.errors import EngineError

TICKET = struct.Struct("i")
"""The number of the next piece of work. A pipe holds one, which each process takes and puts back
raised by one: a pipe has no room for the numbers of 16,385 pieces."""
PR_SET_PDEATHSIG = 1
"""Of prctl(2): the signal that a process gets when its parent is gone."""
_spent = [0.0]


def processor_seconds() -> float:
    """Of this process, and of its forks that have ended."""
    return time.process_time() + _spent[0]


def may_fork() -> bool:
    """Whether a fork is safe here: on Linux, and from the main thread, beside which no other one
    multiplies."""
    return sys.platform == "linux" and threading.current_thread() is threading.main_thread()


def run_forked(works: Sequence[Callable[[], Iterable[Any]]], processes: int) -> Iterator[Any]:
    """What some pieces of work yield, in the order in which it comes; each process takes the next
    piece as it is free.

    Args:
        works: what each yields is pickled.
        processes: that share them, of one thread each: GNU's OpenMP does not survive a fork with
            more.

    Raises:
        EngineError: a process died.
        RuntimeError: the system took one to have its memory, in words that `memory.is_full` knows.
        Exception: what a piece of work raised.
    """
    tickets = os.pipe()
    children: dict[Connection, int] = {}
    try:
        os.write(tickets[1], TICKET.pack(0))
        for _ in range(min(processes, len(works))):
            mine, theirs = Pipe(duplex=False)
            with warnings.catch_warnings():
                # of Python 3.12: other threads only wait here
                warnings.simplefilter("ignore", DeprecationWarning)
                with _delay_signals():
                    if (child := os.fork()) == 0:
                        _run_work(works, tickets, theirs)
                    children[mine] = child
            theirs.close()
        running = list(children)
        while running:
            ready: list[Any] = wait(running)
            for connection in ready:
                try:
                    kind, result = connection.recv()
                except EOFError:
                    if (status := _reap(children.pop(connection), killed=False)) == -signal.SIGKILL:
                        raise RuntimeError(
                            "a process that drew answers was killed: out of memory"
                        ) from None
                    what = f"a process that drew answers ended with status {status}"
                    raise EngineError(what, "set model.threads: 1, which starts none") from None
                if kind == "failed":
                    raise result
                if kind == "done":
                    running.remove(connection)
                else:
                    yield result
    finally:
        for end in tickets:
            os.close(end)
        for connection, child in children.items():
            connection.close()
            _reap(child, killed=True)


@contextmanager
def _delay_signals() -> Iterator[None]:
    """Handle SIGINT and SIGTERM after the block: what their handlers raise in the hooks of a fork
    is swallowed by Python."""
    came: list[int] = []
    before = {
        number: signal.signal(number, lambda number, _: came.append(number))
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for one in came:
            signal.raise_signal(one)


def _reap(child: int, *, killed: bool) -> int:
    """Wait for a process, killed before if need be, count its time, and give its status: of a
    signal, minus that."""
    if killed:
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
    try:
        _, status, usage = os.wait4(child, 0)
    except ChildProcessError:  # it was waited for before
        return 0
    _spent[0] += usage.ru_utime + usage.ru_stime
    return os.waitstatus_to_exitcode(status)


def _read_next(tickets: tuple[int, int]) -> int:
    """The number of a piece of work that no other process has taken."""
    (number,) = TICKET.unpack(os.read(tickets[0], TICKET.size))
    os.write(tickets[1], TICKET.pack(number + 1))
    return int(number)


def _run_work(
    works: Sequence[Callable[[], Iterable[Any]]], tickets: tuple[int, int], connection: Connection
) -> None:
    """In the child: take pieces until there are none, send what comes of them, and end without the
    parent's exits."""
    import torch

    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what an interrupt means
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        torch.set_num_threads(1)
        while (number := _read_next(tickets)) < len(works):
            for result in works[number]():
                connection.send(("result", result))
        connection.send(("done", None))
    except BaseException as error:  # noqa: BLE001 - whatever it is, the parent raises it
        with suppress(OSError):
            connection.send(("failed", _make_portable(error)))
    finally:
        os._exit(0)


def _make_portable(error: BaseException) -> BaseException:
    """An error that can be sent."""
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301 - our own
    except Exception:  # noqa: BLE001 - of whatever its class refuses
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error
