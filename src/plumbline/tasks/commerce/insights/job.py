"""The job: a manager's question about a small table of figures, answered by a short analysis in Portuguese."""

from pathlib import Path

from plumbline.records import Example, Outcome, Score
from plumbline.tasks.commerce.insights import rubric
from plumbline.tasks.commerce.insights.controls import CONTROLS, LIMITS
from plumbline.tasks.commerce.insights.pairs import pairs
from plumbline.tasks.commerce.insights.table import check, table_of
from plumbline.tasks.commerce.job import Job, Verdict
from plumbline.tasks.commerce.options import CommerceOptions


def verdict(_options: CommerceOptions, _folder: Path) -> Verdict:
    """See `Job.verdict`."""
    return judge


def judge(example: Example, completion: str) -> tuple[Outcome, Score]:
    """Judge an analysis of an example's table."""
    return rubric.judge(table_of(example.reference), completion)


JOB = Job(
    name="insights",
    rubric=rubric.RUBRIC,
    controls=CONTROLS,
    limits=LIMITS,
    pairs=pairs,
    check=check,
    verdict=verdict,
)
