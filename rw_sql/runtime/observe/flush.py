"""Implements FLUSH, which waits until all records that existed at the call are in the logs, and in the running views
and sinks."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

from rw_sql.connectors.registry import captures_changes, connector
from rw_sql.errors import NOT_APPLIED_YET, SqlError
from rw_sql.metastore.records import DEFAULT_GROUP, MaterializedViewRecord, SinkRecord, SourceRecord
from rw_sql.model.job_ids import sink_job, view_job
from rw_sql.model.job_specs import named_splits
from rw_sql.model.lineage import in_reading_order
from rw_sql.model.pauses import is_view_paused, pauses_of
from rw_sql.model.rates import is_throttled, throttled_reason
from rw_sql.model.resource_groups import jobs_by_group
from rw_sql.model.source_readers import readers_of
from rw_sql.model.split_status import OK, identity_status
from rw_sql.plan.result.plan import ResultRow
from rw_sql.runtime.delta.delta_log import latest_version
from rw_sql.runtime.direct.positions import read_fragment_positions
from rw_sql.runtime.jobs.groups import owned_groups
from rw_sql.runtime.jobs.lease import serve_command
from rw_sql.runtime.jobs.statuses import present_statuses, run_mark
from rw_sql.runtime.jobs.table_paths import table_path
from rw_sql.runtime.jobs.unfinished import unfinished_backfills
from rw_sql.runtime.observe.cluster_looks import by_cluster, look_at_cluster
from rw_sql.runtime.observe.lag import rows_behind
from rw_sql.runtime.observe.stall_grace import StallGrace
from rw_sql.runtime.observe.statement_progress import Waiting, what_goes_on
from rw_sql.runtime.positions.flush_position import request_position
from rw_sql.runtime.positions.high_water import HighWater
from rw_sql.runtime.positions.progress import committed_versions, newest_planned
from rw_sql.runtime.positions.shared import read_positions
from rw_sql.runtime.support.stall_timeout import StallTimeout

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from rw_sql.connectors.base import SplitState, Upstream, UpstreamSplit
    from rw_sql.metastore import Snapshot
    from rw_sql.model.source_readers import Reader
    from rw_sql.runtime.jobs.context import Context

_LOOK_SHARE = 0.1
"""The interval between two checks of FLUSH, as a share of the time for which FLUSH has already waited.

Each check reads the catalog, logs and checkpoints.
"""

_LEAST_LOOK_SECONDS, _MOST_LOOK_SECONDS = 0.02, 0.25
_ASK_SECONDS = 2.0
_MARK_SECONDS = 0.5
_DROPPED = "dropped meanwhile"
_HELD_HISTORY = "backfill_rate_limit is 0, not waited for"
_PAUSED = "paused, not waited for"
_STALLED = "stalled, not waited for: "
_AWAY = "not waited for: "
_ENDLESS = "its rows are generated while they are read, so it has no end"


def flush(
    context: Context,
    timeout: float,
    discover_now: Callable[[int], None] | None = None,
    shown: Waiting | None = None,
) -> tuple[ResultRow, ...]:
    """Waits until all sources, views and sinks, except paused and stalled ones, have read the existing records. The
    result has one row for each object. For an object for which FLUSH has not waited, the row contains the reason.

    If a source is stalled or unreachable, the views and sinks that read this source are complete except for the
    source's records. Raises SqlError NOT_APPLIED_YET after ``timeout`` seconds without any progress. A job counts as
    stalled only if it has not recovered within a few seconds (see :class:`StallGrace`).

    ``discover_now`` makes the owner in this process check a source for new splits at once. ``discover_now`` is None if
    the owner is another process, which checks each source at the source's own interval. ``shown`` is the object from
    which a status line reads the progress.
    """
    limit = StallTimeout(timeout)
    shown = shown if shown is not None else Waiting()
    snapshot = context.metastore.snapshot()
    answers: list[ResultRow] = []
    behind: dict[int, str] = {}
    sources = [source for source in snapshot.all("source") if snapshot.readers_of(source.id)]
    looks = _looks_at_clusters(context, snapshot, sources)
    for source in sources:
        answer = _complete(context, source.id, looks.get(source.id))
        answers.append(answer or _flush_source(context, source.id, limit, discover_now, shown))
        is_passed_over = answers[-1].detail.startswith((_STALLED, _AWAY)) and not is_throttled(source)
        if source.is_shared and is_passed_over:
            behind[source.id] = source.name
    readers: list[MaterializedViewRecord | SinkRecord] = [*in_reading_order(snapshot.kept), *snapshot.all("sink")]
    for reader in readers:
        answers.append(_of_what_came(reader, _flush_reader(context, reader, limit, shown), behind))
    return tuple(answers) or (ResultRow(object="", change="NOTHING", detail="no view reads any source"),)


def _of_what_came(reader: MaterializedViewRecord | SinkRecord, answer: ResultRow, behind: dict[int, str]) -> ResultRow:
    """Returns ``answer``, the result row of a view or sink. If rows of stalled objects are missing in the view or sink,
    the returned row names these objects.

    ``behind`` maps the id of each incomplete object to the names of the objects whose jobs are the cause. If ``reader``
    is incomplete, this function adds it to ``behind``.
    """
    to_blame = ", ".join(dict.fromkeys(behind[id_] for id_ in reader.inputs if id_ in behind))
    if answer.detail.startswith(_STALLED):
        behind[reader.id] = reader.name
    elif to_blame:
        behind[reader.id] = to_blame
        if answer.change == "FLUSHED":
            return replace(answer, detail=f"except for rows missing in {to_blame}")
    return answer


class _Waiting(Protocol):
    """One condition for which FLUSH waits."""

    def is_over(self) -> bool:
        """True if FLUSH need not wait for this condition any more."""
        ...

    def marks(self) -> dict[str, object]:
        """Values that change when the work makes progress."""
        ...

    def left(self) -> str:
        """A description of the remaining work, for the status line and for the error of a FLUSH that times out."""
        ...


def _wait(context: Context, waiting: _Waiting, limit: StallTimeout, shown: Waiting) -> None:
    limit.begin()
    shown.begin("waiting until every existing record is read", None, waiting.left)
    began = marked_at = time.monotonic()
    while not waiting.is_over():
        context.sessions.require_alive()
        # Marks are computed at most every _MARK_SECONDS, because each computation takes several reads.
        if time.monotonic() - marked_at >= min(_MARK_SECONDS, limit.seconds / 2):
            limit.note(waiting.marks())
            marked_at = time.monotonic()
            if limit.is_over:
                hint = (
                    f"wait longer: SET statement_timeout = '{limit.longer}'; FLUSH; SHOW JOBS shows what each job does"
                )
                if not owned_groups(context):
                    group = min(jobs_by_group(context.metastore.snapshot()), default=DEFAULT_GROUP)
                    start = serve_command(context.warehouse.uri, group)
                    hint = f"start a process that runs the jobs: {start}; then FLUSH"
                raise SqlError(
                    NOT_APPLIED_YET,
                    f"FLUSH gave up: {limit.told}: {waiting.left()}",
                    hint=hint,
                    detail=what_goes_on(context, None),
                )
        waited = time.monotonic() - began
        time.sleep(min(max(waited * _LOOK_SHARE, _LEAST_LOOK_SECONDS), _MOST_LOOK_SECONDS))


def _state(context: Context, jobs: Iterable[str]) -> str:
    """A text, in parentheses, with the states of ``jobs``."""
    statuses = present_statuses(context)
    told = dict.fromkeys(
        f"{status.state}: {status.reason}" if status.reason else status.state
        for job in jobs
        if (status := statuses.get(job)) is not None
    )
    unknown = (
        "its job has not started yet" if owned_groups(context) else "no process runs the jobs of this warehouse yet"
    )
    return f"({'; '.join(told) or unknown})"


def _behind(number: int | None, what: str) -> str:
    if number is None:
        return "has not read all of its inputs"
    return f"is {number} {what if number == 1 else f'{what}s'} behind"


def _looks_at_clusters(context: Context, snapshot: Snapshot, sources: list[SourceRecord]) -> dict[int, Upstream]:
    """Returns the ends of the sources that share a cluster, by source id. This function sends two requests to each
    cluster, instead of several requests for each source."""
    found: dict[int, Upstream] = {}
    for group in by_cluster(context, snapshot, sources)[0]:
        try:
            found |= look_at_cluster(group)
        except OSError:  # The separate request for each source reports the reason.
            continue
    return found


def _complete(context: Context, source_id: int, upstream: Upstream | None) -> ResultRow | None:
    """If a source has already read up to the ends in ``upstream``, returns the result row for the source. Otherwise
    returns None; FLUSH must then send a separate request to the source's upstream."""
    snapshot = context.metastore.snapshot()
    source = snapshot.get(source_id)
    if upstream is None or upstream.missing or not isinstance(source, SourceRecord):
        return None
    if pauses_of(snapshot, source_id) or is_throttled(source):
        return None
    if any(seen.incarnation is None for seen in upstream.splits.values()):
        return None  # Only a separate request shows whether the cluster is still the same.
    high_water = _SourceHighWater(context=context, source_id=source_id, upstream=upstream, discover_now=None)
    if not high_water.has_arrived(snapshot, source):
        return None
    return ResultRow(object=source.name, change="FLUSHED", detail=read_to(high_water.ends))


def _flush_source(
    context: Context,
    source_id: int,
    limit: StallTimeout,
    discover_now: Callable[[int], None] | None,
    shown: Waiting,
) -> ResultRow:
    snapshot = context.metastore.snapshot()
    source = snapshot.get(source_id)
    if not isinstance(source, SourceRecord):
        return ResultRow(object=f"source {source_id}", change="NOTICE", detail=_DROPPED)
    if pauses_of(snapshot, source_id):
        return ResultRow(object=source.name, change="NOTICE", detail=_PAUSED)
    if is_throttled(source):
        return ResultRow(object=source.name, change="NOTICE", detail=f"{_AWAY}{throttled_reason(source)}")
    shown.begin(f'requesting the end of the upstream of source "{source.name}"')
    upstream = connector(source.connector).look(context.options_of(source, snapshot))
    if not upstream.is_reachable:
        return ResultRow(object=source.name, change="NOTICE", detail=f"{_AWAY}{upstream.error}")
    if upstream.missing:
        missing = ", ".join(f'"{topic}"' for topic in upstream.missing)
        return ResultRow(
            object=source.name, change="NOTICE", detail=f"{_AWAY}the upstream has no {upstream.part} {missing}"
        )
    high_water = _SourceHighWater(context=context, source_id=source_id, upstream=upstream, discover_now=discover_now)
    _wait(context, high_water, limit, shown)
    if high_water.notice is not None:
        return ResultRow(object=source.name, change="NOTICE", detail=high_water.notice)
    return ResultRow(object=source.name, change="FLUSHED", detail=read_to(high_water.ends))


@dataclass(slots=True, kw_only=True)
class _SourceHighWater:
    """The condition that every reader of a source has read up to the ends in ``upstream``. ``upstream`` contains the
    ends at the time when FLUSH requested them. At each check, the readers are those of the current catalog.

    ``notice`` is the reason why FLUSH no longer waits for the source.
    """

    context: Context
    source_id: int
    upstream: Upstream
    discover_now: Callable[[int], None] | None
    grace: StallGrace = field(default_factory=StallGrace)
    notice: str | None = None
    asked_at: float = float("-inf")
    has_requested: bool = False

    @property
    def ends(self) -> dict[str, int]:
        return {name: split.end for name, split in self.upstream.splits.items() if not split.is_endless}

    def is_over(self) -> bool:
        context, snapshot = self.context, self.context.metastore.snapshot()
        source = snapshot.get(self.source_id)
        if not isinstance(source, SourceRecord):
            self.notice = _DROPPED
            return True
        if pauses_of(snapshot, source.id):
            self.notice = _PAUSED
            return True
        if is_throttled(source):
            self.notice = f"{_AWAY}{throttled_reason(source)}"
            return True
        stalls: dict[str, None] = {}
        for reader in readers_of(snapshot, source):
            if self._has_reader_arrived(snapshot, reader):
                continue
            context.wakes.ask([reader.job])
            status = self.grace.stalled(context, reader.job)
            if status is None:
                self._request(source)
                return False
            stalls[status.reason or ""] = None
        if stalls:
            self.notice = f"{_STALLED}{'; '.join(stalls)}"
        return True

    def has_arrived(self, snapshot: Snapshot, source: SourceRecord) -> bool:
        """True if all readers of the source have read up to the ends."""
        return all(self._has_reader_arrived(snapshot, reader) for reader in readers_of(snapshot, source))

    def _readers(self) -> tuple[Snapshot, tuple[Reader, ...]]:
        snapshot = self.context.metastore.snapshot()
        source = snapshot.get(self.source_id)
        return snapshot, tuple(readers_of(snapshot, source)) if isinstance(source, SourceRecord) else ()

    def marks(self) -> dict[str, object]:
        """Each reader's progress towards the end offsets, and the status of its job."""
        snapshot, readers = self._readers()
        statuses = present_statuses(self.context)
        return {
            f'source "{reader.source.name}"' + (f" of {reader.job}" if reader.view is not None else ""): (
                self._missing(snapshot, reader),
                run_mark(statuses.get(reader.job)),
            )
            for reader in readers
        }

    def left(self) -> str:
        """A text with the number of records that the source has not read, and the states of the source's jobs."""
        snapshot, readers = self._readers()
        missing = max((self._missing(snapshot, reader) for reader in readers), default=0)
        name = readers[0].source.name if readers else str(self.source_id)
        said = _behind(missing, "record") if self.ends else "did not start"
        return f'source "{name}" {said} {_state(self.context, (reader.job for reader in readers))}'

    def _missing(self, snapshot: Snapshot, reader: Reader) -> int:
        """The number of records below the end offsets that a reader has not read. If the reader has no valid position
        in a split, all records of this split count."""
        states = self._states(snapshot, reader)
        missing = 0
        for split, seen in self.upstream.splits.items():
            state = states.get(split)
            if not seen.is_endless:
                positions = state.offset if state is not None and identity_status(state, seen) == OK else seen.start
                missing += max(0, seen.end - positions)
        return missing

    def _states(self, snapshot: Snapshot, reader: Reader) -> Mapping[str, SplitState]:
        context, source = self.context, reader.source
        if source.is_shared:
            return read_positions(context.warehouse, context.metastore, snapshot, source).states
        return read_fragment_positions(context.warehouse, snapshot, source, reader.fragment).states

    def _has_reader_arrived(self, snapshot: Snapshot, reader: Reader) -> bool:
        source = reader.source
        wanted = named_splits(snapshot, source, self.upstream.splits)
        assigned = snapshot.splits(reader.fragment)
        if any(split not in assigned for split in wanted):
            self._discover()
            return False
        states = self._states(snapshot, reader)
        return all(self._has_arrived(states.get(split), self.upstream.splits[split]) for split in wanted)

    def _has_arrived(self, state: SplitState | None, seen: UpstreamSplit) -> bool:
        if state is None or identity_status(state, seen) != OK:
            return False
        return seen.is_endless or state.offset >= seen.end

    def _request(self, source: SourceRecord) -> None:
        """Makes the reader of a change data capture source commit its position as soon as it has reached the ends, even
        if it has found no change."""
        if not self.has_requested and captures_changes(source.connector):
            self.has_requested = True
            request_position(self.context.warehouse, source, max(self.ends.values(), default=0))

    def _discover(self) -> None:
        now = time.monotonic()
        if self.discover_now is not None and now - self.asked_at >= _ASK_SECONDS:
            self.asked_at = now
            self.discover_now(self.source_id)


def read_to(ends: Mapping[str, int]) -> str:
    """The result text of FLUSH for a complete source: the end offsets."""
    return f"read to {_spell(ends)}" if ends else _ENDLESS


def _spell(ends: Mapping[str, int]) -> str:
    listed = [f"{split}={end}" for split, end in sorted(ends.items())[:8]]
    return ", ".join(listed) + (" …" if len(ends) > len(listed) else "")


def _flush_reader(
    context: Context, reader: MaterializedViewRecord | SinkRecord, limit: StallTimeout, shown: Waiting
) -> ResultRow:
    reading = _Reading(context=context, reader=reader)
    _wait(context, reading, limit, shown)
    if reading.notice is not None:
        return ResultRow(object=reader.name, change="NOTICE", detail=reading.notice)
    return ResultRow(object=reader.name, change="FLUSHED")


@dataclass(slots=True, kw_only=True)
class _Reading:
    """The condition that a view or sink has read its inputs up to certain versions. These are the versions that the
    inputs had when FLUSH began to wait for the view or sink. Each check uses the current catalog, because another
    session may pause, drop or replace the view or sink in the meantime.

    ``notice`` is the reason why FLUSH no longer waits for the object.
    """

    context: Context
    reader: MaterializedViewRecord | SinkRecord
    grace: StallGrace = field(default_factory=StallGrace)
    notice: str | None = None
    _ends: HighWater | None = None
    _tables: tuple[str, ...] = ()

    @property
    def job(self) -> str:
        return sink_job(self.reader.id) if isinstance(self.reader, SinkRecord) else view_job(self.reader.id)

    @property
    def checkpoint(self) -> str:
        warehouse, reader = self.context.warehouse, self.reader
        of = warehouse.sink_checkpoint if isinstance(reader, SinkRecord) else warehouse.view_checkpoint
        return of(reader.id, reader.generation)

    def is_over(self) -> bool:
        """True if the view or sink is complete, or if FLUSH need not wait for it."""
        context, snapshot = self.context, self.context.metastore.snapshot()
        reader = snapshot.get(self.reader.id)
        if not isinstance(reader, MaterializedViewRecord | SinkRecord):
            self.notice = _DROPPED
            return True
        self.reader = reader
        self.notice = self._why_held(snapshot)
        if self.notice is not None or self._high_water(snapshot).are_reached(context, self.checkpoint):
            return True
        context.wakes.ask([self.job])
        stall = self.grace.stalled(context, self.job)
        self.notice = None if stall is None else f"{_STALLED}{stall.reason}"
        return stall is not None

    def _high_water(self, snapshot: Snapshot) -> HighWater:
        """The input versions that the view or sink must read. The versions are determined again after a rebuild has
        replaced the object's table or the table of an input."""
        ids = (self.reader.id, *self.reader.inputs)
        tables = tuple(table_path(self.context.warehouse, snapshot, id_) for id_ in ids)
        if self._ends is None or tables != self._tables:
            self._tables, self._ends = tables, HighWater.of(self.context, snapshot, self.reader)
        return self._ends

    def _why_held(self, snapshot: Snapshot) -> str | None:
        """The reason why FLUSH does not wait for the job: a pause, or a backfill whose rate limit is 0. None if there
        is no such reason."""
        if isinstance(self.reader, SinkRecord):
            return _PAUSED if self.reader.is_paused else None
        if is_view_paused(snapshot, self.reader):
            return _PAUSED
        unfinished = self.reader.backfill_rate_limit == 0 and unfinished_backfills(self.context.metastore, snapshot)
        return _HELD_HISTORY if unfinished and self.job in unfinished else None

    @property
    def _name(self) -> str:
        return f'{self.reader.kind.replace("_", " ")} "{self.reader.name}"'

    def marks(self) -> dict[str, object]:
        """The planned and committed batches, the versions of the table, the progress of the backfill, and the status of
        the job."""
        warehouse, facts = self.context.warehouse, self.context.metastore.jobs
        progress = facts.backfills().get(self.job)
        mark = (
            committed_versions(warehouse, self.checkpoint),
            newest_planned(warehouse, self.checkpoint),
            latest_version(warehouse, warehouse.data(self.reader.id, self.reader.generation)),
            None if progress is None else (progress.phase, progress.done),
            run_mark(present_statuses(self.context).get(self.job)),
        )
        return {self._name: mark}

    def left(self) -> str:
        """A text with the number of input rows that the view or sink has not read, and the state of its job."""
        behind = rows_behind(self.context, self.context.metastore.snapshot(), self.reader, self.checkpoint)
        # Even if the number of missing rows is 0, the job still has to read a version without rows.
        return f"{self._name} {_behind(behind or None, 'row')} {_state(self.context, [self.job])}"
