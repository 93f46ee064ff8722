"""The reward, tried on a few examples as `plumbline audit` does, with fewer probes and no search for cheats."""

from collections.abc import Iterator
from dataclasses import replace

from plumbline.checks.audit.audit import audit
from plumbline.checks.diagnosis.finding import Finding
from plumbline.checks.preflight.before import Before, Check
from plumbline.checks.preflight.prompts import Opened
from plumbline.errors import PlumblineError, UntrustedCodeError

TRIED = 40
"""Examples of each split."""


def look(before: Before) -> Iterator[Finding]:
    """Of every task; findings have the audit's names."""
    for one in before.tasks.values():
        splits = [split for split, examples in one.splits.items() if examples]
        try:
            found = audit(one.probed, splits, limit=TRIED, quick=True).findings
        except UntrustedCodeError:
            if len(before.tasks) == 1:
                raise
            continue  # which is said beside this check
        except PlumblineError as error:
            yield Finding("reward", "fatal", f"{one.called}{error.cause}", fix=error.fix)
            continue
        for finding in found:
            if finding.check != "part-silent":  # a part that the task's options leave out
                yield replace(finding, what=f"{one.called}{finding.what}", change=_change(before, one, finding))


def _change(before: Before, one: Opened, finding: Finding) -> dict[str, str]:
    """A strict reading is an option of a task that has another one."""
    strict = before.recipe.each_task[one.name].options.get("reading") == "strict"
    key = f"tasks.{one.name}" if one.name else "task"
    return {f"{key}.options.reading": "lenient"} if strict and finding.check == "writing" else {}


CHECK = Check(
    name="reward",
    asks=f"what `plumbline audit` finds on {TRIED} examples of each split, its search for cheats left out",
    look=look,
    cheap=False,
)
