"""Two ways of doing the same work, taking turns: medians of pair ratios, and peak memory."""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

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
        peak = (
            "-"
            if self.ours_peak_mb is None
            else f"{self.ours_peak_mb:.0f} / {self.theirs_peak_mb:.0f} MB"
        )
        cells = [
            *map(str, labels),
            f"{self.ours_seconds * 1e3:.0f} ms",
            f"{self.theirs_seconds * 1e3:.0f} ms",
        ]
        cells += [
            f"**{self.median:.2f}** ({self.least:.2f} to {self.greatest:.2f})",
            str(self.pairs),
            peak,
        ]
        return "| " + " | ".join(cells) + " |"


HEADER = (
    "ours",
    "theirs",
    "theirs / ours, median (least to greatest)",
    "pairs",
    "peak, ours / theirs",
)


def timed(work: Callable[[], object], device: torch.device) -> tuple[float, float | None]:
    """Seconds of one call, and the most memory in MB that it took beyond what was taken before it.

    On a GPU that is what torch allocated in all; on Linux the process's resident set above where it
    stood.
    """
    if device.type == "cuda":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
    before = _reset_peak() if device.type == "cpu" else None
    began = time.perf_counter()
    work()
    if device.type == "cuda":
        torch.cuda.synchronize()
        return time.perf_counter() - began, torch.cuda.max_memory_allocated() / 1e6
    seconds = time.perf_counter() - began
    return seconds, None if before is None else _status("VmHWM") - before


def _reset_peak() -> float | None:
    """Forget the process's peak; what it holds now in MB, or None where the system cannot tell."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
        return _status("VmRSS")
    except OSError:
        return None


def _status(name: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name + ":")) * 1024 / 1e6


def compare(
    ours: Callable[[], object],
    theirs: Callable[[], object],
    device: torch.device,
    pairs: int,
    warmups: int = 2,
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
            known = peaks[name]
            peaks[name] = peak if known is None or peak is None else max(known, peak)
    ratios = [
        theirs_s / ours_s
        for ours_s, theirs_s in zip(results["ours"], results["theirs"], strict=True)
    ]
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
