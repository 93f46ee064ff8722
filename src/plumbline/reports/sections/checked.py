"""What the checks say of the run: the findings, the worst first, and what was not looked at."""

from plumbline.checks.diagnosis.check import lacking
from plumbline.reports.findings import counted, remedies
from plumbline.reports.page import Section, facts
from plumbline.reports.view import View, name_of

HEADING = "What the checks say"


def checked(view: View) -> list[Section]:
    """The section; none before the first recorded step."""
    return [Section("checked", HEADING, facts(said))] if (said := check_facts(view)) else []


def check_facts(view: View) -> list[tuple[str, str]]:
    """Stage by stage: each finding with causes and remedy, then how many checks are clear and which were not done."""
    said = []
    for one in view.examined:
        stage = name_of(one.history.name)
        said += [
            (f"{stage}, {each.level}", " · ".join([f"{each.what} ({each.check})", *remedies(each, ours=True)]))
            for each in one.findings
        ]
        said.append((stage, counted(one.findings, one.clear, one.not_run) + "."))
        if one.not_run:
            said.append((f"{stage}, not done", f"for want of {lacking(one.not_run)}"))
    return said


def alarms(view: View) -> list[str]:
    """The fatal findings and the warnings, for the top of the page."""
    return [f"{each.level}: {each.what}" for one in view.examined for each in one.findings if each.level != "note"]
