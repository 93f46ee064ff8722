"""One step as a sentence: its verb, its arguments, and which of two arguments is the control.

Three things say which argument names the control: the words around it ("into the 'L' field", "the option 'V'"), the
verb ("type V", but "set L"), and, where the form is known, its labels. They are added up; where they say nothing, or
as much for the one as for the other, nothing is read. A sentence is never completed by what it does not say.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from plumbline.tasks.forms.plans.context import VALUE_FIRST, contexts_of, evidence
from plumbline.tasks.forms.plans.labels import Names
from plumbline.tasks.forms.plans.quotations import Argument, quotations
from plumbline.tasks.forms.plans.tokens import LEADS, Token, is_colon, is_sign, tokens_of, verbs_of
from plumbline.tasks.forms.plans.vocabulary import NO, YES

_FILLS = frozenset({"type", "append", "use", "set", "select", "check", "uncheck", "attach"})
_PURPOSES = frozenset({"send", "idle", "click", "seek", "navigate", "press", "done"})
"""Verbs that say what a step is for where they follow "to": "click on L to send the form"."""
_SEVERAL = frozenset({"select", "check", "uncheck", "attach"})
"""Verbs with more than one value in a sentence: "check A and B"."""
_EDGE = frozenset({"field", "choice", "boxes", "checkbox", "upload", "option", "button", "link", "form", "key"})
"""Nouns that belong to the sentence and not to an argument without quotation marks."""
_MOST_UNKNOWN = 8
_MOST_LINKS = 24
_NAMED, _OFFERED = 5.0, 3.0
"""What a label of the form and an option of the control count, beside the words (`context.py`)."""


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
    tokens = tokens_of(text, arguments) or []
    verbs = verbs_of(tokens)
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
    tokens = tokens_of(text, arguments)
    if tokens is None:
        return None
    verbs = verbs_of(tokens)
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
        leads = (kinds[0] in LEADS and kinds[1] in _FILLS) or (kinds[0] == "seek" and kinds[1] in {"click", "press"})
        merges = leads and len(busy) == 2 and len(arguments) < 3
        if merges and (found := _one(text, tokens, arguments, busy[1], names, quoted, first=busy[0])) is not None:
            return [found]
        return _split(text, tokens[busy[1]].start, names, depth)
    found = _one(text, tokens, arguments, busy[0], names, quoted, first=busy[0])
    return None if found is None else [found]


def _purpose(tokens: Sequence[Token], verb: int) -> int | None:
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


def _one(
    text: str,
    tokens: list[Token],
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
        again = tokens_of(text, chosen) if len(chosen) > len(arguments) else tokens
        assert again is not None
        place = next(at for at, token in enumerate(again) if token.start == tokens[verb].start)
        found = _assigned(again, place, first, kind, names, quoted)
        if found is not None and (best is None or (found.rank, -len(found.label)) > (best.rank, -len(best.label))):
            best = found
    return best


# -- arguments without quotation marks ---------------------------------------------------------------------------


def _completed(
    text: str, tokens: list[Token], arguments: tuple[Argument, ...], verb: int, first: int, kind: str, names: Names
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
        links = [at for at in inner if tokens[at].role("link") is not None or is_colon(tokens[at])]
        for at in links[-_MOST_LINKS:]:
            left = _core(
                text,
                tokens[start:at],
                names,
                is_label=object_is_label,
                keeps_nouns=kind in {"type", "append"},
            )
            right = _core(text, tokens[at + 1 : stop], names, is_label=not object_is_label, keeps_nouns=object_is_label)
            if left is None or right is None or (is_colon(tokens[at]) and not names.kind(left.text)):
                continue  # "Change date: May 4" is a line of a list and no step
            yield left, right


def _runs(tokens: Sequence[Token], verbs: set[int]) -> list[tuple[int, int]]:
    """Stretches of words between verbs and arguments."""
    edges = [-1, *(at for at, token in enumerate(tokens) if token.argument is not None or at in verbs), len(tokens)]
    return [(start + 1, stop) for start, stop in pairwise(edges) if stop > start + 1]


def _core(text: str, tokens: Sequence[Token], names: Names, *, is_label: bool, keeps_nouns: bool) -> Argument | None:
    """What is left of a stretch without articles, links and nouns around it; None where nothing is."""
    start, stop = 0, len(tokens)
    articled = False
    while start < stop and not names.kind(text[tokens[start].start : tokens[stop - 1].end]):
        roles = tokens[start].roles
        noun = roles.get("noun")
        strips = noun in _EDGE | {"file"} and (articled or is_label or not keeps_nouns)
        strips = strips or (noun == "value" and articled and not is_label)
        if roles.keys() & {"article", "called", "adverb", "join", "link"} or is_sign(tokens[start]):
            articled = articled or "article" in roles
            start += 1
        elif strips and start + 1 < stop:
            start += 1
        else:
            break
    while stop > start and not names.kind(text[tokens[start].start : tokens[stop - 1].end]):
        roles = tokens[stop - 1].roles
        strips = roles.get("noun") in _EDGE and not keeps_nouns and stop > start + 1
        if is_sign(tokens[stop - 1]) or strips or roles.keys() & {"article", "link", "join", "called", "adverb"}:
            stop -= 1
        else:
            break
    if start == stop or (not keeps_nouns and all(token.role("noun") in _EDGE for token in tokens[start:stop])):
        return None
    first, last = tokens[start].start, tokens[stop - 1].end
    return Argument(text[first:last], first, last)


# -- which argument is which -------------------------------------------------------------------------------------


def _assigned(
    tokens: Sequence[Token], verb: int, first: int, kind: str, names: Names, quoted: tuple[Argument, ...]
) -> Sentence | None:
    places = [at for at, token in enumerate(tokens) if token.argument is not None]
    if any({"refusal", "doubt"} & token.roles.keys() for token in tokens):
        return None
    unknown = sum(
        1 for at, token in enumerate(tokens) if token.word and not token.word.roles and token.word.text.isalpha()
    )
    if unknown > _MOST_UNKNOWN:
        return None
    contexts = contexts_of(tokens, places, verb, first)
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
        says, strength = evidence(contexts[label[0]], contexts[others[0]], kind)
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


def _state(tokens: Sequence[Token], arguments: Sequence[Argument], nouns: frozenset[str]) -> Sentence | None:
    """A box that is to be ticked in the end, or not to be: "make sure that L is checked"."""
    said = {token.word.text for token in tokens if token.word is not None}
    if len(arguments) != 1 or not said & (YES | NO):
        return Sentence("idle", "", rank=-_MOST_UNKNOWN)
    return Sentence("uncheck" if said & NO else "check", arguments[0].text, (), nouns)


def _is_list(between: Sequence[Token]) -> bool:
    return bool(between) and all(
        token.word is not None and (token.word.text in {",", ";", "/"} or "join" in token.word.roles)
        for token in between
    )
