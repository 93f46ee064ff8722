"""What a check is, and how all of them are applied to a stage."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from plumbline.checks.diagnosis.finding import LEVELS, Finding
from plumbline.checks.diagnosis.history import History, Kind
from plumbline.checks.diagnosis.outcome import Outcome, outcome


def stood(steps: int) -> Callable[[History, int], bool]:
    """A fatal finding is no passing draw where every look for so many steps has had it."""
    return lambda history, since: history.last_step - since >= steps


AFTER_TEN = stood(10)


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """A question to a run's records."""

    name: str
    asks: str
    """What it looks for, for people."""
    needs: tuple[str, ...]
    """What it cannot do without: names of series (a name that ends with / is any that begins so), `samples`, `prompts`
    (texts, no ids), `finals`, or `a|b`, one of several."""
    look: Callable[[History], Iterator[Finding]]
    kinds: tuple[Kind, ...] = ("rl",)
    explains: tuple[str, ...] = ()
    """Checks whose findings follow from a fatal one of this check: they are notes then."""
    unless: Callable[[History], bool] = lambda _: False
    """Where the records show that nothing follows."""
    follows: tuple[str, ...] = ()
    """Checks whose findings, fatal or not, explain what this one finds."""
    live: bool = True
    """Whether it means anything while a run goes on."""
    stops: Callable[[History, int], bool] = AFTER_TEN
    """Whether a run that goes on is to be stopped by a fatal finding that every look has had since a step."""

    def lacks(self, history: History) -> list[str]:
        """What it needs and the records do not have."""
        return [need for need in self.needs if not any(_there(name, history) for name in need.split("|"))]


@dataclass(frozen=True, slots=True)
class Examination:
    """What the checks said of one stage."""

    history: History
    findings: tuple[Finding, ...]
    """The worst first, and then in the order in which they could be seen."""
    clear: tuple[str, ...]
    """Checks that found nothing."""
    not_run: dict[str, list[str]]
    """Checks that could not be done, with what they lack."""

    @property
    def outcome(self) -> Outcome | None:
        """The reward or the loss from first to last."""
        return outcome(self.history)

    @property
    def fatal(self) -> bool:
        """Whether a fatal finding stands."""
        return any(finding.level == "fatal" for finding in self.findings)


def examine(history: History, checks: Sequence[Check]) -> Examination:
    """Apply checks to a stage."""
    findings: list[Finding] = []
    clear: list[str] = []
    not_run: dict[str, list[str]] = {}
    for check in checks:
        if history.kind not in check.kinds:
            continue
        if lacking := check.lacks(history):
            not_run[check.name] = lacking
            continue
        found = list(check.look(history))
        findings += found
        if not found:
            clear.append(check.name)
    findings = _explained(findings, checks, history)
    findings.sort(key=lambda finding: (LEVELS.index(finding.level), finding.since or 0))
    return Examination(history, tuple(findings), tuple(clear), not_run)


def lacking(not_run: Mapping[str, Sequence[str]]) -> str:
    """What checks lack, and which ones: `samples: degenerate-output, length-paid; gap or ratio_max: gap`."""
    checks: dict[str, list[str]] = {}
    for name, needs in not_run.items():
        need = " and ".join(" or ".join(one.rstrip("/") for one in each.split("|")) for each in needs)
        checks.setdefault(need, []).append(name)
    return "; ".join(f"{need}: {', '.join(names)}" for need, names in checks.items())


def _explained(findings: Sequence[Finding], checks: Sequence[Check], history: History) -> list[Finding]:
    """The findings, what follows from another one as a note: a reader should begin with the cause."""
    fatal = {finding.check for finding in findings if finding.level == "fatal"}
    causes = [check for check in reversed(checks) if check.name in fatal and not check.unless(history)]
    because = {name: check.name for check in causes for name in check.explains}
    worse = {finding.check for finding in findings if finding.level != "note"}
    because |= {check.name: one for check in checks for one in reversed(check.follows) if one in worse}
    return [
        replace(finding, level="note", causes=(f"it follows from {because[finding.check]}",), fix="")
        if finding.check in because
        else finding
        for finding in findings
    ]


def _there(name: str, history: History) -> bool:
    if name == "samples":
        return bool(history.samples)
    if name == "finals":
        return bool(history.finals)
    if name == "prompts":
        return 2 * sum(" " in sample.prompt for sample in history.samples) > len(history.samples)
    return bool(history.names(name)) if name.endswith("/") else len(history[name]) > 0
