"""Determines which jobs may rest, and defines the state of a job at rest. This state contains the positions or versions
at which the job's query was stopped, and shows whether new input has been committed since then.

A streaming query without new input polls its input dozens of times a second, and occupies threads, a Spark session and
connections. Therefore, if the job of a source, view or sink has had nothing to read for ``idle_job_timeout``, its query
is stopped. The job is then at rest, and still counts as running. When a job at rest is woken, it is started like any
other job.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol, TypeAlias, runtime_checkable

from rw_sql.connectors.base import SplitState
from rw_sql.connectors.registry import connector, sends_once
from rw_sql.errors import SqlError
from rw_sql.metastore.records import MaterializedViewRecord, SinkRecord, SourceRecord
from rw_sql.model.definitions import connector_of, source_definition
from rw_sql.model.job_specs import IngestSpec, SinkSpec, ViewSpec, named_splits
from rw_sql.model.rates import BARRIER_INTERVAL
from rw_sql.model.resource_groups import group_of
from rw_sql.model.split_status import OK, split_status, still_asked
from rw_sql.runtime.delta.delta_log import latest_version
from rw_sql.runtime.jobs.inputs import path_of
from rw_sql.runtime.jobs.unfinished import unfinished_backfills
from rw_sql.runtime.positions.high_water import HighWater
from rw_sql.runtime.positions.progress import newest_completed, newest_planned
from rw_sql.runtime.positions.shared import states_at
from rw_sql.runtime.support.processes import now_ms
from rw_sql.version import __version__

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rw_sql.connectors.base import Connector
    from rw_sql.metastore import Snapshot
    from rw_sql.model.job_specs import JobSpec
    from rw_sql.runtime.delta.delta_log import SplitIdentity
    from rw_sql.runtime.jobs.context import Context
    from rw_sql.runtime.jobs.job import Job


@runtime_checkable
class SourceJob(Protocol):
    """The part of a source's running reader from which its state at rest is determined. ``kind`` is the connector."""

    kind: Connector
    options: dict[str, str]
    positions: dict[str, int]

    @property
    def run(self) -> int:
        """The number of the reader's run."""
        ...

    @property
    def identities(self) -> Mapping[str, SplitIdentity]:
        """The cluster and the incarnation of each split."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleReader:
    """A view or sink at rest. ``versions`` maps the path of each input to the version that the input's table had at the
    check before the stop. At this check, the query had read all input.

    ``notice`` is the text that SHOW JOBS showed for the job while it ran.
    """

    spec: ViewSpec | SinkSpec
    run: int
    versions: Mapping[str, int]
    notice: str | None = None

    @staticmethod
    def of(context: Context, spec: ViewSpec | SinkSpec, running: Job) -> IdleReader | None:
        """The state at rest of a job, determined before its query is stopped; None if the job must not rest now. A job
        must not rest while it has work to do, or if another owner writes one of its inputs."""
        snapshot = context.metastore.snapshot()
        record = snapshot.get(spec.object_id)
        if not isinstance(record, MaterializedViewRecord | SinkRecord):
            return None
        if reads_elsewhere(context, snapshot, spec):
            return None
        # A backfill may read from upstream while nothing is added to the log.
        if isinstance(record, MaterializedViewRecord) and unfinished_backfills(context.metastore, snapshot, [record]):
            return None
        # A rebuild begins with a backfill, and a statement waits for the rebuild.
        if any(rebuild.view_id == spec.object_id for rebuild in snapshot.all("rebuild")):
            return None
        # The versions are read before everything else, so that any later commit wakes the job.
        versions = _versions(context, spec)
        checkpoint = _checkpoint(context, spec)
        if not HighWater.of(context, snapshot, record).are_reached(context, checkpoint):
            return None
        # The batch in progress may have no input, for example if it only writes closed windows.
        if newest_planned(context.warehouse, checkpoint) > newest_completed(context.warehouse, checkpoint):
            return None
        return IdleReader(spec=spec, run=running.run, versions=versions)

    def after_stop(self, context: Context, running: Job) -> IdleReader:
        """The state at rest after the query has stopped. It keeps the versions of :meth:`of`. Any commit to an input
        after :meth:`of` wakes the job, even if the query has already read this commit."""
        return replace(self, notice=getattr(running, "notice", None))

    def is_current(self, context: Context) -> bool:
        """True if nothing has been committed to any input since :meth:`of` read the versions."""
        return self.versions == _versions(context, self.spec)


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleSource:
    """A source's reader at rest. ``states`` maps each split to the reader's position. At the last check before the
    stop, these positions were the ends of the upstream's splits. ``log_version`` is the version of the source's log."""

    spec: IngestSpec
    run: int
    states: Mapping[str, SplitState]
    log_version: int

    @staticmethod
    def of(context: Context, spec: IngestSpec, running: SourceJob) -> IdleSource | None:
        """The state at rest of a reader, determined before the reader is stopped. None if the upstream has unread
        records or other splits than the reader, or if the reader's positions cannot be compared with the ends of the
        upstream's splits."""
        snapshot = context.metastore.snapshot()
        source, kind = snapshot.get(spec.source_id), running.kind
        if not isinstance(source, SourceRecord) or not may_rest(spec):
            return None
        upstream = kind.look(running.options)
        if not upstream.is_reachable or upstream.missing:
            return None
        if not frozenset(named_splits(snapshot, source, upstream.splits)) <= frozenset(spec.splits):
            return None
        states = states_of(running)
        for split in still_asked(kind, spec.splits, states, upstream):
            state, seen = states[split], upstream.splits.get(split)
            if seen is None or seen.is_endless or seen.end != state.offset or split_status(state, seen) != OK:
                return None
        return IdleSource(spec=spec, run=running.run, states=states, log_version=_log_version(context, spec))

    def after_stop(self, context: Context, running: Job) -> IdleSource:
        """The state at rest after the reader has stopped. It is determined again, because the reader may have committed
        one more batch before it stopped."""
        if not isinstance(running, SourceJob):
            return self
        version = _log_version(context, self.spec)
        return IdleSource(spec=self.spec, run=running.run, states=states_of(running), log_version=version)

    def is_current(self, context: Context) -> bool:
        """True if nothing has been committed to the source's log since the reader stopped."""
        return self.log_version == _log_version(context, self.spec)


Idle: TypeAlias = IdleReader | IdleSource


def may_rest(spec: JobSpec | None) -> bool:
    """True if the spec of a job does not prevent the job from resting.

    A source whose upstream sends each record only once cannot rest. For example, an MQTT broker sends messages only to
    a running reader, and a database must keep the records of its log until a reader confirms them. A view that reads a
    source directly cannot rest, because the watcher compares upstreams only with the positions of shared sources. A job
    that reads a user's own Delta table cannot rest, because nothing reports commits to this table.
    """
    match spec:
        case IngestSpec():
            return bool(spec.splits) and not sends_once(kind_of(spec).spec.name)
        case ViewSpec():
            return bool(spec.inputs) and not spec.readers and not any(given.path for given in spec.inputs)
        case SinkSpec():
            return bool(spec.inputs) and not any(given.path for given in spec.inputs)
        case _:
            return False


def has_been_quiet(context: Context, running: Job, seconds: float, *, since: float, now: float) -> bool:
    """True if a running job may rest and has made no batch for ``seconds``, which is the value of ``idle_job_timeout``.

    ``since`` is the time of the job's start or, if this is later, of the last check whether the job can rest. ``since``
    must be more than ``seconds`` before ``now``. If the job's minimum interval between batches is longer than
    ``seconds``, the job must have made no batch for this interval. ``since`` and ``now`` are values of
    ``time.monotonic()``.
    """
    spec = running.spec
    if not may_rest(spec) or now - since <= seconds:
        return False
    batch = context.figures.last_batch(spec.job)
    return batch is None or now_ms() - batch[0] > max(seconds, _interval_seconds(spec)) * 1000


def _interval_seconds(spec: JobSpec) -> float:
    """The value of ``barrier_interval_ms`` in seconds, which is the minimum time between two batches of a source's
    reader; 0 for other jobs.

    The reader rests only after this time. A new run writes its first batch without a delay, so an earlier rest would
    shorten the interval.
    """
    interval = dict(spec.options).get(BARRIER_INTERVAL) if isinstance(spec, IngestSpec) else None
    return int(interval) / 1000 if isinstance(interval, str) else 0.0


def reads_elsewhere(context: Context, snapshot: Snapshot, spec: JobSpec) -> bool:
    """True if the owner of another resource group writes an input of a view or sink.

    Such a view or sink does not rest, because nothing reports the commits of another process.
    """
    inputs = spec.inputs if isinstance(spec, ViewSpec | SinkSpec) else ()
    return any(group_of(snapshot, given.id) != context.group for given in inputs)


def kind_of(spec: IngestSpec) -> Connector:
    """The connector of a source's reader."""
    return connector(connector_of(source_definition(spec.definition)) or "")


def idle_state(context: Context, spec: JobSpec, running: Job) -> Idle | None:
    """The state at rest for a job; None if the job must not rest now, or has failed."""
    if running.failure() is not None:
        return None
    if isinstance(spec, IngestSpec):
        return IdleSource.of(context, spec, running) if isinstance(running, SourceJob) else None
    return IdleReader.of(context, spec, running) if isinstance(spec, ViewSpec | SinkSpec) else None


def states_of(running: SourceJob) -> dict[str, SplitState]:
    """The positions of a reader, with the identities of their splits."""
    return states_at(running.positions, running.identities)


def stored(idle: Mapping[str, Idle]) -> str:
    """Returns the states of the jobs at rest as text. A later process parses this text with :func:`read_stored`."""
    return json.dumps({job: _to_json(each) for job, each in idle.items()})


def read_stored(context: Context, text: str, wanted: Mapping[str, JobSpec]) -> dict[str, Idle]:
    """Parses the result of :func:`stored`, and returns the jobs that may stay at rest in this process.

    A job may stay at rest if its spec is unchanged, it has had no other run, and nothing has been committed since its
    state was stored. After an upgrade of rw_sql, no job stays at rest, because the start of a job adapts the job's
    table to the new version.
    """
    runs, snapshot = context.metastore.jobs.last_runs(), context.metastore.snapshot()
    found: dict[str, Idle] = {}
    for job, told in json.loads(text).items():
        spec = wanted.get(job)
        if spec is None or not may_rest(spec) or told["spec"] != _digest(spec):
            continue
        if reads_elsewhere(context, snapshot, spec):
            continue
        last = runs.get(spec.writer if isinstance(spec, ViewSpec) else job)
        if last is None or last.run != told["run"]:
            continue
        idle = _from_json(spec, told)
        if idle is not None and idle.is_current(context):
            found[job] = idle
    return found


def _to_json(idle: Idle) -> dict[str, object]:
    told: dict[str, object] = {"spec": _digest(idle.spec), "run": idle.run}
    if isinstance(idle, IdleReader):
        return {**told, "versions": dict(idle.versions), "notice": idle.notice}
    states = [[state.split, state.offset, state.cluster, state.incarnation] for state in idle.states.values()]
    return {**told, "states": states, "log_version": idle.log_version}


def _from_json(spec: JobSpec, told: Mapping[str, object]) -> Idle | None:
    run, versions, states = told.get("run"), told.get("versions"), told.get("states")
    if not isinstance(run, int):
        return None
    if isinstance(spec, ViewSpec | SinkSpec) and isinstance(versions, dict):
        notice = told.get("notice")
        return IdleReader(spec=spec, run=run, versions=versions, notice=notice if isinstance(notice, str) else None)
    log_version = told.get("log_version")
    if isinstance(spec, IngestSpec) and isinstance(states, list) and isinstance(log_version, int):
        return IdleSource(
            spec=spec,
            run=run,
            states={
                split: SplitState(split=split, offset=offset, cluster=cluster, incarnation=incarnation)
                for split, offset, cluster, incarnation in states
            },
            log_version=log_version,
        )
    return None


def _digest(spec: JobSpec) -> str:
    # These options contain the names of secrets, never their values.
    return hashlib.sha256(f"{__version__} {spec!r}".encode()).hexdigest()


def _checkpoint(context: Context, spec: ViewSpec | SinkSpec) -> str:
    warehouse = context.warehouse
    if isinstance(spec, SinkSpec):
        return warehouse.sink_checkpoint(spec.sink_id, spec.generation)
    return warehouse.view_checkpoint(spec.view_id, spec.generation)


def _log_version(context: Context, spec: IngestSpec) -> int:
    return latest_version(context.warehouse, context.warehouse.data(spec.source_id, spec.generation))


def _versions(context: Context, spec: ViewSpec | SinkSpec) -> dict[str, int]:
    paths = [path_of(context.warehouse, given) for given in spec.inputs]
    return {path: latest_version(context.warehouse, path) for path in paths}


def options_of(context: Context, spec: IngestSpec) -> dict[str, str] | None:
    """The options of a source's reader; None if a secret cannot be read."""
    try:
        return context.resolve(spec.options, context.metastore.snapshot())
    except SqlError:
        return None
