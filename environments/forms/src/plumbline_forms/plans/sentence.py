"""One step as a sentence: its verb, its arguments, and which of two arguments is the control.

Three things say which argument names the control: the words around it ("into the 'L' field", "the option 'V'"), the
verb ("type V", but "set L"), and, where the form is known, its labels. They are added up; where they say nothing, or
as much for the one as for the other, nothing is read. A sentence is never completed by what it does not say.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from plumbline_forms.plans.context import contexts_of, evidence
from plumbline_forms.plans.labels import Names, loose
from plumbline_forms.plans.quotations import QUOTES, Argument, is_quoted, quotations, without_file_buttons
from plumbline_forms.plans.tokens import LEADS, Token, is_sign, may_be_name, tokens_of, verbs_of
from plumbline_forms.plans.unquoted import Step, alone, completed, mentions
from plumbline_forms.plans.vocabulary import ASKING, BE, NO, YES
from plumbline_forms.plans.work import Work

_FILLS = frozenset({"type", "append", "use", "set", "vary", "select", "check", "uncheck", "attach"})
_PURPOSES = frozenset({"send", "idle", "click", "seek", "navigate", "press", "done"})
"""Verbs that say what a step is for where they follow "to": "click on L to send the form"."""
_SEVERAL = frozenset({"select", "check", "uncheck", "attach", "click", "set", "use", "append"})
"""Verbs with more than one value in a sentence: "check A and B"."""
_ALONE = frozenset({"select", "check", "uncheck", "click"})
"""Those that may leave out the group: "check A and B" where the form says whose options they are."""
_MOST_UNKNOWN = 8
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


def sentences(text: str, names: Names, work: Work) -> list[Sentence] | None:
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


def _sentences(text: str, names: Names, depth: int, work: Work) -> list[Sentence] | None:
    work.spend(1)
    # A text of forty quotation marks asks for its halves half a million times.
    if (text, depth) not in work.halves:
        work.halves[text, depth] = _best(text, names, depth, work)
    return work.halves[text, depth]  # type: ignore[no-any-return]


def _best(text: str, names: Names, depth: int, work: Work) -> list[Sentence] | None:
    best: list[Sentence] | None = None
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
            found = _read(Step(text, names, arguments, work), chosen, depth)
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
    known = all(token.roles or is_sign(token) for token in between)
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


def _read(step: Step, arguments: tuple[Argument, ...], depth: int) -> list[Sentence] | None:
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


def _by_means(step: Step, tokens: Sequence[Token], arguments: tuple[Argument, ...]) -> list[Sentence] | None:
    """The sentence of what is to be done by something that the table has: "give consent by ticking L"."""
    at = next((at for at, token in enumerate(tokens) if token.role("means") is not None), 0)
    if at == 0 or tokens[0].argument is not None or tokens[0].roles.keys() & {"article", "noun", "link"}:
        return None
    if any(token.word is not None and token.word.text in BE for token in tokens[:at]):
        return None  # "all is sent by clicking L" tells, and asks for nothing
    found = _one(step, tokens, arguments, [at], "means")
    return None if found is None else [found]


def _says_no_more(step: Step, tokens: Sequence[Token], busy: Sequence[int]) -> bool:
    """Whether what looks like a second clause may be text: "type I switch on Mondays. Check the lamp into L"."""
    names_nothing = all(token.argument is None for token in tokens[busy[1] :]) and step.names.mention is not None
    goes = {"click", "press", "send", *(["navigate"] if "://" in step.text else [])}
    return names_nothing and not goes & {tokens[at].role("verb") for at in busy[1:]}


def _gapped(step: Step, tokens: Sequence[Token], verb: int, depth: int) -> list[Sentence] | None:
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


def _split(step: Step, at: int, verb: str, depth: int) -> list[Sentence] | None:
    """Both halves of a line that says two things: each has to be understood by itself."""
    if depth == 0:
        return None
    first = _sentences(step.text[:at], step.names, depth - 1, step.work)
    second = _sentences(verb + step.text[at:], step.names, depth - 1, step.work)
    return None if first is None or second is None else first + second


def _one(
    step: Step, tokens: Sequence[Token], arguments: tuple[Argument, ...], verbs: Sequence[int], role: str
) -> Sentence | None:
    """The sentence of the last of these verbs; the earlier ones only find the control."""
    kind = tokens[verbs[-1]].role(role) or ""
    begins = [tokens[at].start for at in verbs]
    best: Sentence | None = None
    for chosen in completed(step, tokens, arguments, verbs, kind):
        step.work.look(len(step.text))
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


# -- which argument is which -------------------------------------------------------------------------------------


def _assigned(step: Step, tokens: Sequence[Token], verbs: Sequence[int], kind: str) -> Sentence | None:
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
    if kind in {"check", "uncheck"} and "due" in tokens[verb].roles:
        nouns |= {"state"}  # "the button should be enabled" asks for no click
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
            found.append(Sentence(kind, name, values, nouns, is_quoted_label, strength - penalty))
    found.sort(key=lambda one: -one.rank)
    if not found or found[0].rank + penalty <= 0 or (len(found) == 2 and found[0].rank == found[1].rank):
        return None
    return found[0]


def _is_stray(value: Argument, step: Step) -> bool:
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
