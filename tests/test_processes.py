"""Processes that work for a run end with it, however it ends."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from plumbline.engines.processes import start_process, stop_process


def test_what_a_process_printed_since_it_was_started_is_read_with_its_status(tmp_path):
    log = tmp_path / "logs" / "log"
    for word in ("first", "second"):
        kept = start_process(
            [sys.executable, "-c", "import os; print(os.environ['WORD']); raise SystemExit(3)"],
            {"WORD": word},
            log,
        )
        kept.process.wait()
        assert (kept.status, kept.read_output()) == (3, f"{word}\n")
        stop_process(kept)
    assert log.read_text() == "first\nsecond\n"


def test_what_a_process_started_ends_with_it_though_it_takes_no_sigterm(tmp_path):
    kept = start_process([sys.executable, "-m", "tests.engines.sleeper"], {}, tmp_path / "log")
    group = kept.keeper.pid
    assert within_seconds(lambda: len(living(group)) == 3)  # the keeper, the process, and its child
    assert kept.status is None
    stop_process(kept)
    assert kept.status == -signal.SIGTERM
    assert within_seconds(lambda: not living(group))


def test_a_run_that_is_killed_leaves_no_server_and_nothing_that_it_started(tmp_path):
    code = (
        "import sys, time; from pathlib import Path; from plumbline.engines.processes import start_process;"
        "got = start_process([sys.executable, '-m', 'tests.engines.sleeper'], {}, "
        f"Path({str(tmp_path / 'log')!r}));"
        "print(got.keeper.pid, flush=True); time.sleep(60)"
    )
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    group = int(child.stdout.readline())
    assert within_seconds(lambda: len(living(group)) == 3)  # the keeper, the server, and its engine
    child.send_signal(signal.SIGKILL)
    child.wait()
    assert within_seconds(lambda: not living(group))


def living(group: int) -> list[str]:
    """The processes of a group that have not ended."""
    states = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            _, _, rest = path.read_text().rpartition(")")
            state, _, its_group, *_ = rest.split()
            states += [path.parent.name] if int(its_group) == group and state != "Z" else []
    return states


def within_seconds(true: Callable[[], bool], seconds: float = 60.0) -> bool:
    end = time.monotonic() + seconds
    while not true() and time.monotonic() < end:
        time.sleep(0.1)
    return true()
