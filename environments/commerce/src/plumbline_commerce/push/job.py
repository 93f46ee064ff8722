"""The job: one push notification for one customer."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from plumbline_commerce.job import Job, Verdict
from plumbline_commerce.options import CommerceOptions
from plumbline_commerce.push import rubric
from plumbline_commerce.push.controls import CONTROLS, LIMITS
from plumbline_commerce.push.pairs import pairs
from plumbline_commerce.push.situations import situations


def identity(options: CommerceOptions) -> str:
    """The reading, because it decides the totals."""
    return f":{options.reading}"


def verdict(options: CommerceOptions, _folder: Path) -> Verdict:
    """See `Job.verdict`."""
    return lambda example, completion: rubric.judge(example.reference, completion, options.reading)


def check(reference: Mapping[str, Any]) -> None:
    """See `Job.check`."""
    for key in ("name", "product", "told"):
        if not isinstance(reference.get(key), str) or not reference[key].strip():
            raise ValueError(f"the reference lacks {key}; write what the prompt says of it")
    if reference.get("situation") not in situations():
        raise ValueError(f"the situation is {reference.get('situation')!r}, and there are {', '.join(situations())}")
    offers = reference.get("offers")
    if not isinstance(offers, list) or not all(isinstance(offer, str) and offer.strip() for offer in offers):
        raise ValueError("the reference lacks offers; write a list of texts, [] where nothing may be offered")
    if not isinstance(reference.get("titled"), bool):
        raise ValueError("the reference lacks titled; write true where a title is asked for, else false")  # noqa: TRY004


JOB = Job(
    name="push",
    rubric=rubric.RUBRIC,
    controls=CONTROLS,
    limits=LIMITS,
    pairs=pairs,
    check=check,
    verdict=verdict,
    identity=identity,
)
