"""One step as a sentence: its verb, its arguments, and which of two arguments is the control.

Three things say which argument names the control: the words around it ("into the 'L' field", "the option 'V'"), the
verb ("type V", but "set L"), and, where the form is known, its labels. They are added up; where they say nothing, or
as much for the one as for the other, nothing is read. A sentence is never completed by what it does not say.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from plumbline.tasks.forms.plans.labels import Names
from plumbline.tasks.forms.plans.quotations import Argument, quotations
from plumbline.tasks.forms.plans.vocabulary import NO, YES, Word, words_of

VALUE_FIRST = frozenset({"type", "append", "use", "select", "check", "uncheck", "attach", "send"})
"""Verbs whose object is what is entered: "type V into L"."""
_FILLS = frozenset({"type", "append", "use", "set", "select", "check", "uncheck", "attach"})
_LEADS = frozenset({"seek", "click", "navigate", "use", "select", "press"})
"""Verbs that may only find the control for the verb that follows: "click on L and type V"."""
_PURPOSES = frozenset({"send", "idle", "click", "seek", "navigate", "press", "done"})
"""Verbs that say what a step is for where they follow "to": "click on L to send the form"."""
_SEVERAL = frozenset({"select", "check", "uncheck", "attach"})
"""Verbs with more than one value in a sentence: "check A and B"."""
_CONTROL = frozenset({"field", "choice", "boxes", "upload"})
_GIVEN = frozenset({"option", "value", "file"})
_EDGE = frozenset({"field", "choice", "boxes", "checkbox", "upload", "option", "button", "link", "form", "key"})
"""Nouns that belong to the sentence and not to an argument without quotation marks."""
_MOST_UNKNOWN = 8
_MOST_LINKS = 24
_LABELLED, _LINKED, _OBJECT, _NAMED, _OFFERED = 2.0, 2.0, 1.0, 5.0, 3.0
"""What a noun, a link, the verb's object, a label of the form and an option of the control count."""


@dataclass(frozen=True, slots=True)
class Sentence:
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


@dataclass(frozen=True, slots=True)
class _Token:
    """A word of the text, or an argument."""

    start: int
    end: int
    word: Word | None
    argument: Argument | None = None

    @property
    def roles(self) -> Mapping[str, str]:
        """What the word may be."""
        return {} if self.word is None else self.word.roles

    def role(self, role: str) -> str | None:
        """Which verb, noun or link it is; None where it is none."""
        return self.roles.get(role)


@dataclass(frozen=True, slots=True)
class _Context:
    """What the words around an argument say of it."""

    link: str = ""
    before: str = ""
    after: str = ""
    is_topic: bool = False
    """It stands before the verb: "in L, type V"."""
    is_object: bool = False

    @property
    def nouns(self) -> frozenset[str]:
        """What it is called."""
        return frozenset({self.before, self.after} - {""})


def sentences(text: str, names: Names) -> list[Sentence] | None:
    """Take a step apart.

    Args:
        text: without its marker; at most some thousands of characters.
        names: of the form's controls.

    Returns:
        Its sentences, [] where it says that nothing is to be done ("leave L empty"), None where it is not understood.
    """
    return _sentences(text, names, 3)


def _sentences(text: str, names: Names, depth: int) -> list[Sentence] | None:
    best: list[Sentence] | None = None
    rank = 0.0
    for number, arguments in enumerate(quotations(text)):
        if number == 0 and _is_open(text, arguments):
            return None
        if number > 0 and len(arguments) == 1 and not names.has(arguments[0].text):
            continue  # two quotations that leave open which is which are not one long label instead
        for chosen in (*_with_mentions(text, arguments, names), arguments):
            found = _read(text, chosen, names, depth, quoted=arguments)
            if found is not None:
                worth = min((one.rank for one in found), default=0.0)
                if best is None or worth > rank:
                    best, rank = found, worth
    return best


def _is_open(text: str, arguments: tuple[Argument, ...]) -> bool:
    """Whether a step leaves open what is to be done: "if needed, ...", "type A or B", "type A into L, not into M"."""
    tokens = _tokens(text, arguments) or []
    verbs = _verbs(tokens)
    doubts = [at for at, token in enumerate(tokens) if token.role("doubt") is not None]
    refusals = [at for at, token in enumerate(tokens) if token.role("refusal") is not None]
    if not verbs or not (doubts or refusals):
        return False
    if len(arguments) > 1:
        return bool(doubts) or refusals[0] > verbs[0]
    return bool(doubts) and doubts[0] < verbs[0]


def _with_mentions(text: str, arguments: tuple[Argument, ...], names: Names) -> Iterator[tuple[Argument, ...]]:
    """The arguments and one label of the form that stands outside of quotation marks."""
    if len(arguments) > 1 or names.mention is None:
        return
    for count, found in enumerate(names.mention.finditer(text[:2000])):
        if count == 6:
            return
        if all(found.end() <= one.start or found.start() >= one.end for one in arguments):
            mention = Argument(found.group(), found.start(), found.end())
            yield tuple(sorted((*arguments, mention), key=lambda one: one.start))


def _read(
    text: str, arguments: tuple[Argument, ...], names: Names, depth: int, *, quoted: tuple[Argument, ...]
) -> list[Sentence] | None:
    tokens = _tokens(text, arguments)
    if tokens is None:
        return None
    verbs = _verbs(tokens)
    if not verbs:
        return None
    if (purpose := _purpose(tokens, verbs[0])) is not None and len(arguments) > 0:
        return _read(text[:purpose].rstrip(), arguments, names, depth, quoted=quoted)
    busy = [at for at in verbs if tokens[at].role("verb") != "idle"]
    refused = [at for at, token in enumerate(tokens) if token.role("refusal") is not None]
    if not busy or (refused and refused[0] < busy[0]):
        return []
    if len(busy) > 1:
        kinds = [tokens[at].role("verb") for at in busy[:2]]
        leads = (kinds[0] in _LEADS and kinds[1] in _FILLS) or (kinds[0] == "seek" and kinds[1] in {"click", "press"})
        merges = leads and len(busy) == 2 and len(arguments) < 3
        if merges and (found := _one(text, tokens, arguments, busy[1], names, quoted, first=busy[0])) is not None:
            return [found]
        return _split(text, tokens[busy[1]].start, names, depth)
    found = _one(text, tokens, arguments, busy[0], names, quoted, first=busy[0])
    return None if found is None else [found]


def _purpose(tokens: Sequence[_Token], verb: int) -> int | None:
    """Where a clause begins that only says what the step is for; nothing is entered in it."""
    for at in range(verb + 1, len(tokens) - 1):
        word = tokens[at].word
        is_for = word is not None and word.text in {"to", "para", "in order to", "so as to"}
        rest = tokens[at + 1 :]
        if is_for and rest[0].role("verb") in _PURPOSES and not any(token.argument for token in rest):
            return tokens[at].start
    return None


def _split(text: str, at: int, names: Names, depth: int) -> list[Sentence] | None:
    """Both halves of a line that says two things: each has to be understood by itself."""
    if depth == 0:
        return None
    first, second = _sentences(text[:at], names, depth - 1), _sentences(text[at:], names, depth - 1)
    return None if first is None or second is None else first + second


def _tokens(text: str, arguments: Sequence[Argument]) -> list[_Token] | None:
    tokens: list[_Token] = []
    at = 0
    for one in (*arguments, None):
        end = len(text) if one is None else one.start
        words = words_of(text[at:end])
        if words is None:
            return None
        tokens += [_Token(at + word.start, at + word.end, word) for word in words]
        if one is not None:
            tokens.append(_Token(one.start, one.end, None, one))
            at = one.end
    return tokens


def _verbs(tokens: Sequence[_Token]) -> list[int]:
    """The verbs: at the beginning of a clause, because elsewhere "input", "check" and "select" are nouns."""
    found: list[int] = []
    begins = True
    for at, token in enumerate(tokens):
        word = token.word
        if word is None:
            begins = not found  # "in the field L type V"
        elif begins and "verb" in word.roles:
            found.append(at)
            begins = False
        elif word.is_sign or "join" in word.roles:
            begins = True
        elif word.text in {"to", "para"} and found and tokens[found[-1]].role("verb") in _LEADS:
            begins = True  # "use the field to enter ..."
        elif not {"adverb", "refusal"} & word.roles.keys() and not (begins and "noun" in word.roles):
            begins = False
    return found


def _one(
    text: str,
    tokens: list[_Token],
    arguments: tuple[Argument, ...],
    verb: int,
    names: Names,
    quoted: tuple[Argument, ...],
    *,
    first: int,
) -> Sentence | None:
    """The sentence of one verb; `first` is an earlier verb that only finds the control."""
    kind = tokens[verb].role("verb") or ""
    best: Sentence | None = None
    for chosen in _completed(text, tokens, arguments, verb, first, kind, names):
        again = _tokens(text, chosen) if len(chosen) > len(arguments) else tokens
        assert again is not None
        place = next(at for at, token in enumerate(again) if token.start == tokens[verb].start)
        found = _assigned(again, place, first, kind, names, quoted)
        if found is not None and (best is None or (found.rank, -len(found.label)) > (best.rank, -len(best.label))):
            best = found
    return best


# -- arguments without quotation marks ---------------------------------------------------------------------------


def _completed(
    text: str, tokens: list[_Token], arguments: tuple[Argument, ...], verb: int, first: int, kind: str, names: Names
) -> Iterator[tuple[Argument, ...]]:
    """The arguments, and those that stand without quotation marks."""
    yield arguments
    if len(arguments) > 1 or (kind == "click" and arguments):
        return
    runs = [run for run in _runs(tokens, {verb, first}) if run]
    object_is_label = kind not in VALUE_FIRST
    cores = []
    for start, stop in runs:
        is_object = start > verb and tokens[start - 1].argument is None
        linked = next((token.role("link") for token in tokens[start:stop] if token.role("link") is not None), None)
        is_label = not is_object or object_is_label or (linked == "label" and not arguments)
        core = _core(
            text, tokens[start:stop], names, is_label=is_label, keeps_nouns=is_object and kind in {"type", "append"}
        )
        if core is not None:
            cores.append(core)
    if len(arguments) + len(cores) <= 2 and cores:
        yield tuple(sorted((*arguments, *cores), key=lambda one: one.start))
    if arguments:
        return
    for start, stop in runs:
        if start <= verb:
            continue
        inner = range(start + 1, stop - 1)
        links = [at for at in inner if tokens[at].role("link") is not None or _is_colon(tokens[at])]
        for at in links[-_MOST_LINKS:]:
            left = _core(
                text,
                tokens[start:at],
                names,
                is_label=object_is_label,
                keeps_nouns=kind in {"type", "append"},
            )
            right = _core(text, tokens[at + 1 : stop], names, is_label=not object_is_label, keeps_nouns=object_is_label)
            if left is None or right is None or (_is_colon(tokens[at]) and not names.kind(left.text)):
                continue  # "Change date: May 4" is a line of a list and no step
            yield left, right


def _runs(tokens: Sequence[_Token], verbs: set[int]) -> list[tuple[int, int]]:
    """Stretches of words between verbs and arguments."""
    edges = [-1, *(at for at, token in enumerate(tokens) if token.argument is not None or at in verbs), len(tokens)]
    return [(start + 1, stop) for start, stop in pairwise(edges) if stop > start + 1]


def _core(text: str, tokens: Sequence[_Token], names: Names, *, is_label: bool, keeps_nouns: bool) -> Argument | None:
    """What is left of a stretch without articles, links and nouns around it; None where nothing is."""
    start, stop = 0, len(tokens)
    articled = False
    while start < stop and not names.kind(text[tokens[start].start : tokens[stop - 1].end]):
        roles = tokens[start].roles
        noun = roles.get("noun")
        strips = noun in _EDGE | {"file"} and (articled or is_label or not keeps_nouns)
        strips = strips or (noun == "value" and articled and not is_label)
        if roles.keys() & {"article", "called", "adverb", "join", "link"} or _is_sign(tokens[start]):
            articled = articled or "article" in roles
            start += 1
        elif strips and start + 1 < stop:
            start += 1
        else:
            break
    while stop > start and not names.kind(text[tokens[start].start : tokens[stop - 1].end]):
        roles = tokens[stop - 1].roles
        strips = roles.get("noun") in _EDGE and not keeps_nouns and stop > start + 1
        if _is_sign(tokens[stop - 1]) or strips or roles.keys() & {"article", "link", "join", "called", "adverb"}:
            stop -= 1
        else:
            break
    if start == stop or (not keeps_nouns and all(token.role("noun") in _EDGE for token in tokens[start:stop])):
        return None
    first, last = tokens[start].start, tokens[stop - 1].end
    return Argument(text[first:last], first, last)


def _is_sign(token: _Token) -> bool:
    return token.word is not None and token.word.is_sign


def _is_colon(token: _Token) -> bool:
    return token.word is not None and token.word.text == ":"


# -- which argument is which -------------------------------------------------------------------------------------


def _assigned(
    tokens: Sequence[_Token], verb: int, first: int, kind: str, names: Names, quoted: tuple[Argument, ...]
) -> Sentence | None:
    places = [at for at, token in enumerate(tokens) if token.argument is not None]
    if any({"refusal", "doubt"} & token.roles.keys() for token in tokens):
        return None
    unknown = sum(
        1 for at, token in enumerate(tokens) if token.word and not token.word.roles and token.word.text.isalpha()
    )
    if unknown > _MOST_UNKNOWN:
        return None
    contexts = _contexts(tokens, places, verb, first)
    arguments = [argument for at in places if (argument := tokens[at].argument) is not None]
    nouns = frozenset(noun for context in contexts for noun in context.nouns)
    nouns |= {name for token in tokens[verb + 1 :] if not places and (name := token.role("noun")) is not None}
    penalty = unknown / 4
    if kind == "ensure":
        return _state(tokens, arguments, nouns)
    if len(arguments) < 2:
        if not arguments:
            return Sentence(kind, "", (), nouns, rank=-_MOST_UNKNOWN - penalty)
        name, is_quoted = arguments[0].text, arguments[0] in quoted
        known = _NAMED if names.has(name) else 0.0
        return Sentence(kind, name, (), nouns, is_quoted, known - penalty - (not is_quoted) / 8)
    groups = [[0]]
    for index in range(1, len(arguments)):
        if _is_list(tokens[places[index - 1] + 1 : places[index]]):
            groups[-1].append(index)
        else:
            groups.append([index])
    if len(groups) != 2 or (len(arguments) > 2 and kind not in _SEVERAL):
        return None
    found: list[Sentence] = []
    for label, others in (groups, groups[::-1]):
        if len(label) > 1:
            continue
        name, values = arguments[label[0]].text, tuple(arguments[other].text for other in others)
        says, strength = _evidence(contexts[label[0]], contexts[others[0]], kind)
        if names.kind(name):
            strength, says = strength + _NAMED, True
        if all(names.has_option(name, value) for value in values):
            strength, says = strength + _OFFERED, True
        if says:
            found.append(Sentence(kind, name, values, nouns, arguments[label[0]] in quoted, strength - penalty))
    found.sort(key=lambda one: -one.rank)
    if not found or found[0].rank + penalty <= 0 or (len(found) == 2 and found[0].rank == found[1].rank):
        return None
    return found[0]


def _state(tokens: Sequence[_Token], arguments: Sequence[Argument], nouns: frozenset[str]) -> Sentence | None:
    """A box that is to be ticked in the end, or not to be: "make sure that L is checked"."""
    said = {token.word.text for token in tokens if token.word is not None}
    if len(arguments) != 1 or not said & (YES | NO):
        return Sentence("idle", "", rank=-_MOST_UNKNOWN)
    return Sentence("uncheck" if said & NO else "check", arguments[0].text, (), nouns)


def _is_list(between: Sequence[_Token]) -> bool:
    return bool(between) and all(
        token.word is not None and (token.word.text in {",", ";", "/"} or "join" in token.word.roles)
        for token in between
    )


def _contexts(tokens: Sequence[_Token], places: Sequence[int], verb: int, first: int) -> list[_Context]:
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
        found.append(_Context(link, _noun_before(before), _noun_after(tail), topic, is_object))
    return found


def _own_tail(between: Sequence[_Token]) -> int:
    """How many words between two arguments belong to the first: up to a link or a sign, else its nouns."""
    last = 0
    for at, token in enumerate(between):
        if token.role("link") is not None or token.role("join") is not None or (_is_sign(token)):
            return at
        if token.role("noun") in _CONTROL | {"checkbox", "button"}:
            last = at + 1
    return last


def _link(before: Sequence[_Token], *, counts_either: bool, counts_colon: bool) -> str:
    for token in before:
        link = token.role("link")
        if counts_colon and _is_colon(token):
            return "value"
        if link in {"label", "value"} or (link == "either" and counts_either):
            return link
    return ""


def _noun_before(before: Sequence[_Token]) -> str:
    for token in reversed(before):
        if (noun := token.role("noun")) is not None:
            return noun
        if token.role("link") is not None or not (
            _is_sign(token) or {"called", "article", "adverb"} & token.roles.keys()
        ):
            return ""
    return ""


def _noun_after(after: Sequence[_Token]) -> str:
    for token in after:
        if (noun := token.role("noun")) is not None:
            return "" if noun in {"value", "file"} else noun
        if token.role("article") is None and not (_is_sign(token) and token.word and token.word.text in "(*"):
            return ""
    return ""


def _evidence(label: _Context, value: _Context, kind: str) -> tuple[bool, float]:
    """Whether anything but the verb says that the first is the control, and how much speaks for it."""
    value_first = kind in VALUE_FIRST
    first, second = _leaning(label, value_first), _leaning(value, value_first)
    says = bool(label.link or value.link or label.nouns or value.nouns or label.is_topic)
    return says, first - second


def _leaning(context: _Context, value_first: bool) -> float:
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
