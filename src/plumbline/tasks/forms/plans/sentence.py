"""One step as a sentence: its verb, its arguments, and which of two arguments is the control.

Three things say which argument names the control: the words around it ("into the 'L' field", "the option 'V'"), the
verb ("type V", but "set L"), and, where the form is known, its labels. They are added up; where they say nothing, or
as much for the one as for the other, nothing is read. A sentence is never completed by what it does not say.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice, pairwise

from plumbline.tasks.forms.plans.context import VALUE_FIRST, contexts_of, evidence
from plumbline.tasks.forms.plans.labels import Names, loose
from plumbline.tasks.forms.plans.quotations import QUOTES, Argument, is_quoted, quotations, without_file_buttons
from plumbline.tasks.forms.plans.tokens import LEADS, Token, is_colon, is_sign, may_be_name, tokens_of, verbs_of
from plumbline.tasks.forms.plans.vocabulary import ASKING, BE, NO, OWN, YES

_FILLS = frozenset({"type", "append", "use", "set", "vary", "select", "check", "uncheck", "attach"})
_PURPOSES = frozenset({"send", "idle", "click", "seek", "navigate", "press", "done"})
"""Verbs that say what a step is for where they follow "to": "click on L to send the form"."""
_SEVERAL = frozenset({"select", "check", "uncheck", "attach", "click", "set", "use", "append"})
"""Verbs with more than one value in a sentence: "check A and B"."""
_ALONE = frozenset({"select", "check", "uncheck", "click"})
"""Those that may leave out the group: "check A and B" where the form says whose options they are."""
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


@dataclass(frozen=True, slots=True)
class _Step:
    """What a sentence is read from."""

    text: str
    names: Names
    quoted: tuple[Argument, ...]
    """The arguments in quotation marks."""


def sentences(text: str, names: Names) -> list[Sentence] | None:
    """Take a step apart.

    Args:
        text: without its marker; at most some thousands of characters.
        names: of the form's controls.

    Returns:
        Its sentences, [] where it says that nothing is to be done ("leave L empty"), None where it is not understood.
    """
    return _sentences(without_file_buttons(text, names.has), names, 3)


def _sentences(text: str, names: Names, depth: int) -> list[Sentence] | None:
    best: list[Sentence] | None = None
    rank = 0.0
    for number, arguments in enumerate(quotations(text)):
        if number == 0 and _is_open(text, arguments):
            return None
        if number > 0 and len(arguments) == 1 and not names.has(arguments[0].text):
            continue  # two quotations that leave open which is which are not one long label instead
        if number > 0 and any(_quotes_label(one.text, names) for one in arguments):
            continue  # nor is a second clause a part of what is entered
        for chosen in (*_with_mentions(text, arguments, names), arguments):
            found = _read(_Step(text, names, arguments), chosen, depth)
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
    doubts = [at for at, token in enumerate(tokens) if token.role("doubt") is not None]
    refusals = [at for at, token in enumerate(tokens) if token.role("refusal") is not None]
    if not verbs or not (doubts or refusals):
        return False
    if len(arguments) > 1:
        return bool(doubts) or refusals[0] > verbs[0]
    return bool(doubts) and doubts[0] < verbs[0]


def _asks(tokens: Sequence[Token]) -> bool:
    """Whether it is a question ("could you ..." asks for the same as "please")."""
    said = [token.word.text for token in tokens if token.word is not None and (token.roles or token.word.text == "?")]
    return bool(said) and said[-1] == "?" and said[0].partition(" ")[0] in ASKING and not said[0].endswith("you")


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
        if all(mention.end <= one.start or mention.start >= one.end for one in arguments):
            yield tuple(sorted((*arguments, mention), key=lambda one: one.start))


def mentions(text: str, names: Names) -> tuple[Argument, ...]:
    """The labels of the form in a text, in quotation marks or not; at most the first six."""
    found = () if names.mention is None else islice(names.mention.finditer(text[:2000]), 6)
    return tuple(Argument(one.group(), one.start(), one.end()) for one in found)


def _read(step: _Step, arguments: tuple[Argument, ...], depth: int) -> list[Sentence] | None:
    tokens = tokens_of(step.text, arguments)
    if tokens is None:
        return None
    verbs = verbs_of(tokens)
    if not verbs:
        return _by_means(step, tokens, arguments)
    if (purpose := _purpose(tokens, verbs[0])) is not None and len(arguments) > 0:
        return _read(replace(step, text=step.text[:purpose].rstrip()), arguments, depth)
    busy = [at for at in verbs if tokens[at].role("verb") != "idle"]
    refused = [at for at, token in enumerate(tokens) if token.role("refusal") is not None]
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


def _by_means(step: _Step, tokens: Sequence[Token], arguments: tuple[Argument, ...]) -> list[Sentence] | None:
    """The sentence of what is to be done by something that the table has: "give consent by ticking L"."""
    at = next((at for at, token in enumerate(tokens) if token.role("means") is not None), 0)
    if at == 0 or tokens[0].argument is not None or tokens[0].roles.keys() & {"article", "noun", "link"}:
        return None
    if any(token.word is not None and token.word.text in BE for token in tokens[:at]):
        return None  # "all is sent by clicking L" tells, and asks for nothing
    found = _one(step, tokens, arguments, [at], "means")
    return None if found is None else [found]


def _says_no_more(step: _Step, tokens: Sequence[Token], busy: Sequence[int]) -> bool:
    """Whether what looks like a second clause may be text: "type I switch on Mondays. Check the lamp into L"."""
    names_nothing = all(token.argument is None for token in tokens[busy[1] :]) and step.names.mention is not None
    goes = {"click", "press", "send", *(["navigate"] if "://" in step.text else [])}
    return names_nothing and not goes & {tokens[at].role("verb") for at in busy[1:]}


def _gapped(step: _Step, tokens: Sequence[Token], verb: int, depth: int) -> list[Sentence] | None:
    """Two clauses that share the verb: "type V into L and W into M"."""
    places = [at for at, token in enumerate(tokens) if token.argument is not None]
    if len(places) != 4 or places[0] < verb or not _is_list(tokens[places[1] + 1 : places[2]]):
        return None
    said = step.text[tokens[verb].start : tokens[verb].end]
    return _split(step, tokens[places[2]].start, said + " ", depth)


def _is_one(tokens: Sequence[Token], busy: Sequence[int]) -> bool:
    """Whether all verbs but the last only find the control for it: "click on L, clear it and type V"."""
    kinds = [tokens[at].role("verb") or "" for at in busy]
    if kinds == ["seek", "click"] or kinds == ["seek", "press"]:
        return True
    between = sum(token.argument is not None for token in tokens[busy[0] : busy[-1]])
    return LEADS.issuperset(kinds[:-1]) and kinds[-1] in _FILLS and (len(busy) == 2 or between < 2)


def _purpose(tokens: Sequence[Token], verb: int) -> int | None:
    """Where a clause begins that only says what the step is for; nothing is entered in it."""
    for at in range(verb + 1, len(tokens) - 1):
        word = tokens[at].word
        is_for = word is not None and word.text in {"to", "para", "in order to", "so as to"}
        rest = tokens[at + 1 :]
        is_verb = rest[0].role("verb") in _PURPOSES and not may_be_name(tokens, at + 1)
        if is_for and is_verb and not any(token.argument for token in rest):
            return tokens[at].start
    return None


def _split(step: _Step, at: int, verb: str, depth: int) -> list[Sentence] | None:
    """Both halves of a line that says two things: each has to be understood by itself."""
    if depth == 0:
        return None
    first = _sentences(step.text[:at], step.names, depth - 1)
    second = _sentences(verb + step.text[at:], step.names, depth - 1)
    return None if first is None or second is None else first + second


def _one(
    step: _Step, tokens: Sequence[Token], arguments: tuple[Argument, ...], verbs: Sequence[int], role: str
) -> Sentence | None:
    """The sentence of the last of these verbs; the earlier ones only find the control."""
    kind = tokens[verbs[-1]].role(role) or ""
    begins = [tokens[at].start for at in verbs]
    best: Sentence | None = None
    for chosen in _completed(step, tokens, arguments, verbs, kind):
        again = tokens_of(step.text, chosen) if len(chosen) > len(arguments) else tokens
        assert again is not None
        places = [at for at, token in enumerate(again) if token.start in begins]
        found = _assigned(step, again, places, kind)
        if found is not None and (best is None or _merit(found) > _merit(best)):
            best = found
    return best


def _merit(said: Sentence) -> tuple[bool, float, int]:
    """What of two readings is better: one that has what its verb needs, then the likelier, then the shorter label."""
    return _has_all(said), said.rank, -len(said.label)


def _has_all(said: Sentence) -> bool:
    return bool(said.values) or said.verb not in _FILLS - _ALONE


# -- arguments without quotation marks ---------------------------------------------------------------------------


def _completed(
    step: _Step, tokens: Sequence[Token], arguments: tuple[Argument, ...], verbs: Sequence[int], kind: str
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
        linked = next((token.role("link") for token in tokens[start:stop] if token.role("link") is not None), None)
        is_label = not is_named and (not is_object or object_is_label or (linked == "label" and not arguments))
        end = _without_leading_words(tokens, start, stop) if is_object and arguments else stop
        core = _core(step, tokens[start:end], is_label=is_label, keeps_nouns=is_object and keeps_nouns)
        if core is not None and (is_object or start <= verb or _is_tied(step, tokens[start:stop], core)):
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
        links = [at for at in inner if tokens[at].role("link") is not None or is_colon(tokens[at])]
        for at in links[-_MOST_LINKS:]:
            if any(one.start < tokens[at].start < one.end for one in labels):
                continue
            left = _core(step, tokens[start:at], is_label=object_is_label, keeps_nouns=keeps_nouns)
            right = _core(step, tokens[at + 1 : stop], is_label=not object_is_label, keeps_nouns=object_is_label)
            if left is None or right is None or (is_colon(tokens[at]) and not step.names.kind(left.text)):
                continue  # "Change date: May 4" is a line of a list and no step
            yield left, right


def _is_tied(step: _Step, tokens: Sequence[Token], core: Argument) -> bool:
    """Whether something ties words to the argument before them: "set L to V", "L: V", but not "L because it is so"."""
    before = [token for token in tokens if token.start < core.start]
    tied = any(
        token.role("link") is not None or (is_sign(token) and token.word and token.word.text in ":-–—")
        for token in before
    )
    return tied or step.names.knows(core.text) or core.text.casefold() in YES | NO


def _without_leading_words(tokens: Sequence[Token], start: int, stop: int) -> int:
    """Where a stretch ends without the words that belong to what follows it: "V", of "V in the field called 'L'"."""
    at = stop
    while at > start + 1 and stop < len(tokens):
        roles = tokens[at - 1].roles
        if "link" in roles:
            stop = at - 1
        elif not roles.keys() & {"article", "noun", "called", "adverb"} and not is_sign(tokens[at - 1]):
            break
        at -= 1
    return stop


def _runs(tokens: Sequence[Token], verbs: Sequence[int]) -> list[tuple[int, int]]:
    """Stretches of words between verbs and arguments."""
    edges = [-1, *(at for at, token in enumerate(tokens) if token.argument is not None or at in verbs), len(tokens)]
    return [(start + 1, stop) for start, stop in pairwise(edges) if stop > start + 1]


def _core(step: _Step, tokens: Sequence[Token], *, is_label: bool, keeps_nouns: bool) -> Argument | None:
    """What is left of a stretch without articles, links and nouns around it; None where nothing is."""
    text, knows = step.text, step.names.knows
    start, stop = 0, len(tokens)
    articled = False
    while start < stop and not knows(text[tokens[start].start : tokens[stop - 1].end]):
        roles = tokens[start].roles
        noun = roles.get("noun")
        strips = noun in _EDGE | {"file"} and (articled or is_label or not keeps_nouns)
        strips = strips or (noun == "value" and articled and not is_label)
        is_name = not is_label and text[tokens[start].start].isupper() and "noun" not in roles
        if is_name or _sticks(text, tokens[start:stop], 0):
            break  # "type The Beatles"
        if roles.keys() & {"article", "called", "adverb", "join", "link"} or is_sign(tokens[start]):
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
        if is_sign(tokens[stop - 1]) or strips or roles.keys() & {"article", "link", "join", "called", "adverb"}:
            stop -= 1
        else:
            break
    if start == stop:
        return None
    first, last = tokens[start].start, tokens[stop - 1].end
    found = Argument(text[first:last].replace("\\n", "\n"), first, last)
    if knows(found.text):
        return found
    left = tokens[start:stop]
    before = tokens[start - 1].word if start else None
    describes = before is not None and before.text in OWN  # "type your full name": which one that is, is not said
    describes = describes or (articled and all("noun" in token.roles for token in left))
    is_noun = not keeps_nouns and all(token.role("noun") in _EDGE for token in left)
    return None if (describes and not is_label) or is_noun or {"doubt", "refusal"} & left[0].roles.keys() else found


def _sticks(text: str, tokens: Sequence[Token], at: int) -> bool:
    """Whether a sign belongs to what is entered: "+55 11", "$500", "5%", "(555) 366", the end of its last sentence."""
    token = tokens[at]
    if token.word is None or token.word.text[0].isalnum() or len(tokens) == 1:
        return False
    core = text[tokens[0].start : tokens[-1].end]
    if token.word.text in "()":
        return core.index(")") < len(core) - 1 if at == 0 and ")" in core else at == -1 and "(" in core[1:]
    if at == 0:
        return token.word.text in "+-−#@$€£" and tokens[1].start == token.end
    if token.word.text == "." and tokens[-2].end == token.start:
        ends = text[token.end :].strip() == ""
        return core[-2:] != ".." and (not ends or re.search(r"[.!?](?:\s|\\n)", core[:-1]) is not None)
    return token.word.text in "%€$£+!'\"" and tokens[-2].end == token.start


# -- which argument is which -------------------------------------------------------------------------------------


def _assigned(step: _Step, tokens: Sequence[Token], verbs: Sequence[int], kind: str) -> Sentence | None:
    names, verb, first = step.names, verbs[-1], verbs[0]
    places = [at for at, token in enumerate(tokens) if token.argument is not None]
    arguments = [argument for at in places if (argument := tokens[at].argument) is not None]
    if kind in {"ensure", "keep"} and (len(arguments) < 2 or kind == "keep"):
        return _state(tokens, arguments)
    said = {token.word.text for token in tokens if token.word is not None}
    if kind == "ensure":
        kind = "select" if said & (YES | NO) else "set"
    if kind == "vary":
        if not any(token.role("link") == "either" for token in tokens):
            return None
        kind = "set"
    if any({"refusal", "doubt"} & token.roles.keys() for token in tokens):
        return None
    unknown = sum(
        1 for at, token in enumerate(tokens) if token.word and not token.word.roles and token.word.text.isalpha()
    )
    if unknown > _MOST_UNKNOWN:
        return None
    contexts = contexts_of(tokens, places, verb, first)
    nouns = frozenset(noun for context in contexts for noun in context.nouns)
    nouns |= {name for token in tokens[verb + 1 :] if not places and (name := token.role("noun")) is not None}
    penalty = unknown / 4
    if len(arguments) < 2:
        if not arguments:
            return Sentence(kind, "", (), nouns, rank=-_MOST_UNKNOWN - penalty)
        name, is_quoted = arguments[0].text, arguments[0] in step.quoted
        known = _NAMED if names.knows(name) else 0.0
        return Sentence(kind, name, (), nouns, is_quoted, known - penalty - (not is_quoted) / 8)
    groups = [[0]]
    for index in range(1, len(arguments)):
        if _is_list(tokens[places[index - 1] + 1 : places[index]]):
            groups[-1].append(index)
        else:
            groups.append([index])
    if len(groups) == 1 and kind in _ALONE and all(names.knows(one.text) for one in arguments):
        return Sentence(kind, "", tuple(one.text for one in arguments), nouns, rank=_NAMED - penalty)
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
            found.append(Sentence(kind, name, values, nouns, is_quoted_label, strength - penalty))
    found.sort(key=lambda one: -one.rank)
    if not found or found[0].rank + penalty <= 0 or (len(found) == 2 and found[0].rank == found[1].rank):
        return None
    return found[0]


def _is_stray(value: Argument, step: _Step) -> bool:
    """Whether words beside the label of a single box say nothing of it: "check L because it is required"."""
    return value not in step.quoted and value.text.casefold() not in YES | NO


def _state(tokens: Sequence[Token], arguments: Sequence[Argument]) -> Sentence:
    """A box that is to be ticked in the end, or not to be: "make sure that L is checked"."""
    said = {token.word.text for token in tokens if token.word is not None}
    if len(arguments) != 1 or not said & (YES | NO) or any(token.role("doubt") is not None for token in tokens):
        return Sentence("idle", "", rank=-_MOST_UNKNOWN)
    is_refused = any(token.role("refusal") is not None for token in tokens)
    return Sentence("uncheck" if bool(said & NO) != is_refused else "check", arguments[0].text)


def _is_list_of(tokens: Sequence[Token], arguments: Sequence[Argument]) -> bool:
    """Whether there is one argument, or none, or all are items of one list."""
    places = [at for at, token in enumerate(tokens) if token.argument is not None]
    return len(arguments) < 2 or all(_is_list(tokens[at + 1 : after]) for at, after in pairwise(places))


def _is_list(between: Sequence[Token]) -> bool:
    return bool(between) and all(
        token.word is not None and (token.word.text in {",", ";", "/"} or "join" in token.word.roles)
        for token in between
    )
