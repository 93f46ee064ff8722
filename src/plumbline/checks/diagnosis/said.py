"""A decision and a routing table as text for a terminal."""

import textwrap
from collections.abc import Iterator, Sequence

from plumbline.checks.diagnosis.decide import Decision
from plumbline.checks.diagnosis.routes import RoutingTable
from plumbline.checks.diagnosis.watch import Watched
from plumbline.evaluation.statistics import Interval
from plumbline.storage import dumps

WIDTH = 100


def decision_text(decision: Decision, watched: Sequence[Watched]) -> str:
    """The questions with their answers and figures, the rules that fired, the scenario, and what it changes.

    Args:
        decision: of the runs.
        watched: the rules of the first run.
    """
    return "\n".join(_lines(decision, watched)) + "\n"


def _lines(decision: Decision, watched: Sequence[Watched]) -> Iterator[str]:
    yield f"decided on {', '.join(decision.runs)}"
    if decision.previous:
        yield f"previous   {', '.join(decision.previous)}"
    yield from decision.stopped
    for number, one in enumerate(decision.answers, 1):
        yield ""
        yield from _wrapped(f"{number}. {one.ask}", "", "   ")
        yield from _wrapped(" ".join(filter(None, (f"{one.answer}.", one.means))), "   ")
        for line in one.verdict.said:
            yield from _wrapped(f"{line}", "   · ", "     ")
        for line in one.verdict.needs:
            yield from _wrapped(f"what would decide it: {line}", "   → ", "     ")
    fired = [each for rule in watched for each in rule.fired]
    if watched:
        yield ""
        yield f"watch rules: {len(watched)}, of which {len({each.rule for each in fired})} found something"
    for each in fired:
        yield from _wrapped(f"{each.action}: {each.message}", "   · ", "     ")
    yield ""
    yield f"scenario {decision.scenario}"
    yield from _wrapped(decision.says, "   ")
    for line in decision.because:
        yield from _wrapped(line, "   · ", "     ")
    for line in decision.noise:
        yield from _wrapped(f"inside the noise: {line}", "   ! ", "     ")
    for line in decision.needs:
        yield from _wrapped(f"what would decide it: {line}", "   → ", "     ")
    if decision.changes:
        yield ""
        yield "the next recipe changes"
    for key, change in decision.changes.items():
        yield from _wrapped(f"{key}: {dumps(change.to)}, because {change.because}", "   ", "     ")


def routes_text(table: RoutingTable) -> str:
    """A line for each job, and under it every model with its figures, the best first."""
    lines = []
    for job, one in table.routes.items():
        lines.append(f"{job}: {one.model}{'' if one.decided else ' (not decided)'}")
        lines += _wrapped(one.said, "   ")
        for each in one.candidates:
            behind = f", {Interval(*each.behind, each.n):+.3f} beside the best" if each.behind else ""
            lines.append(f"   · {each.model}: {each.figure:.3f}, n = {each.n:,}{behind}")
    return "\n".join(lines) + "\n"


def _wrapped(text: str, first: str, rest: str | None = None) -> list[str]:
    return textwrap.wrap(
        text, WIDTH, initial_indent=first, subsequent_indent=first if rest is None else rest, break_long_words=False
    )
