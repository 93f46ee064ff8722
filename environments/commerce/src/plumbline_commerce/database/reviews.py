"""Writes reviews: a plan becomes clauses, clauses become a text in somebody's style, and the gold
comes with it.

The gold is right by construction: points are planned first, phrases say exactly these points, and
whatever may be cut off or misspelt decides nothing. What the text must still say itself (strong
words, capitals) is read from the final text.
"""

from dataclasses import dataclass, replace

from plumbline_commerce.database import plans as banks
from plumbline_commerce.database.dice import Dice, shares_by
from plumbline_commerce.database.gold import TOPICS, ReviewLabels, label, shorten
from plumbline_commerce.database.marginals import MESSAGE_MAX_CHARS, QUOTE_SHARE
from plumbline_commerce.database.orders import Facts
from plumbline_commerce.database.plans import BANKS, Bank, ReviewPlan, draw_plan
from plumbline_commerce.database.words import (
    CLOSE,
    END,
    MARKS,
    OPEN,
    STYLES,
    Clause,
    Style,
    Words,
    capitalise,
    join_clauses,
    spell_text,
)

LIMIT = 200
"""Where texts are cut off, as in Olist; a few run on to `marginals.MESSAGE_MAX_CHARS`."""
LONG = 235
"""Characters aimed at where a text shall run into the limit."""
_STYLE_OF = shares_by("styles_of")
_LONG_SHARE = {-1: 0.22, 0: 0.10, 1: 0.04}
_LENGTH = {-1: (88.0, 0.50), 0: (80.0, 0.48), 1: (61.0, 0.56)}
"""Characters aimed at: median and deviation of the logarithm, against, neither, for."""
_SIDE = {"displeased": -1, "refuses": -1, "recommends": 1}
_ONCE = ("pagamento", "d_compra", "em_cidade", "d_cheg", "preco", "frete")
"""Slots that nobody fills twice in one review; the same goes for the relatives."""
_RELATIVE = ("parente", "meu_parente", "do_parente", "com_parente")
_COLLOQUIAL = ("show", "top", "beleza", "rapidinho", "legal", "cadê", "golpe", "lixo", "uau", ("nota "
    "mil"), ("de "
    "bola"),
               "bom demais", "santo dia", "palhaçada", "direitinho", "certinh")  # fmt: skip
"""Words that nobody writes in a formal review."""
_NEWLINES = 0.16
"""Of texts of several clauses; brings the share of all texts to `marginals.NEWLINE_SHARE`."""
_EMOJI = {
    -1: ("😡", "😠", "👎", "😤", "😞", "🤬"),
    0: ("🤔", "😐", "👍"),
    1: ("😍", "👏", "👍", "❤️", "😊", "🙏", "👏👏"),
}
_TITLED_WITH, _TITLED_WITHOUT = 0.24, 0.027
"""Share of reviews with a title, with and without a message."""


@dataclass(frozen=True, slots=True)
class Review:
    """A review's message and its gold."""

    text: str
    gold: ReviewLabels


def write_review(dice: Dice, facts: Facts, score: int) -> Review:
    """A review that agrees with the order's facts and its score.

    Args:
        dice: where everything is drawn from.
        facts: what the customer knows.
        score: 1 to 5 stars.
    """
    plan = draw_plan(dice, facts, score)
    side = _side(plan)
    style = STYLES[dice.weighted(_STYLE_OF[side])]
    if dice.chance(_LONG_SHARE[side]) and plan.points != ("recommends",):
        aim = LONG
    else:
        aim = int(dice.lognormal(*_LENGTH[side]))
    while True:
        draft = _draft(dice, facts, plan, style, aim)
        text = _finish(dice, draft)
        if text is not None:
            break
        # The points do not fit: say less.
        aim = 60
        if len(plan.points) > 1:
            plan = replace(plan, points=plan.points[:-1])
    return _read(text, plan)


def _side(plan: ReviewPlan) -> int:
    """1 when the plan is all praise, -1 when it is all complaint, else 0."""
    said = plan.text_labels()
    against = bool(said.complaints) or said.displeased or said.recommends is False
    favour = (said.praised and not said.ironic) or said.recommends is True
    return int(favour) - int(against)


def _draft(dice: Dice, facts: Facts, plan: ReviewPlan, style: Style, aim: int) -> str:
    """The text with its marks, as typed, possibly too long."""
    words = Words(dice, facts, strong=plan.strong)
    clauses = _clauses(dice, facts, plan, words, style, aim)
    lines = len(clauses) > 1 and dice.chance(_NEWLINES)
    text = join_clauses(dice, clauses, style, lines=lines)
    text = (
        _greeting(dice, style, plan) + text
        if dice.chance(0.35 if style.formal else 0.025)
        else text
    )
    text = spell_text(dice, text, style)
    return _ending(dice, text, style, plan, signed=clauses[-1].kind == "closing")


def _clauses(
    dice: Dice, facts: Facts, plan: ReviewPlan, words: Words, style: Style, aim: int
) -> list[Clause]:
    """The clauses in order; `END` stands after the last one that matters."""
    clauses: list[Clause] = []
    opening = aim > 105 and dice.chance(0.55)
    if opening:
        clauses.append(
            Clause(words.fill(dice.pick(banks.opening_bank(facts)), specific=True), "before", 0)
        )
    quoting = dice.chance(QUOTE_SHARE * 1.25)
    spanned = False
    extra: list[Bank] = []
    for place, point in enumerate(plan.points):
        left = min(aim, LIMIT) - sum(len(clause.text) + 2 for clause in clauses)
        bank: Bank = ()
        if plan.ironic and place == 0:
            bank = banks.ironic_bank(point, facts)
            assert bank, "an ironic plan needs an ironic phrase"
        elif quoting:
            bank = banks.quoted_bank(point, facts)
            quoting = not bank
        special = bool(bank)
        bank = bank or banks.bank_of(dice, point, facts)
        if style.formal:
            bank = (
                tuple(phrase for phrase in bank if not any(word in phrase for word in _COLLOQUIAL))
                or bank
            )
        goal = left / (len(plan.points) - place)
        text = _phrase(
            dice, words, bank, goal, strong=plan.strong, shipment=point in banks.SHIPMENT_POINTS
        )
        if special and plan.ironic and place == 0 and not style.formal and dice.chance(0.55):
            text += " " + dice.pick(BANKS["mockery"])
        marked = point in TOPICS and not spanned
        spanned = spanned or marked
        text = text.replace("[", OPEN if marked else "").replace("]", CLOSE if marked else "")
        side = -1 if point in TOPICS else 1 if point.startswith("praise") else _SIDE.get(point, 0)
        clauses.append(Clause(text, point, side))
        more = banks.more_bank(point, facts, text) if not plan.ironic else ()
        if more and left - len(text) > 60 and dice.chance(0.4):
            clauses.append(Clause(words.fill(_pick(dice, more, strong=plan.strong)), "more", side))
        elif more:
            extra.append(more)
    clauses[-1] = replace(clauses[-1], text=clauses[-1].text + END)
    clauses += _tail(
        dice, facts, plan, words, aim - sum(len(clause.text) + 2 for clause in clauses), extra
    )
    side = _side(plan)
    if side > 0 and dice.chance(0.06) and len(clauses) > 1:
        clauses.append(Clause(words.fill(dice.pick(BANKS["closings_happy"])), "closing", 0))
    elif dice.chance(0.4 if style.formal else 0.012):
        clauses.append(Clause(words.fill(dice.pick(BANKS["closings"])), "closing", 0))
    return clauses


def _tail(
    dice: Dice, facts: Facts, plan: ReviewPlan, words: Words, left: int, more: list[Bank]
) -> list[Clause]:
    """What fills a text up to its length and may be cut off: more about the points, then
    background."""
    clauses: list[Clause] = []
    used: set[str] = set()
    side = _side(plan)
    background = banks.closing_bank(facts, side)
    while left > 25 and len(clauses) < 8:
        if more:
            template, kind = _pick(dice, more.pop(0), strong=plan.strong), "more"
        elif left > 70 or (left > 45 and (side < 0 or dice.chance(0.4))):
            template, kind = dice.pick(background), "after"
        else:
            break
        if template in used or _repeats(template, words.used):
            left -= 3
            continue
        used.add(template)
        clauses.append(Clause(words.fill(template, specific=True), kind, 0))
        left -= len(clauses[-1].text) + 2
    return clauses


def _repeats(template: str, used: set[str]) -> bool:
    """Whether a phrase would say again what the review has said."""
    if any(slot in used and f"{{{slot}}}" in template for slot in _ONCE):
        return True
    return "parente}" in template and any(slot in used for slot in _RELATIVE)


def _pick(dice: Dice, bank: Bank, *, strong: bool) -> str:
    """A phrase of the bank, a strong one only with a strong tone."""
    while True:
        template = dice.pick(bank)
        if strong or not template.startswith("+"):
            return template


def _phrase(
    dice: Dice, words: Words, bank: Bank, goal: float, *, strong: bool, shipment: bool
) -> str:
    """Of two phrases, the one whose length is nearer to the goal; with a strong tone, more often a
    strong one."""
    forceful = tuple(template for template in bank if template.startswith("+"))
    source = forceful if strong and forceful and dice.chance(0.45) else bank
    before = words.memory()
    tries = []
    for _ in range(2):
        words.recall(before)
        text = words.fill(_pick(dice, source, strong=strong), shipment=shipment)
        tries.append((abs(len(text) - goal), text, words.memory()))
    _, text, after = min(tries, key=lambda tried: tried[0])
    words.recall(after)
    return text


def _greeting(dice: Dice, style: Style, plan: ReviewPlan) -> str:
    if plan.ironic:
        return ""
    word = dice.pick(BANKS["greetings_formal" if style.formal else "greetings"])
    word = capitalise(word) if dice.chance(style.cased) else word
    return word + dice.pick((", ", ". ", "! ", ", ") if not style.formal else (", ", ". ", ",\n"))


def _ending(dice: Dice, text: str, style: Style, plan: ReviewPlan, *, signed: bool) -> str:
    bare = text.rstrip("".join(MARKS))
    tail = text[len(bare) :]
    if signed:
        return text + ("." if dice.chance(style.stop / 2) else "")
    if not bare[-1].isalnum() and bare[-1] not in '"+)':
        return text
    mark = ""
    loud = style.exclaims * (1.7 if plan.strong else 0.8)
    if dice.chance(loud):
        mark = dice.pick(("!", "!", "!", "!!", "!!!", "!!!"))
    elif dice.chance(style.stop):
        mark = "."
    elif dice.chance(0.05):
        mark = "..."
    if style.slang > 0.5 and _side(plan) > 0 and dice.chance(0.06):
        bare += dice.pick((" rs", " rsrs", " kkk", " haha"))
    if dice.chance(0.012):
        mark += " " + dice.pick(_EMOJI[-1 if plan.ironic else _side(plan)])
    return bare + tail + mark


def _finish(dice: Dice, draft: str) -> str | None:
    """The draft cut to the limit at a word end; None when that would cut off something that
    matters."""
    essential = sum(1 for letter in draft[: draft.index(END)] if letter not in MARKS)
    limit = MESSAGE_MAX_CHARS if essential > LIMIT - 4 or dice.chance(0.04) else LIMIT
    if essential > limit:
        return None
    seen = [place for place, letter in enumerate(draft) if letter not in MARKS]
    if len(seen) <= limit:
        return draft
    safe, over = draft.index(END) + 1, seen[limit]
    ends = [place for place in range(safe, over + 1) if draft[place].isspace()]
    return draft[: ends[-1] if ends else safe].rstrip(" \n,;")


def _read(text: str, plan: ReviewPlan) -> Review:
    """Take the marks out and label what is left."""
    clean = text.replace(END, "")
    span = None
    if OPEN in clean:
        inside = clean[clean.index(OPEN) + 1 : clean.index(CLOSE)]
        span = shorten(inside.strip(" ,.!?"))
    clean = clean.replace(OPEN, "").replace(CLOSE, "")
    return Review(clean, label(plan.text_labels(), clean, span))


def draw_title(dice: Dice, gold: ReviewLabels | None, score: int) -> str | None:
    """A title, or None; it says nothing that the message does not say.

    Args:
        dice: where it is drawn from.
        gold: the labels of the message; None without a message.
        score: 1 to 5 stars.
    """
    if not dice.chance(_TITLED_WITHOUT if gold is None else _TITLED_WITH):
        return None
    if gold is None:
        kind = "good" if score >= 4 else "middle" if score == 3 else "bad"
    elif gold.would_recommend is not None and gold.sentiment != "neutro" and dice.chance(0.5):
        kind = "recommends" if gold.would_recommend else "refuses"
    elif gold.sentiment == "negativo" and gold.complaint_category != "nenhum" and dice.chance(0.55):
        kind = gold.complaint_category
    else:
        kind = {"positivo": "good", "neutro": "middle", "negativo": "bad"}[gold.sentiment]
    return dice.pick(BANKS[f"title.{kind}"])
