"""One step as a sentence: its verb, its arguments, and which of two arguments is the control.

Three things say which argument names the control: the words around it ("into the 'L' field", "the option 'V'"), the
verb ("type V", but "set L"), and, where the form is known, its labels. They are added up; where they say nothing, or
as much for the one as for the other, nothing is read. A sentence is never completed by what it does not say.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice, pairwise

from plumbline_forms.plans.tokens import (
    LEADS,
    QUOTES,
    Work,
    is_quoted,
    may_be_name,
    quotations,
    tokens_of,
    verbs_of,
    without_file_buttons,
)
from plumbline_forms.plans.vocabulary import ASKING, BE, KEYS, NO, OWN, YES, Argument, Names, PlanToken, loose

# -- what the words around an argument say ----------------------------------------------------------------------------

VALUE_FIRST = frozenset({"type", "append", "use", "select", "check", "uncheck", "attach", "send", "press"})
"""Verbs whose object is what is entered: "type V into L"."""
_CONTROL = frozenset({"field", "choice", "boxes", "upload"})
_GIVEN = frozenset({"option", "value", "file"})
_LABELLED, _LINKED, _OBJECT = 2.0, 2.0, 1.0
"""What a noun, a link and being the object of the verb count."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the words around an argument say: whether it is the control, or what is entered."""

    link: str
    nouns: frozenset[str]
    """What it is called."""
    is_topic: bool
    """It stands before the verb: "in L, type V"."""
    is_object: bool


def contexts_of(tokens: Sequence[PlanToken], places: Sequence[int], verb: int, first: int) -> list[Surroundings]:
    """For each argument what the words before and after it say."""
    found = []
    for number, place in enumerate(places):
        earlier = places[number - 1] if number else -1
        later = places[number + 1] if number + 1 < len(places) else len(tokens)
        begin = max([earlier, *(at for at in (verb, first) if earlier < at < place)])
        stop = min([later, *(at for at in (verb, first) if place < at < later)])
        after_argument = begin == earlier and number > 0
        before = list(tokens[begin + 1 : place])
        if after_argument:
            before = before[_own_tail(before) :]
        tail = list(tokens[place + 1 : stop])
        tail = tail[: _own_tail(tail) if stop == later and later < len(tokens) else len(tail)]
        topic = place < verb
        link = _link(before, counts_either=number > 0 or topic, counts_colon=after_argument)
        is_object = not topic and not link and not any(verb < other < place for other in places)
        nouns = frozenset({_noun_before(before), _noun_after(tail)} - {""})
        found.append(Surroundings(link, nouns, topic, is_object))
    return found


def _own_tail(between: Sequence[PlanToken]) -> int:
    """How many words between two arguments belong to the first: up to a link or a sign, else its nouns."""
    last = 0
    for at, token in enumerate(between):
        if {"link", "join"} & token.roles.keys() or token.is_sign:
            return at
        if token.role("noun") in _CONTROL | {"checkbox", "button"}:
            last = at + 1
    return last


def _link(before: Sequence[PlanToken], *, counts_either: bool, counts_colon: bool) -> str:
    for token in reversed(before):
        link = token.role("link")
        if counts_colon and token.text == ":":
            return "value"
        if link in {"label", "value"} or (link == "either" and counts_either):
            return link
    return ""


def _noun_before(before: Sequence[PlanToken]) -> str:
    for token in reversed(before):
        if "noun" in token.roles:
            return token.role("noun")
        if "link" in token.roles or not (token.is_sign or {"called", "article", "adverb"} & token.roles.keys()):
            return ""
    return ""


def _noun_after(after: Sequence[PlanToken]) -> str:
    for token in after:
        if noun := token.role("noun"):
            return "" if noun in {"value", "file"} else noun
        if "article" not in token.roles and token.text not in {"(", "*"}:
            return ""
    return ""


def evidence(label: Surroundings, value: Surroundings, kind: str) -> tuple[bool, float]:
    """Whether anything but the verb says that the first is the control, and how much speaks for it."""
    value_first = kind in VALUE_FIRST
    first, second = _leaning(label, value_first), _leaning(value, value_first)
    says = bool(label.link or value.link or label.nouns or value.nouns or label.is_topic)
    return says, first - second


def _leaning(context: Surroundings, value_first: bool) -> float:
    """How much speaks for an argument's being the control; below 0 for being what is entered."""
    total = 0.0
    if context.link == "label":
        total += _LINKED
    elif context.link == "value":
        total -= _LINKED
    elif context.link == "either":
        total += _OBJECT if value_first or context.is_topic else -_OBJECT
    if context.nouns & _CONTROL:
        total += _LABELLED
    elif context.nouns & _GIVEN:
        total -= _LABELLED
    elif "checkbox" in context.nouns:
        total -= _OBJECT / 2
    if context.is_topic:
        total += _OBJECT
    elif context.is_object:
        total += -_OBJECT if value_first else _OBJECT
    return total


# -- arguments without quotation marks --------------------------------------------------------------------------------

_EDGE = frozenset({"field", "choice", "boxes", "checkbox", "upload", "option", "button", "link", "form", "key"})
"""Nouns that belong to the sentence and not to an argument without quotation marks."""
_MOST_LINKS = 24
_FORMS = {
    "date": re.compile(r"(?<![\d/-])(?:\d{4}-\d{2}-\d{2}|\d{1,2}/\d{1,2}/\d{4})(?![\d/-])"),
    "time": re.compile(r"(?<![\d:])\d{1,2}:\d{2}(?:\s?[ap]\.?m\b\.?)?(?![\d:])", re.IGNORECASE),
    "email": re.compile(r"[^\s@<>()]+@[^\s@<>()]+\.\w+"),
    "url": re.compile(r"[a-z]+://\S+"),
    "file": re.compile(r"^.+?\.\w{2,5}(?!\S)"),
}
"""What is entered into controls of these kinds, where other words may stand around it: "the day 2026-05-24"."""
_POSSESSED = ("'s", "’s")


@dataclass(frozen=True, slots=True)
class SentenceParts:
    """What a sentence is read from."""

    text: str
    names: Names
    quoted: tuple[Argument, ...]
    """The arguments in quotation marks."""
    work: Work


def mentions(text: str, names: Names) -> tuple[Argument, ...]:
    """The labels of the form in a text, in quotation marks or not; at most the first six."""
    found = () if names.mention is None else islice(names.mention.finditer(text[:2000]), 6)
    return tuple(Argument(one.group(), one.start(), one.end()) for one in found)


def completed(
    step: SentenceParts, tokens: Sequence[PlanToken], arguments: tuple[Argument, ...], verbs: Sequence[int], kind: str
) -> Iterator[tuple[Argument, ...]]:
    """The arguments, and those that stand without quotation marks."""
    yield arguments
    if len(arguments) > 1:
        return
    verb = verbs[-1]
    is_named = bool(arguments) and step.names.kind(arguments[0].text) != ""
    runs = [run for run in _runs(tokens, verbs) if run]
    object_is_label = kind not in VALUE_FIRST
    keeps_nouns = kind in {"type", "append"}
    cores = []
    for start, stop in runs:
        if is_named and start <= verb:
            continue  # what is entered follows the verb, if it has no quotation marks
        is_object = start > verb and tokens[start - 1].argument is None
        linked = next((token.role("link") for token in tokens[start:stop] if "link" in token.roles), "")
        is_label = not is_named and (not is_object or object_is_label or (linked == "label" and not arguments))
        end = _without_leading_words(tokens, start, stop) if is_object and arguments else stop
        core = _core(step, tokens[start:end], is_label=is_label, keeps_nouns=is_object and keeps_nouns)
        is_free = start <= verb or (is_object and (not object_is_label or not is_named or stop < len(tokens)))
        is_free = is_free or (is_object and tokens[verb].text.rpartition(" ")[2] in BE)
        if core is not None and (is_free or _is_tied(step, tokens[start:stop], core)):
            cores.append(core)
    if len(arguments) + len(cores) <= 2 and cores:
        yield tuple(sorted((*arguments, *cores), key=lambda one: one.start))
    if arguments:
        return
    labels = mentions(step.text, step.names)
    for start, stop in runs:
        if start <= verb:
            continue
        inner = range(start + 1, stop - 1)
        links = [at for at in inner if "link" in tokens[at].roles or tokens[at].text == ":"]
        for at in links[-_MOST_LINKS:]:
            if any(one.start < tokens[at].start < one.end for one in labels):
                continue
            left = _core(step, tokens[start:at], is_label=object_is_label, keeps_nouns=keeps_nouns)
            right = _core(step, tokens[at + 1 : stop], is_label=not object_is_label, keeps_nouns=object_is_label)
            if left is None or right is None or (tokens[at].text == ":" and not step.names.kind(left.text)):
                continue  # "Change date: May 4" is a line of a list and no step
            yield left, right


def alone(text: str, kind: str) -> str:
    """What is entered into a control whose entries have a form of their own, without the words around it."""
    pattern = _FORMS.get(kind)
    found = pattern.findall(text) if pattern is not None and " " in text else []
    return found[0] if len(found) == 1 else text


def _is_tied(step: SentenceParts, tokens: Sequence[PlanToken], core: Argument) -> bool:
    """Whether something ties words to the argument before them: "set L to V", "L: V", but not "L because it is so"."""
    before = [token for token in tokens if token.start < core.start]
    tied = any("link" in token.roles or token.text in {":", "-", "–", "—"} for token in before)
    is_figure = " " not in core.text and any(letter.isdigit() for letter in core.text)
    return tied or is_figure or step.names.knows(core.text) or core.text.casefold() in YES | NO


def _without_leading_words(tokens: Sequence[PlanToken], start: int, stop: int) -> int:
    """Where a stretch ends without the words that belong to what follows it: "V", of "V in the field called 'L'"."""
    at = stop
    while at > start + 1 and stop < len(tokens):
        roles = tokens[at - 1].roles
        if "link" in roles:
            stop = at - 1
        elif not roles.keys() & {"article", "noun", "called", "adverb"} and not tokens[at - 1].is_sign:
            break
        at -= 1
    return stop


def _runs(tokens: Sequence[PlanToken], verbs: Sequence[int]) -> list[tuple[int, int]]:
    """Stretches of words between verbs and arguments."""
    edges = [-1, *(at for at, token in enumerate(tokens) if token.argument is not None or at in verbs), len(tokens)]
    return [(start + 1, stop) for start, stop in pairwise(edges) if stop > start + 1]


def _core(step: SentenceParts, tokens: Sequence[PlanToken], *, is_label: bool, keeps_nouns: bool) -> Argument | None:
    """What is left of a stretch without articles, links and nouns around it; None where nothing is."""
    text = step.text

    def knows(said: str) -> bool:
        step.work.look(len(said))
        return step.names.knows(said) or said.casefold().rstrip(".,; ") in KEYS

    start, stop = 0, len(tokens)
    articled = False
    while start < stop and not knows(text[tokens[start].start : tokens[stop - 1].end]):
        roles = tokens[start].roles
        noun = roles.get("noun")
        strips = noun in _EDGE | {"file"} and (articled or is_label or not keeps_nouns)
        strips = strips or (noun == "value" and articled and not is_label)
        said = text[tokens[start].start : tokens[start].end]
        is_name = not is_label and said[0].isupper() and not ("noun" in roles and said.isupper())  # but "the URL ..."
        if is_name or _sticks(text, tokens[start:stop], 0):
            break  # "type The Beatles"
        if roles.keys() & {"article", "called", "adverb", "join", "link"} or tokens[start].is_sign:
            articled = articled or "article" in roles
            start += 1
        elif strips and start + 1 < stop:
            start += 1
        else:
            break
    while stop > start and not knows(text[tokens[start].start : tokens[stop - 1].end]):
        roles = tokens[stop - 1].roles
        strips = roles.get("noun") in _EDGE and not keeps_nouns and stop > start + 1
        if (not is_label and text[tokens[stop - 1].start].isupper()) or _sticks(text, tokens[start:stop], -1):
            break
        if tokens[stop - 1].is_sign or strips or roles.keys() & {"article", "link", "join", "called", "adverb"}:
            stop -= 1
        else:
            break
    if start == stop:
        state = next((token for token in reversed(tokens) if not token.is_sign), None)
        if is_label or state is None or state.text not in YES | NO:
            return None
        return Argument(text[state.start : state.end], state.start, state.end)  # "set L to on"
    first, last = tokens[start].start, tokens[stop - 1].end
    found = Argument(text[first:last].replace("\\n", "\n"), first, last)
    if knows(found.text) and (is_label or not step.names.has(found.text)):
        return found
    left = tokens[start:stop]
    # "Type your full name", "type the user's name": which name that is, is not said.
    describes = start > 0 and tokens[start - 1].text in OWN
    nouns = [token for token in left if "noun" not in token.roles]
    describes = describes or (articled and all(token.text.endswith(_POSSESSED) for token in nouns))
    is_noun = not keeps_nouns and all(token.role("noun") in _EDGE for token in left)
    return None if (describes and not is_label) or is_noun or {"doubt", "refusal"} & left[0].roles.keys() else found


def _sticks(text: str, tokens: Sequence[PlanToken], at: int) -> bool:
    """Whether a sign belongs to what is entered: "+55 11", "$500", "5%", "(555) 366", the end of its last sentence."""
    token = tokens[at]
    if not token.text or token.text[0].isalnum() or len(tokens) == 1:
        return False
    core = text[tokens[0].start : tokens[-1].end]
    if token.text in "()":
        return core.index(")") < len(core) - 1 if at == 0 and ")" in core else at == -1 and "(" in core[1:]
    if at == 0:
        return token.text in "+-−#@$€£" and tokens[1].start == token.end
    if token.text == "." and tokens[-2].end == token.start:
        ends = text[token.end :].strip() == ""
        return core[-2:] != ".." and (not ends or re.search(r"[.!?](?:\s|\\n)", core[:-1]) is not None)
    return token.text in "%€$£+!'\"" and tokens[-2].end == token.start


# -- sentence ------------------------------------------------------------------------------------------------------

_FILLS = frozenset({"type", "append", "use", "set", "vary", "select", "check", "uncheck", "attach"})
_PURPOSES = frozenset({"send", "idle", "click", "seek", "navigate", "press", "done"})
"""Verbs that say what a step is for where they follow "to": "click on L to send the form"."""
_SEVERAL = frozenset({"select", "check", "uncheck", "attach", "click", "set", "use", "append"})
"""Verbs with more than one value in a sentence: "check A and B"."""
_ALONE = frozenset({"select", "check", "uncheck", "click"})
"""Those that may leave out the group: "check A and B" where the form says whose options they are."""
_MOST_UNKNOWN = 8
_NAMED, _OFFERED = 5.0, 3.0
"""What a label of the form and an option of the control count, beside the words."""


@dataclass(frozen=True, slots=True)
class StepSentence:
    """A step, taken apart."""

    verb: str
    label: str
    """The only argument, or the one that names the control; "" where there is none."""
    values: tuple[str, ...] = ()
    nouns: frozenset[str] = frozenset()
    """What the arguments are called: field, option, button and so on."""
    quoted: bool = True
    """Whether the label stands in quotation marks."""
    rank: float = 0.0


def sentences(text: str, names: Names, work: Work) -> list[StepSentence] | None:
    """Take a step apart.

    Args:
        text: without its marker; at most some thousands of characters.
        names: of the form's controls.
        work: where each look is counted.

    Returns:
        Its sentences, [] where it says that nothing is to be done ("leave L empty"), None where it is not understood.

    Raises:
        TooMuchWorkError: see there.
    """
    return _sentences(without_file_buttons(text, names.has), names, 3, work)


def _sentences(text: str, names: Names, depth: int, work: Work) -> list[StepSentence] | None:
    work.spend(1)
    # A text of forty quotation marks asks for its halves half a million times.
    if (text, depth) not in work.halves:
        work.halves[text, depth] = _best(text, names, depth, work)
    return work.halves[text, depth]  # type: ignore[no-any-return]


def _best(text: str, names: Names, depth: int, work: Work) -> list[StepSentence] | None:
    best: list[StepSentence] | None = None
    rank, leaves_no_doubt = 0.0, False
    for number, arguments in enumerate(quotations(text)):
        work.look(len(text), words=0 if number else len(text))
        if number == 0 and _is_open(text, arguments):
            return None
        if number == 1 and leaves_no_doubt:
            break
        if number > 0 and len(arguments) == 1 and not names.has(arguments[0].text):
            continue  # two quotations that leave open which is which are not one long label instead
        if number > 0 and any(_quotes_label(one.text, names) for one in arguments):
            continue  # nor is a second clause a part of what is entered
        leaves_no_doubt = leaves_no_doubt or (number == 0 and _is_clear(text, arguments, names))
        for chosen in (*_with_mentions(text, arguments, names), arguments):
            found = _read(SentenceParts(text, names, arguments, work), chosen, depth)
            if found is not None:
                worth = min((one.rank for one in found), default=0.0)
                if best is None or worth > rank:
                    best, rank = found, worth
    return best


def _is_open(text: str, arguments: tuple[Argument, ...]) -> bool:
    """Whether a step leaves open what is to be done: "if needed, ...", "type A or B", "type A into L, not into M"."""
    tokens = tokens_of(text, arguments) or []
    if _asks(tokens):
        return True
    verbs = verbs_of(tokens)
    doubts = [at for at, token in enumerate(tokens) if "doubt" in token.roles]
    refusals = [at for at, token in enumerate(tokens) if "refusal" in token.roles]
    if not verbs or not (doubts or refusals):
        return False
    if len(arguments) > 1:
        return bool(doubts) or refusals[0] > verbs[0]
    return bool(doubts) and doubts[0] < verbs[0]


def _asks(tokens: Sequence[PlanToken]) -> bool:
    """Whether it is a question ("could you ..." asks for the same as "please")."""
    said = [token.text for token in tokens if token.roles or token.text == "?"]
    return bool(said) and said[-1] == "?" and said[0].partition(" ")[0] in ASKING and not said[0].endswith("you")


def _is_clear(text: str, arguments: tuple[Argument, ...], names: Names) -> bool:
    """Whether these are the quotations, and no part of a text: three or more, a label among them, known words between.

    "Replace 'A' with 'B' in 'L'" is not the text "A' with 'B", whether or not it is understood.
    """
    tokens = tokens_of(text, arguments) or []
    at = [place for place, token in enumerate(tokens) if token.argument is not None]
    between = [token for token in tokens[at[0] : at[-1]] if token.argument is None] if at else []
    whole = all(
        not any(sign in QUOTES and sign != "'" for sign in one.text) and " '" not in one.text for one in arguments
    )
    known = all(token.roles or token.is_sign for token in between)
    return len(arguments) > 2 and whole and known and any(names.has(one.text) for one in arguments)


def _quotes_label(text: str, names: Names) -> bool:
    """Whether a label of the form stands in quotation marks within a text."""
    return any(
        text[: one.start][-1:] in QUOTES and is_quoted(text[one.start - 1 : one.end + 1])
        for one in mentions(text, names)
    )


def _with_mentions(text: str, arguments: tuple[Argument, ...], names: Names) -> Iterator[tuple[Argument, ...]]:
    """The arguments and one label of the form that stands outside of quotation marks."""
    if not _is_list_of(tokens_of(text, arguments) or (), arguments):
        return
    for mention in mentions(text, names):
        if any(loose(mention.text) == loose(one.text) for one in arguments):
            continue  # "type your full name into 'Full name'"
        if all(mention.end <= one.start or mention.start >= one.end for one in arguments):
            yield tuple(sorted((*arguments, mention), key=lambda one: one.start))


def _read(step: SentenceParts, arguments: tuple[Argument, ...], depth: int) -> list[StepSentence] | None:
    step.work.look(len(step.text))
    tokens = tokens_of(step.text, arguments)
    if tokens is None:
        return None
    verbs = verbs_of(tokens)
    if not verbs:
        return _by_means(step, tokens, arguments)
    if (purpose := _purpose(tokens, verbs[0])) is not None and len(arguments) > 0:
        return _read(replace(step, text=step.text[:purpose].rstrip()), arguments, depth)
    busy = [at for at in verbs if tokens[at].role("verb") != "idle"]
    refused = [at for at, token in enumerate(tokens) if "refusal" in token.roles]
    if not busy or (refused and refused[0] < busy[0]):
        return []
    if len(busy) > 1 and not _is_one(tokens, busy):
        if _says_no_more(step, tokens, busy) and (found := _one(step, tokens, arguments, busy[:1], "verb")) is not None:
            return [found]
        return _split(step, tokens[busy[1]].start, "", depth)
    found = _one(step, tokens, arguments, busy, "verb")
    if found is not None and _has_all(found):
        return [found]
    if len(busy) > 1:
        return _split(step, tokens[busy[1]].start, "", depth)
    other = _by_means(step, tokens, arguments) or _gapped(step, tokens, busy[0], depth)
    return [found] if found is not None and other is None else other


def _by_means(
    step: SentenceParts, tokens: Sequence[PlanToken], arguments: tuple[Argument, ...]
) -> list[StepSentence] | None:
    """The sentence of what is to be done by something that the table has: "give consent by ticking L"."""
    at = next((at for at, token in enumerate(tokens) if "means" in token.roles), 0)
    if at == 0 or tokens[0].argument is not None or tokens[0].roles.keys() & {"article", "noun", "link"}:
        return None
    if any(token.text in BE for token in tokens[:at]):
        return None  # "all is sent by clicking L" tells, and asks for nothing
    found = _one(step, tokens, arguments, [at], "means")
    return None if found is None else [found]


def _says_no_more(step: SentenceParts, tokens: Sequence[PlanToken], busy: Sequence[int]) -> bool:
    """Whether what looks like a second clause may be text: "type I switch on Mondays. Check the lamp into L"."""
    names_nothing = all(token.argument is None for token in tokens[busy[1] :]) and step.names.mention is not None
    goes = {"click", "press", "send", *(["navigate"] if "://" in step.text else [])}
    return names_nothing and not goes & {tokens[at].role("verb") for at in busy[1:]}


def _gapped(step: SentenceParts, tokens: Sequence[PlanToken], verb: int, depth: int) -> list[StepSentence] | None:
    """Two clauses that share the verb: "type V into L and W into M"."""
    places = [at for at, token in enumerate(tokens) if token.argument is not None]
    if len(places) != 4 or places[0] < verb or not _is_list(tokens[places[1] + 1 : places[2]]):
        return None
    said = step.text[tokens[verb].start : tokens[verb].end]
    return _split(step, tokens[places[2]].start, said + " ", depth)


def _is_one(tokens: Sequence[PlanToken], busy: Sequence[int]) -> bool:
    """Whether all verbs but the last only find the control for it: "click on L, clear it and type V"."""
    kinds = [tokens[at].role("verb") for at in busy]
    if kinds == ["seek", "click"] or kinds == ["seek", "press"]:
        return True
    between = sum(token.argument is not None for token in tokens[busy[0] : busy[-1]])
    return LEADS.issuperset(kinds[:-1]) and kinds[-1] in _FILLS and (len(busy) == 2 or between < 2)


def _purpose(tokens: Sequence[PlanToken], verb: int) -> int | None:
    """Where a clause begins that only says what the step is for; nothing is entered in it."""
    for at in range(verb + 1, len(tokens) - 1):
        is_for = tokens[at].text in {"to", "para", "in order to", "so as to"}
        rest = tokens[at + 1 :]
        is_verb = rest[0].role("verb") in _PURPOSES and not may_be_name(tokens, at + 1)
        if is_for and is_verb and not any(token.argument for token in rest):
            return tokens[at].start
    return None


def _split(step: SentenceParts, at: int, verb: str, depth: int) -> list[StepSentence] | None:
    """Both halves of a line that says two things: each has to be understood by itself."""
    if depth == 0:
        return None
    first = _sentences(step.text[:at], step.names, depth - 1, step.work)
    second = _sentences(verb + step.text[at:], step.names, depth - 1, step.work)
    return None if first is None or second is None else first + second


def _one(
    step: SentenceParts, tokens: Sequence[PlanToken], arguments: tuple[Argument, ...], verbs: Sequence[int], role: str
) -> StepSentence | None:
    """The sentence of the last of these verbs; the earlier ones only find the control."""
    kind = tokens[verbs[-1]].role(role)
    begins = [tokens[at].start for at in verbs]
    best: StepSentence | None = None
    for chosen in completed(step, tokens, arguments, verbs, kind):
        step.work.look(len(step.text))
        again = tokens_of(step.text, chosen) if len(chosen) > len(arguments) else tokens
        assert again is not None
        places = [at for at, token in enumerate(again) if token.start in begins]
        found = _assigned(step, again, places, kind)
        if found is not None and (best is None or _merit(found) > _merit(best)):
            best = found
    return best


def _merit(said: StepSentence) -> tuple[bool, float, int]:
    """What of two readings is better: one that has what its verb needs, then the likelier, then the shorter label."""
    return _has_all(said), said.rank, -len(said.label)


def _has_all(said: StepSentence) -> bool:
    return bool(said.values) or said.verb not in _FILLS - _ALONE


# -- which argument is which -------------------------------------------------------------------------------------


def _assigned(step: SentenceParts, tokens: Sequence[PlanToken], verbs: Sequence[int], kind: str) -> StepSentence | None:
    names, verb, first = step.names, verbs[-1], verbs[0]
    places = [at for at, token in enumerate(tokens) if token.argument is not None]
    arguments = [argument for at in places if (argument := tokens[at].argument) is not None]
    if kind in {"ensure", "keep"} and (len(arguments) < 2 or kind == "keep"):
        return _state(tokens, arguments)
    said = {token.text for token in tokens}
    if kind == "ensure":
        kind = "select" if said & (YES | NO) else "set"
    if kind == "vary":
        if not any(token.role("link") == "either" for token in tokens):
            return None
        kind = "set"
    if any({"refusal", "doubt"} & token.roles.keys() for token in tokens):
        return None
    unknown = sum(1 for token in tokens if not token.roles and token.text.isalpha())
    if unknown > _MOST_UNKNOWN:
        return None
    contexts = contexts_of(tokens, places, verb, first)
    nouns = frozenset(noun for context in contexts for noun in context.nouns)
    nouns |= {name for token in tokens[verb + 1 :] if not places and (name := token.role("noun"))}
    if kind in {"check", "uncheck"} and "due" in tokens[verb].roles:
        nouns |= {"state"}  # "the button should be enabled" asks for no click
    penalty = unknown / 4
    if len(arguments) < 2:
        if not arguments:
            return StepSentence(kind, "", (), nouns, rank=-_MOST_UNKNOWN - penalty)
        name, is_quoted = arguments[0].text, arguments[0] in step.quoted
        known = _NAMED if names.knows(name) else 0.0
        return StepSentence(kind, name, (), nouns, is_quoted, known - penalty - (not is_quoted) / 8)
    groups = [[0]]
    for index in range(1, len(arguments)):
        if _is_list(tokens[places[index - 1] + 1 : places[index]]):
            groups[-1].append(index)
        else:
            groups.append([index])
    if len(groups) == 1 and kind in _ALONE and all(names.knows(one.text) for one in arguments):
        return StepSentence(kind, "", tuple(one.text for one in arguments), nouns, rank=_NAMED - penalty)
    if len(groups) != 2 or (len(arguments) > 2 and kind not in _SEVERAL):
        return None
    found: list[StepSentence] = []
    for label, others in (groups, groups[::-1]):
        if len(label) > 1:
            continue
        name = arguments[label[0]].text
        given = [arguments[other] for other in others]
        values = tuple(one.text if one in step.quoted else alone(one.text, names.kind(name)) for one in given)
        says, strength = evidence(contexts[label[0]], contexts[others[0]], kind)
        if names.kind(name):
            strength, says = strength + _NAMED, True
        says_option = all(names.items_of(name, value) for value in values)
        if says_option:
            strength, says = strength + _OFFERED, True
        elif names.offers.get(loose(name)):
            strength -= _NAMED  # what is no option may be a list of them, or more than one clause
        is_quoted_label = arguments[label[0]] in step.quoted
        if not names.kind(name) and not is_quoted_label and any(map(names.kind, values)):
            continue  # "give consent by L": words are no label where a label of the form stands beside them
        if names.kind(name) == "checkbox" and kind != "press" and any(_is_stray(arguments[at], step) for at in others):
            continue
        if kind == "click" and not says_option and any(arguments[other] not in step.quoted for other in others):
            continue
        if says:
            found.append(StepSentence(kind, name, values, nouns, is_quoted_label, strength - penalty))
    found.sort(key=lambda one: -one.rank)
    if not found or found[0].rank + penalty <= 0 or (len(found) == 2 and found[0].rank == found[1].rank):
        return None
    return found[0]


def _is_stray(value: Argument, step: SentenceParts) -> bool:
    """Whether words beside the label of a single box say nothing of it: "check L because it is required"."""
    return value not in step.quoted and value.text.casefold() not in YES | NO


def _state(tokens: Sequence[PlanToken], arguments: Sequence[Argument]) -> StepSentence:
    """A box that is to be ticked in the end, or not to be: "make sure that L is checked"."""
    said = {token.text for token in tokens}
    if len(arguments) != 1 or not said & (YES | NO) or any("doubt" in token.roles for token in tokens):
        return StepSentence("idle", "", rank=-_MOST_UNKNOWN)
    is_refused = any("refusal" in token.roles for token in tokens)
    return StepSentence("uncheck" if bool(said & NO) != is_refused else "check", arguments[0].text)


def _is_list_of(tokens: Sequence[PlanToken], arguments: Sequence[Argument]) -> bool:
    """Whether there is one argument, or none, or all are items of one list."""
    places = [at for at, token in enumerate(tokens) if token.argument is not None]
    return len(arguments) < 2 or all(_is_list(tokens[at + 1 : after]) for at, after in pairwise(places))


def _is_list(between: Sequence[PlanToken]) -> bool:
    return bool(between) and all(token.text in {",", ";", "/"} or "join" in token.roles for token in between)
