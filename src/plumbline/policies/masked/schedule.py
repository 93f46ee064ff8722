"""How many places are filled in when: fixed in advance, so no part of the law depends on the weights.

Letters: L places, T steps, B blocks.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from plumbline.errors import RecipeError
from plumbline.policies.masked.options import MaskedSampling


@dataclass(frozen=True, slots=True)
class Slice:
    """One denoising step."""

    start: int
    """First place of the block that is being filled."""
    end: int
    """One past its last place."""
    count: int
    """Places to fill, where the selector fills a fixed number."""
    share: float
    """Probability that a hidden place is filled, where each is decided by itself (ancestral): 1 / steps left."""
    last: bool
    """Whether the block must be finished in this step."""
    time: float
    """When the step begins, in [0, 1)."""


def slices(sampling: MaskedSampling, block: int | None = None, start: int = 0) -> list[Slice]:
    """The steps of a law, block after block, places and steps dealt as evenly as whole numbers allow.

    Args:
        sampling: the law.
        block: tokens of a block, of a model that has its own; they are counted from the prompt's first token.
        start: tokens of the prompt, of which the last ones may stand in the canvas's first block.

    Raises:
        RecipeError: there are no steps, or fewer than blocks, or more than places; or the law has blocks, and the
            model its own.
    """
    places, steps = sampling.max_tokens, sampling.steps
    if block is not None and sampling.blocks != 1:
        raise RecipeError(
            f"sampling.blocks is {sampling.blocks}, but this model writes blocks of {block} tokens of its own",
            "leave sampling.blocks out",
        )
    edges = _even(places, sampling.blocks)
    if block is not None:
        edges = [0, *range(block - start % block, places, block), places]
    blocks = len(edges) - 1
    if steps is None:
        raise RecipeError(
            "a diffusion policy needs a number of denoising steps", "set sampling.steps, for example to 8"
        )
    if not blocks <= steps <= places:
        raise RecipeError(
            f"{steps} steps do not fit {blocks} blocks of a canvas of {places} places",
            f"set sampling.steps between the number of blocks and sampling.max_tokens ({places})",
        )
    result = []
    turns = _deal(steps, [end - start for start, end in pairwise(edges)])
    for block, (start, end) in enumerate(pairwise(edges)):
        number, before = turns[block], sum(turns[:block])
        filled = _even(end - start, number)
        for step in range(number):
            result.append(
                Slice(
                    start=start,
                    end=end,
                    count=filled[step + 1] - filled[step],
                    share=1 / (number - step),
                    last=step + 1 == number,
                    time=(before + step) / steps,
                )
            )
    return result


def _deal(steps: int, sizes: Sequence[int]) -> list[int]:
    """Steps of each block: one, and each further one to the block with the most places a step.

    So no block has more steps than places, and no step has nothing to fill.
    """
    turns = [1] * len(sizes)
    for _ in range(steps - len(sizes)):
        turns[max(range(len(sizes)), key=lambda block: sizes[block] / turns[block])] += 1
    return turns


def _even(total: int, parts: int) -> list[int]:
    """Edges of `parts` nearly equal stretches of `total`."""
    return [total * part // parts for part in range(parts + 1)]
