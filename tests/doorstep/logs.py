"""What `plumbline check` says of a log."""

import json
import re
import traceback
from pathlib import Path
from typing import Any

from tests.doorstep import findings as command
from tests.doorstep.findings import LOUD, NEVER, listed

FOLDER = Path(__file__).with_name("logs")
RANKS = ("wrong", "silently wrong", "unclear", "right")
DIRECTIONS = {"still": "stayed", "rose": "rose", "fell": "fell"}
"""The outcome's verdicts as answers have them; any other cannot be told."""

Verdict = tuple[str, str]


def grade(name: str, answer: dict[str, Any]) -> Verdict:
    """The verdict on what is said of one log: what it is, what is wrong, and where the figures
    went."""
    try:
        _, out, err = command.run("check", *answer["path"].split(), "--json", folder=FOLDER)
    except Exception:  # noqa: BLE001 a traceback, whatever it is
        return "wrong", traceback.format_exc(limit=-1)
    if not out:
        return ("right" if re.search(answer.get("error", NEVER), err) else "unclear"), err.strip()
    stages = json.loads(out)["stages"]
    if "runs" in answer:
        apart = len(stages) == answer["runs"] or re.search(answer["error"], err)
        return (
            ("right", "")
            if apart
            else ("silently wrong", f"{len(stages)} runs of {answer['runs']}")
        )
    if len(stages) > 1:
        return "unclear", f"{len(stages)} stages of one run"
    grades = [
        _grade_kind(stages[0], answer),
        _grade_findings(stages[0], answer),
        _grade_outcome(stages[0], answer),
    ]
    return min(grades, key=lambda one: RANKS.index(one[0]))


def _grade_kind(stage: dict, answer: dict[str, Any]) -> Verdict:
    """The kind of the training, and how much of it was read. Preference training is checked as
    supervised training."""
    if (stage["stage"] == "rl") != (answer["kind"] == "rl"):
        return "wrong", f"read as {stage['stage']}, is {answer['kind']}"
    if stage["last_step"] != answer.get("steps", stage["last_step"]):
        return (
            "silently wrong",
            f"the last step is read as {stage['last_step']}, is {answer['steps']}",
        )
    if answer.get("completions") and not stage["completions"]:
        return "silently wrong", "the completions beside it were not read"
    return "right", ""


def _cause_texts(finding: dict) -> list[str]:
    return [one["text"] for one in finding["causes"]]


def _grade_findings(stage: dict, answer: dict[str, Any]) -> Verdict:
    """The fault, where it must stand; nothing above a note in a healthy log."""
    loud = [one for one in stage["findings"] if one["level"] in LOUD]
    shown = command.show(loud)
    if "first" not in answer:
        return ("wrong", f"healthy, but {shown}") if loud else ("right", "")
    advice = " ".join(
        " ".join([*_cause_texts(one), one["fix"], json.dumps(one["change"])]) for one in loud
    )
    unsaid = re.search(answer.get("unsaid", NEVER), advice)
    if unsaid:
        return "wrong", f"false advice: {unsaid[0]!r}; {shown}"
    wanted = answer["first"]
    if not any(command.names(one, wanted) for one in loud):
        if any(command.names(one, wanted) for one in stage["findings"]):
            return "unclear", f"a note only: {wanted}; {shown}"
        return ("wrong" if loud else "silently wrong"), f"not named: {wanted}; {shown}"
    says = answer.get("says", "")
    words = " ".join([loud[0]["what"], *_cause_texts(loud[0]), loud[0]["fix"]])
    if (
        command.names(loud[0], wanted)
        and loud[0]["level"] in listed(answer["level"])
        and re.search(says, words)
    ):
        return "right", ""
    return (
        "unclear",
        f"{wanted} should be first, {answer['level']}, with the words {says!r}; {shown}",
    )


def _grade_outcome(stage: dict, answer: dict[str, Any]) -> Verdict:
    """Where the reward or the loss went. That it did not become better is true of what became
    worse."""
    wanted = listed(answer["outcome"])
    outcome = stage["outcome"] or {"verdict": "open", "series": "", "summary": "nothing"}
    said, found = outcome["summary"], DIRECTIONS.get(outcome["verdict"], "cannot")
    if found in wanted:
        return "right", ""
    worse = "rose" if outcome["series"] == "loss" else "fell"
    vague = found == "cannot" or (found == "stayed" and worse in wanted)
    return ("unclear" if vague else "wrong"), f"the outcome is {' or '.join(wanted)}, but: {said}"
