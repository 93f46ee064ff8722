"""What a router decided, as Prometheus reads it."""

from collections.abc import Iterator, Mapping
from typing import Protocol, runtime_checkable

from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

from plumbline.serve.decision_log import LABELS

SAID = {
    "answers": "Answers of a router, by what became of them",
    "refused": "Requests that no route was found for",
    "fallbacks": "Models that failed, and after which the route's next was asked",
    "shadows": "Requests that a shadow got, or for which there was no space",
    "log_rows": "Rows of the decision log",
}


@runtime_checkable
class Counts(Protocol):
    """A `Served` that counts what it decides."""

    def counts(self) -> Mapping[tuple[str, ...], int]:
        """By name and labels (see `decision_log.LABELS`)."""
        ...


class DecisionMetrics(Collector):
    """The counters of a router, read when somebody asks for them."""

    def __init__(self, router: Counts) -> None:
        """Take whose counters they are."""
        self.router = router

    def collect(self) -> Iterator[CounterMetricFamily]:
        """A family for each counter."""
        counts = self.router.counts()
        for name, labels in LABELS.items():
            family = CounterMetricFamily(f"plumbline_router_{name}", SAID[name], labels=labels)
            for (what, *values), count in counts.items():
                if what == name:
                    family.add_metric(values, count)
            yield family
