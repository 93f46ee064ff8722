"""Two ways of doing the same work, taking turns: medians of pair ratios, and peak memory."""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Ratio:
    """How many times longer `theirs` took than `ours`."""

    median: float
    least: float
    greatest: float
    ours_seconds: float
    theirs_seconds: float
    pairs: int
    ours_peak_mb: float | None
    theirs_peak_mb: float | None

    def row(self, *labels: object) -> str:
        """A Markdown table row."""
        peak = "-" if self.ours_peak_mb is None else f"{self.ours_peak_mb:.0f} / {self.theirs_peak_mb:.0f} MB"
        cells = [*map(str, labels), f"{self.ours_seconds * 1e3:.0f} ms", f"{self.theirs_seconds * 1e3:.0f} ms"]
        cells += [f"**{self.median:.2f}** ({self.least:.2f} to {self.greatest:.2f})", str(self.pairs), peak]
        return "| " + " | ".join(cells) + " |"


HEADER = ("ours", "theirs", "theirs / ours, median (least to greatest)", "pairs", "peak, ours / theirs")


def timed(work: Callable[[], object], device: torch.device) -> tuple[float, float | None]:
    """Seconds of one call, and on a GPU its peak memory in MB."""
    if device.type == "cuda":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
    began = time.perf_counter()
    work()
    if device.type == "cuda":
        torch.cuda.synchronize()
        return time.perf_counter() - began, torch.cuda.max_memory_allocated() / 1e6
    return time.perf_counter() - began, None


def compare(
    ours: Callable[[], object], theirs: Callable[[], object], device: torch.device, pairs: int, warmups: int = 2
) -> Ratio:
    """Run the two in turn; which goes first alternates."""
    for _ in range(warmups):
        ours()
        theirs()
    results: dict[str, list[float]] = {"ours": [], "theirs": []}
    peaks: dict[str, float | None] = {"ours": None, "theirs": None}
    for pair in range(pairs):
        order = [("ours", ours), ("theirs", theirs)]
        for name, work in order if pair % 2 == 0 else reversed(order):
            seconds, peak = timed(work, device)
            results[name].append(seconds)
            peaks[name] = peak if peaks[name] is None else max(peaks[name], peak)
    ratios = [theirs_s / ours_s for ours_s, theirs_s in zip(results["ours"], results["theirs"], strict=True)]
    return Ratio(
        statistics.median(ratios),
        min(ratios),
        max(ratios),
        statistics.median(results["ours"]),
        statistics.median(results["theirs"]),
        pairs,
        peaks["ours"],
        peaks["theirs"],
    )
