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

    def begin(self, prompts: Sequence[Sequence[int]], copies: int, max_tokens: int) -> Tensor:
        """Read the prompts; the logits [P, V] of each one's first new token."""
        ...

    def step(self, tokens: Tensor) -> Tensor:
        """Append `tokens` [R] (row p * G + g); the logits [R, V] of the tokens that follow."""
        ...

    def keep(self, prompts: Tensor, copies: Tensor) -> None:
        """Keep the prompts [P'] and of each the copies [P', G'] (old column numbers); the grid becomes P' x G'."""
        ...
