"""Engines that turn tokens into the next logits, one position at a time.

Letters in shapes: P prompts, G copies of each, R = P * G rows, V vocabulary, L prompt length.

A decoder holds a grid of P x G rows. `begin` reads each prompt once, however many copies it has;
`step` appends one token to every row; `keep` drops rows that are finished. Two engines: `lean` for
Llama-shaped models, `cached` for every model that transformers loads.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor


class Decoder(ABC):
    """One prompt pass, then one position at a time, over a grid of P x G rows."""

    @abstractmethod
    def begin(
        self, prompts: Sequence[Sequence[int]], copies: int, max_tokens: int, shared: int = 0
    ) -> Tensor:
        """Read the prompts; the logits [P, V] of each one's first new token.

        Args:
            prompts: P lists of token ids.
            copies: G.
            max_tokens: tokens that will be appended at most.
            shared: tokens that all prompts begin with, fewer than the shortest has; an engine may
                read them once for all chunks of its life, in which weights do not change.
        """

    @abstractmethod
    def step(self, tokens: Tensor) -> Tensor:
        """Append `tokens` [R] (row p * G + g); the logits [R, V] of the tokens that follow."""

    def exact(self, logits: Tensor, rows: Sequence[int]) -> Tensor:  # noqa: ARG002 - by default not known again
        """The last logits [N, V] of some rows, of which some are minus infinity now, with the
        likeliest computed in float32; as they are where the hidden states are not known.
        """
        return logits

    @abstractmethod
    def keep(self, prompts: Tensor, copies: Tensor) -> None:
        """Keep the prompts [P'] and of each the copies [P', G'] (old column numbers); the grid
        becomes P' x G'."""


WORTH_SHARING = 12_000_000
"""Multiplications in one operation from which on a second thread pays: 8M take 250 us on one thread
and 275 on two, 17M take 390 and 330."""


@contextmanager
def threads_for(multiplications: int) -> Iterator[None]:
    """One CPU thread inside the block where its operations are smaller than `WORTH_SHARING`.

    Waking a second thread costs 100 us where waiting threads sleep (OMP_WAIT_POLICY=passive, which
    a busy machine needs), and a decode step of a small model is a hundred operations of 10 us.
    Changing the number costs 0.3 us, so each kind of work gets its own.
    """
    threads = torch.get_num_threads()
    if threads == 1 or multiplications >= WORTH_SHARING:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
