"""The same verdicts under other conditions: trainers call a reward on other threads, in other
processes, with an event loop running, and for answers to several prompts at once.
"""

import asyncio
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from plumbline.checks.audit.scoring_runner import CaseVerdict, Found, ScoringRunner
from plumbline.config.imports import ALL, CONSENT, is_trusting
from plumbline.errors import make_visible
from plumbline.records import Example, group_by_key
from plumbline.storage import dumps, read_object
from plumbline.tasks import NOWHERE, open_task
from plumbline.tasks.cases import Case
from plumbline.tasks.task import Task

EXAMPLES = 4
"""Examples of which a few texts are judged again."""
SECONDS = 20.0
"""That one of the conditions may take."""
WORK = 4.0
"""Seconds of judging that all texts may take together; of a slow verifier fewer are judged
again."""
THREAD, LOOP, PROCESS, DIRECTORY = "thread", "event-loop", "process", "directory"
"""Another thread, a running event loop, another process, another working directory."""
GROUPED, TOGETHER = "group", "other-prompts"
"""One call with other answers to the prompt, as a run judges where threads do: it refuses such a
reward; and one with answers to other prompts."""
LATE = f"no verdict after {SECONDS:g} s"
_PROGRAM = f"import sys; _, name, *sys.path = sys.argv; from {__name__} import judge_again; judge_again(name)"
"""Of the other process. It looks for modules where this one does, and so finds the same ones."""
_ALARM = re.compile(
    r"\bSIGALRM\b|\bsignal\.alarm\b|\bsetitimer\b|\bmath_verify\b|\btimeout_decorator\b"
)


def judge_elsewhere(runner: ScoringRunner, verdicts: Sequence[CaseVerdict]) -> None:
    """Judge a few texts again under each condition, and have the runner keep what changed.

    Functions of the user's are tried under all conditions, before a run with other answers of one
    call alone. A task without such (a browser's page is bound to its thread) is tried on another
    thread, where it does not ask for threads itself.
    """
    task = runner.task
    some = _choose_cases(verdicts)
    if not some:
        return
    cases = [one.case for one in some]
    judged: dict[str, Sequence[Found]] = {}
    alarm = False
    if runner.depth == "load":
        judged[GROUPED] = _judge_grouped(task, cases)
    elif task.functions:
        with _start_judge_process(task, cases) as other, _record_signal_calls() as signals:
            judged[THREAD] = _judge_on_thread(task, cases)
            if not _loop_runs():
                judged[LOOP] = _judge_in_loop(task, cases)
            judged[GROUPED] = _judge_grouped(task, cases)
            judged[TOGETHER] = _judge_together(task, cases[::-1])[::-1]
            judged |= other()
        alarm = bool(signals) or any(map(_ALARM.search, task.functions.values()))
    elif not task.judges:
        judged[THREAD] = _judge_on_thread(task, cases)
    for where, results in judged.items():
        runner.compare(where, some, results, alarm and where == THREAD)


def _choose_cases(verdicts: Sequence[CaseVerdict]) -> list[CaseVerdict]:
    """Texts of a few examples, those that earn most and least of each; fewer where verdicts take
    their time."""
    scored = sorted((one for one in verdicts if one.score is not None), key=lambda one: -one.reward)
    by_example = group_by_key((one.case.example.id, one) for one in scored)
    best = sorted(by_example.values(), key=lambda found: -found[0].reward)[:EXAMPLES]
    some: list[CaseVerdict] = []
    for found in best:  # the best, the worst, and one that knows nothing
        knows_nothing = [one for one in found if one.case.kind.startswith(("baseline", "hostile"))]
        some += {id(one): one for one in (found[0], found[-1], *knows_nothing[:1])}.values()
    longest = max((one.seconds for one in some), default=0.0)
    return some[: max(2, int(WORK / longest))] if longest else some


def _judge_together(task: Task, cases: Sequence[Case]) -> list[Found]:
    """What one call gives for texts, or what it raises."""
    try:
        found = task.judge_rows([one.example for one in cases], [one.text for one in cases])
    except Exception as error:  # noqa: BLE001 - the boundary to a verifier's code
        return [make_visible(f"{type(error).__name__}: {str(error)[:200]}")] * len(cases)
    return [(score.total, dict(score.parts)) for _, score in found]


def _judge_each(task: Task, cases: Sequence[Case]) -> list[Found]:
    """What each text is given by itself."""
    return [_judge_together(task, [case])[0] for case in cases]


def _judge_on_thread(task: Task, cases: Sequence[Case]) -> Sequence[Found]:
    found: list[Found] = []
    thread = threading.Thread(
        target=lambda: found.extend(_judge_each(task, cases)), name="audit", daemon=True
    )
    thread.start()
    thread.join(SECONDS)
    return found or [LATE] * len(cases)


def _judge_in_loop(task: Task, cases: Sequence[Case]) -> list[Found]:
    async def judge() -> list[Found]:
        return _judge_each(task, cases)

    # asyncio.run would leave this thread without the loop that it may have
    loop = asyncio.new_event_loop()
    try:
        return loop.run_until_complete(judge())
    finally:
        loop.close()


def _loop_runs() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _judge_grouped(task: Task, cases: Sequence[Case]) -> list[Found]:
    by_example = group_by_key((case.example.id, case) for case in cases)
    found: dict[int, Found] = {}
    for group in by_example.values():
        found |= zip(map(id, group), _judge_together(task, [*group, *group]), strict=False)
    return [found[id(case)] for case in cases]


@contextmanager
def _record_signal_calls() -> Iterator[list[str]]:
    """What is asked of the module signal off the main thread while this holds."""
    asked: list[str] = []
    own = {
        name: getattr(signal, name)
        for name in ("signal", "alarm", "setitimer")
        if hasattr(signal, name)
    }

    def noted(name: str, *arguments: Any) -> Any:
        if threading.current_thread() is not threading.main_thread():
            asked.append(name)
        return own[name](*arguments)

    for name in own:
        setattr(signal, name, partial(noted, name))
    try:
        yield asked
    finally:
        for name, function in own.items():
            setattr(signal, name, function)


# -- the other process -----------------------------------------------------------------------------


@contextmanager
def _start_judge_process(
    task: Task, cases: Sequence[Case]
) -> Iterator[Callable[[], dict[str, list[Found]]]]:
    """Start a process that judges; what is yielded waits for what it finds, by condition. A
    function of a script's or a notebook's cannot be imported there, so there is nothing then."""
    if any(name.startswith("__main__:") for name in task.functions):
        yield dict
        return
    with tempfile.TemporaryDirectory() as folder:
        asked = Path(folder) / "asked.json"
        texts = [[asdict(case.example), case.text] for case in cases]
        asked.write_text(
            dumps({"name": task.name, "options": task.reopen(), "texts": texts}), encoding="utf-8"
        )
        paths = [str(Path(path).absolute()) for path in sys.path]
        consents = dict.fromkeys([*os.environ.get(CONSENT, "").split("\n"), *task.functions])
        consent = ALL if is_trusting() else "\n".join(filter(None, consents))
        with subprocess.Popen(  # noqa: S603 - this file
            [sys.executable, "-P", "-c", _PROGRAM, str(asked), *paths],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env={**os.environ, CONSENT: consent},
        ) as process:

            def wait() -> dict[str, list[Found]]:
                try:
                    printed = process.communicate(timeout=SECONDS)[1].decode(errors="replace")
                except subprocess.TimeoutExpired:
                    return {PROCESS: [LATE] * len(cases)}
                if process.returncode:
                    last = (
                        printed.strip().splitlines() or [f"it ended with {process.returncode}"]
                    )[-1]
                    return {PROCESS: [make_visible(last[:200])] * len(cases)}
                here, there = (
                    [one if isinstance(one, str) else (one[0], one[1]) for one in found]
                    for found in read_object(asked.with_suffix(".out")).values()
                )
                found: dict[str, list[Found]] = {PROCESS: here}
                return found if here == there else found | {DIRECTORY: there}

            try:
                yield wait
            finally:
                process.kill()


def judge_again(name: str) -> None:
    """What the other process does: judge what a file says, the last text first; then in another
    working directory.

    What came out is written beside the file.
    """
    file = Path(name)
    asked = read_object(file)
    task = open_task(asked["name"], asked["options"], NOWHERE)
    cases = [Case(Example(**example), "", text) for example, text in asked["texts"]][::-1]
    found = {PROCESS: _judge_each(task, cases)[::-1]}
    os.chdir(file.parent)
    found[DIRECTORY] = _judge_each(task, cases)[::-1]
    file.with_suffix(".out").write_text(dumps(found), encoding="utf-8")
