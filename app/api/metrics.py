"""Figures about requests, for Prometheus."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector

BUCKETS = (0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 15, 60)
"""Seconds."""


class Metrics:
    """Counts and times requests by route template; memory and CPU time of the process stand beside them."""

    def __init__(self, registry: CollectorRegistry) -> None:
        ProcessCollector(registry=registry)
        self._requests = Counter(
            "branchline_http_requests",
            "Requests answered",
            ("method", "route", "status"),
            registry=registry,
        )
        self._seconds = Histogram(
            "branchline_http_request_seconds",
            "From the first byte of a request to the last of its answer",
            ("method", "route"),
            buckets=BUCKETS,
            registry=registry,
        )
        # `labels` checks its words each time; a dictionary is three times as fast.
        self._known: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}

    def served(self, method: str, route: str, status: int, seconds: float) -> None:
        """Note one request."""
        key = (method, route, status)
        found = self._known.get(key)
        if found is None:
            method = method if method in _METHODS else "OTHER"
            found = (
                self._requests.labels(method, route, str(status)),
                self._seconds.labels(method, route),
            )
            if len(self._known) < 4_096:
                self._known[key] = found
        found[0].inc()
        found[1].observe(seconds)


_METHODS = frozenset(("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"))
"""Any other word a client makes up is counted as one."""
