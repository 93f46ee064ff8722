"""What is kept of requests: counts for Prometheus, and a line each in a log."""

import logging
import os
import stat
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import IO, Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from plumbline.serve.backend import Backend
from plumbline.serve.limits import Json, Refusal, RequestLimits, shutdown_refusal
from plumbline.storage import clear_os_errors, dumps

SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
"""Borders of the histograms."""
_told = logging.getLogger("plumbline.serve")
GONE = 499
"""The status of a request whose client went away, which nobody is sent."""


@dataclass(slots=True, kw_only=True)
class RequestRecord:
    """One request, as it is counted and logged."""

    began: float = field(default_factory=time.monotonic)
    model: str = ""
    """Empty where it names none of ours."""
    status: int = 500
    first: float | None = None
    """Seconds to the first piece of an answer."""
    begun: bool = False
    """Whether a stream was begun, whose status cannot be changed any more."""
    said: Json = field(default_factory=dict)
    """What the log says beside it."""
    contents: Json = field(default_factory=dict)
    """Messages and answers, which a log has only where it is asked to."""


class RequestMetrics:
    """Counts of one server, in a registry of its own, and its log.

    The log's disk may refuse a row: that fails no request, and the first of a series is told
    loudly.
    """

    def __init__(
        self, limits: RequestLimits, log: Path | None = None, *, contents: bool = False
    ) -> None:
        """Begin to count.

        Raises:
            StorageError: the log cannot be written.
        """
        self.limits, self.contents, self.closing = limits, contents, False
        self._log: IO[str] | None = None
        self._failing = False
        if log is not None:
            with clear_os_errors(log):
                waiting_for_nobody = (
                    os.O_WRONLY
                    | os.O_APPEND
                    | os.O_CREAT
                    | os.O_CLOEXEC
                    | os.O_NONBLOCK
                    | os.O_NOCTTY
                )
                descriptor = os.open(log, waiting_for_nobody, 0o666)  # a pipe's reader
                if contents and stat.S_ISREG(os.fstat(descriptor).st_mode):
                    os.fchmod(descriptor, 0o600)  # what people ask is theirs
                self._log = os.fdopen(descriptor, "a", encoding="utf-8", buffering=1)
        self.registry = CollectorRegistry()
        own: Any = {"registry": self.registry}
        self.requests = Counter(
            "plumbline_requests", "Chat requests that ended", ["model", "status"], **own
        )
        self.tokens = Counter(
            "plumbline_tokens", "Tokens of prompts and answers", ["model", "kind"], **own
        )
        self.seconds = Histogram(
            "plumbline_request_seconds", "To a request's end", ["model"], buckets=SECONDS, **own
        )
        self.first = Histogram(
            "plumbline_first_piece_seconds",
            "To an answer's first piece",
            ["model"],
            buckets=SECONDS,
            **own,
        )
        self.in_flight = Gauge(
            "plumbline_requests_in_flight", "Chat requests being answered", **own
        )
        self.queue = Gauge(
            "plumbline_answers_waiting", "Answers that are not begun", ["model"], **own
        )
        self.lost = Counter("plumbline_log_rows_lost", "Rows that the log's disk refused", **own)
        self.busy = 0

    def watch_queues(self, models: Sequence[Backend]) -> None:
        """Show how many answers wait for each of these models."""
        for served in models:
            if served.waiting is not None:
                self.queue.labels(served.name).set_function(partial(getattr, served, "waiting"))

    def render(self) -> bytes:
        """The counts, as Prometheus reads them."""
        return generate_latest(self.registry)

    @contextmanager
    def record_request(self) -> Iterator[RequestRecord]:
        """Count and log what happens to one request in the block."""
        entry = RequestRecord()
        try:
            yield entry
        finally:
            seconds = time.monotonic() - entry.began
            self.requests.labels(entry.model, str(entry.status)).inc()
            if entry.status == 200:
                self.seconds.labels(entry.model).observe(seconds)
                if entry.first is not None:
                    self.first.labels(entry.model).observe(entry.first)
            for kind in ("prompt", "completion"):
                self.tokens.labels(entry.model, kind).inc(entry.said.get(f"{kind}_tokens", 0))
            self._write(entry, seconds)

    def _write(self, entry: RequestRecord, seconds: float) -> None:
        if self._log is None:
            return
        row = {
            "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "model": entry.model,
            "status": entry.status,
            "seconds": round(seconds, 4),
            "first_piece_seconds": None if entry.first is None else round(entry.first, 4),
            **entry.said,
            **(entry.contents if self.contents else {}),
        }
        try:
            self._log.write(f"{dumps(row)}\n")
        except OSError as error:
            if not self._failing:
                _told.error("the log of requests loses rows: %s", error)
            self.lost.inc()
            self._failing = True
        else:
            self._failing = False

    @contextmanager
    def take_slot(self) -> Iterator[None]:
        """One of the requests in flight.

        Raises:
            Refusal: there are as many as there may be, or the server ends.
        """
        if self.closing:
            raise shutdown_refusal()
        if self.busy >= self.limits.requests:
            raise Refusal(
                429,
                f"{self.limits.requests} requests are being answered, which is all that this "
                "server does at once",
                code="too_many_requests",
                headers={"retry-after": "1"},
            )
        self.busy += 1
        self.in_flight.set(self.busy)
        try:
            yield
        finally:
            self.busy -= 1
            self.in_flight.set(self.busy)

    def close(self) -> None:
        """Close the log; what its disk still refuses was counted as lost."""
        if self._log is not None:
            with suppress(OSError):
                self._log.close()


def find_model(models: Mapping[str, Backend], name: str) -> Backend:
    """The model of a name.

    Raises:
        Refusal: there is none.
    """
    if name not in models:
        raise Refusal(
            404,
            f"there is no model {name[:100]!r} here; there are {', '.join(models)}",
            param="model",
            code="model_not_found",
        )
    return models[name]
