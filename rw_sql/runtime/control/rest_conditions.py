"""Determines which jobs may rest, and defines the state of a job at rest. This state consists of the positions at which
the job's query was closed, and shows whether new input has been committed since then.

A waiting streaming query polls its input dozens of times a second, and occupies threads, a Spark session and
connections. Therefore, a job of a source, view or sink that has had nothing to read for ``idle_job_timeout`` is stopped
in the same way as at the end of the process. The stopped job still counts as running. When the job is woken, it is
started like any other job.
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
    """A source's running reader. The attributes (position, connector and options) determine the reader's state at
    rest."""

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
    """A view or sink at rest. The fields are the spec of the job's query, and the versions of the job's inputs. The
    query had read all inputs before it was stopped.

    ``notice`` is the text that SHOW JOBS showed for the job while it ran.
    """

    spec: ViewSpec | SinkSpec
    run: int
    versions: Mapping[str, int]
    notice: str | None = None

    @staticmethod
    def of(context: Context, spec: ViewSpec | SinkSpec, running: Job) -> IdleReader | None:
        """The state at rest, determined before the query is stopped; None if the job still has work to do."""
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
        """The state at rest after the query has stopped. A later commit of an input wakes the job, even if the query
        has already read that commit."""
        return replace(self, notice=getattr(running, "notice", None))

    def is_current(self, context: Context) -> bool:
        """True if nothing has been committed to any input since the query stopped."""
        return self.versions == _versions(context, self.spec)


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleSource:
    """A source's reader at rest. The fields are the reader's spec and the reader's positions. When the reader stopped,
    these positions were the ends of the upstream's splits."""

    spec: IngestSpec
    run: int
    states: Mapping[str, SplitState]
    log_version: int

    @staticmethod
    def of(context: Context, spec: IngestSpec, running: SourceJob) -> IdleSource | None:
        """The state at rest, determined before the reader is stopped; None if the upstream has more records, or if the
        reader's positions cannot be compared with the upstream's ends."""
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
        """The state at rest, determined again after the reader has stopped, because the reader may have committed one
        more batch before it stopped."""
        if not isinstance(running, SourceJob):
            return self
        version = _log_version(context, self.spec)
        return IdleSource(spec=self.spec, run=running.run, states=states_of(running), log_version=version)

    def is_current(self, context: Context) -> bool:
        """True if nothing has been committed to the source's log since the reader stopped."""
        return self.log_version == _log_version(context, self.spec)


Idle: TypeAlias = IdleReader | IdleSource


def may_rest(spec: JobSpec | None) -> bool:
    """True if a job with this spec can rest.

    A source whose upstream sends each record only once cannot rest. An MQTT broker, for example, sends messages only to
    a running reader, and a database keeps the records of its log until the reader confirms them. A view with a direct
    reader cannot rest, because the watcher of upstreams compares upstreams only with the positions of shared sources. A
    job that reads a user's own Delta table cannot rest, because nothing reports that table's commits.
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
    """True if a running job may rest and has had nothing to do for ``seconds``, the value of ``idle_job_timeout``.

    ``since`` is the time of the job's start or of the last check for work, and must be more than ``seconds`` ago. In
    addition, the job must have committed no batch for ``seconds``, or for the job's minimum interval between batches if
    this interval is longer. ``since`` and ``now`` are values of ``time.monotonic()``.
    """
    spec = running.spec
    if not may_rest(spec) or now - since <= seconds:
        return False
    batch = context.figures.last_batch(spec.job)
    return batch is None or now_ms() - batch[0] > max(seconds, _interval_seconds(spec)) * 1000


def _interval_seconds(spec: JobSpec) -> float:
    """The minimum time between two batches in seconds for a source's reader with ``barrier_interval_ms``; 0 for other
    jobs.

    The reader rests only after this time, because a new run writes its first batch without a delay.
    """
    interval = dict(spec.options).get(BARRIER_INTERVAL) if isinstance(spec, IngestSpec) else None
    return int(interval) / 1000 if isinstance(interval, str) else 0.0


def reads_elsewhere(context: Context, snapshot: Snapshot, spec: JobSpec) -> bool:
    """True if an input of a view or sink is written by the owner of another resource group.

    Such a job does not rest, because nothing reports the commits of another process.
    """
    inputs = spec.inputs if isinstance(spec, ViewSpec | SinkSpec) else ()
    return any(group_of(snapshot, given.id) != context.group for given in inputs)


def kind_of(spec: IngestSpec) -> Connector:
    """The connector of a source's reader."""
    return connector(connector_of(source_definition(spec.definition)) or "")


def idle_state(context: Context, spec: JobSpec, running: Job) -> Idle | None:
    """The state at rest for a job; None if the job still has work to do, or does not run."""
    if running.failure() is not None:
        return None
    if isinstance(spec, IngestSpec):
        return IdleSource.of(context, spec, running) if isinstance(running, SourceJob) else None
    return IdleReader.of(context, spec, running) if isinstance(spec, ViewSpec | SinkSpec) else None


def states_of(running: SourceJob) -> dict[str, SplitState]:
    """The positions of a reader, with the identities of their splits."""
    return states_at(running.positions, running.identities)


def stored(idle: Mapping[str, Idle]) -> str:
    """Returns the jobs at rest as text. A later process parses this text with :func:`read_stored`."""
    return json.dumps({job: _to_json(each) for job, each in idle.items()})


def read_stored(context: Context, text: str, wanted: Mapping[str, JobSpec]) -> dict[str, Idle]:
    """Returns those jobs in the result of :func:`stored` that may stay at rest in this process.

    A job may stay at rest if its definition and position have not changed since its last run, and nothing has been
    committed to its inputs since then. After an upgrade of rw_sql, each job is started once, because a start adapts the
    job's table.
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
