"""What `plumbline audit` says of a reward."""

import json
import re
import sys
import traceback
from pathlib import Path
from typing import Any

from plumbline.checks.audit import cheats
from tests.doorstep import findings as command
from tests.doorstep.findings import LOUD, NEVER, listed

FOLDER = Path(__file__).with_name("rewards")
VERDICTS = 300
"""Verdicts of the search for cheats; 12,000 outside of tests."""


def grade(name: str, answer: dict[str, Any]) -> tuple[str, str]:
    """The verdict on what is said of one reward: nothing of a sound one, the fault of another."""
    given = ["--rows", f"rows/{answer['rows']}.jsonl", "--trust-code", "--json"]
    if "gold" in answer:
        given += ["--set", f"task.options.gold={json.dumps(answer['gold'])}"]
    before, sys.dont_write_bytecode = (
        (cheats.VERDICTS, list(sys.path), sys.dont_write_bytecode),
        True,
    )
    cheats.VERDICTS = VERDICTS
    try:
        _, out, err = command.run("audit", answer["score"], *given, folder=FOLDER)
    except Exception:  # noqa: BLE001 a traceback, whatever it is
        return "wrong", traceback.format_exc(limit=-1)
    finally:
        cheats.VERDICTS, sys.path[:], sys.dont_write_bytecode = before
        for module in [
            key
            for key, one in sys.modules.items()
            if f"{FOLDER}/" in str(getattr(one, "__file__", ""))
        ]:
            del sys.modules[module]
    unsaid = re.search(answer.get("unsaid", NEVER), out + err)
    if unsaid:
        return "wrong", f"false advice: {unsaid[0]!r}"
    if not out:
        error = err[err.find("error:") :].strip()
        return ("right" if re.search(answer.get("error", NEVER), error) else "unclear"), error
    (audit,) = json.loads(out)["audits"].values()
    return _grade_findings(audit["findings"], answer)


def _grade_findings(findings: list[dict], answer: dict[str, Any]) -> tuple[str, str]:
    """The fault, above a note; nothing above a note in a sound reward."""
    loud, shown = [one for one in findings if one["level"] in LOUD], command.show(findings)
    if "find" not in answer:
        return ("wrong", f"sound, but {shown}") if loud else ("right", "")
    named = [one for one in findings if command.names(one, answer["find"])]
    if any(one["level"] in listed(answer["level"]) for one in named):
        return "right", ""
    if named:
        return "unclear", f"{answer['find']} should be {answer['level']}; {shown}"
    return ("wrong" if loud else "silently wrong"), f"not named: {answer['find']}; {shown}"
