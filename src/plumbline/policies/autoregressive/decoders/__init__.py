"""Engines that turn tokens into the next logits, one position at a time.

Letters in shapes: P prompts, G copies of each, R = P * G rows, V vocabulary, L prompt length.

A decoder holds a grid of P x G rows. `begin` reads each prompt once, however many copies it has; `step` appends one
token to every row; `keep` drops rows that are finished. Two engines: `lean` for Llama-shaped models, `cached` for
every model that transformers loads.
"""

from collections.abc import Sequence
from typing import Protocol

from torch import Tensor


class Decoder(Protocol):
    """One prompt pass, then one position at a time, over a grid of P x G rows."""

    name: str

    def begin(self, prompts: Sequence[Sequence[int]], copies: int, max_tokens: int, shared: int = 0) -> Tensor:
        """Read the prompts; the logits [P, V] of each one's first new token.

        Args:
            prompts: P lists of token ids.
            copies: G.
            max_tokens: tokens that will be appended at most.
            shared: tokens that all prompts begin with, fewer than the shortest has; an engine may read them once for
                all chunks of its life, in which weights do not change.
        """
        ...

    def step(self, tokens: Tensor) -> Tensor:
        """Append `tokens` [R] (row p * G + g); the logits [R, V] of the tokens that follow."""
        ...

    def keep(self, prompts: Tensor, copies: Tensor) -> None:
        """Keep the prompts [P'] and of each the copies [P', G'] (old column numbers); the grid becomes P' x G'."""
        ...
