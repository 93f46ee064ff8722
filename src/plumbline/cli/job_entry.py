"""What a job runs: `python -P -m plumbline.cli.job_entry --job ID [--secret NAME]... -- run RECIPE
...`.

It says in the log when it begins and what the run left, and its exit status is 0 only where the run
is finished: so the engine's own page says failed, too, where a command printed an error and ended
well.
"""

import io
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from typing import Any, NoReturn

from plumbline.errors import PlumblineError
from plumbline.jobs.follow import CODES, event_line, read_result
from plumbline.runs.remote import local_run
from plumbline.version import __version__


def main(arguments: Sequence[str]) -> int:
    """Run a job's command in this process; the exit status."""
    at = arguments.index("--")
    own, command = list(arguments[:at]), list(arguments[at + 1 :])
    job, out = own[1], command[command.index("--out") + 1]

    def say(event: str, **facts: Any) -> None:
        sys.stderr.flush()
        print(event_line(job, event, **facts), flush=True)

    if absent := [name for name in own[3::2] if not os.environ.get(name)]:
        say(
            "ended",
            status="never started",
            why=f"the environment of the job lacks {', '.join(absent)}, which it was submitted with "
            "as secrets",
        )
        return CODES["never started"]
    signal.signal(signal.SIGTERM, _raise_interrupt)
    signal.signal(signal.SIGINT, _raise_interrupt)
    say("began", version=__version__, folder=out)
    printed = io.StringIO()
    # what a run prints there is its summary, which the submitter prints by itself
    with redirect_stdout(printed):
        code, why = _run(command)
    print(f"{event_line(job, 'summary')}\n{printed.getvalue()}", end="", flush=True)
    try:
        found, digest = read_result(local_run(out))  # what was published, of a run at an address
    except (PlumblineError, OSError) as error:  # of a damaged file as if there were none
        print(f"error: {error}", file=sys.stderr)
        found, digest = None, ""
    facts: dict[str, Any] = {}
    ended = None
    if found is not None:
        evaluations = found.get("evaluations") or {}
        rewards = {
            key: one["reward"]["mean"] for key, one in evaluations.items() if "reward" in one
        }
        facts = {"result": digest, "model": found.get("model"), "rewards": rewards}
        # where it was stopped: by a watch rule or a check, and what that saw
        ended = found.get("status")
        why = why or ": ".join(
            str(found[key]) for key in ("rule", "check", "reason") if found.get(key)
        )
    if ended == "stopped" or code == 130:
        status = "stopped"
    else:
        status = "failed" if code else "finished" if ended == "finished" else "nothing"
    say("ended", status=status, code=code, folder=out, why=why, **facts)
    return CODES["produced nothing"] if code == 0 and status != "finished" else code


def _raise_interrupt(number: int, _: Any) -> NoReturn:
    raise KeyboardInterrupt(f"signal {number}")


def _run(command: Sequence[str]) -> tuple[int, str]:
    """What a command ends with, and why."""
    from plumbline.cli import main as cli

    sys.argv = ["plumbline", *command]
    try:
        cli.main()
    except SystemExit as left:
        code = left.code if isinstance(left.code, int) else 0 if left.code is None else 1
        cause = left.__context__
        return code, cause.cause if isinstance(
            cause, PlumblineError
        ) else "interrupted" if code == 130 else ""
    return 0, ""


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
