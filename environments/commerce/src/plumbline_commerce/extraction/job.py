"""The job: one JSON object of what a review says."""

from collections.abc import Hashable, Mapping, Set
from typing import Any

from plumbline.records import Example, Outcome, Score
from plumbline.seeds import generator
from plumbline.tasks.task import gold_of
from plumbline_commerce.extraction import rubric
from plumbline_commerce.extraction.baselines import WAYS, write_sloppily
from plumbline_commerce.extraction.pairs import pairs
from plumbline_commerce.extraction.schema import ISSUES, KEYS
from plumbline_commerce.job import Job, read_limits


class Extraction(Job):
    """See `Job`."""

    name, rubric, limits, ways = "extraction", rubric.RUBRIC, read_limits("extraction"), WAYS
    cluster = "customer_unique_id"
    pairs = staticmethod(pairs)

    @property
    def identity(self) -> str:
        """The reading, because it decides the totals, and the keys."""
        keys = "" if self.options.keys is None else f":{','.join(self.options.keys)}"
        return f":{self.options.reading}{keys}"

    def judge(self, example: Example, completion: str) -> tuple[Outcome, Score]:
        """See `Job.judge`."""
        return rubric.judge(
            example.reference, example.reference["review"], completion, self.options.reading
        )

    @staticmethod
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

    def demonstration(self, example: Example, seed: int) -> str:
        """The gold answer, as carelessly written as the options say."""
        gold, sloppiness = gold_of(example), self.options.sloppiness
        if len(example.reference["review"]) <= sloppiness.over:
            return gold
        return write_sloppily(gold, sloppiness, generator(seed, "sloppiness"))

    def canonicalise_answer(self, _example: Example, completion: str) -> Set[Hashable]:
        """See `Job.canonicalise_answer`."""
        return rubric.canonicalise_answer(completion)
