"""Reading a message: what stands around it, and which phrases of `lexicon.yaml` it says.

A message is its words without case and accents; separators (comma, full stop, colon) are words of their own, which no
phrase but one that names the colon goes across.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

from plumbline.tasks.tables import read_table
from plumbline.tasks.text.numbers import without_accents

NEGATIONS = frozenset({"nao", "nem", "nunca", "sem"})
SEPARATORS = frozenset({".", ",", ":"})
_TOKENS = re.compile(r"[^\W_]+|[,.!?;:…\n]").findall
_SHORTEST = 3
"""Letters of a beginning, such as `sum*`, at least."""


def folded(text: str) -> str:
    """A text without case and accents."""
    return without_accents(text).casefold()


def words(text: str) -> list[str]:
    """The words and separators of a text, folded."""
    return [word if word[0].isalnum() or word in ",:" else "." for word in _TOKENS(folded(text))]


def _expression(phrase: str) -> str:
    """A phrase of the lexicon as a regular expression over words that each end in a blank."""
    written = ""
    for step in folded(phrase).split():
        if step == "..":
            written += r"(?:[^.,: ]+ ){0,2}?"
            continue
        choices = step.removesuffix("?").split("/")
        if any(choice.endswith("*") and len(choice) <= _SHORTEST for choice in choices):
            raise ValueError(f"{step!r}: a beginning has at least {_SHORTEST} letters")
        either = "|".join(re.escape(choice).replace(r"\*", "[^ ]*") for choice in choices)
        written += f"(?:(?:{either}) ){'?' if step.endswith('?') else ''}"
    return written


class Phrases:
    """Phrases by what they say, to be found in the words of a message."""

    def __init__(self, entries: Mapping[str, Iterable[str]], *, negatable: bool) -> None:
        """Read phrases.

        Args:
            entries: phrases by what they say.
            negatable: whether a phrase behind "não" or "sem" is not said.
        """
        alternatives = {says: "|".join(map(_expression, phrases)) for says, phrases in entries.items()}
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

    def said(self, said: Sequence[str]) -> set[str]:
        """What is said anywhere."""
        return {says for says, _, _ in self.spans(said)}


def _is_negated(said: Sequence[str], place: int) -> bool:
    """Whether one of the two words before says no, in the same sentence; a phrase may begin with a "não" of its own."""
    before = said[max(0, place - 2) : place]
    return not (said[place] in NEGATIONS or not before or before[-1] in SEPARATORS or NEGATIONS.isdisjoint(before))


class Lexicon(NamedTuple):
    """`lexicon.yaml`, ready to be looked up."""

    idioms: Phrases
    concepts: Phrases
    claims: Phrases
    faults: Phrases
    """Placeholders, remarks and stock phrases; each phrase says its kind and itself."""
    inviting: Phrases
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
    faults = {f"{kind}: {phrase}": [phrase] for kind in ("placeholders", "remarks", "stock") for phrase in table[kind]}
    acts = {
        act: [frozenset(folded(forms).split("/")) for forms in written.split()]
        for act, written in table["acts"].items()
    }
    return Lexicon(
        idioms=Phrases(table["idioms"], negatable=False),
        concepts=Phrases(table["concepts"], negatable=True),
        claims=Phrases(table["claims"], negatable=False),
        faults=Phrases(faults, negatable=False),
        inviting=Phrases({phrase: [phrase] for phrase in table["inviting"]}, negatable=False),
        acts=acts,
        imperatives=frozenset().union(*(imperatives for imperatives, _ in acts.values())),
        labels=frozenset(map(folded, table["labels"])),
        languages={name: frozenset(folded(listed).split()) for name, listed in table["languages"].items()},
    )


def plain(said: Sequence[str]) -> list[str]:
    """The words of a message, what its idioms mean in place of them."""
    text: list[str] = []
    done = 0
    for meant, start, end in lexicon().idioms.spans(said):
        if start >= done:
            text += [*said[done:start], *words(meant)]
            done = end
    return [*text, *said[done:]]


MOST = 300
"""Characters of a completion that are looked at, behind its thoughts; a message of more than 120 has failed anyway."""
MOST_THOUGHT = 20_000


class Message(NamedTuple):
    """A push notification as it was written."""

    title: str
    """Empty where none was asked for."""
    body: str
    around: Sequence[str]
    """What had to be taken away, in this order: thought, fence, preamble, count, lines, label, quotes."""
    lines: int
    """Of the message itself; one, or two with a title."""


_THOUGHT = re.compile(r"\s*<think(?:ing)?>.*?</think(?:ing)?>", re.DOTALL | re.IGNORECASE).match
_FENCE = re.compile(r"\s*(?:```|~~~)[ \t]*\w*[ \t]*\n?(.*?)\s*(?:```|~~~)?\s*\Z", re.DOTALL).match
_COUNT = re.compile(r"\s*[(\[]\s*\d{1,4}\s*(?:caracteres|chars|characters)\s*[)\]]\s*\Z", re.IGNORECASE).search
_LABEL = re.compile(r"[*_#\s]*([^\W\d_]+(?: [^\W\d_]+){0,2})[*_\s]*[:：][*_\s]*").match
_QUOTED = re.compile(r"""(["“”'‘’«»*_`]{1,3})(.*?)(["“”'‘’«»*_`]{1,3})\Z""", re.DOTALL).match


def read(completion: str, *, titled: bool) -> Message:
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
        if (match := _LABEL(line)) and folded(match[1]) in lexicon().labels:
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
    return Message(title, " ".join(bare[bool(title) :]), tuple(dict.fromkeys(around)), len(bare))
