"""Out of memory, on a GPU or on a CPU, as an error that says what needs less of it."""

import ctypes
import gc
import os
import resource
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from plumbline.errors import DeviceMemoryError

SIGNS = ("out of memory", "can't allocate memory")
"""What torch says where the error has no type of its own: asynchronous ones of CUDA, and those of a
CPU."""

M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_MAX = -1, -2, -4
"""Of mallopt(3), as glibc's malloc.h numbers them."""
KEPT = 0.5
"""Share of the main memory within reach above which no pages are kept from one step or chunk of
answers to the next."""
STATM = Path("/proc/self/statm")
"""Linux: the pages of this process, all and resident."""
GROUPS = Path("/proc/self/cgroup")
"""Linux: a line `number:controllers:path` for each control group of this process; version 2 names
no controllers."""
LIMITS = Path("/sys/fs/cgroup")


def is_full(error: BaseException) -> bool:
    """Whether an error says that the memory was not enough."""
    # torch.OutOfMemoryError is a RuntimeError; torch itself is not needed to tell
    return isinstance(error, RuntimeError) and (
        type(error).__name__ == "OutOfMemoryError" or any(sign in str(error) for sign in SIGNS)
    )


def release_after_error(error: BaseException) -> None:
    """Give back what failed with an error of a full memory held, so that it can be tried again with
    less."""
    traceback.clear_frames(error.__traceback__)
    release_memory()


def release_memory() -> None:
    """Give memory that nothing refers to any more back to the device."""
    import torch

    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    _trim()


def _trim() -> None:
    """Give the system the pages that glibc keeps, those between what is in use as well."""
    if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):
        trim(0)


def keep_pages() -> None:
    """Let the C library keep what tensors on a CPU give back, for those of the next step, until
    `release_memory`.

    glibc asks the system for new pages for each large tensor and returns them at once, and every
    page is filled with zeros on its first use: seven million of them in one step of SFT (8
    sequences of 1,350 tokens, SmolLM2, bfloat16), which took 50 s on a virtual machine, and 29 s
    without. No result depends on it. Settings of the user's own (`MALLOC_...`, GLIBC_TUNABLES,
    another allocator) are left alone.
    """
    own = any(name.startswith("MALLOC_") for name in os.environ) or "GLIBC_TUNABLES" in os.environ
    if not own and (mallopt := getattr(ctypes.CDLL(None), "mallopt", None)):
        for parameter, value in ((M_MMAP_MAX, 0), (M_TRIM_THRESHOLD, -1), (M_TOP_PAD, 2**26)):
            mallopt(parameter, value)


def begin_peak(device: Any) -> None:
    """From here on `read_peak` counts. On a CPU it counts from the start of the process."""
    import torch

    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    else:
        give_back_where_scarce()


def give_back_where_scarce() -> None:
    """Give kept pages back where the process holds more than half of what it may.

    Between steps of training of several sizes a third more of them gathers. Chunks of answers have
    prompts of many lengths, and so tensors that do not fit into the places of those before: 64
    answers of SmolLM2 to long prompts left the process with 4.5 GB, and 192 with 6.1.
    """
    if (
        STATM.is_file()
        and int(STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") > KEPT * main_memory()
    ):
        _trim()


def read_peak(device: Any) -> int:
    """The most bytes that tensors took on a GPU since `begin_peak`; on a CPU those of the process
    since it began."""
    import torch

    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (
        1 if sys.platform == "darwin" else 1024
    )


def measure_reachable_memory(device: Any) -> int:
    """Bytes of a device that tensors of this process have or could have; other processes keep
    theirs on a GPU."""
    import torch

    if device.type != "cuda":
        return main_memory()
    free, _ = torch.cuda.mem_get_info(device)
    return int(free) + torch.cuda.memory_reserved(device)


def main_memory() -> int:
    """Bytes that this process may hold: the machine's, or fewer where a control group, such as a
    container's, says so.

    https://docs.kernel.org/admin-guide/cgroup-v2.html, and cgroup-v1/memory.html beside it.
    """
    most = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for line in GROUPS.read_text().splitlines() if GROUPS.is_file() else ():
        _, controllers, path = line.split(":", 2)
        if controllers not in {"", "memory"}:
            continue
        top, name = (
            (LIMITS / "memory", "memory.limit_in_bytes") if controllers else (LIMITS, "memory.max")
        )
        group = top / path.lstrip("/")
        for each in (group, *group.parents):  # a container may see its own group at the top alone
            if each.is_relative_to(top) and (each / name).is_file():
                said = (each / name).read_text().strip()
                most = min(most, int(said)) if said.isdigit() else most  # else "max"
    return most


Say = Callable[[str, str], None]
"""Takes an event: its kind, and a message for the user."""


def ignore_message(kind: str, message: str) -> None:
    """Where nobody asked to be told."""


@contextmanager
def clear_memory_errors(advice: str) -> Iterator[None]:
    """Turn torch's errors of a full memory inside the block into one with this advice.

    The frames that failed are emptied: whatever goes on afterwards, such as the next variant of a
    sweep, has the memory that their tensors took.

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
        raise DeviceMemoryError(
            f"the memory of the device is not enough: {first}", advice
        ) from error
