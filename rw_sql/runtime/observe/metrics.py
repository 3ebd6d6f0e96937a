"""A warehouse's metrics for Prometheus and SHOW METRICS. The metrics of operations come from the log of record, and the
metrics of jobs from the jobs' tables."""

from __future__ import annotations

import logging
import platform
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import wait
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cache, partial
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as version_of
from typing import TYPE_CHECKING

from deltalake.exceptions import DeltaError
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from rw_sql.errors import SqlError
from rw_sql.metastore.codec import changes_from_json
from rw_sql.metastore.records import MaterializedViewRecord, PutSplitStates, SourceRecord
from rw_sql.model.job_ids import fragment_source, ingest_fragment, sink_job, view_job
from rw_sql.plan.ports.jobs import Sample
from rw_sql.plan.statements.show.job_states import job_states
from rw_sql.runtime.delta.delta_log import latest_version
from rw_sql.runtime.delta.rejected_rows import rejected_count
from rw_sql.runtime.jobs.groups import groups_in_use
from rw_sql.runtime.jobs.statuses import FLAPPING, shown_statuses
from rw_sql.runtime.jobs.unfinished import unfinished_backfills
from rw_sql.runtime.observe.commit_numbers import commit_cache
from rw_sql.runtime.observe.lag import measure_lag
from rw_sql.runtime.support.background import prepare
from rw_sql.runtime.support.failures import cause_line
from rw_sql.runtime.support.processes import now_ms
from rw_sql.version import __version__

if TYPE_CHECKING:
    from concurrent.futures import Future

    from rw_sql.metastore import Snapshot
    from rw_sql.metastore.records import OperationRecord
    from rw_sql.runtime.jobs.context import Context
    from rw_sql.runtime.observe.commit_numbers import CommitNumbers

logger = logging.getLogger(__name__)

_OF_STORE = (SqlError, OSError, DeltaError)

_COUNT_LIMIT_SECONDS = 2.0
"""The maximum time, in seconds, for which a scrape waits until the rows of all tables are counted."""

HELP = {
    "rw_sql_unsafe_operations_total": "Unsafe operations, by kind and source.",
    "rw_sql_injected_split_states_total": "Positions set by unsafe operations.",
    "rw_sql_source_last_unsafe_operation_timestamp_seconds": "When the newest unsafe operation was committed.",
    "rw_sql_job_lag_records": "Records that a source is behind its upstream, or rows that a view is behind its inputs.",
    "rw_sql_job_lag_seconds": (
        "Age of the oldest record or row that the job has not read; 0 if the job has read all records or rows."
    ),
    "rw_sql_job_rows_total": "Rows that a job has added, replaced or removed since its run started.",
    "rw_sql_decode_errors_total": "Records that could not be decoded since the source's run started.",
    "rw_sql_sink_rejected_rows_total": "Rows that a sink's target refused and that are in the table of rejected rows.",
    "rw_sql_job_restarts_total": "Restarts of a job after a failure, as counted by its owner's process.",
    "rw_sql_job_running": "1 while a job runs, otherwise 0; a flapping job does not count as running.",
    "rw_sql_job_flapping": "1 while a job starts and fails repeatedly, 0 otherwise.",
    "rw_sql_job_state": "1 for the job's current state; the job's other states have no value.",
    "rw_sql_job_stalls_total": "How many times a job became STALLED, as counted by its owner's process.",
    "rw_sql_job_last_batch_timestamp_seconds": "When a job last committed a batch.",
    "rw_sql_job_last_batch_duration_seconds": "How long the owner's process took to write a job's last batch.",
    "rw_sql_owner_present": "1 while a process runs the jobs of the resource group, 0 otherwise.",
    "rw_sql_owner_info": "Always 1; its labels are the resource group, and the name and host of the group's owner.",
    "rw_sql_owner_heartbeat_timestamp_seconds": "When the owner of the resource group last renewed its lease.",
    "rw_sql_catalog_epoch": "The newest epoch of the catalog: the number of its newest commit.",
    "rw_sql_applied_epoch": "The newest epoch of the catalog that the owner of the resource group has applied.",
    "rw_sql_catalog_readable": (
        "1 if the catalog and the jobs' tables could be read for this scrape, otherwise 0. If the value is 0, only the "
        "metrics that could not be read are absent. This metric has no value while the process counts the rows of a "
        "table for the first time."
    ),
    "rw_sql_build_info": "Always 1; its labels are the versions of rw_sql, Python, Spark and deltalake.",
}
"""All metrics with their help texts. The values of metrics whose names end in ``_total`` never decrease while a process
runs."""


@dataclass(slots=True)
class _Operations:
    """Totals over the operations in the log of record up to ``epoch``."""

    epoch: int = 0
    by_kind: Counter[tuple[str, str]] = field(default_factory=Counter)
    states: Counter[str] = field(default_factory=Counter)
    newest_ms: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class _Committed:
    """The rows that a job has added, replaced or removed in its table up to a version.

    At the first measurement, the rows are counted from the start of the job's last run. Until this first count is
    finished, ``is_counted`` is false and the numbers must not be used. A thread that counts holds the lock
    ``counting``.
    """

    version: int = -1
    rows: int = 0
    errors: int = 0
    last_ms: int | None = None
    is_counted: bool = False
    counting: threading.Lock = field(default_factory=threading.Lock)

    def add(self, version: int, numbers: CommitNumbers) -> None:
        """Counts one commit."""
        self.version = max(version, self.version)
        self.rows += numbers.committed
        self.errors += numbers.errors
        if numbers.is_batch and numbers.at_ms is not None:
            self.last_ms = max(numbers.at_ms, self.last_ms or 0)


class Metrics:
    """The metrics of one warehouse, in any process. Thread-safe.

    For each job, a process first counts the rows since the start of the job's current run, or since the oldest commit
    that still exists. From then on, the process adds later rows, even across later runs of the job.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._operations = _Operations()
        self._tables: dict[str, _Committed] = {}
        self._rejected: dict[str, tuple[int, int]] = {}
        self._pending: Future[None] | None = None
        self._operations_lock = threading.Lock()
        self._lock = threading.Lock()

    def samples(self) -> tuple[Sample, ...]:
        """The current value of every metric, in the order of HELP. Waits until all rows are counted. Raises the error
        of a store that does not respond."""
        found, problems = self._read(None)
        if problems:
            raise problems[0]
        return found

    def readable_samples(self) -> tuple[Sample, ...]:
        """Does the same as :meth:`samples`, but leaves out metrics that cannot be read now. If metrics are left out,
        ``rw_sql_catalog_readable`` is 0.

        Counting the rows of a table for the first time may take long. If counting takes longer than a time limit,
        counting continues in the background. The result then lacks the row and error counts of this table. It also
        lacks ``rw_sql_catalog_readable``, unless the value is 0 because other metrics cannot be read.
        """
        found, problems = self._read(_COUNT_LIMIT_SECONDS)
        for problem in dict.fromkeys(cause_line(str(each)) for each in problems):
            logger.warning("metrics cannot be read: %s", problem)
        return found

    def _read(self, seconds: float | None) -> tuple[tuple[Sample, ...], list[Exception]]:
        """The samples that could be read, and the errors of the stores that could not be read. ``seconds`` is the time
        limit for counting rows; None if there is no limit."""
        found: list[Sample] = []
        problems: list[Exception] = []
        is_complete = True
        try:
            snapshot = self._context.metastore.snapshot()
        except _OF_STORE as error:
            problems.append(error)
        else:
            # Counting runs in parallel with the measurement of the lags, because the measurement waits for upstreams.
            counting = None if seconds is None else self._count_in_background(snapshot)
            for part in (self._of_operations, self._of_jobs, self._of_sinks, self._of_owner):
                try:
                    found += part(snapshot)
                except _OF_STORE as error:
                    problems.append(error)
            try:
                if counting is None:
                    self._count_all(snapshot)
                elif counting in wait([counting], seconds).done:
                    with self._lock:
                        self._pending = None if self._pending is counting else self._pending
                    counting.result()
                rows, is_complete = self._of_rows(snapshot)
                found += rows
            except _OF_STORE as error:
                problems.append(error)
        if problems or is_complete:
            found.append(Sample(name="rw_sql_catalog_readable", labels=(), value=int(not problems)))
        found.append(Sample(name="rw_sql_build_info", labels=_versions(), value=1))
        order = list(HELP)
        return tuple(sorted(found, key=lambda sample: (order.index(sample.name), sample.labels))), problems

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

    def _of_operations(self, snapshot: Snapshot) -> Iterator[Sample]:
        with self._operations_lock:
            self._count_operations(snapshot)
            counted = deepcopy(self._operations)
        for (kind, source), number in counted.by_kind.items():
            labels = (("kind", kind), ("source", source))
            yield Sample(name="rw_sql_unsafe_operations_total", labels=labels, value=number)
        for source, number in counted.states.items():
            yield Sample(name="rw_sql_injected_split_states_total", labels=(("source", source),), value=number)
        for source, at_ms in counted.newest_ms.items():
            name = "rw_sql_source_last_unsafe_operation_timestamp_seconds"
            yield Sample(name=name, labels=(("source", source),), value=at_ms / 1000)

    def _of_jobs(self, snapshot: Snapshot) -> Iterator[Sample]:
        statuses = shown_statuses(self._context, snapshot)
        # The last status of a dropped object may remain in the table, because no owner changes this status any more.
        statuses = {job: status for job, status in statuses.items() if snapshot.get(status.object_id) is not None}
        lags = measure_lag(self._context, snapshot)
        at = now_ms()
        figures = self._context.figures
        shown = {job: (_name(snapshot, status.object_id), status.state) for job, status in statuses.items()}
        made = unfinished_backfills(self._context.metastore, snapshot)
        shown |= {each.job: (each.object, each.state) for each in job_states(snapshot, statuses, made)}
        for job, (object_name, state) in shown.items():
            labels = (("job", job), ("object", object_name))
            lag = lags.get(job)
            if lag is not None and lag.records is not None:
                yield Sample(name="rw_sql_job_lag_records", labels=labels, value=lag.records)
            seconds = None if lag is None else lag.seconds(at)
            if seconds is not None:
                yield Sample(name="rw_sql_job_lag_seconds", labels=labels, value=seconds)
            status = statuses.get(job)
            if status is not None:
                yield Sample(name="rw_sql_job_restarts_total", labels=labels, value=status.restarts)
            is_running = status is not None and status.state == "RUNNING"
            yield Sample(name="rw_sql_job_running", labels=labels, value=int(is_running))
            is_flapping = (
                status is not None and status.state == "STALLED" and (status.reason or "").startswith(FLAPPING)
            )
            yield Sample(name="rw_sql_job_flapping", labels=labels, value=int(is_flapping))
            yield Sample(name="rw_sql_job_state", labels=(*labels, ("state", state)), value=1)
            if self._context.owning.is_set():
                yield Sample(name="rw_sql_job_stalls_total", labels=labels, value=figures.stalls(job))
            batch = figures.last_batch(job)
            if batch is not None:
                yield Sample(name="rw_sql_job_last_batch_duration_seconds", labels=labels, value=batch[1])
                # For jobs other than sinks, every process reads the value from the job's table
                if job.startswith("sink-"):
                    yield Sample(name="rw_sql_job_last_batch_timestamp_seconds", labels=labels, value=batch[0] / 1000)

    def _tables_of(self, snapshot: Snapshot) -> Iterator[tuple[str, SourceRecord | MaterializedViewRecord, str]]:
        """The jobs that have a table, with their objects and the paths of their tables."""
        for job in _jobs(snapshot):
            record = snapshot.get(int(job.rpartition("-")[2]))
            if isinstance(record, SourceRecord | MaterializedViewRecord):
                yield job, record, self._context.warehouse.data(record.id, record.generation)

    def _of_rows(self, snapshot: Snapshot) -> tuple[list[Sample], bool]:
        """Returns the samples about the counted rows. Also returns True if all tables have been counted at least once,
        and otherwise False."""
        found, is_complete = [], True
        for source_record in snapshot.all("source"):
            if not source_record.is_shared:
                counted_of = (("source", source_record.name),)
                errors = self._context.decode_errors.of(source_record.name)
                found.append(Sample(name="rw_sql_decode_errors_total", labels=counted_of, value=errors))
        for job, record, table in self._tables_of(snapshot):
            counted = self._tables.get(table)
            if counted is None or not counted.is_counted:
                is_complete = False
                continue
            labels = (("job", job), ("object", record.name))
            found.append(Sample(name="rw_sql_job_rows_total", labels=labels, value=counted.rows))
            if counted.last_ms is not None:
                name = "rw_sql_job_last_batch_timestamp_seconds"
                found.append(Sample(name=name, labels=labels, value=counted.last_ms / 1000))
            if isinstance(record, SourceRecord):
                source = (("source", record.name),)
                found.append(Sample(name="rw_sql_decode_errors_total", labels=source, value=counted.errors))
        return found, is_complete

    def _of_sinks(self, snapshot: Snapshot) -> Iterator[Sample]:
        """The numbers of rejected rows of the sinks that have a table of rejected rows."""
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

    def _of_owner(self, snapshot: Snapshot) -> Iterator[Sample]:
        """The samples about the owner of each resource group and the epoch that the owner has applied."""
        context = self._context
        leases = context.metastore.jobs.leases()
        yield Sample(name="rw_sql_catalog_epoch", labels=(), value=snapshot.epoch)
        for group in groups_in_use(context, snapshot):
            labels, lease = (("resource_group", group),), leases.get(group)
            is_present = lease is not None and context.has_owner(lease)
            yield Sample(name="rw_sql_owner_present", labels=labels, value=int(is_present))
            if lease is None:
                continue
            yield Sample(name="rw_sql_applied_epoch", labels=labels, value=lease.applied_epoch)
            beat = lease.heartbeat_ms / 1000
            yield Sample(name="rw_sql_owner_heartbeat_timestamp_seconds", labels=labels, value=beat)
            if is_present:
                process = (("host", lease.host), ("owner", lease.owner))
                yield Sample(name="rw_sql_owner_info", labels=(*process, *labels), value=1)

    def count_rows(self) -> None:
        """Counts the rows that the jobs have committed since the last call.

        Must be called before clean-up removes commits that were not counted yet.
        """
        self._count_all(self._context.metastore.snapshot())

    def _count_in_background(self, snapshot: Snapshot) -> Future[None]:
        """Starts to count the rows on another thread. If the thread of an earlier scrape is still counting, or has
        failed after the end of that scrape, returns the future of that thread and starts no other thread."""
        with self._lock:
            pending = self._pending
            if pending is None or (pending.done() and pending.exception() is None):
                pending = self._pending = prepare(partial(self._count_all, snapshot), "count-rows")
            return pending

    def _count_all(self, snapshot: Snapshot) -> None:
        runs = self._context.metastore.jobs.last_runs()
        for job, _, table in self._tables_of(snapshot):
            self._count(table, runs[job].run if job in runs else 0)

    def _count(self, table: str, run: int) -> None:
        with self._lock:
            counted = self._tables.setdefault(table, _Committed())
        # Reading takes long in a slow store, so this code holds no lock that a scrape needs.
        with counted.counting:
            newest = latest_version(self._context.warehouse, table)
            if not counted.is_counted:
                self._count_first(counted, table, newest, run)
            cache = commit_cache(self._context)
            # The versions are counted one by one. If the store fails in between, the next call therefore counts each
            # remaining version exactly once.
            while counted.version < newest:
                version = counted.version + 1
                # Clean-up may have removed the commit before the first measurement.
                with suppress(FileNotFoundError):
                    counted.add(version, cache.read(table, "", version))
                counted.version = version

    def _count_first(self, counted: _Committed, table: str, newest: int, run: int) -> None:
        found = _Committed(version=newest)
        for version, numbers in commit_cache(self._context).commits(table):
            if numbers.run is not None and numbers.run < run:
                found.version = max(version, found.version)  # another process may have committed in the meantime
                break
            found.add(version, numbers)
            if numbers.run == run and not numbers.is_batch:  # the start of the run
                break
        counted.version, counted.rows, counted.errors = found.version, found.rows, found.errors
        counted.last_ms, counted.is_counted = found.last_ms, True


def metrics_of(context: Context) -> Metrics:
    """Returns the warehouse's metrics in this process. Every call returns the same object. The counters therefore
    continue from one scrape to the next."""
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


@cache
def _versions() -> tuple[tuple[str, str], ...]:
    """The versions of the running software, by label. The version of a package that is not installed is empty."""
    found = {"version": __version__}
    for label, package in (("deltalake", "deltalake"), ("pyspark", "pyspark")):
        try:
            found[label] = version_of(package)
        except PackageNotFoundError:
            found[label] = ""
    return tuple(sorted({**found, "python": platform.python_version()}.items()))


def _name(snapshot: Snapshot, id_: int) -> str:
    record = snapshot.get(id_)
    return record.name if record is not None else f"dropped object {id_}"


class _Scrape(Collector):
    """Collects the metrics for each scrape. If the catalog does not respond, only the metrics that depend on the
    catalog are left out."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        """All metrics as Prometheus metric families."""
        samples = self._metrics.readable_samples()
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


def exposition(metrics: Metrics) -> bytes:
    """All metrics in Prometheus' text format."""
    return generate_latest(registry_of(metrics))


def registry_of(metrics: Metrics) -> CollectorRegistry:
    """A registry that collects the metrics at each scrape."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Scrape(metrics))
    return registry
