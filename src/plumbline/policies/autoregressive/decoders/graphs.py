"""CUDA graphs of a decoding step that outlive the call which captured them, over buffers that stay
where they are.

A graph reads and writes the addresses that it was captured with. So whatever a step touches lies in
buffers kept here, a shape is rounded up to one that comes again (`bucket`), and a call of like
shape fills the buffers and replays. Graphs of all shapes share the buffers and one memory pool,
because one of them runs at a time; the buffers are as large as the largest shape drawn. Weights
that training changes in place need nothing; what is computed from them (adapters as products take
them) is written into its buffer again in each call.
"""

import math
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from plumbline.policies.memory import SPARE

KEPT = 32
"""Graphs held at once; the one unused for longest goes first."""
SHARE = 0.1
"""Of the device's memory that buffers may hold on to between two calls; larger ones go back when a
call ends."""


def bucket(count: int) -> int:
    """The least number of the form 2^k or 3 * 2^k that is not below `count`: at most half as much
    again."""
    power: int = 1 << max(count - 1, 0).bit_length()
    return power * 3 // 4 if power >= 4 and count <= power * 3 // 4 else power


def capture(work: Callable[[], object], pool: Any) -> Any:
    """What `work` does on the device, as an object whose `replay()` does it again at the same
    addresses."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    # a warm-up outside the capture, as CUDA graphs require; it may run twice,
    with torch.cuda.stream(stream):
        work()  # because it writes the same numbers to the same place
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    # thread_local: what a learner allocates in another thread meanwhile (`rl.off_policy_steps`)
    # must not end the capture.
    with torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local"):
        work()
    return graph


class Graphs:
    """The graphs of one model's decoding steps and their buffers."""

    def __init__(self) -> None:
        self.graphs: dict[Hashable, Any] = {}  # the one used last stands last
        self.buffers: dict[str, Tensor] = {}  # flat
        self.marks: Hashable = None
        self.pool: Any = None
        self.in_use = False
        SPARE.add(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> "Graphs":
        """A copied model has other weights at other addresses."""
        return Graphs()

    @contextmanager
    def lent(self) -> Iterator["Graphs"]:
        """These for one call of a sampler, or others where another call is still drawing with
        them."""
        if self.in_use:
            yield Graphs()
            return
        self.in_use = True
        try:
            yield self
        finally:
            self.in_use = False
            held = sum(buffer.nbytes for buffer in self.buffers.values())
            if held > SHARE * _memory(self.buffers):
                self.release()

    def release(self) -> None:
        """Give all memory back, unless a call is drawing with it."""
        if not self.in_use:
            self._forget()
            self.buffers = {}

    def begin(self, marks: Hashable) -> None:
        """Forget graphs of a model that is not the same any more; `marks` says what they were
        captured with."""
        if marks != self.marks:
            self._forget()
            self.marks = marks

    def _forget(self) -> None:
        self.graphs, self.pool = {}, None  # a pool whose graphs are all gone cannot be used again

    def place(
        self, name: str, source: Tensor, shape: tuple[int, ...] | None = None, fill: float = 0.0
    ) -> Tensor:
        """A copy of `source` in the corner of a buffer of that shape, which is at the same address
        every time.

        Args:
            name: of the buffer; it grows where it is too small, and then no graph is left.
            source: in no buffer of that name.
            shape: at least the source's, in each dimension; its own by default.
            fill: what stands beside it.
        """
        shape = shape or tuple(source.shape)
        size, held = math.prod(shape), self.buffers.get(name)
        if (
            held is None
            or held.numel() < size
            or (held.dtype, held.device) != (source.dtype, source.device)
        ):
            self._forget()
            del held
            self.buffers.pop(name, None)  # before its successor is made
            self.buffers[name] = source.new_empty(size)
        view = self.buffers[name][:size].view(shape)
        if shape != source.shape:
            view.fill_(fill)
        view[tuple(map(slice, source.shape))] = source
        return view

    def run(self, key: Hashable, work: Callable[[], object]) -> None:
        """Do `work` by the graph of this key, which is captured where there is none; `work` waits
        for nothing."""
        graph = self.graphs.pop(key, None)
        if graph is None:
            while len(self.graphs) >= KEPT:
                del self.graphs[next(iter(self.graphs))]
            graph = self._captured(work)
        self.graphs[key] = graph
        graph.replay()

    def _captured(self, work: Callable[[], object]) -> Any:
        for last in (False, True):
            if self.pool is None and torch.cuda.is_available():
                self.pool = torch.cuda.graph_pool_handle()
            try:
                return capture(work, self.pool)
            except torch.OutOfMemoryError:
                if last or not self.graphs:
                    raise
            self._forget()
            torch.cuda.empty_cache()
        raise AssertionError


def _memory(buffers: dict[str, Tensor]) -> float:
    """Bytes of the device that the buffers are on; without end where that is not a GPU."""
    device = next((buffer.device for buffer in buffers.values()), None)
    if device is None or device.type != "cuda":
        return math.inf
    return float(torch.cuda.get_device_properties(device).total_memory)
