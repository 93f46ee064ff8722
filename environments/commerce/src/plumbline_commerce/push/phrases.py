"""Finding phrases in a message: which entries of `lexicon.yaml` it says.

A message is its words without case and accents; separators (comma, full stop, colon) are words of their own, which no
phrase but one that names the colon goes across.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, lru_cache
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from plumbline.tasks.tables import read_table
from plumbline.tasks.text.accents import without_accents

NEGATIONS = frozenset({"nao", "nem", "nunca", "sem"})
SEPARATORS = frozenset({".", ",", ":"})
_TOKENS = re.compile(r"[^\W_]+|[,.!?;:…\n]").findall
_SHORTEST = 3
"""Letters of a beginning, such as `sum*`, at least."""
_LONGEST = 14


def folded(text: str) -> str:
    """A text without case and accents."""
    return without_accents(text).casefold()


def words(text: str) -> list[str]:
    """The words and separators of a text, folded."""
    return [word if word[0].isalnum() or word in ",:" else "." for word in _TOKENS(folded(text))]


class Step(NamedTuple):
    """What may stand at a place of a phrase."""

    exact: frozenset[str]
    begins: tuple[str, ...]
    optional: bool = False
    gap: bool = False
    """Up to two words, whatever they are."""


class Phrase(NamedTuple):
    """What may follow the first word of a phrase, and what the phrase says."""

    rest: tuple[Step, ...]
    says: str
    negatable: bool


def _step(written: str) -> Step:
    if written == "..":
        return Step(frozenset(), (), gap=True)
    choices = [folded(choice) for choice in written.removesuffix("?").split("/")]
    begins = tuple(choice[:-1] for choice in choices if choice.endswith("*"))
    if any(len(beginning) < _SHORTEST for beginning in begins):
        raise ValueError(f"{written!r}: a beginning has at least {_SHORTEST} letters")
    exact = frozenset(choice for choice in choices if not choice.endswith("*"))
    return Step(exact, begins, written.endswith("?"))


class Phrases:
    """Phrases by the word that they begin with, so that a message is read once whatever their number."""

    def __init__(self, entries: Mapping[str, Sequence[str]], *, negatable: bool) -> None:
        """Read phrases.

        Args:
            entries: phrases by what they say.
            negatable: whether a phrase behind "não" or "sem" is not said.
        """
        self._exact: dict[str, list[Phrase]] = {}
        self._begins: dict[str, list[Phrase]] = {}
        for says, written in entries.items():
            for phrase in written:
                self._add(tuple(map(_step, phrase.split())), says, negatable)
        self._beginning_with = lru_cache(maxsize=1 << 14)(self._find)

    def _add(self, steps: tuple[Step, ...], says: str, negatable: bool) -> None:
        first, rest = steps[0], steps[1:]
        if first.optional:
            self._add(rest, says, negatable)
        for word in first.exact:
            self._exact.setdefault(word, []).append(Phrase(rest, says, negatable and word not in NEGATIONS))
        for beginning in first.begins:
            self._begins.setdefault(beginning, []).append(Phrase(rest, says, negatable))

    def spans(self, said: Sequence[str]) -> Iterator[tuple[str, int, int]]:
        """What is said, and from which word to which (end excluded), in order."""
        for place, word in enumerate(said):
            for phrase in self._beginning_with(word):
                if phrase.negatable and _is_negated(said, place):
                    continue
                end = _end(phrase.rest, said, place + 1)
                if end is not None:
                    yield phrase.says, place, end

    def said(self, said: Sequence[str]) -> set[str]:
        """What is said anywhere."""
        return {says for says, _, _ in self.spans(said)}

    def _find(self, word: str) -> tuple[Phrase, ...]:
        """The phrases that begin with a word."""
        begins = (self._begins.get(word[:length], ()) for length in range(_SHORTEST, min(len(word), _LONGEST) + 1))
        return (*self._exact.get(word, ()), *chain.from_iterable(begins))


def _is_negated(said: Sequence[str], place: int) -> bool:
    """Whether one of the two words before says no, in the same sentence."""
    if place == 0 or said[place - 1] in SEPARATORS:
        return False
    return said[place - 1] in NEGATIONS or (place > 1 and said[place - 2] in NEGATIONS)


def _end(steps: Sequence[Step], said: Sequence[str], place: int) -> int | None:
    """Where a phrase ends whose next step stands at a place; None where it does not go on so."""
    if not steps:
        return place
    step, rest = steps[0], steps[1:]
    if step.gap:
        for skipped in range(3):
            if (end := _end(rest, said, place + skipped)) is not None:
                return end
            if place + skipped >= len(said) or said[place + skipped] in SEPARATORS:
                return None
        return None
    if place < len(said) and (said[place] in step.exact or said[place].startswith(step.begins or ("\0",))):
        end = _end(rest, said, place + 1)
        if end is not None:
            return end
    return _end(rest, said, place) if step.optional else None


class Lexicon(NamedTuple):
    """`lexicon.yaml`, ready to be looked up."""

    idioms: Phrases
    concepts: Phrases
    claims: Phrases
    faults: Phrases
    """Placeholders, remarks and stock phrases; each phrase says its kind and itself."""
    acts: Mapping[str, tuple[frozenset[str], frozenset[str]]]
    """Imperatives and infinitives."""
    imperatives: frozenset[str]
    inviting: Phrases
    labels: frozenset[str]
    languages: Mapping[str, frozenset[str]]
    """Portuguese first."""


@cache
def lexicon() -> Lexicon:
    """The lexicon, read when it is first needed."""
    table: dict[str, Any] = read_table(Path(__file__).with_name("lexicon.yaml"))
    acts = {}
    for act, written in table["acts"].items():
        imperatives, infinitives = (frozenset(folded(forms).split("/")) for forms in written.split())
        acts[act] = (imperatives, infinitives)
    idioms: dict[str, list[str]] = {}
    for phrase, meant in table["idioms"].items():
        idioms.setdefault(meant, []).append(phrase)
    faults = {f"{kind}: {phrase}": [phrase] for kind in ("placeholders", "remarks", "stock") for phrase in table[kind]}
    return Lexicon(
        idioms=Phrases(idioms, negatable=False),
        concepts=Phrases(table["concepts"], negatable=True),
        claims=Phrases(table["claims"], negatable=False),
        faults=Phrases(faults, negatable=False),
        acts=acts,
        imperatives=frozenset().union(*(imperatives for imperatives, _ in acts.values())),
        inviting=Phrases({"inviting": table["inviting"]}, negatable=False),
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
