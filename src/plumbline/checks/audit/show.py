"""An audit for a terminal."""

from collections.abc import Iterator

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from plumbline.checks.audit.audit import Audit
from plumbline.checks.audit.seen import mean, shown, written
from plumbline.checks.diagnosis.finding import Finding
from plumbline.evaluation.statistics import mean_interval

STYLES = {"fatal": "bold red", "warning": "yellow", "note": "dim"}


def audit_tables(name: str, audit: Audit) -> RenderableType:
    """What was tried with its figures, and the findings below."""
    splits = ", ".join(f"{split} {count}" for split, count in audit.counts.items())
    title = Text(f"{name or audit.task}: {splits}; {audit.verdicts:,} verdicts, {audit.rate:,.0f} a second")
    cheat = [] if audit.seen.cheat is None else [Text(f"cheapest cheat: {shown(audit.seen.cheat.rule, 240)}\n")]
    if len(audit.weights) > 1:
        title.append(
            f"\neffective weights: {', '.join(f'{part} {share:.2f}' for part, share in audit.weights.items())}"
        )
    tables: list[RenderableType] = [_earned(audit), *cheat, *_parts(audit), *_writings(audit)]
    findings = [line for finding in audit.findings for line in finding_lines(finding)]
    return Group(title, *tables, *(findings or [Text("nothing found\n")]))


def finding_lines(finding: Finding) -> Iterator[Text]:
    """A finding in a few lines."""
    yield Text(f"{finding.level}: {finding.check}: {finding.what}", style=STYLES[finding.level])
    if finding.causes:
        yield Text(f"    causes: {'; '.join(finding.causes)}")
    if finding.fix:
        yield Text(f"    fix: {finding.fix}")
    if finding.samples:
        yield Text(f"    examples: {', '.join(finding.samples)}")


def _table(title: str, *headings: str) -> Table:
    table = Table(title=title, box=SIMPLE_HEAD, title_justify="left")
    table.add_column("")
    for heading in headings:
        table.add_column(heading, justify="right")
    return table


def _earned(audit: Audit) -> Table:
    seen = audit.seen
    table = _table("who earns what", "n", "reward [95 % interval]", "at most")
    if seen.golds:
        table.add_row("gold answers", str(len(seen.golds)), f"{seen.ceiling:.3f}", "", style="bold")
    for name, splits in seen.controls.items():
        split, verdicts = max(splits.items(), key=lambda item: mean(item[1]))
        limit = seen.limits.get(name)
        said = "" if limit is None else f"{limit:.3f}"
        interval = mean_interval([one.score.total for one in verdicts if one.score is not None])
        table.add_row(f"control {name} ({split})", str(interval.n), f"{interval:.3f}" if interval.n else "-", said)
    if seen.cheat is not None:
        cheat = seen.cheat
        table.add_row("cheapest cheat found", str(len(cheat.rewards)), f"{mean_interval(cheat.rewards):.3f}", "")
    return table


def _parts(audit: Audit) -> Iterator[Table]:
    table = _table("parts of the reward", "texts", "least", "most")
    for name, values in audit.seen.parts().items():
        known = [value for _, value in values if value is not None]
        if known:
            table.add_row(name, str(len(known)), f"{min(known):.3f}", f"{max(known):.3f}")
    if table.row_count:
        yield table


def _writings(audit: Audit) -> Iterator[Table]:
    ways = written(audit.seen)
    names = sorted({name for way in ways.values() for name in way["readings"]})
    table = _table("a gold answer written otherwise", "n", "loses", *(f"{name} reading" for name in names))
    for way, found in ways.items():
        totals = [f"{found['readings'][name]:.3f}" for name in names if name in found["readings"]]
        table.add_row(way, str(found["n"]), f"{found['loss']:.1%}", *totals)
    if ways:
        yield table
