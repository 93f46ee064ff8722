"""What a sentence claims without a number: who is highest, who is above whom, what rose.

Each claim is checked by the measure that the words beside it name, else by the one that the question is about.
"""

from collections.abc import Iterator

from plumbline_commerce.insights.claims import Claim, Said, fitting_measures, is_near
from plumbline_commerce.insights.reading import Stated, Token, words
from plumbline_commerce.insights.table import Table, means

MARKS = frozenset({",", ":", "(", ")", "–", "—", "/"})
BREAKS = words()["breaks"]
_EDGES = MARKS | BREAKS
"""What ends a part of a sentence."""
_UPS, _DOWNS = words()["above"] | words()["rose"], words()["below"] | words()["fell"]
ORDINALS = {"segundo": 2, "segunda": 2, "terceiro": 3, "terceira": 3, "quarto": 4, "quarta": 4}
FAR = 14
"""How many tokens away the row of a superlative may stand in another part of the sentence."""


_TELLING = frozenset(
    word for name in ("highest", "lowest", "best", "worst", "above", "below", "rose", "fell") for word in words()[name]
)
"""Words that may be a comparison."""


def comparison_claims(what: Said) -> Iterator[Claim]:
    """The comparisons of a sentence, in their order; what it doubts, and what it denies rightly, is none."""
    if what.words.isdisjoint(_TELLING) or what.tokens[0].text == "se" or not what.words.isdisjoint(words()["doubt"]):
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
        if claim is None or not _is_denied(what, place):
            if claim is not None:
                yield claim
        elif claim.verdict == "supported":
            yield Claim("contradicted", "comparison", ("denied", *claim.fact), claim.rows)


def _is_hedged(what: Said, place: int) -> bool:
    """ "maior ou menor": both directions, so neither."""
    texts = [token.text for token in what.tokens[place : place + 3]]
    if len(texts) < 3 or texts[1] not in {"ou", "/"}:
        return False
    return (texts[0] in _UPS and texts[2] in _DOWNS) or (texts[0] in _DOWNS and texts[2] in _UPS)


def _is_denied(what: Said, place: int) -> bool:
    before = [token.text for token in what.tokens[max(0, place - 4) : place]]
    if "longe" in before or words()["negation"].isdisjoint(before):
        return False
    return {"so", "apenas", "somente"}.isdisjoint(before)  # "não só" denies nothing


def _extreme(what: Said, place: int) -> Claim | None:
    """ "SP tem a maior taxa", "quem mais atrasa é o RJ", "a maior diferença é entre MA e RS"."""
    text = what.tokens[place].text
    following = what.tokens[place + 1].text if place + 1 < len(what.tokens) else ""
    end = _end(text, following)
    if not end or _is_comparative(what, place) or _is_behind_a_noun(what, place):
        return None
    if following in words()["gap_nouns"] or following in words()["rose"] or following in words()["fell"]:
        return _widest(what, place, following)
    before = what.tokens[place - 1].text if place else ""
    rank = ORDINALS.get(before, 1)
    found = _subjects(what, place)
    if not found:
        return None
    measures = _measures(what, place, found[0])
    chosen = None
    for rows in found:
        for measure in measures:
            if _is_at_end(what.table, measure, rows, end, rank):
                high = _is_high(what.table, measure, end)
                return Claim("supported", "comparison", ("extreme", measure, frozenset(rows), high, rank), rows)
            chosen = chosen or Claim("contradicted", "comparison", ("extreme", measure, place), rows)
    return chosen


def _end(text: str, following: str) -> str:
    """Which end a superlative means: high, low, good, bad; "" where the word is none."""
    if text in {"mais", "menos"}:
        ends = [name for name in ("high", "low", "good", "bad") if following in words()[f"more_is_{name}"]]
        if not ends:
            return ""
        return ends[0] if text == "mais" else {"high": "low", "low": "high", "good": "bad", "bad": "good"}[ends[0]]
    named = {"highest": "high", "lowest": "low", "best": "good", "worst": "bad"}
    return next((end for name, end in named.items() if text in words()[name]), "")


def _is_high(table: Table, measure: int, end: str) -> bool:
    good = table.columns[measure].good == "high"
    return end == "high" or end == ("good" if good else "bad")


def _is_at_end(table: Table, measure: int, rows: tuple[int, ...], end: str, rank: int) -> bool:
    """Whether these rows are the first ones, or one row has that rank; equal values count as either."""
    column = table.column(measure)
    ranked = sorted(column, reverse=_is_high(table, measure, end))
    if len(rows) == 1:
        return column[rows[0]] == ranked[min(rank, len(ranked)) - 1]
    return rank == 1 and sorted(column[row] for row in rows) == sorted(ranked[: len(rows)]) and len(rows) < len(column)


def _is_comparative(what: Said, place: int) -> bool:
    """ "maior que", "32% maior", "muito maior", "um dos maiores": no superlative."""
    before = what.tokens[place - 1] if place else Token("")
    text = what.tokens[place].text
    if before.number is not None or before.text in {"%", "pp", "vez", "muito", "bem", "ainda", "entre", "dos", "das"}:
        return True
    if (
        text in {"mais", "menos"}
        and before.text in {"a", "muito", "bem", "cada", "nada"}
        and not _after_article(what, place)
    ):
        return True
    for at in range(place + 1, min(place + 8, len(what.tokens))):
        token = what.tokens[at]
        if token.text in MARKS or token.rows or token.number is not None:
            return False
        if token.text == "que":
            return True
    return False


def _is_behind_a_noun(what: Said, place: int) -> bool:
    """ "compras maiores", "frete mais barato": no superlative, but "o ponto mais alto" is one."""
    text = what.tokens[place].text
    before = [token.text for token in what.tokens[max(0, place - 4) : place]]
    if not before or not before[-1] or before[-1] in _EDGES or text not in words()["adjectives"]:
        return False
    if text in {"mais", "menos"} and not {"o", "a", "os", "as", "que", "quem", "onde"}.isdisjoint(before):
        return False
    return before[-1] not in words()["before_adjectives"]


def _after_article(what: Said, place: int) -> bool:
    """Whether "a" before "mais" is an article ("a mais alta") and no part of "557 a mais"."""
    return place < 2 or what.tokens[place - 2].number is None


def _subjects(what: Said, place: int) -> list[tuple[int, ...]]:
    """The rows that a superlative may be about: in its own part of the sentence, else the nearest on either side."""
    start, end = _part(what, place)
    inside = [at for at in what.places if start <= at < end]
    before, after = [at for at in inside if at < place], [at for at in inside if at > place]
    if inside:
        return [what.tokens[before[-1] if before else after[0]].rows]
    back = [at for at in what.places if at < place and place - at <= FAR][-1:]
    ahead = [at for at in what.places if at > place and at - place <= FAR][:1]
    ahead = [at for at in ahead if not any(_ends_at(what, between) for between in range(place + 1, at))]
    return [what.tokens[at].rows for at in (*ahead, *back)]


def _ends_at(what: Said, place: int) -> bool:
    following = what.tokens[place + 1].text if place + 1 < len(what.tokens) else ""
    return bool(_end(what.tokens[place].text, following))


def _part(what: Said, place: int) -> tuple[int, int]:
    """The part of the sentence between two marks or joints that a word stands in."""
    tokens, start, end = what.tokens, place + 1, place + 1
    while start > 0 and tokens[start - 1].text not in _EDGES:
        start -= 1
    while end < len(tokens) and tokens[end].text not in _EDGES:
        end += 1
    return start, end


def _measures(what: Said, place: int, rows: tuple[int, ...]) -> list[int]:
    """The measures that a comparison is of: named right after it, in its part, by a number's unit, or in question."""
    start, end = _part(what, place)
    stop = next((at for at in range(place + 1, end) if what.tokens[at].rows or what.tokens[at].number), end)
    if named := what.measures(place, stop):
        return named
    if named := what.measures(start, end):
        return named
    numbers = [(abs(at - place), at, token.number) for at, token in enumerate(what.tokens) if token.number is not None]
    for _, _, number in sorted(numbers):
        if found := [m for m in fitting_measures(what.table, number) if _holds(what.table, rows, m, number)]:
            return found
    return what.measures(0, len(what.tokens)) or [what.table.about]


def _holds(table: Table, rows: tuple[int, ...], measure: int, number: Stated) -> bool:
    return any(is_near(table.values[row][measure], number) for row in rows)


def _widest(what: Said, place: int, noun: str) -> Claim | None:
    """ "a maior diferença", between two rows; "a maior queda", into one."""
    measures = what.measures(place, len(what.tokens)) or [what.table.about]
    after = [at for at in what.places if at > place][:1] or [at for at in what.places if at < place][-1:]
    rows = what.tokens[after[0]].rows if after else ()
    if noun in words()["gap_nouns"]:
        if len(rows) != 2:
            return None
        fits = [m for m in measures if {*rows} == {what.table.high(m), what.table.low(m)}]
        return Claim(
            "supported" if fits else "contradicted",
            "comparison",
            ("gap", (fits or measures)[0], frozenset(rows), "widest"),
            rows,
        )
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


_SIDES = {"melhor": "good", "melhores": "good", "pior": "bad", "piores": "bad"}
"""Ends of a comparison that depend on whether more of the measure is good."""


_VERBS = (words()["above"] | words()["below"]) - words()["adjectives"]
"""Words that are followed by what they compare with at once, without "que"."""


def _against(what: Said, place: int) -> Claim | None:
    """ "SP supera o RJ", "acima da média", "maior em SP do que no RJ", "mais barato que"."""
    text = what.tokens[place].text
    following = what.tokens[place + 1].text if place + 1 < len(what.tokens) else ""
    end = (_end(text, following) if text in {"mais", "menos"} else "") or _SIDES.get(text, "")
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
            return _compared(what, place, mine, token.rows, end)
        elif token.text in BREAKS:
            return None
    return None


def _against_mean(what: Said, place: int, end: str) -> Claim | None:
    before = [at for at in what.places if at < place] or [at for at in what.places if at > place]
    if not before:
        return None
    rows = what.tokens[before[-1] if before[-1] < place else before[0]].rows
    chosen = None
    for measure in _measures(what, place, rows):
        for mean in means(what.table, measure):
            high = _is_high(what.table, measure, end)
            if all((what.table.values[row][measure] > mean) == high for row in rows):
                return Claim("supported", "comparison", ("beside mean", measure, frozenset(rows)), rows)
        chosen = chosen or Claim("contradicted", "comparison", ("beside mean", measure, place), rows)
    return chosen


def _compared(what: Said, place: int, mine: tuple[int, ...], other: tuple[int, ...], end: str) -> Claim | None:
    other = tuple(row for row in other if row not in mine)
    if not mine or not other:
        return None
    chosen = None
    for measure in _measures(what, place, mine):
        column = what.table.column(measure)
        high = _is_high(what.table, measure, end)
        if all(column[a] > column[b] if high else column[a] < column[b] for a in mine for b in other):
            order = (mine, other) if high else (other, mine)
            return Claim("supported", "comparison", ("order", measure, *order), (*mine, *other))
        chosen = chosen or Claim("contradicted", "comparison", ("order", measure, place), mine)
    return chosen


def _trend(what: Said, place: int) -> Claim | None:
    """ "caiu de maio a julho", "subiu em março", of rows that have an order."""
    text = what.tokens[place].text
    sign = 1 if text in words()["rose"] else -1 if text in words()["fell"] else 0
    before = [token.text for token in what.tokens[max(0, place - 6) : place]]
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
    chosen = None
    for measure in _measures(what, place, rows):
        column = what.table.column(measure)
        if sign * (column[last] - column[first]) > 0:
            order = ((last,), (first,)) if sign > 0 else ((first,), (last,))
            return Claim("supported", "comparison", ("order", measure, *order), (first, last))
        chosen = chosen or Claim("contradicted", "comparison", ("order", measure, place), (first, last))
    return chosen
