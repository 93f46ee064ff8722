"""Out of memory, on a GPU or on a CPU, as an error that says what needs less of it."""

import gc
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from plumbline.errors import DeviceMemoryError

SIGNS = ("out of memory", "can't allocate memory")
"""What torch says where the error has no type of its own: asynchronous ones of CUDA, and those of a CPU."""


def is_full(error: BaseException) -> bool:
    """Whether an error says that the memory was not enough."""
    # torch.OutOfMemoryError is a RuntimeError; torch itself is not needed to tell
    return isinstance(error, RuntimeError) and (
        type(error).__name__ == "OutOfMemoryError" or any(sign in str(error) for sign in SIGNS)
    )


def free(error: BaseException) -> None:
    """Give back what failed with an error of a full memory held, so that it can be tried again with less."""
    traceback.clear_frames(error.__traceback__)
    release()


def release() -> None:
    """Give memory that nothing refers to any more back to the device."""
    import torch

    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


Say = Callable[[str, str], None]
"""Takes an event: its kind, and a message for the user."""


def unheard(kind: str, message: str) -> None:
    """Where nobody asked to be told."""


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
    except RuntimeError as error:
        if not is_full(error):
            raise
        traceback.clear_frames(error.__traceback__)
        first = str(error).strip().split("\n")[0][:300]
        raise DeviceMemoryError(f"the memory of the device is not enough: {first}", advice) from error
