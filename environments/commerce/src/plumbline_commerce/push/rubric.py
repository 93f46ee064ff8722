"""What a push message is worth: what it says to this customer in this situation, less a share for how it says it.

A message that fails a gate is worth a tenth of what it says, so at most 0.1. Which gate is seen in the parts of form.
Nothing here asks a model: what a message says is looked up in `lexicon.yaml`.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from plumbline.records import Outcome, Score
from plumbline.tasks.rubric import Part, Rubric
from plumbline_commerce.push.gates import NAME, PRODUCT, claims_of, facts_for, failed, masked, numbers_of
from plumbline_commerce.push.phrases import SEPARATORS, lexicon, plain, words
from plumbline_commerce.push.reading import Message, read
from plumbline_commerce.push.situations import Situation, situations

RUBRIC = Rubric(
    "commerce-push",
    1,
    parts=(
        Part("situation", 0.50, "says what the situation is about, and nothing that contradicts it"),
        Part(
            "personal",
            0.20,
            "the customer's name and the product, half each; half of that where the core of the situation is missing",
        ),
        Part("call", 0.15, "asks for one thing that fits the situation; 3 imperatives are worth half, 4 nothing"),
        Part("offer", 0.15, "an allowed offer: its coupon and what it gives, half each"),
    ),
    form=(
        Part("own", 0.30, "its own words: no copy of the prompt, no stock phrases, no repetition"),
        Part(
            "written", 0.10, "begins with a capital, ends as a sentence does, and has function words among the others"
        ),
        Part("band", 0.10, "between 40 and 115 characters"),
        Part("alone", 0.10, "nothing stands around the message"),
        Part("limit", 0.05, "gate: at most 120 characters, and a title of at most 50 where it is asked for"),
        Part("portuguese", 0.05, "gate: the function words are those of Portuguese"),
        Part("filled", 0.05, "gate: no placeholder"),
        Part(
            "honest",
            0.05,
            "gate: no offer, number, price, day, coupon, address or promise that the prompt does not have",
        ),
        Part("single", 0.05, "gate: one message, no list, no remark about it"),
        Part("calm", 0.05, "gate: not in capitals, at most two emoji"),
    ),
)
GATES = ("limit", "portuguese", "filled", "honest", "single", "calm")
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


def judge(reference: Mapping[str, Any], completion: str, reading: str) -> tuple[Outcome, Score]:
    """Read a completion and score it. Never raises.

    Args:
        reference: name, product, situation, told, offers and titled of the prompt.
        completion: what the model wrote.
        reading: which reading's total is the reward: "lenient" takes away what stands around, for "strict" it is part
            of the message, which is no single message then.
    """
    message = read(completion, titled=reference["titled"])
    parts = {"lenient": _parts(reference, message)}
    parts["strict"] = _failing(parts["lenient"], "single") if message.around else parts["lenient"]
    readings = {name: RUBRIC.total(values) for name, values in parts.items()}
    return Outcome(how=message.how), RUBRIC.score(parts[reading], readings)


def _failing(values: Mapping[str, float | None], gate: str) -> dict[str, float | None]:
    """The same parts with a gate failed, too."""
    share = FAILED if all(values[name] for name in GATES) else 1.0
    paying = {part.name: None if (value := values[part.name]) is None else value * share for part in RUBRIC.parts}
    return {**values, **paying, gate: 0.0}


def _parts(reference: Mapping[str, Any], message: Message) -> dict[str, float | None]:
    """The value of every part."""
    facts, situation = facts_for(reference), situations()[reference["situation"]]
    text = f"{message.title}. {message.body}" if message.title else message.body
    said = words(text)
    copied = _copied(said, reference["told"])
    spoken = masked(said, facts)
    faults = lexicon().faults.said(spoken)
    gates = failed(message, spoken, faults, facts, titled=reference["titled"])
    share = FAILED if any(gates.values()) else 1.0
    meant = plain(spoken)
    asking = plain(words(message.body)) if message.title else meant
    about = _situation(situation, plain(masked(said, facts, copied)) if copied else meant)
    offer = _offer(reference["offers"], text, said)
    return {
        "situation": share * about,
        "personal": share * _personal(spoken) * (1.0 if about >= CORE else 0.5),
        "call": share * _call(situation, asking, offered=bool(offer)) if about else 0.0,
        "offer": None if offer is None else share * offer,
        "own": _own(said, faults, copied),
        "written": _written(message.body, spoken),
        "band": _band(len(message.body)),
        "alone": float(not message.around),
        **{gate: float(not fails) for gate, fails in gates.items()},
    }


def _copied(said: Sequence[str], told: str) -> set[int]:
    """The places of words that are copied from the situation, three or more in a row; none where it is little of it.

    Separators do not count, neither in the one nor in the other.
    """
    given = [word for word in words(told) if word not in SEPARATORS]
    mine = [(place, word) for place, word in enumerate(said) if word not in SEPARATORS]
    runs = {tuple(given[start : start + 3]) for start in range(len(given) - 2)}
    places: set[int] = set()
    for start in range(len(mine) - 2):
        if tuple(word for _, word in mine[start : start + 3]) in runs:
            places |= {place for place, _ in mine[start : start + 3]}
    return places if len(places) > MOST_COPIED * len(given) else set()


def _situation(situation: Situation, meant: Sequence[str]) -> float:
    """What the core and the rest are worth; the core alone where there is no more to say."""
    said = lexicon().concepts.said(meant)
    if said & situation.contradicting:
        return 0.0
    further = sum(not said.isdisjoint(aspect) for aspect in situation.also)
    share = further / len(situation.also) if situation.also else 1.0
    core = not said.isdisjoint(situation.core)
    if core:
        return CORE + (1 - CORE) * share
    return ALONE * share if situation.also else 0.0


def _personal(spoken: Sequence[str]) -> float:
    return 0.5 * (NAME in spoken) + 0.5 * (PRODUCT in spoken)


def _call(situation: Situation, meant: Sequence[str], *, offered: bool) -> float:
    """Whether the customer is asked for something that fits, and for how many things in all."""
    lexis = lexicon()
    acts = [lexis.acts[act] for act in (*situation.acts, *(["offer"] if offered else []))]
    asked = {word for word in meant if word in lexis.imperatives}
    invited = {word for _, _, end in lexis.inviting.spans(meant) for word in meant[end : end + 3]}
    fits = any(not asked.isdisjoint(imperatives) or not invited.isdisjoint(others) for imperatives, others in acts)
    return {3: 0.5}.get(len(asked), float(len(asked) < 3)) if fits else 0.0


def _offer(offers: Sequence[str], text: str, said: Sequence[str]) -> float | None:
    """How much of the best allowed offer is there; None where none is allowed."""
    if not offers:
        return None
    numbers, claims = numbers_of(text), claims_of(said)
    worth = 0.0
    for offer in offers:
        given = words(offer)
        wanted = [numbers_of(offer) <= numbers and bool(claims & claims_of(given))]
        if "cupom" in given:
            wanted.append(given[-1] in said)
        worth = max(worth, sum(wanted) / len(wanted))
    return worth


def _own(said: Sequence[str], faults: Collection[str], copied: Collection[int]) -> float:
    """1 less twice the share of what is copied from the situation, less a half for each stock phrase."""
    own = [word for word in said if word not in SEPARATORS]
    if not own or len(set(own)) < 0.6 * len(own):
        return 0.0
    stock = sum(fault.startswith("stock") for fault in faults)
    return max(0.0, 1.0 - 2 * len(copied) / len(own) - 0.5 * stock)


def _written(body: str, spoken: Sequence[str]) -> float:
    """An end as a sentence has is worth a half, a capital first and no long run of content words a quarter each."""
    first = next((char for char in body if char.isalpha()), "")
    function = next(iter(lexicon().languages.values()))
    longest = run = 0
    for word in spoken:
        run = 0 if word in function or word in ".:" else run + (len(word) > 1 and word.isalpha())
        longest = max(longest, run)
    ends = bool(body) and not body[-1].isalnum() and body[-1] not in ",;:-"
    return 0.5 * ends + 0.25 * first.isupper() + 0.25 * (longest <= LONGEST_RUN)


def _band(length: int) -> float:
    if length < SHORT:
        return length / SHORT
    return 1.0 if length <= LONG else 0.5
