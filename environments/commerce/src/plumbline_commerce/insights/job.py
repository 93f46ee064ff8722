"""The job: a manager's question about a small table of figures, answered by a short analysis in Portuguese."""

from pathlib import Path

from plumbline.records import Example, Outcome, Score
from plumbline_commerce.insights import rubric
from plumbline_commerce.insights.controls import CONTROLS, LIMITS
from plumbline_commerce.insights.pairs import pairs
from plumbline_commerce.insights.table import check, table_of
from plumbline_commerce.job import Job, Verdict
from plumbline_commerce.options import CommerceOptions


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
