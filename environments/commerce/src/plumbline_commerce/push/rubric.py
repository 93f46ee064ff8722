"""What a push message is worth: what it says to this customer in this situation, less a share for
how it says it.

A message that fails a gate is worth a tenth of what it says, so at most 0.1: one that is too long,
no Portuguese, an invention, several texts, shouting, or has a gap left open. Nothing here asks a
model: what a message says is looked up in `lexicon.yaml`.

Reading a message: what stands around it, and which phrases of `lexicon.yaml` it says.

A message is its words without case and accents; separators (comma, full stop, colon) are words of
their own, which no phrase but one that names the colon goes across.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

from plumbline.records import Outcome, Score
from plumbline.tasks.tables import read_table
from plumbline.tasks.text.numbers import read_number, without_accents
from plumbline_commerce.job import read_rubric

NEGATIONS = frozenset({"nao", "nem", "nunca", "sem"})
SEPARATORS = frozenset({".", ",", ":"})
_TOKENS = re.compile(r"[^\W_]+|[,.!?;:…\n]").findall
_SHORTEST = 3
"""Letters of a beginning, such as `sum*`, at least."""


def fold_text(text: str) -> str:
    """A text without case and accents."""
    return without_accents(text).casefold()


def words(text: str) -> list[str]:
    """The words and separators of a text, folded."""
    return [word if word[0].isalnum() or word in ",:" else "." for word in _TOKENS(fold_text(text))]


def _expression(phrase: str) -> str:
    """A phrase of the lexicon as a regular expression over words that each end in a blank."""
    written = ""
    for step in fold_text(phrase).split():
        if step == "..":
            written += r"(?:[^.,: ]+ ){0,2}?"
            continue
        choices = step.removesuffix("?").split("/")
        if any(choice.endswith("*") and len(choice) <= _SHORTEST for choice in choices):
            raise ValueError(f"{step!r}: a beginning has at least {_SHORTEST} letters")
        either = "|".join(re.escape(choice).replace(r"\*", "[^ ]*") for choice in choices)
        written += f"(?:(?:{either}) ){'?' if step.endswith('?') else ''}"
    return written


class PushPhrases:
    """Phrases by what they say, to be found in the words of a message."""

    def __init__(self, entries: Mapping[str, Iterable[str]], *, negatable: bool) -> None:
        """Read phrases.

        Args:
            entries: phrases by what they say.
            negatable: whether a phrase behind "não" or "sem" is not said.
        """
        alternatives = {
            says: "|".join(map(_expression, phrases)) for says, phrases in entries.items()
        }
        self._any = re.compile("|".join(alternatives.values()))
        self._saying = {says: re.compile(expression) for says, expression in alternatives.items()}
        self._negatable = negatable

    def spans(self, said: Sequence[str]) -> Iterator[tuple[str, int, int]]:
        """What is said, and from which word to which (end excluded), in order."""
        text = "".join(f"{word} " for word in said)
        for place, start in enumerate(accumulate([len(word) + 1 for word in said[:-1]], initial=0)):
            if not self._any.match(text, start) or (self._negatable and _is_negated(said, place)):
                continue
            for says, pattern in self._saying.items():
                if match := pattern.match(text, start):
                    yield says, place, place + match[0].count(" ")

    def find_phrases(self, said: Sequence[str]) -> set[str]:
        """What is said anywhere."""
        return {says for says, _, _ in self.spans(said)}


def _is_negated(said: Sequence[str], place: int) -> bool:
    """Whether one of the two words before says no, in the same sentence; a phrase may begin with a
    "não" of its own."""
    before = said[max(0, place - 2) : place]
    return not (
        said[place] in NEGATIONS
        or not before
        or before[-1] in SEPARATORS
        or NEGATIONS.isdisjoint(before)
    )


class Lexicon(NamedTuple):
    """`lexicon.yaml`, ready to be looked up."""

    idioms: PushPhrases
    concepts: PushPhrases
    claims: PushPhrases
    faults: PushPhrases
    """Placeholders, remarks and stock phrases; each phrase says its kind and itself."""
    inviting: PushPhrases
    acts: Mapping[str, Sequence[frozenset[str]]]
    """Imperatives and infinitives."""
    imperatives: frozenset[str]
    labels: frozenset[str]
    languages: Mapping[str, frozenset[str]]
    """Portuguese first."""


@cache
def lexicon() -> Lexicon:
    """The lexicon, read when it is first needed."""
    table: dict[str, Any] = read_table(Path(__file__).with_name("lexicon.yaml"))
    faults = {
        f"{kind}: {phrase}": [phrase]
        for kind in ("placeholders", "remarks", "stock")
        for phrase in table[kind]
    }
    acts = {
        act: [frozenset(fold_text(forms).split("/")) for forms in written.split()]
        for act, written in table["acts"].items()
    }
    return Lexicon(
        idioms=PushPhrases(table["idioms"], negatable=False),
        concepts=PushPhrases(table["concepts"], negatable=True),
        claims=PushPhrases(table["claims"], negatable=False),
        faults=PushPhrases(faults, negatable=False),
        inviting=PushPhrases({phrase: [phrase] for phrase in table["inviting"]}, negatable=False),
        acts=acts,
        imperatives=frozenset().union(*(imperatives for imperatives, _ in acts.values())),
        labels=frozenset(map(fold_text, table["labels"])),
        languages={
            name: frozenset(fold_text(listed).split())
            for name, listed in table["languages"].items()
        },
    )


def replace_idioms(said: Sequence[str]) -> list[str]:
    """The words of a message, what its idioms mean in place of them."""
    text: list[str] = []
    done = 0
    for meant, start, end in lexicon().idioms.spans(said):
        if start >= done:
            text += [*said[done:start], *words(meant)]
            done = end
    return [*text, *said[done:]]


MOST = 300
"""Characters of a completion that are looked at, behind its thoughts; a message of more than 120
has failed anyway."""
MOST_THOUGHT = 20_000


class PushMessage(NamedTuple):
    """A push notification as it was written."""

    title: str
    """Empty where none was asked for."""
    body: str
    around: Sequence[str]
    """What had to be taken away, in this order: thought, fence, preamble, count, lines, label,
    quotes."""
    lines: int
    """Of the message itself; one, or two with a title."""


_THOUGHT = re.compile(r"\s*<think(?:ing)?>.*?</think(?:ing)?>", re.DOTALL | re.IGNORECASE).match
_FENCE = re.compile(r"\s*(?:```|~~~)[ \t]*\w*[ \t]*\n?(.*?)\s*(?:```|~~~)?\s*\Z", re.DOTALL).match
_COUNT = re.compile(
    r"\s*[(\[]\s*\d{1,4}\s*(?:caracteres|chars|characters)\s*[)\]]\s*\Z", re.IGNORECASE
).search
_LABEL = re.compile(r"[*_#\s]*([^\W\d_]+(?: [^\W\d_]+){0,2})[*_\s]*[:：][*_\s]*").match
_QUOTED = re.compile(r"""(["“”'‘’«»*_`]{1,3})(.*?)(["“”'‘’«»*_`]{1,3})\Z""", re.DOTALL).match


def read_message(completion: str, *, titled: bool) -> PushMessage:
    """Read what a model wrote. Never raises.

    Args:
        completion: any text.
        titled: whether the first line is a title.
    """
    text, around = completion[:MOST_THOUGHT].strip(), []
    if text.startswith("<") and (match := _THOUGHT(text)):
        text = text[match.end() :].strip()
        around.append("thought")
    text = text[:MOST]
    if text.startswith(("```", "~~~")) and (match := _FENCE(text)):
        text = match[1].strip()
        around.append("fence")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if len(lines) > 1 and lines[0].endswith(":"):
        del lines[0]
        around.append("preamble")
    if lines and (match := _COUNT(lines[-1])):
        lines[-1] = lines[-1][: match.start()]
        around.append("count")
    bare = []
    for line in lines:
        if (match := _LABEL(line)) and fold_text(match[1]) in lexicon().labels:
            line = line[match.end() :]
            around.append("label")
        if (match := _QUOTED(line)) and match[1][0] not in match[2] and match[3][0] not in match[2]:
            line = match[2]
            around.append("quotes")
        if line := line.strip():
            bare.append(line)
    if len(bare) == (3 if titled else 2):
        around.append("lines")
    title = bare[0] if titled and len(bare) > 1 else ""
    return PushMessage(
        title, " ".join(bare[bool(title) :]), tuple(dict.fromkeys(around)), len(bare)
    )


RUBRIC = read_rubric("push", 1)
GATES = tuple(part.name for part in RUBRIC.form if part.pays_for.startswith("gate"))
FAILED = 0.1
"""What is left of the parts that pay where a gate failed."""
CORE = 0.6
"""Of the situation, what its core is worth; the rest is what else there is to say."""
ALONE = 0.2
"""What the rest is worth without the core."""
LONGEST_RUN = 4
"""Words in a row without a function word; a list of keywords has more."""
MOST_COPIED = 0.6
"""Of the situation's words, that a message may repeat: whoever repeats more has said nothing."""
SHORT, LONG = 40, 115
"""Characters between which a body has its length."""
MOST_TITLE, MOST_BODY = 50, 120
"""Characters."""
MOST_EMOJI = 2
FUNCTION_SHARE = 0.2
"""Of the words at least, that are function words of Portuguese."""
NAME, PRODUCT = "$name", "$product"
"""Stand for the customer's name and the product among the words of a message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """See `situations.yaml`."""

    name: str
    rows: str
    told: Sequence[str]
    core: frozenset[str]
    also: Sequence[frozenset[str]]
    contradicting: frozenset[str]
    """Concepts that are against it, or the core of another situation and not allowed here."""
    acts: Sequence[str]
    offered: float
    plain: Sequence[str]
    offer: Sequence[str] = ()
    titles: Sequence[str]


@cache
def situations() -> Mapping[str, Situation]:
    """The situations by name."""
    table: dict[str, Any] = read_table(Path(__file__).with_name("situations.yaml"))
    cores = {concept for written in table.values() for concept in written["core"]}
    made = {}
    for name, written in table.items():
        core, also = frozenset(written.pop("core")), list(map(frozenset, written.pop("also")))
        allowed = core.union(*also, written.pop("may"))
        against = frozenset((cores - allowed) | set(written.pop("against")))
        offered = float(written.pop("offered"))
        made[name] = Situation(
            name=name, core=core, also=also, contradicting=against, offered=offered, **written
        )
    return made


def judge(reference: Mapping[str, Any], completion: str, reading: str) -> tuple[Outcome, Score]:
    """Read a completion and score it. Never raises.

    Args:
        reference: name, product, situation, told, offers and titled of the prompt.
        completion: what the model wrote.
        reading: which reading's total is the reward: "lenient" takes away what stands around, for
            "strict" it is part of the message, which is no single message then.
    """
    message = read_message(completion, titled=reference["titled"])
    lenient = strict = _parts(reference, message)
    if message.around:
        share = FAILED if all(lenient[name] for name in GATES) else 1.0
        paying = {
            part.name: None if (value := lenient[part.name]) is None else value * share
            for part in RUBRIC.parts
        }
        strict = {**lenient, **paying, "single": 0.0}
    readings = {"lenient": RUBRIC.total(lenient), "strict": RUBRIC.total(strict)}
    how = "+".join(message.around) or "strict"
    return Outcome(how=how), RUBRIC.score(strict if reading == "strict" else lenient, readings)


def _parts(reference: Mapping[str, Any], message: PushMessage) -> dict[str, float | None]:
    """The value of every part."""
    situation, told, offers = (
        situations()[reference["situation"]],
        reference["told"],
        reference["offers"],
    )
    facts = facts_of(reference["name"], reference["product"], told, tuple(offers))
    text = f"{message.title}. {message.body}" if message.title else message.body
    said = words(text)
    copied = _copied_places(said, told)
    spoken = mask_names(said, facts)
    faults = lexicon().faults.find_phrases(spoken)
    gates = _failed_gates(message, spoken, faults, facts, titled=reference["titled"])
    share = FAILED if any(gates.values()) else 1.0
    meant = replace_idioms(spoken)
    about = _situation(
        situation, replace_idioms(mask_names(said, facts, copied)) if copied else meant
    )
    personal = 0.5 * (NAME in spoken) + 0.5 * (PRODUCT in spoken)
    offer = max(_offer(offer, text, said) for offer in offers) if offers else None
    asking = replace_idioms(words(message.body)) if message.title else meant
    call = _call((*situation.acts, "offer") if offer else situation.acts, asking) if about else 0.0
    length = len(message.body)
    return {
        "situation": share * about,
        "personal": share * personal * (1.0 if about >= CORE else 0.5),
        "call": share * call,
        "offer": None if offer is None else share * offer,
        "own": _originality(said, faults, copied),
        "written": _score_writing(message.body, spoken),
        "band": length / SHORT if length < SHORT else 1.0 if length <= LONG else 0.5,
        "alone": float(not message.around),
        **{gate: float(not fails) for gate, fails in gates.items()},
    }


def _copied_places(said: Sequence[str], told: str) -> set[int]:
    """The places of words that are copied from the situation, three or more in a row; none where it
    is little of it.

    Separators do not count, neither in the one nor in the other.
    """
    given = [word for word in words(told) if word not in SEPARATORS]
    mine = [place for place, word in enumerate(said) if word not in SEPARATORS]
    runs = set(zip(given, given[1:], given[2:], strict=False))
    threes = zip(mine, mine[1:], mine[2:], strict=False)
    places = {
        place
        for three in threes
        if tuple(said[place] for place in three) in runs
        for place in three
    }
    return places if len(places) > MOST_COPIED * len(given) else set()


def _situation(situation: Situation, meant: Sequence[str]) -> float:
    """What the core and the rest are worth; the core alone where there is no more to say."""
    said = lexicon().concepts.find_phrases(meant)
    if said & situation.contradicting:
        return 0.0
    further = sum(not said.isdisjoint(aspect) for aspect in situation.also)
    share = further / len(situation.also) if situation.also else 1.0
    if said & situation.core:
        return CORE + (1 - CORE) * share
    return ALONE * share if situation.also else 0.0


def _call(acts: Sequence[str], meant: Sequence[str]) -> float:
    """Whether the customer is asked for something that fits, and for how many things in all."""
    lexis = lexicon()
    asked = lexis.imperatives.intersection(meant)
    invited = {word for _, _, end in lexis.inviting.spans(meant) for word in meant[end : end + 3]}
    fits = any(asked & lexis.acts[act][0] or invited & lexis.acts[act][1] for act in acts)
    return {3: 0.5}.get(len(asked), float(len(asked) < 3)) if fits else 0.0


def _offer(offer: str, text: str, said: Sequence[str]) -> float:
    """How much of an allowed offer is there."""
    given = words(offer)
    wanted = [numbers_of(offer) <= numbers_of(text) and bool(claims_of(said) & claims_of(given))]
    if "cupom" in given:
        wanted.append(given[-1] in said)
    return sum(wanted) / len(wanted)


def _originality(said: Sequence[str], faults: Collection[str], copied: Collection[int]) -> float:
    """1 less twice the share of what is copied from the situation, less a half for each stock
    phrase."""
    own = [word for word in said if word not in SEPARATORS]
    if not own or len(set(own)) < 0.6 * len(own):
        return 0.0
    stock = sum(fault.startswith("stock") for fault in faults)
    return max(0.0, 1.0 - 2 * len(copied) / len(own) - 0.5 * stock)


def _score_writing(body: str, spoken: Sequence[str]) -> float:
    """An end as a sentence has is worth a half, a capital first and no long run of content words a
    quarter each."""
    first = next(filter(str.isalpha, body), "")
    function = lexicon().languages["portuguese"]
    longest = run = 0
    for word in spoken:
        run = 0 if word in function or word in ".:" else run + (len(word) > 1 and word.isalpha())
        longest = max(longest, run)
    ends = bool(body) and not body[-1].isalnum() and body[-1] not in ",;:-"
    return 0.5 * ends + 0.25 * first.isupper() + 0.25 * (longest <= LONGEST_RUN)


# What a message says of the prompt, and the gates


Number = tuple[float, str]
"""A value and its unit: %, R$, dia, hora, or nothing."""
_FORMS = {"$": ("", "s", "es"), "l$": ("is",), "m$": ("ns",), "ao$": ("oes", "aos", "aes")}
"""A noun and what its plural may be."""


class MessageFacts(NamedTuple):
    """What the prompt says that a message may repeat."""

    numbers: set[Number]
    codes: set[str]
    """Words with digits, coupons and words in capitals, folded."""
    claims: set[str]
    name: str
    product: list[str]
    """Its folded words."""
    forms: set[str]
    """Words that name it, and their plurals."""


@lru_cache(maxsize=1 << 12)
def facts_of(name: str, product: str, told: str, offers: tuple[str, ...]) -> MessageFacts:
    """The facts of a prompt, by its parts."""
    given = " . ".join((told, *offers))
    found = [
        word
        for word in re.findall(r"\w+", f"{given} {product}")
        if len(word) > 1 and not word.isdigit()
    ]
    codes = {fold_text(word) for word in found if word.isupper() or any(map(str.isdigit, word))}
    named = words(product)
    nouns = {word for place, word in enumerate(named) if place == 0 or len(word) > 3}
    forms = {
        re.sub(end, ending, noun)
        for noun in nouns
        for end, endings in _FORMS.items()
        for ending in endings
    }
    return MessageFacts(
        numbers_of(given), codes, claims_of(words(given)), fold_text(name), named, forms
    )


def mask_names(said: Sequence[str], facts: MessageFacts, copied: Collection[int] = ()) -> list[str]:
    """A message's words, one word of ours for each naming of the customer or the product.

    They say nothing of the situation, and may look like words that do ("telefone sem fio", "maiô").

    Args:
        said: its words.
        facts: of the prompt.
        copied: places of further words that say nothing.
    """
    text: list[str] = []
    place, size = 0, len(facts.product)
    while place < len(said):
        word = said[place]
        whole = size > 1 and said[place : place + size] == facts.product
        named = whole or word in facts.forms
        text.append(PRODUCT if named else NAME if word == facts.name or place in copied else word)
        place += size if whole else 1
    return text


_GAP = re.compile(r"[\[\]{}<>]|_{2,}|%[sd]\b|\$\w+\b(?<!\d)|\bX{2,}\b").search
_ADDRESS = re.compile(r"https?:|www\.|@|\w\.(?:com|br|net|ly|app)\b", re.IGNORECASE).search
_NUMBER = re.compile(
    r"(?P<money>R\$\s*)?(?<![^\W_])(?P<number>\d[\d.,]*+)(?![^\W\d_])"
    r"(?:\s*(?P<unit>%|por cento|off\b|reais|dias?\b|horas?\b|semanas?\b|meses\b|minutos?\b))?",
    re.IGNORECASE,
)
_UNITS = {"%": "%", "por cento": "%", "off": "%", "reais": "R$"}
_MIXED = re.compile(r"[^\W_]*(?:\d[^\W\d_]|[^\W\d_]\d)[^\W_]*").findall
_COUPON = re.compile(
    r"(?:cupo[mn]s?|c[óo]digo)\s+(?:promocional\s+)?[\"'“‘]?([A-Z][A-Z0-9]{2,})", re.IGNORECASE
).findall
_SEVERAL = re.compile(r"\A\s*(?:[-*•–—·]|\d+[.)])\s|\s[|/]\s|\bou:").search
_LETTERS = re.compile(r"[^\W\d_]{2,}").findall
_EMOJI = re.compile(
    "(?:[\U0001f1e6-\U0001f1ff]{2}|[\U0001f300-\U0001faff\u2600-\u27bf\u2b00-\u2bff\u23e9-\u23fa\u3030\u303d])"
    "[\ufe0f\U0001f3fb-\U0001f3ff]*(?:\u200d[\U0001f300-\U0001faff\u2600-\u27bf][\ufe0f\U0001f3fb-\U0001f3ff]*)*"
).findall


def numbers_of(text: str) -> set[Number]:
    """The numbers of a text; one that cannot be read is no number, and equal to none."""
    numbers = set()
    for match in _NUMBER.finditer(text):
        read = read_number(match["number"].rstrip(".,"), quoted=bool(match["money"]))
        value = (
            float("nan")
            if read is None or read.value is None or abs(read.value) >= 1e12
            else float(read.value)
        )
        unit = fold_text(match["unit"] or "")
        numbers.add((value, "R$" if match["money"] else _UNITS.get(unit, unit.rstrip("s"))))
    return numbers


def claims_of(said: Sequence[str]) -> set[str]:
    """What a text claims; that the freight is free does not say that anything else is."""
    spans = list(lexicon().claims.spans(said))
    freight = {
        place
        for claim, start, end in spans
        if claim == "free shipping"
        for place in range(start, end)
    }
    return {claim for claim, start, _ in spans if claim != "free" or start not in freight}


def _failed_gates(
    message: PushMessage,
    said: Sequence[str],
    faults: Collection[str],
    facts: MessageFacts,
    *,
    titled: bool,
) -> dict[str, bool]:
    """Which gates a message failed.

    Args:
        message: what was written.
        said: its words, the title's included, without those of the name and the product (`masked`).
        faults: of the lexicon, that its words have.
        facts: of the prompt.
        titled: whether a title was asked for.
    """
    text = f"{message.title}\n{message.body}" if message.title else message.body
    kinds = {fault.partition(":")[0] for fault in faults}
    counted = [word for word in said if word.isalpha()]
    portuguese, *others = lexicon().languages.values()
    mine = sum(word in portuguese for word in counted)
    foreign = max(
        sum(word in other and word not in portuguese for word in counted) for other in others
    )
    found = [word for word in _LETTERS(text) if fold_text(word) not in facts.codes]
    shouted = sum(map(str.isupper, found))
    most = 2 if titled else 1
    return {
        "limit": not 0 < len(message.body) <= MOST_BODY
        or (titled and not 0 < len(message.title) <= MOST_TITLE),
        "portuguese": mine < max(1, FUNCTION_SHARE * len(counted)) or 2 * foreign > mine,
        "filled": bool(_GAP(text)) or "placeholders" in kinds,
        "honest": _invents(text, said, facts),
        "single": message.lines > most + 1
        or said.count(NAME) > most
        or bool(_SEVERAL(message.body))
        or "remarks" in kinds,
        "calm": shouted >= 3 or 2 * shouted > max(len(found), 1) or len(_EMOJI(text)) > MOST_EMOJI,
    }


def _invents(text: str, said: Sequence[str], facts: MessageFacts) -> bool:
    """Whether a number, a coupon, an address or a claim is not the prompt's."""
    known = {value for value, _ in facts.numbers}
    strange = any(unit or value not in known for value, unit in numbers_of(text) - facts.numbers)
    codes = {fold_text(code) for code in (*_MIXED(text), *filter(str.isupper, _COUPON(text)))}
    return (
        strange
        or bool(_ADDRESS(text))
        or not codes <= facts.codes
        or not claims_of(said) <= facts.claims
    )
