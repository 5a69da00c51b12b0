"""Figures about runs, for Prometheus: read when they are asked for, so that they cost the runs nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric


class RunFigures:
    """A collector over plain functions."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._counters: list[tuple[str, str, Callable[[], float]]] = []
        self._gauges: list[tuple[str, str, Callable[[], float]]] = []
        registry.register(self)

    def counter(self, name: str, says: str, read: Callable[[], float]) -> None:
        """A number that only grows."""
        self._counters.append((name, says, read))

    def gauge(self, name: str, says: str, read: Callable[[], float]) -> None:
        """A number that goes up and down."""
        self._gauges.append((name, says, read))

    def collect(self) -> Iterable[Metric]:
        """See prometheus_client's collectors."""
        for name, says, read in self._counters:
            yield CounterMetricFamily(f"branchline_{name}", says, value=read())
        for name, says, read in self._gauges:
            yield GaugeMetricFamily(f"branchline_{name}", says, value=read())
