"""How many CPU threads an operation is worth.

Waking a second thread costs 100 us where waiting threads sleep (OMP_WAIT_POLICY=passive, which a busy machine needs),
and a decode step of a small model is a hundred operations of 10 us. Changing the number costs 0.3 us, so each kind of
work gets its own.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

WORTH_SHARING = 12_000_000
"""Multiplications in one operation from which on a second thread pays: 8M take 250 us on one thread and 275 on two,
17M take 390 and 330."""


@contextmanager
def threads_for(multiplications: int) -> Iterator[None]:
    """One thread inside the block where its operations are smaller than `WORTH_SHARING`."""
    threads = torch.get_num_threads()
    if threads == 1 or multiplications >= WORTH_SHARING:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
