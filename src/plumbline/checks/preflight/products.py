"""How fast a device multiplies matrices: a program of its own, so that it has one thread of the CPU
whatever its caller has, and its caller has no torch.

    python products.py DEVICE DTYPE INNER COLUMNS COUNT ROWS...

writes a JSON object: the device's name, its memory [bytes; null for a CPU], and
for each of ROWS the operations per second of products [ROWS, INNER] x [INNER, COLUMNS].
"""

import json
import sys
import time
from collections.abc import Callable
from typing import Any

SECONDS = 0.15
"""Of each measurement."""


def main() -> None:
    """Of the command line."""
    device, dtype, *sizes = sys.argv[1:]
    inner, columns, count, *rows = map(int, sizes)
    found: dict[str, Any] = {"name": "CPU", "memory": None}
    if device == "cpu":
        import numpy as np

        def draw(*shape: int) -> Any:
            return np.random.default_rng(0).standard_normal(shape, dtype=np.float32)

        clock, wait = time.process_time, None
    else:
        import torch

        def draw(*shape: int) -> Any:
            return torch.randn(shape, device=device, dtype=getattr(torch, dtype))

        clock, wait = time.perf_counter, torch.cuda.synchronize
        known = torch.cuda.get_device_properties(device)
        found = {"name": known.name, "memory": known.total_memory}
    matrices = draw(count, inner, columns)
    speeds = [measure(draw(each, inner), matrices, clock, wait) for each in rows]
    sys.stdout.write(json.dumps(found | {"speeds": speeds}))


def measure(
    x: Any, matrices: Any, clock: Callable[[], float], wait: Callable[[], None] | None
) -> float:
    """Operations per second of `x` times each of the matrices; `wait` ends what a GPU has begun."""

    def multiply() -> None:
        for each in matrices:
            x @ each
        if wait:
            wait()

    multiply()
    began, rounds = clock(), 0
    while (spent := clock() - began) < SECONDS:
        multiply()
        rounds += 1
    count, inner, columns = matrices.shape
    return float(2 * rounds * count * inner * columns * len(x) / spent)


if __name__ == "__main__":
    main()
