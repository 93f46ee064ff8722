"""Out of memory, on a GPU or on a CPU, as an error that says what needs less of it."""

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol
from weakref import WeakSet

from plumbline.errors import DeviceMemoryError

SIGNS = ("out of memory", "can't allocate memory")
"""What torch says where the error has no type of its own: asynchronous ones of CUDA, and those of a CPU."""


class Spare(Protocol):
    """What holds memory only to be faster."""

    def release(self) -> None:
        """Give it back, unless it is in use."""
        ...


SPARE: WeakSet[Spare] = WeakSet()
"""What is released where memory is short."""


def release_spare() -> None:
    """Release everything that holds memory only to be faster."""
    for each in list(SPARE):
        each.release()


@contextmanager
def clear_memory_errors(advice: str) -> Iterator[None]:
    """Turn torch's errors of a full memory inside the block into one with this advice.

    The frames that failed are emptied: whatever goes on afterwards, such as the next variant of a sweep, has the memory
    that their tensors took.

    Raises:
        DeviceMemoryError: the memory was not enough.
    """
    try:
        yield
    except RuntimeError as error:  # torch.OutOfMemoryError is one; torch itself is not needed to tell
        if type(error).__name__ != "OutOfMemoryError" and not any(sign in str(error) for sign in SIGNS):
            raise
        traceback.clear_frames(error.__traceback__)
        release_spare()
        first = str(error).strip().split("\n")[0][:300]
        raise DeviceMemoryError(f"the memory of the device is not enough: {first}", advice) from error
