"""Requests as a device draws them, and trajectories as it scores them: each distinct prompt once,
so many at a time.

Letters in shapes: P prompts, G copies of the prompt that has most, R rows (requests).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Generic, Literal, TypeVar

import numpy as np
import torch
from torch import Tensor

from plumbline.policies.sampling_distribution import generators
from plumbline.records import IntArray, Key, Request, Sampling, Trajectory

SamplingT = TypeVar("SamplingT", bound=Sampling)
"""The kind of sampling distribution that a family draws by."""

Watch = Callable[[Key, IntArray], None]
"""Hears the key of a request, and its canvas [L] after a step."""

Layout = Literal["square", "shared", "rows"]
"""How a pass attends: over the masked square of a pack, each answer of it with its prompt alone, or
a row each, which has the prompt once more and is as long as the longest of the pass."""
LAUNCHES = 1e12
"""Operations per layer that a GPU could do while one more pass is started there: about 3 ms of an
H100."""
WORTH_SHARING = 128
"""Tokens that reading a common beginning once must save: the pass of its own that it takes costs
about as much."""


@dataclass(frozen=True, slots=True, eq=False)
class Chunk(Generic[SamplingT]):
    """What is drawn together."""

    sampling: SamplingT
    prompts: list[list[int]]  # P, the token ids of each
    requests: list[Request]  # R, those of one prompt side by side
    counts: list[int]  # P, how many requests each prompt has
    shared: int
    """Tokens that all prompts of this sampling distribution in the call begin with, where reading
    them once pays; else 0."""
    watch: Watch | None = None
    """Hears what a canvas holds after each step; what is drawn does not depend on it."""

    def show(self, rows: Sequence[int], canvases: Tensor) -> None:
        """Let whoever watches see the canvases [len(rows), L] of these rows after a step."""
        if self.watch is not None:
            for row, canvas in zip(rows, canvases.cpu().numpy(), strict=True):
                self.watch(self.requests[row].key, canvas)

    @property
    def prompt_of(self) -> Tensor:
        """Which prompt each row has, [R]."""
        return torch.arange(len(self.prompts)).repeat_interleave(torch.tensor(self.counts))

    @property
    def grid(self) -> Tensor:
        """The rows as a rectangle of prompts and copies [P, G], R where a prompt has no further
        copy."""
        there = torch.arange(max(self.counts)) < torch.tensor(self.counts).unsqueeze(1)
        grid = torch.full(there.shape, len(self.requests))
        grid[there] = torch.arange(len(self.requests))
        return grid

    def by_length(self, unit: int) -> Iterator["Chunk[SamplingT]"]:
        """The chunk in parts whose prompts leave equal rests when cut into pieces of `unit`
        tokens."""
        starts = [sum(self.counts[:index]) for index in range(len(self.counts))]
        for rest in sorted({len(prompt) % unit for prompt in self.prompts}):
            mine = [
                index for index, prompt in enumerate(self.prompts) if len(prompt) % unit == rest
            ]
            yield replace(
                self,
                prompts=[self.prompts[index] for index in mine],
                requests=[
                    each
                    for index in mine
                    for each in self.requests[starts[index] : starts[index] + self.counts[index]]
                ],
                counts=[self.counts[index] for index in mine],
            )

    def generators(self) -> list[torch.Generator]:
        """A CPU generator for each row [R], seeded by its request's key: the only source of
        randomness."""
        return generators(request.key for request in self.requests)


def chunks(
    requests: Sequence[Request],
    sampling_type: type[SamplingT],
    encode: Callable[[Request], list[int]],
    rows_at_once: int,
    shared: int | None = None,
) -> Iterator[Chunk[SamplingT]]:
    """Cut requests into chunks of at most `rows_at_once` cells of a grid, copies of a prompt side
    by side.

    Args:
        requests: in any order, of any sampling of that kind; their keys differ.
        sampling_type: the family's kind.
        encode: the token ids of a request's prompt; asked once for each distinct one, before
            anything is drawn.
        rows_at_once: what the device holds.
        shared: as it was found among more requests, of which these are one chunk; None finds it
            among these.

    Raises:
        RecipeError, ValueError: see `group_copies`.
    """
    for sampling, found in group_copies(requests, sampling_type, encode, rows_at_once):
        # Prompts of equally many copies stand together, so that the grid has few empty cells.
        pairs = sorted(found, key=lambda pair: len(pair[1]))
        start, common = (
            0,
            _count_shared_tokens([ids for ids, _ in pairs]) if shared is None else shared,
        )
        for end in range(1, len(pairs) + 1):
            if end < len(pairs) and (end + 1 - start) * len(pairs[end][1]) <= rows_at_once:
                continue
            part = pairs[start:end]
            yield Chunk(
                sampling=sampling,
                prompts=[ids for ids, _ in part],
                requests=[request for _, group in part for request in group],
                counts=[len(group) for _, group in part],
                shared=common,
            )
            start = end


def group_copies(
    requests: Sequence[Request],
    sampling_type: type[SamplingT],
    encode: Callable[[Request], list[int]],
    most: int,
) -> list[tuple[SamplingT, list[tuple[list[int], list[Request]]]]]:
    """Requests by their sampling distribution, each distinct prompt's token ids with at most so
    many copies of it.

    Raises:
        RecipeError: a sampling distribution is another family's.
        ValueError: two requests have one key, and so would have one answer.
    """
    if len({request.key for request in requests}) < len(requests):
        raise ValueError("requests of one call have keys of their own")
    groups_of: dict[SamplingT, dict[tuple[tuple[str, str], ...], list[Request]]] = {}
    for request in requests:
        content = tuple((message["role"], message["content"]) for message in request.messages)
        groups_of.setdefault(sampling_type.of(request.sampling), {}).setdefault(content, []).append(
            request
        )
    found = []
    for sampling, groups in groups_of.items():
        parts: list[tuple[list[int], list[Request]]] = []
        for group in groups.values():
            ids = encode(group[0])
            parts += [(ids, group[start : start + most]) for start in range(0, len(group), most)]
        found.append((sampling, parts))
    return found


def _count_shared_tokens(prompts: Sequence[list[int]]) -> int:
    """Tokens that all begin with; at least one of each is left, because its hidden state is
    needed."""
    # what the first and the last in order share, all share
    ends = zip(min(prompts), max(prompts), strict=False)
    parting = next(
        (place for place, (one, other) in enumerate(ends) if one != other), len(min(prompts))
    )
    count = min(parting, min(map(len, prompts)) - 1)
    return count if count * (len(prompts) - 1) >= WORTH_SHARING else 0


def pack_sizes(
    trajectories: Sequence[Trajectory],
    lengths: Sequence[int],
    tokens_per_microbatch: int,
    width: int,
    pass_cost: float,
    layouts: Sequence[Layout] | None = None,
) -> list[list[int]]:
    """Cut trajectories into packs: consecutive ones of one prompt, so many that the arithmetic is
    least.

    A longer pack reads the prompt fewer times but may attend over its whole square, most of it
    masked. Per layer, T tokens of width H cost about 24 H^2 T in the linear maps and 4 H times the
    attended pairs, and a pass costs something whatever its length.

    Args:
        trajectories: equal prompts side by side.
        lengths: tokens that each adds to its prompt in a pack.
        tokens_per_microbatch: the longest pack that memory allows; one trajectory always makes a
            pack.
        width: H.
        pass_cost: operations of starting one more pass, per layer.
        layouts: of each trajectory; "square" by default.

    Returns:
        Lists of indices, in order.
    """
    packs: list[list[int]] = []
    start = 0
    for end in range(1, len(trajectories) + 1):
        if end < len(trajectories) and np.array_equal(
            trajectories[end].prompt, trajectories[start].prompt
        ):
            continue
        count, prompt, longest = (
            end - start,
            len(trajectories[start].prompt),
            max(lengths[start:end]),
        )
        found = set(layouts[start:end]) if layouts is not None else {"square"}
        costs = {}
        for size in range(1, count + 1):
            length = size * (prompt + longest) if "rows" in found else prompt + size * longest
            if length > tokens_per_microbatch and size > 1:
                break
            if "rows" in found:
                pairs = size * (prompt + longest) ** 2
            else:
                pairs = (
                    length**2
                    if "square" in found
                    else prompt**2 + size * longest * (prompt + longest)
                )
            costs[size] = -(-count // size) * (
                pass_cost + 24 * width**2 * length + 4 * width * pairs
            )
        size = min(costs, key=costs.__getitem__)
        packs += [list(range(at, min(at + size, end))) for at in range(start, end, size)]
        start = end
    return packs


def join_packs(
    packs: Sequence[list[int]],
    trajectories: Sequence[Trajectory],
    lengths: Sequence[int],
    most: int,
) -> list[list[int]]:
    """Packs of several prompts, as few as hold at most so many tokens each, and about equally many.

    At least two are left: signal and noise of a gradient are told from micro-batches of different
    prompts. For the same reason nothing is joined where a prompt needs several packs.

    Args:
        packs: of one prompt each, as `pack_sizes` gives them.
        trajectories: what the packs have the indices of.
        lengths: tokens that each adds to its prompt in a pack.
        most: tokens of a pack. One that has more already stays as it is, and so do all others.
    """
    prompts = [trajectories[pack[0]].prompt for pack in packs]
    if any(np.array_equal(one, other) for one, other in pairwise(prompts)):
        return list(packs)
    sizes = np.array(
        [len(trajectories[pack[0]].prompt) + sum(lengths[at] for at in pack) for pack in packs]
    )
    middles = np.cumsum(sizes) - sizes / 2
    for count in range(2, len(packs)):
        place = (middles * count / sizes.sum()).astype(int)
        if np.bincount(place, sizes).max() <= most:
            together = [np.flatnonzero(place == each).tolist() for each in np.unique(place)]
            return [[at for index in indices for at in packs[index]] for indices in together]
    return list(packs)
