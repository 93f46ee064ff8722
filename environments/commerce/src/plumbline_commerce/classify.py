"""Which job a text asks for, for prompts from elsewhere; those that Plumbline writes say it
themselves."""

import re
from functools import cache
from pathlib import Path

import yaml

from plumbline.tasks.text.numbers import without_accents


def job_of(text: str) -> str | None:
    """The job that a request in Portuguese asks for, by what it is recognised by in
    `classify.yaml`.

    Args:
        text: of the user, with or without what stands before it.

    Returns:
        One of the jobs; None where nothing speaks for any, or as much for two.
    """
    plain = without_accents(text.casefold())
    sums = {
        job: sum(worth for pattern, worth in marks if pattern.search(plain))
        for job, marks in _recognised().items()
    }
    best = max(sums.values())
    meant = [job for job, worth in sums.items() if worth == best]
    return meant[0] if best and len(meant) == 1 else None


@cache
def _recognised() -> dict[str, list[tuple[re.Pattern[str], int]]]:
    marks = yaml.safe_load((Path(__file__).with_name("classify.yaml")).read_text(encoding="utf-8"))
    return {
        job: [(re.compile(pattern, re.MULTILINE), worth) for pattern, worth in one.items()]
        for job, one in marks.items()
    }
