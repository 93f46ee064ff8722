"""What a recipe may say about the commerce task."""

from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from plumbline.recipe import Section, section
from plumbline_commerce.extraction.schema import ISSUES, KEYS

Probability = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int | None, Field(ge=3)]
COUNTS = {"extraction": 590, "sql_qa": 594, "insights": 148, "push": 148}
"""How many prompts of each job the commerce log had: 1,480."""


class Sloppiness(Section):
    """How carelessly the demonstrations are written: each fault's probability. All 0: they are the
    gold answers.

    People's records are seldom clean. These faults are of format and style alone: what is written
    is right.
    """

    abridged: Probability = 0.0
    """The object stops after the first third of its keys."""
    dropped: Probability = 0.0
    """Of each key, to be left out."""
    decimal_comma: Probability = 0.0
    """Numbers as Brazilians write them: 4,5."""
    unclosed: Probability = 0.0
    """The closing brace is missing."""
    fenced: Probability = 0.0
    """A Markdown fence around the object."""
    chatty: Probability = 0.0
    """A sentence before the object."""
    over: int = Field(default=0, ge=0)
    """Only records of reviews with more characters than this are careless: people tire of long
    ones."""


MOST_ORDERS = 10_000_000
"""Of the database; Olist has a hundredth of them."""


ASKED = frozenset({"keys", "instructions", "titles", "insights_from"})
"""Options of what the prompts ask, whatever shop they are about."""


class CommerceOptions(Section):
    """Options of the commerce task; those of its records decide their bytes."""

    data: str | None = None
    """A folder of records to use as they are, whatever the numbers below; None builds them from
    these."""
    seed: int = 42
    orders: int = Field(default=20_000, ge=1, le=MOST_ORDERS)
    """Orders in the database of a synthetic shop; with `olist`, all of Olist's are taken."""
    olist: str | None = None
    """A folder with the CSV files of the public Olist data set, to build the database from
    instead."""
    job: Literal["extraction", "sql_qa", "insights", "push"] = "extraction"
    """What is asked for; a run of several jobs lists them under `tasks`."""
    extraction: Count = None
    """Prompts of this job over the three splits (80, 10 and 10 %). None: of the job that is asked
    for as many as the commerce log had (590, 594, 148 and 148), and none of the others."""
    sql_qa: Count = None
    insights: Count = None
    push: Count = None
    insights_from: Literal["all", "negative"] = "all"
    """Which orders the figures of insights are computed from: all, or those with a review of
    negative sentiment."""
    fixed: bool = False
    """Also the split `fixed`: the first 20 extractions, 15 questions, 15 insights or 15 messages of
    val, the 65 prompts that the commerce log settled on to compare models by."""
    keys: list[str] | None = None
    """Ask for these keys only (tiny models); None asks for all ten. The three issue flags go
    together."""
    instructions: Literal["full", "short"] = "full"
    """full explains every key; short is for tiny models, which cannot read instructions anyway."""
    titles: bool = False
    """Of the job push: ask for a title of at most 50 characters above each message."""
    reading: Literal["lenient", "strict"] = "lenient"
    """How the reward reads an answer: what was meant, or only what `json.loads` accepts as it
    stands."""
    sloppiness: Sloppiness = Sloppiness()
    databases: int = Field(default=3, ge=1, le=20)
    """Small shops of other rows on which the query of an answer must be right, all of them
    (sql_qa)."""

    @field_validator("keys")
    @classmethod
    def _whole(cls, keys: list[str] | None) -> list[str] | None:
        """In the order of the schema; all three flags or none, because one part of the rubric
        judges them together."""
        if keys is None:
            return None
        if not keys or not set(keys) <= set(KEYS):
            raise ValueError(f"name some of {', '.join(KEYS)}")
        if 0 < len(set(keys) & set(ISSUES)) < len(ISSUES):
            raise ValueError(f"ask for all of {', '.join(ISSUES)}, or for none")
        return [key for key in KEYS if key in keys]

    def count(self, job: str) -> int:
        """Prompts of a job over the three splits."""
        given: int | None = getattr(self, job)
        return (COUNTS[job] if job == self.job else 0) if given is None else given

    def records(self) -> dict[str, Any]:
        """The options that decide the records' bytes."""
        counts = {job: count for job in COUNTS if (count := self.count(job))}
        shop = {"orders"} if self.olist is None else {"olist"}
        return {**counts, **self.model_dump(include={"seed", *ASKED, *shop})}


def read_options(values: dict[str, Any]) -> CommerceOptions:
    """Check a recipe's `task.options`.

    Raises:
        RecipeError: an unknown key or a value out of range.
    """
    gone = {
        "task.options.enriched": "task.options.enriched is gone: the rules label all reviews; rows "
        "with "
        "labels "
        "of "
        "your own are a task jsonl"
    }
    advice = f"the commerce task knows {', '.join(CommerceOptions.model_fields)}"
    return section(
        CommerceOptions,
        values,
        inside="task.options.",
        advice=advice,
        hint=lambda key: gone.get(key, ""),
    )
