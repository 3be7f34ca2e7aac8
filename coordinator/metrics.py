"""The coordinator's metrics in Prometheus' text format, read from the machines at the time of asking."""

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4 as CONTENT_TYPE
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from hocket.coordinator.core import Core

__all__ = ["CONTENT_TYPE", "render"]


class _CoreCollector(Collector):
    def __init__(self, core: Core, strangers: int) -> None:
        self._core, self._strangers = core, strangers

    def collect(self) -> Iterable[Metric]:
        members, barriers = self._core.membership, self._core.barriers
        counts = members.counts
        yield _gauge("workers", "Workers that are registered.", len(members.hosts))
        yield _gauge("sessions", "Clients that are in a job or wait for its world.", len(members.sessions))
        yield _gauge("groups", "Group epochs that live.", len(members.groups))
        yield _gauge("groups_forming", "Groups that wait for members.", len(members.forming))
        yield _gauge("barriers_waiting", "Barriers that somebody waits in.", len(barriers.waiting))
        yield _counter("joins", "Clients that were let into a job.", counts.joins)
        yield _counter("refusals", "Requests that were refused.", counts.refusals)
        yield _counter("groups_formed", "Group epochs that were formed.", counts.groups_formed)
        yield _counter("barriers_released", "Barriers at which all arrived.", barriers.released)
        yield _counter("barriers_broken", "Monitored barriers that broke.", barriers.broken)
        yield _counter("strangers", "Connections that were turned away.", self._strangers)
        losses = CounterMetricFamily("hocket_losses", "Clients that are gone, by cause.", labels=["cause"])
        for cause, number in sorted(counts.losses.items()):
            losses.add_metric([cause], number)
        yield losses


def _gauge(name: str, text: str, value: int) -> Metric:
    return GaugeMetricFamily(f"hocket_{name}", text, value=value)


def _counter(name: str, text: str, value: int) -> Metric:
    return CounterMetricFamily(f"hocket_{name}", text, value=value)


def render(core: Core, strangers: int) -> bytes:
    """All metrics, for the content type `CONTENT_TYPE`."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_CoreCollector(core, strangers))
    return generate_latest(registry)
