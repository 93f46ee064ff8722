"""The job: one JSON object of what a review says."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from plumbline.records import Example
from plumbline.seeds import generator
from plumbline.tasks.task import gold_of
from plumbline_commerce.extraction import rubric
from plumbline_commerce.extraction.controls import CONTROLS, LIMITS, sloppily
from plumbline_commerce.extraction.pairs import pairs
from plumbline_commerce.extraction.schema import ISSUES, KEYS
from plumbline_commerce.job import Job, Verdict
from plumbline_commerce.options import CommerceOptions


def identity(options: CommerceOptions) -> str:
    """The reading, because it decides the totals, and the keys."""
    keys = "" if options.keys is None else f":{','.join(options.keys)}"
    return f":{options.reading}{keys}"


def verdict(options: CommerceOptions, _folder: Path) -> Verdict:
    """See `Job.verdict`."""
    return lambda example, completion: rubric.judge(
        example.reference, example.reference["review"], completion, options.reading
    )


def check(reference: Mapping[str, Any]) -> None:
    """See `Job.check`."""
    if not isinstance(reference.get("review"), str):
        raise ValueError(  # noqa: TRY004 - a row of somebody's file, not an argument
            "the reference lacks the review; add the text that the answer is about"
        )
    asked = set(reference) & set(KEYS)
    if not asked or 0 < len(asked & set(ISSUES)) < len(ISSUES):
        raise ValueError(
            f"the reference has the gold values {', '.join(sorted(asked)) or 'of no key'}; "
            f"it needs at least one of {', '.join(KEYS)}, and of the three flags all or none"
        )


def demonstration(example: Example, options: CommerceOptions, seed: int) -> str:
    """The gold answer, as carelessly written as the options say."""
    gold, sloppiness = gold_of(example), options.sloppiness
    if len(example.reference["review"]) <= sloppiness.over:
        return gold
    return sloppily(gold, sloppiness, generator(seed, "sloppiness"))


JOB = Job(
    name="extraction",
    rubric=rubric.RUBRIC,
    controls=CONTROLS,
    limits=LIMITS,
    pairs=pairs,
    check=check,
    verdict=verdict,
    identity=identity,
    demonstration=demonstration,
    said=lambda _folder: lambda _example, completion: rubric.said(completion),
)
