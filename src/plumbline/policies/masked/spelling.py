"""A schema's document in the tokens of a tokenizer: what of it is fixed, and an automaton of tokens for each value.

Letters in shapes: L places of the canvas, V vocabulary, S states of a hole, the last of which is dead.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from plumbline.errors import RecipeError
from plumbline.policies.masked.json_form import Form, Value, read_form
from plumbline.policies.masked.regular import Part, compiled, one, repeated, sequence, text
from plumbline.policies.masked.scaffold import Hole, Scaffold
from plumbline.policies.pretrained.chat import Chat

LARGEST = 2**24
"""Entries of all automata of a scaffold: 32 MiB, and some seconds to make them."""
FIX = "leave the scaffold out, or use another tokenizer"


def open_scaffold(schema: str, chat: Chat, places: int, mask_id: int, vocabulary: int) -> Scaffold:
    """The scaffold of a schema (JSON) on a canvas.

    Args:
        schema: what `json_form.read_form` takes.
        chat: the tokenizer, and the token that ends an answer.
        places: L.
        mask_id: the token of a hidden place.
        vocabulary: V, logits of the model's head.

    Raises:
        RecipeError: the schema says what a scaffold cannot hold to, the tokenizer is not byte-level, or the document
            does not fit on the canvas.
    """
    try:
        form = read_form(schema)
    except ValueError as error:
        raise RecipeError(str(error), "name the properties and their types, or leave the scaffold out") from error
    if len(form.values) > places:
        raise RecipeError(f"{len(form.values)} values do not fit on a canvas of {places} places", "leave some out")
    writing = _Writing.of(form, chat, vocabulary)
    languages = list[_Language]()
    for index in range(len(form.values)):
        try:
            languages.append(writing.language(index, LARGEST - sum(one.moves.size for one in languages)))
        except ValueError as error:
            raise RecipeError(f"the schema: {error}", "lower maxLength and maxItems, or leave them out") from error
    held = sum(len(fixed.tokens) for fixed in writing.fixed)
    sizes = _sizes(languages, places - held)
    if sizes is None:
        least = held + sum(language.least for language in languages)
        raise RecipeError(
            f"the scaffold's schema needs a canvas of at least {least} places, and this one has {places}",
            "raise sampling.max_tokens (and model.canvas), or leave properties out",
        )
    canvas, holes = np.full(places, mask_id, dtype=np.int64), []
    at = 0
    for fixed, language, size in zip(writing.fixed, languages, sizes, strict=True):
        canvas[at : at + len(fixed.tokens)] = fixed.tokens
        at += len(fixed.tokens)
        holes.append(Hole(at, at + size, language.moves, language.final, language.first))
        at += size
    scaffold = Scaffold(canvas, holes, mask_id)
    if mask_id not in scaffold.canvas:
        raise RecipeError("the scaffold's schema admits a single answer, so there is nothing to fill in", FIX)
    return scaffold


@dataclass(frozen=True, slots=True)
class _Language:
    """The automaton of a hole, with how many places it takes at least, and for the examples."""

    value: Value
    moves: NDArray[np.int16]
    final: NDArray[np.bool_]
    first: int
    usual: int

    @property
    def least(self) -> int:
        """The fewest tokens from the first state to a final one."""
        reached, count = np.arange(len(self.moves)) == self.first, 0
        while not self.final[reached].any():
            reached, before = reached.copy(), reached
            reached[np.unique(self.moves[before])] = True
            count += 1
        return count


@dataclass(frozen=True, slots=True)
class _Written:
    """An example of a document: its tokens with their stretches of bytes, and those of its parts."""

    parts: list[tuple[int, int]]
    tokens: list[tuple[int, int, int]]  # start, end, id

    @classmethod
    def of(cls, parts: Sequence[str], tokenizer: Any, spelling: dict[int, bytes]) -> "_Written":
        ids = tokenizer("".join(parts), add_special_tokens=False)["input_ids"]
        tokens, at = [], 0
        for token in ids:
            tokens.append((at, at + len(spelling.get(token, b"")), int(token)))
            at = tokens[-1][1]
        if b"".join(spelling.get(token, b"") for token in ids) != "".join(parts).encode():
            raise RecipeError("a scaffold needs a byte-level tokenizer, whose tokens are bytes of the text", FIX)
        edges = np.cumsum([0, *(len(part.encode()) for part in parts)]).tolist()
        return cls(list(pairwise(edges)), tokens)

    def inside(self, part: int, behind: int) -> list[tuple[int, int, int]]:
        """Tokens that lie in a part as a whole, `behind` so many of its bytes, counted from its start."""
        start, end = self.parts[part]
        return [(a - start, b - start, token) for a, b, token in self.tokens if start + behind <= a and b <= end]

    def between(self, start: int, end: int) -> list[int] | None:
        """The tokens of a stretch of bytes; None where one lies across its edge."""
        if not {start, end} <= {edge for a, b, _ in self.tokens for edge in (a, b)}:
            return None
        return [token for a, b, token in self.tokens if start <= a and b <= end]


@dataclass(frozen=True, slots=True)
class _Fixed:
    """What of a fixed text stands on the canvas: a stretch of its bytes, in tokens."""

    start: int
    end: int
    tokens: list[int]

    @classmethod
    def of(cls, examples: Sequence[list[tuple[int, int, int]]]) -> "_Fixed":
        """The longest stretch of tokens that all examples of the text have in the same place."""
        best: list[tuple[int, int, int]] = []
        run: list[tuple[int, int, int]] = []
        for each in sorted(set(examples[0]).intersection(*map(set, examples[1:]))):
            run = [*run, each] if run and run[-1][1] == each[0] else [each]
            best = max(best, run, key=lambda tokens: tokens[-1][1] - tokens[0][0] if tokens else 0)
        return cls(best[0][0], best[-1][1], [token for _, _, token in best]) if best else cls(0, 0, [])


@dataclass(frozen=True, slots=True)
class _Writing:
    """A form in the tokens of a tokenizer."""

    form: Form
    examples: list[_Written]
    fixed: list[_Fixed]
    spelling: dict[int, bytes]
    end: int
    vocabulary: int

    @classmethod
    def of(cls, form: Form, chat: Chat, vocabulary: int) -> "_Writing":
        spelling = _spelling(chat.tokenizer, vocabulary)
        count = max(len(value.samples) for value in form.values)
        examples = [_Written.of(form.written(number), chat.tokenizer, spelling) for number in range(count)]
        # What ends a value (a comma, a brace) stands behind it in its hole, as it does in every demonstration.
        fixed = [
            _Fixed.of([example.inside(2 * index, min(index, 1)) for example in examples])
            for index in range(len(form.values))
        ]
        if fixed[0].start:
            fixed[0] = _Fixed(0, 0, [])
        return cls(form, examples, fixed, spelling, chat.end_of_turn, vocabulary)

    def language(self, index: int, most: int) -> _Language:
        """The automaton of a value's hole, with what follows the value there.

        Raises:
            ValueError: it would have more than `most` entries.
        """
        value, last = self.form.values[index], index + 1 == len(self.form.values)
        following = self.form.texts[index + 1].encode()
        behind = b"" if last else following[1 : max(1, self.fixed[index + 1].start)]
        closing = len(following) if last else 1
        sequences = [
            example.between(
                example.parts[2 * index][0] + self.fixed[index].end, example.parts[2 * index + 1][1] + closing
            )
            for example in self.examples[: len(value.samples)]
        ]
        usual = max(len(tokens or ()) for tokens in sequences) + last
        if value.finite and not behind and all(tokens is not None for tokens in sequences):
            filler = self.end if last else next(token for token, spelt in self.spelling.items() if spelt == b" ")
            words = [[*(tokens or ()), *[filler] * last] for tokens in sequences]
            return _Language(value, *_of_words(words, filler, self.vocabulary), 0, usual)
        ends = (
            text(following.decode()) if last else sequence(one(following[:1]), repeated(one(b" ")), *map(_byte, behind))
        )
        table = compiled(sequence(text(self.form.texts[index]), value.part, ends))
        if table.moves.shape[0] * self.vocabulary > most:
            raise ValueError("the language is too large for this vocabulary")
        first = 0
        for byte in self.form.before(index).encode()[: self.fixed[index].end]:
            first = int(table.moves[first, byte])
        moves, final = _of_bytes(table.moves, table.final, self.spelling, self.vocabulary)
        if last:
            # Behind the document nothing but end tokens, at least one: a final state of its own.
            moves, final = (
                np.vstack([moves[:-1], np.full_like(moves[:1], len(moves)), moves[-1:]]),
                np.append(final, False),
            )
            moves[moves == len(final) - 2] = len(final) - 1
            moves[np.flatnonzero(final), self.end] = moves[len(final) - 2, self.end] = len(final) - 2
            final = np.arange(len(final)) == len(final) - 2
        return _Language(value, moves, final, first, usual)


def _byte(byte: int) -> Part:
    return one([byte])


def _of_words(
    words: Sequence[Sequence[int]], filler: int, vocabulary: int
) -> tuple[NDArray[np.int16], NDArray[np.bool_]]:
    """The automaton of some sequences of tokens, each followed by any number of fillers."""
    number: dict[tuple[int, ...], int] = {}
    for word in words:
        for count in range(len(word) + 1):
            number.setdefault(tuple(word[:count]), len(number))
    moves = np.full((len(number) + 1, vocabulary), len(number), dtype=np.int16)
    final = np.zeros(len(number) + 1, dtype=np.bool_)
    for prefix, state in number.items():
        if prefix:
            moves[number[prefix[:-1]], prefix[-1]] = state
    for word in words:
        state = number[tuple(word)]
        final[state], moves[state, filler] = True, state
    return moves, final


def _of_bytes(
    table: NDArray[np.int32], final: NDArray[np.bool_], spelling: dict[int, bytes], vocabulary: int
) -> tuple[NDArray[np.int16], NDArray[np.bool_]]:
    """The automaton of the tokens of a language of bytes [S, 256]; spaces are one token each, so fillers are alike."""
    tokens = [token for token, spelt in spelling.items() if len(spelt) == 1 or spelt.strip(b" ")]
    lengths = np.array([len(spelling[token]) for token in tokens])
    spelt = np.zeros((len(tokens), int(lengths.max())), dtype=np.uint8)
    for row, token in enumerate(tokens):
        spelt[row, : lengths[row]] = np.frombuffer(spelling[token], dtype=np.uint8)
    states = np.repeat(np.arange(len(table), dtype=np.int32)[:, None], len(tokens), axis=1)
    for place in range(spelt.shape[1]):
        there = np.flatnonzero((lengths > place) & (states != len(table) - 1).any(0))
        states[:, there] = table[states[:, there], spelt[there, place]]
    moves = np.full((len(table), vocabulary), len(table) - 1, dtype=np.int16)
    moves[:, tokens] = states
    return moves, final


def _spelling(tokenizer: Any, vocabulary: int) -> dict[int, bytes]:
    """The bytes of each token of a byte-level tokenizer, which writes them as letters (GPT-2's table)."""
    shown = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = sorted(set(range(256)) - set(shown))
    byte_of = {chr(byte): byte for byte in shown} | {chr(256 + index): byte for index, byte in enumerate(hidden)}
    added = getattr(tokenizer, "added_tokens_decoder", {})
    return {
        number: bytes(byte_of[letter] for letter in token)
        for token, number in tokenizer.get_vocab().items()
        if number < vocabulary and number not in added and token and all(letter in byte_of for letter in token)
    }


def _sizes(languages: Sequence[_Language], places: int) -> list[int] | None:
    """How many places each hole has, of so many; None where they are too few.

    Each has what it needs at least; then what its examples take; texts and arrays share the rest evenly, or the last
    has it, where end tokens stand behind the value.
    """
    sizes = [language.least for language in languages]
    wanting = [max(language.usual - language.least, 0) for language in languages]
    left = places - sum(sizes)
    if left < 0:
        return None
    while left and any(wanting):
        index = max(range(len(sizes)), key=wanting.__getitem__)
        sizes[index], wanting[index], left = sizes[index] + 1, wanting[index] - 1, left - 1
    elastic = [index for index, language in enumerate(languages) if language.value.elastic] or [len(sizes) - 1]
    for number in range(left):
        sizes[elastic[number % len(elastic)]] += 1
    return sizes
