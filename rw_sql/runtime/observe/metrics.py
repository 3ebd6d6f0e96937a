"""A warehouse's metrics for Prometheus and SHOW METRICS: operations from the log of record, jobs from their tables."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from deltalake.exceptions import DeltaError
from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from rw_sql.errors import INVALID_PARAMETER, SqlError
from rw_sql.metastore.codec import changes_from_json
from rw_sql.metastore.records import MaterializedViewRecord, PutSplitStates, SourceRecord
from rw_sql.model.job_ids import fragment_source, ingest_fragment, sink_job, view_job
from rw_sql.plan.requests.catalog import Sample
from rw_sql.runtime.decoding.decoder import ERROR
from rw_sql.runtime.delta.delta_log import column_count, latest_version, read_actions
from rw_sql.runtime.delta.rejected_rows import rejected_count
from rw_sql.runtime.jobs.statuses import FLAPPING, present_statuses
from rw_sql.runtime.observe.lag import measure_lags

if TYPE_CHECKING:
    from rw_sql.metastore import Snapshot
    from rw_sql.metastore.records import OperationRecord
    from rw_sql.runtime.jobs.context import Context

logger = logging.getLogger(__name__)

HELP = {
    "rw_sql_unsafe_operations_total": "Unsafe operations, by kind and source.",
    "rw_sql_injected_split_states_total": "Positions set by unsafe operations.",
    "rw_sql_source_last_unsafe_operation_timestamp_seconds": "When the newest unsafe operation was committed.",
    "rw_sql_job_lag_records": "Records a source is behind its upstream, rows a view is behind its inputs.",
    "rw_sql_job_rows_total": "Rows that a job has committed since this process first read the metrics.",
    "rw_sql_decode_errors_total": "Records that did not decode since this process first read the metrics.",
    "rw_sql_sink_rejected_rows_total": "Rows that a sink's target refused, in the sink's table of rejected rows.",
    "rw_sql_job_restarts_total": "Restarts of a job after a failure, in its owner's process.",
    "rw_sql_job_running": "1 while a job runs, 0 otherwise, also while it is flapping.",
    "rw_sql_job_flapping": "1 while a job starts and fails again and again, 0 otherwise.",
}
"""All metrics with their descriptions. Names that end in ``_total`` are counters."""


@dataclass(slots=True)
class _Operations:
    """Totals of the log of record up to ``epoch``."""

    epoch: int = 0
    by_kind: Counter[tuple[str, str]] = field(default_factory=Counter)
    states: Counter[str] = field(default_factory=Counter)
    newest_ms: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class _Committed:
    """The rows and commits added to a job's table since the version that was newest at the first look."""

    version: int
    rows: int = 0
    errors: int = 0


class Metrics:
    """The metrics of one warehouse, in any attached process. Thread-safe.

    Rows are counted from the first request on.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._operations = _Operations()
        self._tables: dict[str, _Committed] = {}
        self._rejected: dict[str, tuple[int, int]] = {}
        self._lock = threading.Lock()

    def samples(self) -> tuple[Sample, ...]:
        """The current value of every metric, in the order of HELP."""
        snapshot = self._context.metastore.snapshot()
        with self._lock:
            self._count_operations(snapshot)
            found = [
                *self._of_operations(),
                *self._of_jobs(snapshot),
                *self._count_rows(snapshot),
                *self._of_sinks(snapshot),
            ]
        order = list(HELP)
        return tuple(sorted(found, key=lambda sample: (order.index(sample.name), sample.labels)))

    def _count_operations(self, snapshot: Snapshot) -> None:
        counted = self._operations
        for record in self._context.metastore.operations(is_unsafe=True, since=counted.epoch + 1):
            states = _states_set(record)
            sources = [_name(snapshot, id_) for id_ in states] or [
                name for name in record.objects if snapshot.find("source", name) is not None
            ]
            for source in sources:
                counted.by_kind[record.kind, source] += 1
                counted.newest_ms[source] = max(record.at_ms, counted.newest_ms.get(source, 0))
            for id_, number in states.items():
                counted.states[_name(snapshot, id_)] += number
            counted.epoch = max(counted.epoch, record.epoch)

    def _of_operations(self) -> Iterator[Sample]:
        counted = self._operations
        for (kind, source), number in counted.by_kind.items():
            labels = (("kind", kind), ("source", source))
            yield Sample(name="rw_sql_unsafe_operations_total", labels=labels, value=number)
        for source, number in counted.states.items():
            yield Sample(name="rw_sql_injected_split_states_total", labels=(("source", source),), value=number)
        for source, at_ms in counted.newest_ms.items():
            name = "rw_sql_source_last_unsafe_operation_timestamp_seconds"
            yield Sample(name=name, labels=(("source", source),), value=at_ms / 1000)

    def _of_jobs(self, snapshot: Snapshot) -> Iterator[Sample]:
        statuses = present_statuses(self._context)
        lags = measure_lags(self._context, snapshot)
        others = {job: _name(snapshot, status.object_id) for job, status in statuses.items()}
        for job, object_name in (others | _jobs(snapshot)).items():
            labels = (("job", job), ("object", object_name))
            lag = lags.get(job)
            if lag is not None:
                yield Sample(name="rw_sql_job_lag_records", labels=labels, value=lag)
            status = statuses.get(job)
            if status is not None:
                yield Sample(name="rw_sql_job_restarts_total", labels=labels, value=status.restarts)
            is_running = status is not None and status.state == "RUNNING"
            yield Sample(name="rw_sql_job_running", labels=labels, value=int(is_running))
            is_flapping = (
                status is not None and status.state == "STALLED" and (status.reason or "").startswith(FLAPPING)
            )
            yield Sample(name="rw_sql_job_flapping", labels=labels, value=int(is_flapping))

    def _count_rows(self, snapshot: Snapshot) -> list[Sample]:
        found = []
        for source_record in snapshot.all("source"):
            if not source_record.is_shared:
                counted_of = (("source", source_record.name),)
                errors = self._context.decode_errors.of(source_record.name)
                found.append(Sample(name="rw_sql_decode_errors_total", labels=counted_of, value=errors))
        for job, object_name in _jobs(snapshot).items():
            record = snapshot.get(int(job.rpartition("-")[2]))
            if not isinstance(record, SourceRecord | MaterializedViewRecord):
                continue
            counted = self._count(self._context.warehouse.data(record.id, record.generation))
            labels = (("job", job), ("object", object_name))
            found.append(Sample(name="rw_sql_job_rows_total", labels=labels, value=counted.rows))
            if isinstance(record, SourceRecord):
                source = (("source", object_name),)
                found.append(Sample(name="rw_sql_decode_errors_total", labels=source, value=counted.errors))
        return found

    def _of_sinks(self, snapshot: Snapshot) -> Iterator[Sample]:
        """The rejected rows of sinks that keep them."""
        warehouse = self._context.warehouse
        for sink in snapshot.all("sink"):
            table = warehouse.rejected(sink.id, sink.generation)
            version = latest_version(warehouse, table)
            if version < 0:
                continue
            known = self._rejected.get(table)
            if known is None or known[0] != version:
                known = self._rejected[table] = (version, rejected_count(table))
            labels = (("job", sink_job(sink.id)), ("object", sink.name))
            yield Sample(name="rw_sql_sink_rejected_rows_total", labels=labels, value=known[1])

    def _count(self, table: str) -> _Committed:
        warehouse = self._context.warehouse
        newest = latest_version(warehouse, table)
        # A table created after the first look is counted from its first commit.
        counted = self._tables.setdefault(table, _Committed(version=newest))
        for version in range(counted.version + 1, newest + 1):
            try:
                actions = read_actions(warehouse, table, version)
            except FileNotFoundError:  # Cleaned up before it was read.
                continue
            counted.rows += column_count(actions, None)
            counted.errors += column_count(actions, ERROR)
        counted.version = max(counted.version, newest)
        return counted


def metrics_of(context: Context) -> Metrics:
    """The warehouse's metrics in this process: a single object, which counts from the first request on."""
    found: Metrics | None = context.made.get("metrics")
    if found is None:
        found = context.made.setdefault("metrics", Metrics(context))
    return found


def _jobs(snapshot: Snapshot) -> dict[str, str]:
    """The jobs of sources and views, with the objects' names."""
    sources = {ingest_fragment(source.id): source.name for source in snapshot.all("source") if source.is_shared}
    return sources | {view_job(view.id): view.name for view in snapshot.kept}


def _states_set(record: OperationRecord) -> Counter[int]:
    """The number of positions that an operation set, by source id."""
    found: Counter[int] = Counter()
    for change in changes_from_json(record.changes):
        if isinstance(change, PutSplitStates):
            found[fragment_source(change.fragment)] += len(change.states)
    return found


def _name(snapshot: Snapshot, id_: int) -> str:
    record = snapshot.get(id_)
    return record.name if record is not None else f"dropped object {id_}"


class _Scrape(Collector):
    """One scrape. If the catalog or an upstream does not answer, only its metrics are left out."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        """All metrics as Prometheus metric families."""
        try:
            samples = self._metrics.samples()
        except (SqlError, OSError, DeltaError) as error:
            logger.warning("metrics cannot be read: %s", error)
            return
        families: dict[str, CounterMetricFamily | GaugeMetricFamily] = {}
        for sample in samples:
            family = families.get(sample.name)
            if family is None:
                kind = CounterMetricFamily if sample.name.endswith("_total") else GaugeMetricFamily
                family = families[sample.name] = kind(
                    sample.name, HELP[sample.name], labels=[name for name, _ in sample.labels]
                )
            family.add_metric([value for _, value in sample.labels], sample.value)
        yield from families.values()


def serve_metrics(metrics: Metrics, where: str) -> int:
    """Serves scrapes at ``port`` (loopback only) or ``host:port`` until the process ends.

    Returns the port. Raises SqlError INVALID_PARAMETER if the address cannot be used.
    """
    host, _, port = where.rpartition(":")
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Scrape(metrics))
    try:
        server, _ = start_http_server(int(port), host or "127.0.0.1", registry)
    except (OSError, ValueError, OverflowError) as error:
        raise SqlError(
            INVALID_PARAMETER,
            f"metrics cannot be served at {where!r}: {error}",
            hint="give a free port, 9464, or host:port, 0.0.0.0:9464",
        ) from error
    found: int = server.server_port
    return found
