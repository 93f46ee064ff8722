"""One kind of check for four moments: before a run, while it goes on, after it, and of a reward
without a model.

A check is a function from a context to findings. The context is what is known at that moment: the
recipe and its tasks (`preflight.before.BeforeRun`), the records of a stage
(`diagnosis.history.History`), or a reward's verdicts (`audit.scoring_runner.ScoringRunner`).
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

import numpy as np

from plumbline.checks.messages import find_cause, find_message, name_terms, render_message
from plumbline.config.overrides import read_package_yaml
from plumbline.errors import PlumblineError, RunError, UntrustedCodeError

Level = Literal["fatal", "warning", "note"]
"""fatal: the result is false, or there will be none. warning: it is likely worse than it could be.
note: no fault, but what a reader of the figures must know."""
LEVELS: tuple[Level, ...] = ("fatal", "warning", "note")
Moment = Literal["before", "during", "after", "reward"]
FOLLOWS = "follows"
"""The cause of what follows from another finding."""
REFUSED = "refused"
"""The code of an error that a run would end with."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong, with what says so."""

    check: str = field(default="", kw_only=True)
    """Its name; the check that finds it fills it in."""
    level: Level
    code: str = ""
    """What was found, of the codes that `messages` has for the check; the check's name where it
    finds one thing."""
    since: int | None = None
    """The step from which on it can be seen."""
    evidence: Mapping[str, Any] = field(default_factory=dict)
    """Figures by name, those of its sentences among them."""
    samples: tuple[str, ...] = ()
    """Ids of completions that show it."""
    causes: tuple[str, ...] = ()
    """Codes of the likely ones, the likeliest first."""
    task: str = field(default="", kw_only=True)
    """Which of several it is of, where a check looks at each."""
    about: str = ""
    """Which part, task or evaluation it is of, where a check looks at several."""
    change: Mapping[str, Any] = field(default_factory=dict)
    """What to change in the recipe, by key, where that is known."""
    follows: tuple[str, ...] = ()
    """Checks whose findings explain this one, by `consequences.yaml`; an examination fills it
    in."""
    shown: bool = False
    """A note that stands in the normal output, too: it may be why the reward did not rise."""
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    """What the trainer whose log it is calls keys of a recipe; empty where they are a recipe's."""

    def __post_init__(self) -> None:
        """What numpy calculated becomes plain numbers, as JSON and sentences have them."""
        plain = {
            name: value.item() if isinstance(value, np.generic) else value
            for name, value in self.evidence.items()
        }
        object.__setattr__(self, "evidence", plain)
        if self.since is not None:
            object.__setattr__(self, "since", int(self.since))

    @property
    def what(self) -> str:
        """What was found, in a sentence; of one of several tasks with its name before it."""
        return f"{self.task}: " * bool(self.task) + self._render(self._message["what"])

    @property
    def fix(self) -> str:
        """What to do; empty where nothing is to be done."""
        follows = self.causes == (FOLLOWS,)
        return "" if follows else self._render(self._message.get("fix", ""))

    @property
    def summary(self) -> str:
        """What was found and what to do."""
        return "; ".join(filter(None, (self.what, self.fix)))

    def explain_causes(self) -> list[str]:
        """The likely causes in sentences."""
        return [self._render(find_cause(self.check, code)) for code in self.causes]

    @property
    def _message(self) -> Mapping[str, str]:
        return find_message(self.check, self.code or self.check)

    def _render(self, template: str) -> str:
        figures = {"about": self.about, "since": self.since, "follows": self.follows[:1]}
        figures |= name_terms(self.check, self.evidence)
        return render_message(template, figures, self.options)


def describe_refusal(error: PlumblineError, **given: Any) -> Finding:
    """An error as a fatal finding: its cause and its fix are figures.

    Args:
        error: of what a run would be refused with.
        given: other fields of it.
    """
    evidence = {"cause": error.cause, "fix": error.fix}
    return Finding("fatal", REFUSED, evidence=evidence, **given)


def refuse_findings(what: str, findings: Sequence[Finding], fix: str) -> None:
    """Refuse to begin where something fatal was found.

    Args:
        what: failed, in words.
        findings: of every level.
        fix: what else may be done.

    Raises:
        RunError: says all that is fatal.
    """
    if fatal := [finding for finding in findings if finding.level == "fatal"]:
        causes = "; ".join(f"{finding.what} ({finding.check})" for finding in fatal)
        fixes = dict.fromkeys(finding.fix for finding in fatal if finding.fix)
        raise RunError(f"{what}: {causes}", "; ".join([*fixes, fix]))


class MissingDataError(Exception):
    """A check cannot be done; its text is what it lacks."""


class Context:
    """What checks of one moment look at."""

    kind: Any
    """What checks go by that apply to some contexts only."""

    def has(self, need: str) -> bool:  # noqa: ARG002 - for those that know their needs by name
        """Whether something is known that a check needs, by its name."""
        return True

    @property
    def option_names(self) -> Mapping[str, str]:
        """What the trainer whose records these are calls keys of a recipe."""
        return {}

    @property
    def dating_error(self) -> int:
        """The steps by which a finding may be dated too late."""
        return 0

    def rank(self, finding: Finding) -> tuple[int, int]:
        """The place of a finding among others: the most severe first, and then in the order in
        which they are seen."""
        return LEVELS.index(finding.level), finding.since or 0


C = TypeVar("C", bound=Context)


@dataclass(frozen=True, slots=True, kw_only=True)
class Check(Generic[C]):
    """A question to a context; call it for what it finds."""

    name: str
    look: Callable[[C], Iterator[Finding]]
    """Its docstring says what it looks for. Raises MissingDataError where it cannot be done. A
    finding without a name gets the check's."""
    moments: tuple[Moment, ...]
    needs: tuple[str, ...] = ()
    """What it cannot do without, by names that the context knows; `a|b` is one of several."""
    kinds: tuple[str, ...] = ()
    """Of contexts that it applies to; empty for all."""
    stops: Callable[[Any, int], bool] = lambda context, since: context.last_step - since >= 10
    """Whether a run that goes on is to be stopped by a fatal finding that every look has had since
    a step: one that stood for ten steps is not a transient."""
    quick: bool = True
    """Whether `plumbline run` does it before it begins, on its own records."""

    def __call__(self, context: C) -> Iterator[Finding]:
        """What it finds."""
        for finding in self.look(context):
            check_ = finding.check or self.name
            yield replace(finding, check=check_, code=finding.code or check_)

    def missing_needs(self, context: C) -> list[str]:
        """What it needs and the context does not have."""
        return [need for need in self.needs if not any(map(context.has, need.split("|")))]


def check(
    *moments: Moment, name: str, **options: Any
) -> Callable[[Callable[[C], Iterator[Finding]]], Check[C]]:
    """Make a function the check `name` of these moments; see `Check` for the options."""
    return lambda look: Check(name=name, look=look, moments=moments, **options)


@dataclass(frozen=True, slots=True, kw_only=True)
class Examination(Generic[C]):
    """What checks found in one context."""

    context: C
    findings: tuple[Finding, ...]
    """The most severe first, and then in the order in which they could be seen."""
    clear: tuple[str, ...]
    """Checks that found nothing."""
    not_run: Mapping[str, list[str]]
    """Checks that could not be done, with what they lack."""

    @property
    def fatal(self) -> bool:
        """Whether a fatal finding stands."""
        return any(finding.level == "fatal" for finding in self.findings)


@np.errstate(over="ignore", invalid="ignore")  # of values near the largest float
def examine(context: C, checks: Sequence[Check[C]]) -> Examination[C]:
    """Apply checks to a context."""
    findings: list[Finding] = []
    clear: list[str] = []
    not_run: dict[str, list[str]] = {}
    for check_ in checks:
        if check_.kinds and context.kind not in check_.kinds:
            continue
        if lacking := check_.missing_needs(context):
            not_run[check_.name] = lacking
            continue
        try:
            found = [_name_keys(finding, context.option_names) for finding in check_(context)]
        except MissingDataError as error:
            not_run[check_.name] = [str(error)]
            continue
        except UntrustedCodeError:
            not_run[check_.name] = ["--trust-code"]
            continue
        findings += found
        if not found:
            clear.append(check_.name)
    findings = mark_consequences(findings, context.dating_error)
    findings.sort(key=context.rank)
    return Examination(
        context=context, findings=tuple(findings), clear=tuple(clear), not_run=not_run
    )


def _name_keys(finding: Finding, options: Mapping[str, str]) -> Finding:
    """A finding in the words of a trainer; a change of what it has no option for is left out."""
    if not options:
        return finding
    change = {options[key]: value for key, value in finding.change.items() if key in options}
    return replace(finding, options=options, change=change)


@dataclass(frozen=True, slots=True)
class Edge:
    """That a finding follows from another one."""

    finding: str
    """A check, or `check:code`; so is the cause."""
    cause: str
    level: str
    """The least that the cause has."""
    figure: str
    """Of the evidence of either that is true; empty where none must be."""


@cache
def read_consequences() -> tuple[tuple[Edge, ...], frozenset[str]]:
    """What follows from what, the surest cause of a finding first, and findings whose `since` does
    not date them."""
    table = read_package_yaml(Path(__file__).with_name("consequences.yaml"))
    edges = []
    for finding, causes in table["follows"].items():
        for cause in _flatten(causes):
            words, _, figure = cause.partition(" if ")
            level, name = words.split() if " " in words else ("warning", words)
            edges.append(Edge(finding, name, level, figure))
    return tuple(edges), frozenset(_flatten(table["undated"]))


def _flatten(names: Sequence[Any]) -> Iterator[str]:
    for name in names:
        yield from [name] if isinstance(name, str) else _flatten(name)


def mark_consequences(findings: Sequence[Finding], dating_error: int = 0) -> list[Finding]:
    """The findings, what follows from another one as a note under the first cause of all that was
    found: a reader should begin with it. A cause is as bad as the worst that stands under it.

    Args:
        findings: of one context.
        dating_error: see `Context`.
    """
    edges, undated = read_consequences()

    def list_causes(of: Finding) -> Iterator[Finding]:
        """Those of which nothing else is the cause."""
        seen = math.inf if of.since is None or of.check in undated else of.since + dating_error
        for edge in edges:
            for cause in findings if _is_named(of, edge.finding) else ():
                began = 0 if cause.check in undated else cause.since or 0
                if began <= seen and _explains(cause, edge, of):
                    yield from list(list_causes(cause)) or [cause]

    causes = [list(list_causes(finding)) for finding in findings]
    explained = []
    for finding, roots in zip(findings, causes, strict=True):
        under = [one.level for one, of in zip(findings, causes, strict=True) if finding in of[:1]]
        level = min((finding.level, *under), key=LEVELS.index)
        finding = replace(
            finding, level=level, follows=tuple(dict.fromkeys(one.check for one in roots))
        )
        if roots:
            finding = replace(finding, level="note", causes=(FOLLOWS,), change={}, shown=False)
        explained.append(finding)
    return explained


def _is_named(finding: Finding, name: str) -> bool:
    return name in (finding.check, f"{finding.check}:{finding.code}")


def _explains(cause: Finding, edge: Edge, finding: Finding) -> bool:
    levels: tuple[str, ...] = LEVELS
    bad_enough = levels.index(cause.level) <= levels.index(edge.level)
    named = bad_enough and _is_named(cause, edge.cause)
    figures = {**cause.evidence, **finding.evidence, "": True}
    return named and bool(figures.get(edge.figure))


def suggest_options(not_run: Mapping[str, Sequence[str]], logs: Mapping[str, str]) -> list[str]:
    """Which options would allow checks that lack something:
    `14 more checks with log_completions=True`.

    Args:
        not_run: see `Examination`.
        logs: options by what they log.
    """
    counts: Counter[str] = Counter()
    for needs in not_run.values():
        options = [
            next((logs[one] for one in need.split("|") if one in logs), "") for need in needs
        ]
        counts[" and ".join(dict.fromkeys(options)) if all(options) else ""] += 1
    del counts[""]
    return [
        f"{count} more check{'s' if count > 1 else ''} with {option}"
        for option, count in counts.most_common()
    ]
