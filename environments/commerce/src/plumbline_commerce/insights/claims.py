"""What a sentence claims of a table: its numbers, each against a cell or one step of arithmetic.

A number stands with the row named nearest to it in its own sentence (`_nearest`). It is supported
where it is, rounded as the text states it, that row's value; or where the sentence says so, a
difference, ratio, percentage, share, sum or mean with that row in it. A row's name with another
row's number is contradicted.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple

from plumbline_commerce.insights.reading import NUMERALS, Sentence, Stated, Token, words
from plumbline_commerce.insights.table import InsightTable, column_means, measures

Verdict = Literal["supported", "contradicted", "unsupported"]
Fact = tuple[object, ...]
"""What a claim says, so that the same fact counts once: ("cell", row, measure), ("gap", measure,
rows, how) ..."""
NEARLY = 0.05
"""How far, of its value, a number is off that is only stated "about"."""
BEYOND = 0.12
"""How far "more than" and "almost" reach."""
BEYOND_WORDS = 0.33
"""How far they reach from "o dobro", "metade" and the like: "mais que o triplo" is 3.6, too."""
COARSE = 0.10
"""From which share of a number on half its last digit is too much to be a claim, unless it holds
exactly."""
VACUOUS = 0.5
"""How far, of a value, a bound may lie from it that says something: "acima de 1%" of 18% says
nothing."""
MOST_TARGETS = 3
"""Numbers of a sentence that says what to do that may be targets."""
TOKENS = 160
"""Of a sentence that are looked at; what has more is no sentence."""


class Claim(NamedTuple):
    """Something that the table answers."""

    verdict: Verdict
    sort: Literal["cell", "derived", "comparison"]
    fact: Fact
    rows: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ClaimSentence:
    """A sentence with what is looked up in it more than once."""

    table: InsightTable
    tokens: list[Token]
    places: list[int]
    """Where rows are named."""
    numbers: dict[int, Stated]
    """Its numbers, by where they stand."""
    words: frozenset[str]
    advises: bool
    """Whether it says what to do; its numbers may be targets."""

    def has(self, name: str) -> bool:
        """Whether a word of this list stands in it."""
        return not self.words.isdisjoint(words()[name])

    def text(self, place: int) -> str:
        """The word at a place; "" before the first and behind the last."""
        return self.tokens[place].text if 0 <= place < len(self.tokens) else ""

    def texts(self, start: int, end: int) -> list[str]:
        """The words from start to end."""
        return [token.text for token in self.tokens[max(0, start) : end]]

    def measures(self, start: int, end: int) -> list[int]:
        """The measures that the words from start to end name, those that most words name."""
        return _named_measures(self.table.measures, tuple(self.texts(start, end)))


def read_sentence(sentence: Sentence, table: InsightTable) -> ClaimSentence:
    """Look at a sentence."""
    tokens = sentence.tokens[:TOKENS]
    texts = frozenset([token.text for token in tokens])
    advises = not (texts.isdisjoint(words()["actions"]) and texts.isdisjoint(words()["advising"]))
    places = [place for place, token in enumerate(tokens) if token.rows]
    numbers = {
        place: token.number for place, token in enumerate(tokens) if token.number is not None
    }
    return ClaimSentence(table, tokens, places, numbers, texts, advises)


@lru_cache(maxsize=1 << 15)
def _named_measures(columns: tuple[str, ...], texts: tuple[str, ...]) -> list[int]:
    """The measures that most of the words name; none where no word does."""
    counts = [0] * len(columns)
    for text in texts:
        for measure in _measures_of_word(columns, text):
            counts[measure] += 1
    most = max(counts)
    return [measure for measure, count in enumerate(counts) if count == most] if most else []


@lru_cache(maxsize=1 << 16)
def _measures_of_word(columns: tuple[str, ...], word: str) -> tuple[int, ...]:
    return tuple(
        index
        for index, key in enumerate(columns)
        if word and word.startswith(measures()[key].words)
    )


def is_near(value: float, number: Stated) -> bool:
    """Whether a true value is what the text states, rounded to its last decimal, or as nearly as it
    says."""
    stated = number.value
    if stated is None:
        return False
    slack, reach = number.step / 2 + 1e-6, BEYOND_WORDS if number.in_words else BEYOND
    if number.nearly == "about":
        slack = max(slack, NEARLY * abs(stated))
    if number.nearly == "over":
        return stated - 1e-6 <= value <= stated * (1 + reach) + slack
    if number.nearly == "under":
        return stated * (1 - reach) - slack <= value <= stated + 1e-6
    return abs(value - stated) <= slack


def number_claims(what: ClaimSentence) -> Iterator[Claim]:
    """The claims of a sentence's numbers, in their order; a number that claims nothing of the table
    is left out."""
    for place, rows in _bound(what).items():
        if (claim := _claim(what, place, what.numbers[place], rows)) is not None:
            yield claim


def _bound(what: ClaimSentence) -> dict[int, tuple[int, ...]]:
    """The rows that each number stands with: of "SP e RJ têm 9 e 5" the first with 9 and the second
    with 5."""
    near = {place: _nearest(what, place) for place in what.numbers}
    found = {place: what.tokens[at].rows if at is not None else () for place, at in near.items()}
    for at in {at for at in near.values() if at is not None}:
        if len(what.tokens[at].rows) == 1 and "contra" not in what.words:
            continue
        mine = [place for place, where in near.items() if where == at]
        mine = [place for place in mine if what.numbers[place].nearly not in _BOUNDS]
        rows = what.tokens[at].rows
        if len(rows) == 1 and len(mine) == 2 and "contra" in what.texts(*mine):
            rows = (
                *(row for before in what.places if before < at for row in what.tokens[before].rows),
                *rows,
            )[-2:]
        if len(rows) < 2:
            continue
        for unit in {_unit(what, place) for place in mine}:
            alike = [place for place in mine if _unit(what, place) == unit]
            if len(alike) >= len(rows) and unit not in _RELATIVE:
                found |= {place: (row,) for place, row in zip(alike, rows, strict=False)}
    return found


_BOUNDS = frozenset({"above", "below"})
_RELATIVE = frozenset({"times", "half", "points"})


def _unit(what: ClaimSentence, place: int) -> str:
    """A number's unit; of "20,4 e 24,9 dias" both have the second's."""
    unit, after = what.numbers[place].unit, what.tokens[place + 1 : place + 3]
    if (
        not unit
        and len(after) == 2
        and after[0].text in {"e", ",", "a", "para"}
        and after[1].number is not None
    ):
        return after[1].number.unit
    return unit


def _nearest(what: ClaimSentence, place: int) -> int | None:
    """Where the row is named that a number stands with: "9,1% em SP" the next one, else the one
    before it."""
    before = [at for at in what.places if at < place]
    after = [at for at in what.places if at > place]
    if not before or not after:
        return before[-1] if before else after[0] if after else None
    in_brackets = place and what.tokens[place - 1].text == "(" and before[-1] == place - 2
    between = what.tokens[place + 1 : after[0]]
    texts = [token.text for token in between]
    linked = (
        0 < len(texts) <= 5
        and not in_brackets
        and (texts[-1] in words()["prepositions"] or texts == ["("])
        and not any(token.number is not None or token.text in {",", ")", ":"} for token in between)
        and (texts == ["("] or words()["barriers"].isdisjoint(texts))
    )
    return after[0] if linked else before[-1]


def _claim(what: ClaimSentence, place: int, number: Stated, rows: tuple[int, ...]) -> Claim | None:
    if _claims_nothing(what, place, number):
        return None
    if (claim := _answer_number(what, place, number, rows)) is not None:
        # Rounding may leave so much open ("R$ 1 mil", "nota 4") that a match by it says little.
        coarse = number.nearly not in _BOUNDS and number.step / 2 > COARSE * abs(
            number.value or 0.0
        )
        exact = number._replace(step=0.0)
        vague = (
            claim.verdict == "supported"
            and coarse
            and _answer_number(what, place, exact, rows) is None
        )
        return None if vague else claim
    if what.advises and len(what.numbers) <= MOST_TARGETS:
        return None  # the table has no answer
    known = rows and (_fitting(what.table.measures, number.unit) or number.unit in _RELATIVE)
    operation = number.unit in _RELATIVE or _sign(what, place) != 0
    if rows and number.unit in {"percent", "half"} and what.has("share"):
        return Claim("contradicted", "derived", ("wrong", place), rows)
    if known and (not operation or len(what.places) > 1 or len(rows) > 1 or what.table.ordered):
        return Claim("contradicted", "cell", ("wrong", place), rows)
    return Claim("unsupported", "cell", ("unknown", place), rows)


def _answer_number(
    what: ClaimSentence, place: int, number: Stated, rows: tuple[int, ...]
) -> Claim | None:
    """The first way in which the table answers a number; "a média é de" asks for the mean before a
    row's value."""
    told = what.texts(place - 4, place) if what.has("mean") else []
    first = [_whole] if not words()["mean"].isdisjoint(told) else []
    for test in (*first, _bound_of, _cell, *_DERIVED):
        if test is _share and _sign(what, place):
            continue  # "10% acima": asked last
        if (claim := test(what, place, number, rows)) is not None:
            return claim
    return _share(what, place, number, rows)


def _claims_nothing(what: ClaimSentence, place: int, number: Stated) -> bool:
    """Years, ordinals, counts of the rows, and small numbers of something that is no measure."""
    before, following = what.text(place - 1), what.text(place + 1)
    if number.value is None:
        return False
    if following in {"º", "ª", "°"} or before in {"top", "/"}:
        return True
    whole = number.step == 1 and number.unit in {"", "points"}
    if number.unit == "percent" and number.value == 100:
        return True
    if whole and 2000 <= number.value <= 2100 and before in {"de", "em", "ano", "a", "e"}:
        return not any(number.value in row for row in what.table.values)
    if number.unit == "days" and not any(measure.unit == "days" for measure in what.table.columns):
        return True
    small = whole and number.value <= 12 and not what.measures(place - 1, place + 3)
    counts = small and (following in words()["skip_after"] or following in NUMERALS)
    known = what.has("mean") or any(number.value in row for row in what.table.values)
    return counts or (small and not known)


@lru_cache(maxsize=1 << 10)
def _fitting(columns: tuple[str, ...], unit: str) -> list[int]:
    """The measures whose values may be written with this unit."""
    units = {"points": {"percent", "mean"}, "": {"count", "money", "percent", "days", "mean"}}
    allowed = units.get(unit, {unit})
    return [index for index, key in enumerate(columns) if measures()[key].unit in allowed]


def _measures_beside(what: ClaimSentence, place: int) -> list[int]:
    """The measures named right beside a number."""
    ends = [
        at
        for at, token in enumerate(what.tokens)
        if token.rows or token.number or token.text in {",", ")", ":", "e"}
    ]
    behind = next((at for at in ends if place < at < place + 4), place + 4)
    ahead = next((at + 1 for at in reversed(ends) if place - 5 < at < place), place - 4)
    return what.measures(place, behind) or what.measures(ahead, place)


def _cell(what: ClaimSentence, place: int, number: Stated, rows: tuple[int, ...]) -> Claim | None:
    """A row's own value."""
    marks = number.unit == "points" and any(
        measure.unit == "mean" for measure in what.table.columns
    )
    if number.unit in _RELATIVE and not marks:
        return None
    values = what.table.values
    fitting = _fitting(what.table.measures, number.unit)
    found = [m for m in fitting if rows and all(is_near(values[row][m], number) for row in rows)]
    if not found:
        return None
    named = _measures_beside(what, place)
    right = [measure for measure in found if measure in named] if named else found
    fits = bool(right) or not set(named) & set(fitting)
    return Claim(
        "supported" if fits else "contradicted", "cell", ("cell", rows, (right or found)[0]), rows
    )


def _bound_of(
    what: ClaimSentence, place: int, number: Stated, rows: tuple[int, ...]
) -> Claim | None:
    """ "acima de 10%": all the rows that it stands with are."""
    if number.nearly not in _BOUNDS or number.value is None or not rows:
        return None
    sign = 1 if number.nearly == "above" else -1
    fitting = _fitting(what.table.measures, number.unit)
    measure = next((measure for measure in _rank_measures(what, place) if measure in fitting), None)
    if measure is None:
        return None
    values = [what.table.values[row][measure] for row in rows]
    right = all(sign * (value - number.value) > 0 for value in values)
    if right and any(abs(value - number.value) > VACUOUS * abs(value) for value in values):
        return None
    return Claim("supported" if right else "contradicted", "cell", ("beyond", measure, rows), rows)


def _share(what: ClaimSentence, _: int, number: Stated, rows: tuple[int, ...]) -> Claim | None:
    """The part that a row, or several together, have of the total."""
    if number.unit not in {"percent", "half"} or not rows or not what.has("share"):
        return None
    scale = 1.0 if number.unit == "half" else 100.0
    for measure, column in enumerate(what.table.columns):
        values = what.table.column(measure)
        if column.additive and is_near(
            scale * sum(values[row] for row in rows) / sum(values), number
        ):
            return Claim("supported", "derived", ("share", measure, frozenset(rows)), rows)
    return None


def _pair(what: ClaimSentence, place: int, number: Stated, rows: tuple[int, ...]) -> Claim | None:
    """A difference, a ratio or a percentage between two rows, one of them the number's own, or of
    it and the mean."""
    moves = what.table.ordered and (what.has("rose") or what.has("fell"))
    if not (
        what.has("difference") or what.has("ratio") or number.unit in {"times", "half"} or moves
    ):
        return None
    pairs, sign = _pairs(what, place, rows), _sign(what, place)
    if (turned := _turn_difference(what, place)) is not None:
        pairs, sign = turned
    wrong: Claim | None = None
    likely = _rank_measures(what, place) if pairs else []
    # What rises, rises from the earlier row to the later.
    in_time = what.table.ordered and not _TURNS.isdisjoint(_words_beside(what, place))
    for mine, other in pairs:
        for measure in likely:
            first, second = what.table.values[mine][measure], what.table.values[other][measure]
            how = _operation(what.table, number, measure, first, second)
            if not how:
                continue
            step = (
                (first - second) if not in_time else (first - second) * (1 if mine > other else -1)
            )
            fact = ("gap", measure, frozenset((mine, other)), how)
            if sign == 0 or step * sign > 0:
                return Claim("supported", "derived", fact, (mine, other))
            wrong = wrong or Claim("contradicted", "derived", fact, (mine, other))
    return wrong or (_from_mean(what, place, number, rows) if what.has("mean") else None)


def _pairs(what: ClaimSentence, place: int, rows: tuple[int, ...]) -> list[tuple[int, int]]:
    if len(rows) == 2:
        return (
            [(rows[0], rows[1]), (rows[1], rows[0])]
            if _sign(what, place) == 0 or what.table.ordered
            else [rows]
        )
    if len(rows) != 1:
        return []
    mine = rows[0]
    near = sorted(what.places, key=lambda at: abs(at - place))[:4]
    others = [row for at in near for row in what.tokens[at].rows if row != mine]
    if not others and what.table.ordered:
        others = [row for row in (mine - 1, 0) if row >= 0 and row != mine]
    return [(mine, other) for other in others]


def _rank_measures(what: ClaimSentence, place: int) -> list[int]:
    """All measures, those named beside a number first, then the one in question: 2 dias may be
    right of two."""
    named = _measures_beside(what, place) or what.measures(0, len(what.tokens))
    return sorted(
        range(len(what.table.measures)), key=lambda m: (m not in named, m != what.table.about)
    )


def _turn_difference(what: ClaimSentence, place: int) -> tuple[list[tuple[int, int]], int] | None:
    """ "SP supera o RJ em 14%": the row nearest to the number is what it is compared with."""
    before = [at for at in what.places if at < place][-2:]
    if len(before) < 2:
        return None
    between = set(what.texts(before[0] + 1, before[1]))
    sign = (not between.isdisjoint(words()["above"])) - (not between.isdisjoint(words()["below"]))
    if sign == 0 or "," in between or _sign(what, place) != 0:
        return None
    return [
        (mine, other)
        for mine in what.tokens[before[0]].rows
        for other in what.tokens[before[1]].rows
    ], sign


def _operation(
    table: InsightTable, number: Stated, measure: int, first: float, second: float
) -> str:
    """How a number comes from two values of a measure; "" where it does not."""
    unit, gap = table.columns[measure].unit, abs(first - second)
    small, large = sorted((first, second))
    if number.unit == "times":
        return "ratio" if small > 0 and is_near(large / small, number) else ""
    if number.unit == "half":
        return "ratio" if large > 0 and is_near(small / large, number) else ""
    if number.unit == "percent":
        relative = second != 0 and is_near(100 * gap / abs(second), number)
        return (
            "percentage"
            if relative
            else "difference"
            if unit == "percent" and is_near(gap, number)
            else ""
        )
    fits = measure in _fitting(table.measures, number.unit)
    return "difference" if fits and gap > 0 and is_near(gap, number) else ""


def _from_mean(
    what: ClaimSentence, place: int, number: Stated, rows: tuple[int, ...]
) -> Claim | None:
    """The difference, ratio or percentage between a row and the mean."""
    for measure, value in enumerate(what.table.values[rows[0]] if rows else ()):
        for mean in column_means(what.table, measure):
            if _operation(what.table, number, measure, value, mean):
                right = (value - mean) * (_sign(what, place) or value - mean) > 0
                verdict: Verdict = "supported" if right else "contradicted"
                return Claim(verdict, "derived", ("from mean", measure, rows[0]), rows[:1])
    return None


def _whole(what: ClaimSentence, place: int, number: Stated, rows: tuple[int, ...]) -> Claim | None:
    """A mean, a sum, or the distance of the extremes: what stands with no row, or with the
    sentence's word for it."""
    table, fitting = what.table, _fitting(what.table.measures, number.unit)
    listed = (
        place > 1
        and what.tokens[place - 1].text in {"de", "das", "dos"}
        and what.tokens[place - 2].number
    )
    mean, total, summed = (
        what.has("mean"),
        listed or what.has("total"),
        len(rows) > 1 and what.has("sum"),
    )
    ends = (what.has("highest") and what.has("lowest")) or (what.has("best") and what.has("worst"))
    for measure in fitting if mean or total or summed or ends else ():
        column = table.column(measure)
        if mean and any(is_near(value, number) for value in column_means(table, measure)):
            return Claim("supported", "derived", ("mean", measure))
        if table.columns[measure].additive:
            if total and is_near(sum(column), number):
                return Claim("supported", "derived", ("total", measure))
            if summed and is_near(sum(column[row] for row in rows), number):
                return Claim("supported", "derived", ("sum", measure, frozenset(rows)), rows)
        if ends and is_near(max(column) - min(column), number):
            extremes = (table.high(measure), table.low(measure))
            return Claim(
                "supported",
                "derived",
                ("gap", measure, frozenset(extremes), "difference"),
                extremes,
            )
    return None


def _words_beside(what: ClaimSentence, place: int) -> list[str]:
    """The words right after a number, and those right before it, up to the next number."""
    texts = []
    for way in (
        range(place + 1, min(place + 5, len(what.tokens))),
        range(place - 1, max(place - 4, -1), -1),
    ):
        for at in way:
            if (
                what.tokens[at].number is not None
                or what.tokens[at].text in {",", ")", ":"}
                or what.tokens[at].rows
            ):
                break
            texts.append(what.tokens[at].text)
    return texts


_UPS, _DOWNS = words()["above"] | words()["rose"], words()["below"] | words()["fell"]
_TURNS = words()["rose"] | words()["fell"]


def _sign(what: ClaimSentence, place: int) -> int:
    """The direction that the words beside a number give it: 1 up, -1 down, 0 none or "a
    diferença"."""
    texts = _words_beside(what, place)
    if what.numbers[place].nearly in {"over", "under"} and texts:
        texts = [text for text in texts if text not in {"mais", "menos", "acima"}] or [""]
    if not words()["gap_nouns"].isdisjoint(texts):
        return 0
    return next((1 if text in _UPS else -1 for text in texts if text in _UPS or text in _DOWNS), 0)


_DERIVED: tuple[Callable[[ClaimSentence, int, Stated, tuple[int, ...]], Claim | None], ...] = (
    _share,
    _pair,
    _whole,
)
"""What a number may be that is no row's value, in the order in which it is asked."""


# What a sentence claims without a number: who is highest, who is above whom, what rose. Each claim
# is checked by the measure that the words beside it name, else by the one that the question is
# about.


MARKS = frozenset({",", ":", "(", ")", "–", "—", "/"})
_EDGES = MARKS | words()["breaks"]
"""What ends a part of a sentence."""
ORDINALS = {"segundo": 2, "segunda": 2, "terceiro": 3, "terceira": 3, "quarto": 4, "quarta": 4}
FAR = 14
"""How many tokens away the row of a superlative may stand in another part of the sentence."""


_TELLING = _UPS.union(_DOWNS, *(words()[name] for name in ("highest", "lowest", "best", "worst")))
"""Words that may be a comparison."""


def comparison_claims(what: ClaimSentence) -> Iterator[Claim]:
    """The comparisons of a sentence, in their order; what it doubts, and what it denies rightly, is
    none."""
    if (
        what.words.isdisjoint(_TELLING)
        or what.tokens[0].text == "se"
        or not what.words.isdisjoint(words()["doubt"])
    ):
        return
    skipped = -1
    for place, token in enumerate(what.tokens):
        if place <= skipped or token.text not in _TELLING:
            continue
        if _is_hedged(what, place):
            skipped = place + 2
            yield Claim("contradicted", "comparison", ("hedged", place))
            continue
        claim = _extreme(what, place) or _against(what, place) or _trend(what, place)
        if claim is not None and not _is_denied(what, place):
            yield claim
        elif claim is not None and claim.verdict == "supported":
            yield Claim("contradicted", "comparison", ("denied", *claim.fact), claim.rows)


def _is_hedged(what: ClaimSentence, place: int) -> bool:
    """ "maior ou menor": both directions, so neither."""
    texts = what.texts(place, place + 3)
    if len(texts) < 3 or texts[1] not in {"ou", "/"}:
        return False
    return (texts[0] in _UPS and texts[2] in _DOWNS) or (texts[0] in _DOWNS and texts[2] in _UPS)


def _is_denied(what: ClaimSentence, place: int) -> bool:
    before = what.texts(place - 4, place)
    if "longe" in before or words()["negation"].isdisjoint(before):
        return False
    return {"so", "apenas", "somente"}.isdisjoint(before)  # "não só" denies nothing


def _extreme(what: ClaimSentence, place: int) -> Claim | None:
    """ "SP tem a maior taxa", "quem mais atrasa é o RJ", "a maior diferença é entre MA e RS"."""
    text, following = what.text(place), what.text(place + 1)
    end = _end(text, following)
    if not end or _is_comparative(what, place) or _is_behind_a_noun(what, place):
        return None
    if (
        following in words()["gap_nouns"]
        or following in words()["rose"]
        or following in words()["fell"]
    ):
        return _widest(what, place, following)
    rank = ORDINALS.get(what.text(place - 1), 1)
    found = _subjects(what, place)
    measures = _measures(what, place, found[0]) if found else []

    def claim(rows: tuple[int, ...], measure: int) -> Claim:
        high = _is_high(what.table, measure, end)
        if _is_at_end(what.table, measure, rows, end, rank):
            return Claim(
                "supported", "comparison", ("extreme", measure, frozenset(rows), high, rank), rows
            )
        return Claim("contradicted", "comparison", ("extreme", measure, place), rows)

    return _first_right(claim(rows, measure) for rows in found for measure in measures)


def _first_right(claims: Iterable[Claim]) -> Claim | None:
    """The first claim that the table supports, else the first."""
    made = list(claims)
    return next(
        (claim for claim in made if claim.verdict == "supported"), made[0] if made else None
    )


def _end(text: str, following: str) -> str:
    """Which end a superlative means: high, low, good, bad; "" where the word is none."""
    if text in {"mais", "menos"}:
        ends = [
            name
            for name in ("high", "low", "good", "bad")
            if following in words()[f"more_is_{name}"]
        ]
        if not ends:
            return ""
        return (
            ends[0]
            if text == "mais"
            else {"high": "low", "low": "high", "good": "bad", "bad": "good"}[ends[0]]
        )
    named = {"highest": "high", "lowest": "low", "best": "good", "worst": "bad"}
    return next((end for name, end in named.items() if text in words()[name]), "")


def _is_high(table: InsightTable, measure: int, end: str) -> bool:
    good = table.columns[measure].good == "high"
    return end == "high" or end == ("good" if good else "bad")


def _is_at_end(
    table: InsightTable, measure: int, rows: tuple[int, ...], end: str, rank: int
) -> bool:
    """Whether these rows are the first ones, or one row has that rank; equal values count as
    either."""
    column = table.column(measure)
    ranked = sorted(column, reverse=_is_high(table, measure, end))
    if len(rows) == 1:
        return column[rows[0]] == ranked[min(rank, len(ranked)) - 1]
    return (
        rank == 1
        and sorted(column[row] for row in rows) == sorted(ranked[: len(rows)])
        and len(rows) < len(column)
    )


def _is_comparative(what: ClaimSentence, place: int) -> bool:
    """ "maior que", "32% maior", "muito maior", "um dos maiores": no superlative."""
    before = what.tokens[place - 1] if place else Token("")
    text = what.tokens[place].text
    if before.number is not None or before.text in {
        "%",
        "pp",
        "vez",
        "muito",
        "bem",
        "ainda",
        "entre",
        "dos",
        "das",
    }:
        return True
    # "a" is an article in "a mais alta", and part of "557 a mais".
    counted = place > 1 and what.tokens[place - 2].number is not None
    if (
        text in {"mais", "menos"}
        and before.text in {"a", "muito", "bem", "cada", "nada"}
        and counted
    ):
        return True
    for at in range(place + 1, min(place + 8, len(what.tokens))):
        token = what.tokens[at]
        if token.text in MARKS or token.rows or token.number is not None:
            return False
        if token.text == "que":
            return True
    return False


def _is_behind_a_noun(what: ClaimSentence, place: int) -> bool:
    """ "compras maiores", "frete mais barato": no superlative, but "o ponto mais alto" is one."""
    text = what.tokens[place].text
    before = what.texts(place - 4, place)
    if not before or not before[-1] or before[-1] in _EDGES or text not in words()["adjectives"]:
        return False
    if text in {"mais", "menos"} and not {"o", "a", "os", "as", "que", "quem", "onde"}.isdisjoint(
        before
    ):
        return False
    return before[-1] not in words()["before_adjectives"]


def _subjects(what: ClaimSentence, place: int) -> list[tuple[int, ...]]:
    """The rows that a superlative may be about: in its own part of the sentence, else the nearest
    on either side."""
    start, end = _part(what, place)
    inside = [at for at in what.places if start <= at < end]
    if inside:
        before = [at for at in inside if at < place]
        return [what.tokens[before[-1] if before else inside[0]].rows]
    back = [at for at in what.places if at < place and place - at <= FAR][-1:]
    ahead = [at for at in what.places if at > place and at - place <= FAR][:1]
    ahead = [
        at
        for at in ahead
        if not any(_end(what.text(one), what.text(one + 1)) for one in range(place + 1, at))
    ]
    return [what.tokens[at].rows for at in (*ahead, *back)]


def _part(what: ClaimSentence, place: int) -> tuple[int, int]:
    """The part of the sentence between two marks or joints that a word stands in."""
    tokens, start, end = what.tokens, place + 1, place + 1
    while start > 0 and tokens[start - 1].text not in _EDGES:
        start -= 1
    while end < len(tokens) and tokens[end].text not in _EDGES:
        end += 1
    return start, end


def _measures(what: ClaimSentence, place: int, rows: tuple[int, ...]) -> list[int]:
    """The measures that a comparison is of: named right after it, in its part, by a number's unit,
    or in question."""
    start, end = _part(what, place)
    stop = next(
        (at for at in range(place + 1, end) if what.tokens[at].rows or what.tokens[at].number), end
    )
    if named := what.measures(place, stop) or what.measures(start, end):
        return named
    for at in sorted(what.numbers, key=lambda at: abs(at - place)):
        number = what.numbers[at]
        fitting = _fitting(what.table.measures, number.unit)
        if found := [
            m for m in fitting if any(is_near(what.table.values[row][m], number) for row in rows)
        ]:
            return found
    return what.measures(0, len(what.tokens)) or [what.table.about]


def _widest(what: ClaimSentence, place: int, noun: str) -> Claim | None:
    """ "a maior diferença", between two rows; "a maior queda", into one."""
    measures = what.measures(place, len(what.tokens)) or [what.table.about]
    after = [at for at in what.places if at > place][:1] or [
        at for at in what.places if at < place
    ][-1:]
    rows = what.tokens[after[0]].rows if after else ()
    if noun in words()["gap_nouns"]:
        if len(rows) != 2:
            return None
        fits = [m for m in measures if {*rows} == {what.table.high(m), what.table.low(m)}]
        fact = ("gap", (fits or measures)[0], frozenset(rows), "widest")
        return Claim("supported" if fits else "contradicted", "comparison", fact, rows)
    if not what.table.ordered or len(rows) not in {1, 2} or (len(rows) == 1 and rows[0] == 0):
        return None
    last = max(rows)
    up = 1 if noun in words()["rose"] else -1
    for measure in measures:
        column = what.table.column(measure)
        steps = [up * (column[row] - column[row - 1]) for row in range(1, len(column))]
        if steps[last - 1] == max(steps) > 0:
            return Claim("supported", "comparison", ("step", measure, last, up), rows)
    return Claim("contradicted", "comparison", ("step", measures[0], last, up), rows)


_VERBS = (words()["above"] | words()["below"]) - words()["adjectives"]
"""Words that are followed by what they compare with at once, without "que"."""


def _against(what: ClaimSentence, place: int) -> Claim | None:
    """ "SP supera o RJ", "acima da média", "maior em SP do que no RJ", "mais barato que"."""
    text, following = what.text(place), what.text(place + 1)
    graded = text in {"mais", "menos"} or text in words()["best"] | words()["worst"]
    end = _end(text, following) if graded else ""
    end = end or ("high" if text in words()["above"] else "low" if text in words()["below"] else "")
    if not end:
        return None
    linked = text in _VERBS
    inner: tuple[int, ...] = ()
    for at in range(place + 1, min(place + 10, len(what.tokens))):
        token = what.tokens[at]
        if token.text in {"media", "medias"} and linked and not what.measures(at - 1, at):
            return _against_mean(what, place, end)
        if token.text == "que":
            linked = True
        elif token.text in {",", "(", ")", ":"} and not linked:
            return None
        elif token.rows and not linked:
            inner = token.rows
        elif token.rows:
            before = [here for here in what.places if here < place]
            mine = inner or (what.tokens[before[-1]].rows if before else ())
            return _is_compared(what, place, mine, token.rows, end, mine)
        elif token.text in words()["breaks"]:
            return None
    return None


def _against_mean(what: ClaimSentence, place: int, end: str) -> Claim | None:
    if not what.places:
        return None
    rows = what.tokens[
        next((at for at in reversed(what.places) if at < place), what.places[0])
    ].rows

    def claim(measure: int) -> Claim:
        high = _is_high(what.table, measure, end)
        for mean in column_means(what.table, measure):
            if all((what.table.values[row][measure] > mean) == high for row in rows):
                return Claim(
                    "supported", "comparison", ("beside mean", measure, frozenset(rows)), rows
                )
        return Claim("contradicted", "comparison", ("beside mean", measure, place), rows)

    return _first_right(map(claim, _measures(what, place, rows)))


def _is_compared(
    what: ClaimSentence,
    place: int,
    mine: tuple[int, ...],
    other: tuple[int, ...],
    end: str,
    about: tuple[int, ...],
) -> Claim | None:
    """Whether rows are above others, or below, in a measure that numbers of the rows `about` may be
    of."""
    other = tuple(row for row in other if row not in mine)
    if not mine or not other:
        return None

    def claim(measure: int) -> Claim:
        column, high = what.table.column(measure), _is_high(what.table, measure, end)
        if all(
            column[a] > column[b] if high else column[a] < column[b] for a in mine for b in other
        ):
            order = (mine, other) if high else (other, mine)
            return Claim("supported", "comparison", ("order", measure, *order), (*mine, *other))
        return Claim("contradicted", "comparison", ("order", measure, place), mine)

    return _first_right(map(claim, _measures(what, place, about)))


def _trend(what: ClaimSentence, place: int) -> Claim | None:
    """ "caiu de maio a julho", "subiu em março", of rows that have an order."""
    text = what.tokens[place].text
    sign = 1 if text in words()["rose"] else -1 if text in words()["fell"] else 0
    before = what.texts(place - 6, place)
    skipped = {"conforme", "medida", "quanto", "proporcao", "se"}
    if not sign or not what.table.ordered or what.advises or not skipped.isdisjoint(before):
        return None
    if before and before[-1] in {"mais", "menos", "bem", "muito", "tao", "maior", "menor"}:
        return None
    near = sorted(what.places, key=lambda at: abs(at - place))
    rows = tuple(dict.fromkeys(row for at in near[:2] for row in what.tokens[at].rows))[:2]
    if not rows:
        return None
    first, last = (min(rows), max(rows)) if len(rows) == 2 else (rows[0] - 1, rows[0])
    if first < 0:
        return None

    return _is_compared(what, place, (last,), (first,), "high" if sign > 0 else "low", rows)
