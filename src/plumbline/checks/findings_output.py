"""What checks found, for terminals, for reports, and as plain values."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, fields
from types import MappingProxyType
from typing import Any

from rich.text import Text

from plumbline.checks.check import Examination, Finding, Level, suggest_options
from plumbline.checks.diagnosis.facts import measure_spent
from plumbline.checks.diagnosis.history import History
from plumbline.checks.diagnosis.outcome import measure_outcome
from plumbline.errors import DataError
from plumbline.records import Values, group_by_key

COLOURS: dict[Level, str] = {"fatal": "bold red", "warning": "yellow", "note": "cyan"}
_STYLES = {str(level): colour for level, colour in COLOURS.items()} | {"error": COLOURS["fatal"]}


def render_stages(examined: Sequence[Examination[History]], *, verbose: bool) -> Iterator[Text]:
    """The reward or the loss of a stage, its findings, the worst first, then what was clear, and
    what was not done.

    Args:
        examined: the stages of a run.
        verbose: whether notes are shown, and what each check lacks that was not done.
    """
    for number, one in enumerate(examined):
        if number:
            yield Text()
        history = one.context
        if (came := measure_outcome(history)) is not None:
            spent = measure_spent(history)
            line = came.summary + (f"; {spent.summary}" if spent else "")
            yield Text(line, style="bold")
        yield Text(
            f"{history.name} ({history.origin}): {history.logged_steps} logged steps up to "
            f"{history.last_step}, "
            f"{len(history.samples)} completions"
            + (
                f"; lines or records that could not be read: {history.skipped}"
                if history.skipped
                else ""
            ),
            style="bold",
        )
        yield from (Text(remark, style="dim") for remark in history.remarks)
        ours = history.origin == "plumbline"
        yield from render_findings(
            one.findings, one.clear, one.not_run, ours=ours, verbose=verbose, logs=history.logs
        )


def render_findings(
    findings: Sequence[Finding],
    clear: Sequence[str],
    not_run: Mapping[str, Sequence[str]],
    *,
    ours: bool,
    verbose: bool,
    logs: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[Text]:
    """Findings, and what was found clear or could not be looked at.

    Args:
        findings: the worst first; what follows from one is said under it, or named in its lines.
        clear: checks that found nothing.
        not_run: see `Examination`.
        ours: whether there is a recipe that a change can be made in.
        verbose: see `render_stages`.
        logs: see `History`.
    """
    under = group_by_key((one.follows[0] if one.follows else "", one) for one in findings)
    told = [one for one in under.get("", []) if verbose or one.shown or one.level != "note"]
    for finding in told:
        text, follow = render_finding(finding, ours=ours), under.pop(finding.check, [])
        if follow and not verbose:
            names = ", ".join(dict.fromkeys(one.check for one in follow))
            text.append(f"\n    follows from it: {names}", style="dim")
        yield text
        for one in follow if verbose else ():
            lines = render_finding(one, ours=ours).split()
            yield Text("\n").join(Text("    ") + line for line in lines)
    yield Text(
        summarise_counts(findings, clear, not_run)
        + ("" if verbose or len(told) == len(findings) else " (-v shows notes)")
    )
    if more := suggest_options(not_run, logs):
        yield Text("; ".join(more), style="dim")
    if not_run and verbose:
        yield Text(f"skipped for lack of data: {', '.join(not_run)}", style="dim")


def findings_to_json(examined: Sequence[Examination[History]]) -> Values:
    """The same as JSON values."""
    return {
        "fatal": any(one.fatal for one in examined),
        "stages": [
            {
                "stage": one.context.name,
                "origin": one.context.origin,
                "logged_steps": one.context.logged_steps,
                "last_step": one.context.last_step,
                "completions": len(one.context.samples),
                "skipped": one.context.skipped,
                "remarks": list(one.context.remarks),
                "outcome": (came := measure_outcome(one.context))
                and _replace_nonfinite(came.to_json()),
                "spent": (spent := measure_spent(one.context))
                and asdict(spent) | {"summary": spent.summary},
                "findings": [finding_to_json(finding) for finding in one.findings],
                "clear": list(one.clear),
                "not_run": {name: list(needs) for name, needs in one.not_run.items()},
            }
            for one in examined
        ],
    }


Runs = Mapping[str, Sequence[Examination[History]] | DataError]
"""The stages of several runs by their names, or why one cannot be read."""


def render_run_lines(runs: Runs) -> Iterator[Text]:
    """A line for each stage of several runs: how bad it is, its name, what came of it, and its
    first finding; and how many there are of each."""
    counts: Counter[str] = Counter()
    for name, run in runs.items():
        lines = (
            [("error", name, [run.cause])]
            if isinstance(run, DataError)
            else [
                _summarise_stage(f"{name}: {one.context.name}" if len(run) > 1 else name, one)
                for one in run
            ]
        )
        for level, shown_as, parts in lines:
            counts[level] += 1
            yield Text.assemble(
                (level.ljust(9), _STYLES.get(level, "")), f"{shown_as}  {'; '.join(parts)}"
            )
    said = ", ".join(f"{count} {level}" for level, count in counts.most_common())
    yield Text(f"{said}; all of one: plumbline check FOLDER/NAME", style="dim")


def _summarise_stage(name: str, one: Examination[History]) -> tuple[str, str, list[str]]:
    loud = [each for each in one.findings[:1] if each.level != "note"]
    came = measure_outcome(one.context)
    parts = [came.summary if came else f"logged steps: {one.context.logged_steps}"]
    return (
        loud[0].level if loud else "clear",
        name,
        parts + [f"{each.what}  ({each.check})" for each in loud],
    )


def runs_to_json(runs: Runs) -> Values:
    """The same as JSON values, with all that was found in each."""
    values = {
        name: {"error": run.cause, "fix": run.fix}
        if isinstance(run, DataError)
        else findings_to_json(run)
        for name, run in runs.items()
    }
    return {"fatal": any(one.get("fatal", False) for one in values.values()), "runs": values}


def finding_to_json(finding: Finding) -> Values:
    """A finding as JSON values: its codes and figures, and the sentences that they make."""
    causes = [
        {"code": code, "text": text}
        for code, text in zip(finding.causes, finding.explain_causes(), strict=True)
    ]
    values: Values = _replace_nonfinite(asdict(finding))
    del values["options"]
    return values | {"what": finding.what, "causes": causes, "fix": finding.fix}


def finding_from_json(values: Mapping[str, Any]) -> Finding:
    """What `finding_to_json` wrote.

    Raises:
        KeyError, TypeError: it is none, or has a code that is not known here.
    """
    known = {one.name for one in fields(Finding)} - {"causes"}
    causes = tuple(one["code"] for one in values["causes"])
    given: Values = {
        name: tuple(one) if isinstance(one, list) else one for name, one in values.items()
    }
    finding = Finding(**{name: given[name] for name in known & given.keys()}, causes=causes)
    finding_to_json(finding)  # which needs every code
    return finding


def summarise_counts(
    findings: Sequence[Finding], clear: Sequence[str], not_run: Mapping[str, Sequence[str]]
) -> str:
    """How many findings of each level there are, and how many checks found nothing."""
    counts = {level: sum(finding.level == level for finding in findings) for level in COLOURS}
    plural = {
        level: level if level == "fatal" or count == 1 else f"{level}s"
        for level, count in counts.items()
    }
    found = (
        ", ".join(f"{count} {plural[level]}" for level, count in counts.items() if count)
        or "nothing found"
    )
    named = {finding.check for finding in findings}
    return f"{found}; {len(clear)} of {len(clear) + len(not_run) + len(named)} checks clear"


def list_remedies(finding: Finding, *, ours: bool) -> Iterator[str]:
    """Likely causes, what to do, and what to change in the recipe or in the trainer's options, a
    line each."""
    if finding.causes:
        yield f"likely: {'; '.join(finding.explain_causes())}"
    if finding.fix:
        yield f"do: {finding.fix}"
    for key, value in finding.change.items():
        yield f"in the recipe: {key}: {value}" if ours else f"set: {key}: {value}"
    if ours and (ids := [one for one in finding.samples if " " not in one]):  # else prompts
        yield f"examples: {', '.join(ids)}"


def render_finding(finding: Finding, *, ours: bool) -> Text:
    """A finding for terminals."""
    text = Text()
    text.append(f"{finding.level}: ", style=COLOURS[finding.level])
    text.append(finding.what)
    text.append(f"  ({finding.check})", style="dim")
    for line in list_remedies(finding, ours=ours):
        text.append(f"\n    {line}")
    return text


def _replace_nonfinite(value: Any) -> Any:
    """JSON has no NaN and no infinity: such figures are texts."""
    if isinstance(value, dict):
        return {key: _replace_nonfinite(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_replace_nonfinite(one) for one in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value.item() if hasattr(value, "item") else value
