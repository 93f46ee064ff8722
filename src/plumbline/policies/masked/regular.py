"""Regular languages over bytes, put together from parts, as one table of moves.

Letters in shapes: S states of the table, the last of which is dead.
"""

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from functools import reduce
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

STATES = 10_000
"""The most states of a graph; a schema of a request must not take all memory."""
State = TypeVar("State", bound=Hashable)
Part = Callable[["Graph", int], int]
"""Draws a language into a graph from a state on, and says at which state it ends."""


@dataclass(slots=True)
class Graph:
    """States with moves that take a byte of a set, and moves that take nothing."""

    moves: list[list[tuple[frozenset[int], int]]] = field(default_factory=list)
    free: list[list[int]] = field(default_factory=list)

    def state(self) -> int:
        """A new state.

        Raises:
            ValueError: there are too many.
        """
        if len(self.moves) >= STATES:
            raise ValueError("the language is too large: lower its lengths and numbers of items")
        self.moves.append([])
        self.free.append([])
        return len(self.moves) - 1


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """A language: from a state and a byte to the next state; it begins in state 0."""

    moves: NDArray[np.int32]  # [S, 256]
    final: NDArray[np.bool_]  # [S]


def one(of: Iterable[int]) -> Part:
    """One byte of a set."""
    taken = frozenset(of)

    def draw(graph: Graph, start: int) -> int:
        end = graph.state()
        graph.moves[start].append((taken, end))
        return end

    return draw


def text(literal: str) -> Part:
    """A literal text, in UTF-8."""
    return sequence(*(one([byte]) for byte in literal.encode()))


def sequence(*parts: Part) -> Part:
    """One part after the other."""
    return lambda graph, start: reduce(lambda at, part: part(graph, at), parts, start)


def either(*parts: Part) -> Part:
    """One of the parts."""

    def draw(graph: Graph, start: int) -> int:
        end = graph.state()
        for part in parts:
            begin = graph.state()
            graph.free[start].append(begin)
            graph.free[part(graph, begin)].append(end)
        return end

    return draw


def repeated(part: Part, least: int = 0, most: int | None = None) -> Part:
    """A part so many times, without a limit where `most` is None."""

    def draw(graph: Graph, start: int) -> int:
        at = sequence(*[part] * least)(graph, start)
        if most is None:
            loop = graph.state()
            graph.free[at].append(loop)
            graph.free[part(graph, loop)].append(loop)
            return loop
        end = graph.state()
        for _ in range(most - least):
            graph.free[at].append(end)
            at = part(graph, at)
        graph.free[at].append(end)
        return end

    return draw


def machine(
    first: State, move: Callable[[State, str], State | None], ends: Callable[[State], bool], alphabet: str
) -> Part:
    """What a function of state and character accepts; None is no state."""

    def draw(graph: Graph, start: int) -> int:
        number, todo, end = {first: graph.state()}, [first], graph.state()
        graph.free[start].append(number[first])
        while todo:
            state = todo.pop()
            if ends(state):
                graph.free[number[state]].append(end)
            for character in alphabet:
                following = move(state, character)
                if following is None:
                    continue
                if following not in number:
                    number[following] = graph.state()
                    todo.append(following)
                graph.moves[number[state]].append((frozenset([ord(character)]), number[following]))
        return end

    return draw


def compiled(part: Part) -> Table:
    """The language as a table without choices, by the subset construction.

    Raises:
        ValueError: it has too many states.
    """
    graph = Graph()
    start = graph.state()
    end = part(graph, start)
    first = _freely(graph, {start})
    number, order = {first: 0}, [first]
    rows: list[dict[int, int]] = []
    for states in order:  # grows while it is read
        reached: dict[int, set[int]] = {}
        for state in states:
            for taken, following in graph.moves[state]:
                for byte in taken:
                    reached.setdefault(byte, set()).add(following)
        row: dict[int, int] = {}
        known: dict[frozenset[int], int] = {}
        for byte, found in reached.items():
            key = frozenset(found)
            if key not in known:
                together = _freely(graph, key)
                if together not in number:
                    number[together] = len(order)
                    order.append(together)
                known[key] = number[together]
            row[byte] = known[key]
        rows.append(row)
    dead = len(order)
    moves = np.full((dead + 1, 256), dead, dtype=np.int32)
    for index, row in enumerate(rows):
        moves[index, list(row)] = list(row.values())
    return Table(moves, np.array([end in states for states in order] + [False]))


def _freely(graph: Graph, states: Iterable[int]) -> frozenset[int]:
    """States and what is reached from them by moves that take nothing."""
    found, todo = set(states), list(states)
    while todo:
        for following in graph.free[todo.pop()]:
            if following not in found:
                found.add(following)
                todo.append(following)
    return frozenset(found)
