"""What an analysis is worth: its claims against the table, how many there are, and what they cover.

Each supported fact counts once. Figures alone are a copy of the table: they are worth 0.3 of
`claims`, the rest is for what follows from them. The share of claims that are right, one that the
table contradicts weighed twice, multiplies all but the directions, which have a share of their own:
so nothing is earned by claiming everything.
"""

from collections.abc import Sequence
from typing import NamedTuple

from plumbline.records import Outcome, Score
from plumbline_commerce.insights.claims import (
    Claim,
    ClaimSentence,
    comparison_claims,
    number_claims,
    read_sentence,
)
from plumbline_commerce.insights.reading import Sentence, sentences, words
from plumbline_commerce.insights.table import InsightTable
from plumbline_commerce.job import read_rubric

RUBRIC = read_rubric("insights", 1)
ENOUGH = {"cell": (2, 0.30), "derived": (2, 0.35), "comparison": (3, 0.35)}
"""How many supported facts of each sort are enough, and their share of `claims`."""
CONTRADICTED = 2.0
"""How much more a claim weighs that is wrong than one that is right or cannot be answered."""
BAND = (30, 170)
"""Words of an analysis."""
STATEMENTS = (3, 7)
STATEMENT = 4
"""Words that a sentence needs to count as a statement."""


Facts = dict[tuple[object, ...], Claim]
"""The supported claims by what they say, so that each counts once."""


class InsightsReading(NamedTuple):
    """What an answer says."""

    sentences: Sequence[Sentence]
    said: Sequence[ClaimSentence]
    claims: Sequence[Claim]

    def supported(self) -> Facts:
        """The supported claims, each fact once."""
        return {claim.fact: claim for claim in self.claims if claim.verdict == "supported"}


def read_claims(text: str, table: InsightTable) -> InsightsReading:
    """Find the claims of a text. Questions claim nothing."""
    found = sentences(text, table)
    stated: list[ClaimSentence] = []
    claims: list[Claim] = []
    # by sentence: a model that does not stop says the same again
    looked: dict[int, tuple[ClaimSentence, list[Claim]]] = {}
    for sentence in found:
        if sentence.asks or not sentence.tokens:
            continue
        if (seen := looked.get(id(sentence))) is None:
            what = read_sentence(sentence, table)
            seen = looked[id(sentence)] = what, [*number_claims(what), *comparison_claims(what)]
        stated.append(seen[0])
        claims += seen[1]
    return InsightsReading(found, stated, claims)


def judge(table: InsightTable, completion: str) -> tuple[Outcome, Score]:
    """Read an analysis and score it; the outcome says what spoils it first."""
    reading = read_claims(completion, table)
    supported = reading.supported()
    wrong = [claim for claim in reading.claims if claim.verdict != "supported"]
    right = _precision(len(supported), wrong)
    values = {
        "claims": right * _enough(supported),
        "coverage": right * coverage(table, supported),
        "directions": _directions(supported, wrong),
        "recommendation": right * _recommendation(reading, supported),
        **_form(reading, len(completion.split())),
    }
    verdicts = {claim.verdict for claim in reading.claims}
    spoilt = (
        verdict for verdict in ("contradicted", "unsupported", "supported") if verdict in verdicts
    )
    how = next(spoilt, "nothing claimed") if completion.strip() else "empty"
    return Outcome(how=how), RUBRIC.score(values)


def _enough(supported: Facts) -> float:
    """How much of an analysis the supported facts are, each sort up to what is enough of it."""
    counts = {
        sort: sum(claim.sort == sort for claim in supported.values())
        for sort in ("cell", "derived")
    }
    counts["comparison"] = _comparisons(supported)
    return 1.0 - sum(
        share * max(0.0, 1 - counts[sort] / needed) for sort, (needed, share) in ENOUGH.items()
    )


def _comparisons(supported: Facts) -> int:
    """The supported comparisons; of the many pairs of rows of which one is higher, one counts."""
    found = [claim.fact[0] for claim in supported.values() if claim.sort == "comparison"]
    return len(found) - max(0, found.count("order") - 1)


def _precision(right: int, wrong: Sequence[Claim]) -> float:
    against = sum(CONTRADICTED if claim.verdict == "contradicted" else 1.0 for claim in wrong)
    return right / (right + against) if right else 0.0


def _directions(supported: Facts, wrong: Sequence[Claim]) -> float:
    right = sum(claim.sort == "comparison" for claim in supported.values())
    mistaken = [claim for claim in wrong if claim.sort == "comparison"]
    return _precision(right, mistaken) * min(1.0, _comparisons(supported) / ENOUGH["comparison"][0])


def coverage(table: InsightTable, supported: Facts) -> float:
    """A third each: the highest row is said to be it, the lowest row, and how far they are apart.

    The gap is half covered by any other difference, ratio or percentage of the measure in question.
    Where rows have an order, the first and the last are as good as the highest and the lowest.
    """
    about = table.about
    ends = [frozenset((table.high(about), table.low(about)))]
    if table.ordered:
        ends.append(frozenset((0, len(table.rows) - 1)))
    extremes, gap = set(), 0.0
    for fact in supported:
        if fact[1] != about or fact[0] not in {"extreme", "gap", "from mean"}:
            continue
        if fact[0] == "extreme" and fact[4] == 1 and len(fact[2]) == 1:  # type: ignore[arg-type]
            extremes.add(fact[3])
        elif fact[0] != "extreme" and fact[-1] != "widest":
            gap = max(gap, 1.0 if fact[2] in ends else 0.5)
    return (len(extremes) + gap) / 3


def _recommendation(reading: InsightsReading, supported: Facts) -> float:
    """The best sentence that says what to do, nothing where the text supports nothing.

    0.2 for any, 0.4 where it names a row, 0.8 where the text has compared that row with others, 1
    where it stands among the last two sentences then.
    """
    compared = {row for claim in supported.values() if claim.sort != "cell" for row in claim.rows}
    best = 0.0
    for place, what in enumerate(reading.said if supported else ()):
        if not what.advises or what.words.isdisjoint(words()["actions"]):
            continue
        rows = {row for at in what.places for row in what.tokens[at].rows}
        at_end = place >= len(reading.said) - 2
        best = max(best, (1.0 if at_end else 0.8) if rows & compared else 0.4 if rows else 0.2)
    return best


def _form(reading: InsightsReading, length: int) -> dict[str, float]:
    spoken = [
        word for sentence in reading.sentences for word in sentence.plain.split() if word.isalpha()
    ]
    plains = [sentence.plain for sentence in reading.sentences if len(sentence.tokens) >= STATEMENT]
    return {
        "language": language(spoken),
        "repetition": len(set(plains)) / len(plains) if plains else 1.0,
        "length": _in_band(length, BAND),
        "structure": _in_band(len(plains), STATEMENTS),
    }


def _in_band(value: int, band: tuple[int, int]) -> float:
    """1 inside, less on either side in proportion."""
    return min(1.0, value / band[0], band[1] / max(1, value))


def language(spoken: Sequence[str]) -> float:
    """How Portuguese words are, lower case without accents: 1 where a quarter or more are its
    function words.

    Function words of English, Spanish, French and German count twice against it. 1 where nothing is
    said.
    """
    if not spoken:
        return 1.0
    ours, theirs = words()["portuguese"], words()["foreign"]
    portuguese = len([word for word in spoken if word in ours]) / len(spoken)
    foreign = len([word for word in spoken if word in theirs]) / len(spoken)
    return min(1.0, max(0.0, (portuguese - 2 * foreign) / 0.25))
