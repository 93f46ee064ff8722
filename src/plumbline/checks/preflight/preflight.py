"""What is wrong with a run before it begins: `plumbline check RECIPE`, and what `plumbline run` refuses to begin
with."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.text import Text

from plumbline.checks.diagnosis.finding import LEVELS, Finding
from plumbline.checks.preflight.before import Before, Check, Lacking, before, before_of
from plumbline.checks.preflight.rules import CHECKS
from plumbline.checks.preflight.rules.overlap import MOST
from plumbline.checks.refusals import Ground
from plumbline.errors import DataError, ModelError, PlumblineError, RecipeError, RunError, UntrustedCodeError
from plumbline.recipe import Recipe, find, load
from plumbline.reports.findings import plain, said
from plumbline.runs.remote import folder_for, join

ANYWAY = "to begin all the same, add --set run.preflight=false"
NAMES: tuple[tuple[type[PlumblineError], str], ...] = (
    (RecipeError, "recipe"),
    (DataError, "data"),
    (ModelError, "model"),
)
"""What a finding is called that is an error which a run would end with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preflight:
    """What was found before a run."""

    recipe: Recipe
    findings: tuple[Finding, ...]
    """The worst first."""
    clear: tuple[str, ...]
    """Checks that found nothing."""
    not_run: dict[str, list[str]]
    """Checks that could not be done, with what they lack."""
    looked_at: tuple[str, ...]
    """How much of each task was looked at, in words."""
    seconds: float

    @property
    def fatal(self) -> bool:
        """Whether a fatal finding stands."""
        return any(finding.level == "fatal" for finding in self.findings)

    def shown(self) -> Iterator[Text]:
        """For terminals."""
        name, took = self.recipe.name, f"{self.seconds:.1f} s, no weights loaded"
        yield Text(f"{name}: taken for a recipe, and looked at before it runs ({took})", style="bold")
        for line in self.looked_at:
            yield Text(line, style="dim")
        yield from said(self.findings, self.clear, self.not_run, ours=True)

    def plain(self) -> dict[str, Any]:
        """As JSON values, of the form that runs have."""
        stage = {
            "stage": "before",
            "origin": "recipe",
            "recipe": self.recipe.name,
            "looked_at": list(self.looked_at),
            "seconds": round(self.seconds, 2),
            "findings": [plain(finding) for finding in self.findings],
            "clear": list(self.clear),
            "not_run": {name: list(needs) for name, needs in self.not_run.items()},
        }
        return {"fatal": self.fatal, "stages": [stage]}


def preflight(recipe: Recipe, folder: Path, file: Path | None = None) -> Preflight:
    """Look at all that can be known of a run without it and without its weights; nothing is kept.

    Args:
        recipe: of the run.
        folder: its directory, which need not be there.
        file: of the recipe, where there is one.
    """
    began = time.monotonic()
    with before(recipe, folder, file) as known:
        return examine(known, CHECKS, began)


def preflight_of(source: str, overrides: Sequence[str] = ()) -> Preflight:
    """The same by a recipe's file or name, for the folder that it runs in.

    Raises:
        RecipeError: it cannot be read.
    """
    recipe = load(source, overrides)
    return preflight(recipe, folder_for(join(recipe.run.folder, recipe.name)), find(source))


def examine(known: Before, checks: Sequence[Check], began: float | None = None) -> Preflight:
    """Apply checks to what is known."""
    began = time.monotonic() if began is None else began
    findings: list[Finding] = []
    clear, not_run = [], {}
    for check in checks:
        try:
            found = list(check.look(known))
        except Lacking as lacking:
            not_run[check.name] = [str(lacking)]
            continue
        except UntrustedCodeError:
            not_run[check.name] = ["--trust-code"]
            continue
        findings += found
        if not found:
            clear.append(check.name)
    said_by_a_check = {finding.what for finding in findings}
    findings = [one for one in _refused(known) if one.what not in said_by_a_check] + findings
    findings.sort(key=lambda finding: LEVELS.index(finding.level))
    return Preflight(
        recipe=known.recipe,
        findings=tuple(findings),
        clear=tuple(clear),
        not_run=not_run,
        looked_at=tuple(_looked_at(known)),
        seconds=time.monotonic() - began,
    )


def _refused(known: Before) -> Iterator[Finding]:
    """What a run would end with at once."""
    for error in known.wrong:
        if isinstance(error, UntrustedCodeError):  # what needs none of that code is looked at all the same
            yield Finding("code", "warning", f"{error.cause}, and what needs it was not checked", fix=error.fix)
            continue
        name = next((name for kind, name in NAMES if isinstance(error, kind)), "run")
        yield Finding(name, "fatal", error.cause, fix=error.fix)


def _looked_at(known: Before) -> Iterator[str]:
    for one in known.tasks.values():
        sizes = ", ".join(f"{split} {len(found):,}" for split, found in one.splits.items())
        if not one.built:
            yield f"{one.called}records are not built yet, so a few like them were looked at ({sizes})"
        elif any(len(found) > MOST for found in one.splits.values()):
            yield f"{one.called}the first {MOST:,} of each split ({sizes})"
        else:
            yield f"{one.called}all examples ({sizes})"


def refuse(recipe: Recipe, folder: Path, grounds: Sequence[Ground]) -> None:
    """Refuse to begin where something fatal can be seen in the run's own records, by the checks that take seconds.

    Raises:
        RunError: says all of it, and how to begin all the same.
    """
    if not recipe.run.preflight:
        return
    found = examine(before_of(recipe, folder, grounds), [check for check in CHECKS if check.cheap])
    fatal = [finding for finding in found.findings if finding.level == "fatal"]
    if fatal:
        said = "; ".join(f"{finding.what} ({finding.check})" for finding in fatal)
        fixes = "; ".join(dict.fromkeys(finding.fix for finding in fatal if finding.fix))
        raise RunError(f"this run would be spent for nothing: {said}", f"{fixes}; {ANYWAY}")
