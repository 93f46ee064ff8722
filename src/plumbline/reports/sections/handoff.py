"""What the recipe said of its own run: the rules that it was watched by, its questions, and what to do next."""

from plumbline.reports.build_tables import watch
from plumbline.reports.page import Section, facts
from plumbline.reports.view import View
from plumbline.storage import dumps

NEXT = "What to do next"


def handoff(view: View) -> list[Section]:
    """A section for the rules and one for the decision, where the recipe has them."""
    found = [Section("watch", "Watch rules", watch(view).to_html())] if view.watched else []
    return [*found, *([Section("next", NEXT, facts(said))] if (said := next_facts(view)) else [])]


def next_facts(view: View) -> list[tuple[str, str]]:
    """Each question with its answer, the scenario, and the changes of the next recipe; nothing without a tree."""
    decision = view.decision
    if decision is None:
        return []
    asked = [
        (one.ask, ". ".join([one.answer, *filter(None, [one.means.rstrip(".")]), *one.verdict.said]) + ".")
        for one in decision.answers
    ]
    said = {"Because": decision.because, "Inside the noise": decision.noise, "What would decide it": decision.needs}
    changes = [(f"Next: {key}", f"{dumps(one.to)}, because {one.because}") for key, one in decision.changes.items()]
    return [
        *asked,
        ("Scenario", f"{decision.scenario}. {decision.says}"),
        *((name, "; ".join(lines)) for name, lines in said.items() if lines),
        *changes,
    ]
