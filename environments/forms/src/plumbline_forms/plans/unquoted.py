"""Arguments without quotation marks: what is left of a stretch of words without what belongs to the sentence."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise

from plumbline_forms.plans.context import VALUE_FIRST
from plumbline_forms.plans.labels import Names
from plumbline_forms.plans.quotations import Argument
from plumbline_forms.plans.tokens import Token, is_colon, is_sign
from plumbline_forms.plans.vocabulary import BE, KEYS, NO, OWN, YES
from plumbline_forms.plans.work import Work

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
class Step:
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
    step: Step, tokens: Sequence[Token], arguments: tuple[Argument, ...], verbs: Sequence[int], kind: str
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
        is_free = start <= verb or (is_object and (not object_is_label or not is_named or stop < len(tokens)))
        is_free = is_free or (is_object and _says_it_is(tokens[verb]))
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
        links = [at for at in inner if tokens[at].role("link") is not None or is_colon(tokens[at])]
        for at in links[-_MOST_LINKS:]:
            if any(one.start < tokens[at].start < one.end for one in labels):
                continue
            left = _core(step, tokens[start:at], is_label=object_is_label, keeps_nouns=keeps_nouns)
            right = _core(step, tokens[at + 1 : stop], is_label=not object_is_label, keeps_nouns=object_is_label)
            if left is None or right is None or (is_colon(tokens[at]) and not step.names.kind(left.text)):
                continue  # "Change date: May 4" is a line of a list and no step
            yield left, right


def _says_it_is(verb: Token) -> bool:
    return verb.word is not None and verb.word.text.rpartition(" ")[2] in BE


def alone(text: str, kind: str) -> str:
    """What is entered into a control whose entries have a form of their own, without the words around it."""
    pattern = _FORMS.get(kind)
    found = pattern.findall(text) if pattern is not None and " " in text else []
    return found[0] if len(found) == 1 else text


def _is_tied(step: Step, tokens: Sequence[Token], core: Argument) -> bool:
    """Whether something ties words to the argument before them: "set L to V", "L: V", but not "L because it is so"."""
    before = [token for token in tokens if token.start < core.start]
    tied = any(
        token.role("link") is not None or (is_sign(token) and token.word and token.word.text in ":-–—")
        for token in before
    )
    is_figure = " " not in core.text and any(letter.isdigit() for letter in core.text)
    return tied or is_figure or step.names.knows(core.text) or core.text.casefold() in YES | NO


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


def _core(step: Step, tokens: Sequence[Token], *, is_label: bool, keeps_nouns: bool) -> Argument | None:
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
        state = next((token for token in reversed(tokens) if not is_sign(token)), None)
        if is_label or state is None or state.word is None or state.word.text not in YES | NO:
            return None
        return Argument(text[state.start : state.end], state.start, state.end)  # "set L to on"
    first, last = tokens[start].start, tokens[stop - 1].end
    found = Argument(text[first:last].replace("\\n", "\n"), first, last)
    if knows(found.text) and (is_label or not step.names.has(found.text)):
        return found
    left = tokens[start:stop]
    before = tokens[start - 1].word if start else None
    # "Type your full name", "type the user's name": which name that is, is not said.
    describes = before is not None and before.text in OWN
    nouns = [token for token in left if "noun" not in token.roles]
    describes = describes or (articled and all(token.word and token.word.text.endswith(_POSSESSED) for token in nouns))
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
