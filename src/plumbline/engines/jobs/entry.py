"""What a job runs: `python -m plumbline.engines.jobs.entry --job ID [--secret NAME]... -- run RECIPE ...`.

It says in the log when it begins and what the run left, and its exit status is 0 only where the run is finished: so the
engine's own page says failed, too, where a command printed an error and ended well.
"""

import os
import sys

if __name__ == "__main__" and not sys.flags.safe_path and sys.path[0] in {"", os.getcwd()}:  # noqa: PTH109
    del sys.path[0]  # `python -m` puts the working directory first, and a file there must hide no module

import io
import signal
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from typing import Any, NoReturn

from plumbline import __version__
from plumbline.engines.jobs.outcome import CODES, result_of, said
from plumbline.errors import PlumblineError
from plumbline.runs.remote import local_run


def main(arguments: Sequence[str]) -> int:
    """Run a job's command in this process; the exit status."""
    own, command = list(arguments[: arguments.index("--")]), list(arguments[arguments.index("--") + 1 :])
    job = own[own.index("--job") + 1]
    secrets = [own[place + 1] for place, word in enumerate(own) if word == "--secret"]
    if absent := [name for name in secrets if not os.environ.get(name)]:
        why = f"the environment of the job lacks {', '.join(absent)}, which it was submitted with as secrets"
        _say(job, "ended", status="never started", why=why)
        return CODES["never started"]
    out = command[command.index("--out") + 1]
    signal.signal(signal.SIGTERM, _interrupted)
    signal.signal(signal.SIGINT, _interrupted)
    _say(job, "began", version=__version__, folder=out)
    printed = io.StringIO()
    with redirect_stdout(printed):  # what a run prints there is its summary, which the submitter prints by itself
        code, why = _run(command)
    print(f"{said(job, 'summary')}\n{printed.getvalue()}", end="", flush=True)
    found, digest = _result(out)
    status = _status(code, found)
    facts = {} if found is None else {"result": digest, **_figures(found)}
    _say(job, "ended", status=status, code=code, folder=out, why=why or _why(found), **facts)
    return CODES["produced nothing"] if code == 0 and status != "finished" else code


def _interrupted(number: int, _: Any) -> NoReturn:
    raise KeyboardInterrupt(f"signal {number}")


def _run(command: Sequence[str]) -> tuple[int, str]:
    from plumbline.cli import main as cli

    sys.argv = ["plumbline", *command]
    why = ""
    try:
        cli.main()
    except SystemExit as left:
        code = left.code if isinstance(left.code, int) else 0 if left.code is None else 1
        cause = left.__context__
        why = cause.cause if isinstance(cause, PlumblineError) else "interrupted" if code == 130 else ""
        return code, why
    return 0, why


def _result(out: str) -> tuple[dict[str, Any] | None, str]:
    """What lies in the run's folder; of a damaged file as if there were none."""
    try:
        return result_of(local_run(out))  # what was published, of a run at an address
    except (PlumblineError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return None, ""


def _status(code: int, found: Mapping[str, Any] | None) -> str:
    if found is not None and found.get("status") == "stopped":
        return "stopped"
    if code:
        return "stopped" if code == 130 else "failed"
    return "finished" if found is not None and found.get("status") == "finished" else "nothing"


def _why(found: Mapping[str, Any] | None) -> str:
    """What stopped a run: a watch rule or a check, and what it saw."""
    if found is None:
        return ""
    return ": ".join(str(found[key]) for key in ("rule", "check", "said") if found.get(key))


def _figures(found: Mapping[str, Any]) -> dict[str, Any]:
    """The few figures that are worth a line of a log."""
    evaluations = found.get("evaluations") or {}
    rewards = {key: one["reward"]["mean"] for key, one in evaluations.items() if "reward" in one}
    return {"model": found.get("model"), "rewards": rewards}


def _say(job: str, event: str, **facts: Any) -> None:
    sys.stderr.flush()
    print(said(job, event, **facts), flush=True)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
