"""What this machine can do at best, measured in about a second: large products, and reading memory."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from plumbline.config.imports import check_installed
from plumbline.recipe import ModelSection

PRODUCTS = {"cpu": ((1024, 576, 1536), 2**25), "other": ((8192, 8192, 8192), 2**28)}
"""Rows, inputs and outputs of the large product, and how many 8-byte numbers are read."""
SECONDS = 0.4
"""Time for each measurement."""


@dataclass(frozen=True, slots=True)
class Machine:
    """A device, and its rates."""

    device: str
    dtype: str
    products: float
    """Floating-point operations a second of a large product in this dtype."""
    reading: float
    """Bytes a second that are read from memory."""
    memory: int
    """Bytes: of the GPU, or of the machine."""
    in_float32: float | None = None
    """Of a CPU that is asked for another dtype: the rate of the same product in float32."""

    @property
    def dtype_bytes(self) -> int:
        """Of a number."""
        return 2 if self.dtype == "bfloat16" else 4

    @property
    def on_cpu(self) -> bool:
        """Whether it is no GPU."""
        return self.device == "cpu"


def measure(section: ModelSection) -> Machine:
    """The device that a recipe's model would be on, with its rates in the recipe's dtype and threads.

    Raises:
        ModelError: torch is not installed, or the device is not there.
    """
    check_installed("measuring this machine", ("torch",))
    import torch

    from plumbline.policies.memory import within_reach
    from plumbline.policies.pretrained.loading import choose_device, choose_dtype

    device = choose_device(section)
    dtype = choose_dtype(section, device)
    threads = torch.get_num_threads()
    if section.threads is not None:
        torch.set_num_threads(section.threads)
    try:
        (rows, inputs, outputs), count = PRODUCTS["cpu" if device.type == "cpu" else "other"]

        def rate(dtype: torch.dtype) -> float:
            left, right = (torch.ones(size, inputs, device=device, dtype=dtype) for size in (rows, outputs))
            return 2 * rows * inputs * outputs / _best(lambda: torch.nn.functional.linear(left, right), device)

        products = rate(dtype)
        in_float32 = rate(torch.float32) if device.type == "cpu" and dtype != torch.float32 else None
        large = torch.ones(count, dtype=torch.int64, device=device)
        reading = _best(large.sum, device)
    finally:
        torch.set_num_threads(threads)
    name = str(dtype).removeprefix("torch.")
    return Machine(str(device), name, products, 8 * count / reading, within_reach(device), in_float32)


def _best(work: Callable[[], Any], device: Any) -> float:
    """Seconds of the fastest of several times."""
    import torch

    seconds: list[float] = []
    began = time.perf_counter()
    while len(seconds) < 3 or time.perf_counter() - began < SECONDS:
        start = time.perf_counter()
        work()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        seconds.append(time.perf_counter() - start)
    return min(seconds)
