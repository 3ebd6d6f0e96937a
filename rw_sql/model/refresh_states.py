"""Defines the transitions between the refresh states of tables, and the operations that record these transitions. The
functions have no side effects.

IDLE → REFRESHING (after REFRESH TABLE, or when the table's interval has passed) → FINISHING (when all rows are loaded)
→ IDLE (when all rows are merged). If loading fails, the state returns to IDLE, and the table does not change. After a
merge has begun, it is always completed, if necessary by another process.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rw_sql.metastore.records import Operation, PutObject, SourceRecord
from rw_sql.metastore.refresh_records import FINISHING, IDLE, REFRESHING, RefreshRecord
from rw_sql.model.pauses import pauses_of
from rw_sql.syntax.lexing.identifiers import sql_name

if TYPE_CHECKING:
    from rw_sql.metastore import Snapshot
    from rw_sql.metastore.facts import BackfillProgress, JobStatus

REFRESH = "REFRESH TABLE"
"""The kind of the operation that starts a refresh."""

STAGED, FINISHED, GIVEN_UP = "REFRESH STAGED", "REFRESH FINISHED", "REFRESH GIVEN UP"
"""The kinds of operations that record the end of a phase of a refresh. STAGED: loading is complete. FINISHED: merging
is complete. GIVEN_UP: the refresh failed without changing the table."""

KILLED = "the process that loaded the upstream's rows ended: the table is unchanged"
"""The reason that is recorded if the process that loads the rows of a refresh ends before the loading is complete."""


def refresh_of(snapshot: Snapshot, table_id: int) -> RefreshRecord | None:
    """The refresh state of a table; None if the table is not refreshable."""
    return next((record for record in snapshot.all("refresh") if record.table_id == table_id), None)


def source_of(snapshot: Snapshot, record: RefreshRecord) -> SourceRecord | None:
    """The source of a refreshable table; None after DROP CONNECTOR."""
    table = snapshot.get(record.table_id)
    source = snapshot.get(getattr(table, "source_id", None) or 0)
    return source if isinstance(source, SourceRecord) else None


def refresh_statement(record: RefreshRecord) -> str:
    """The statement that starts a refresh of the table."""
    return f"{REFRESH} {sql_name(record.name)}"


def begun(record: RefreshRecord, now_ms: int) -> PutObject:
    """Returns the change from IDLE to REFRESHING. Raises ValueError if the table is in another state."""
    _require(record, IDLE)
    return PutObject(
        record=replace(record, status=REFRESHING, refresh=record.refresh + 1, triggered_ms=now_ms, failure=None)
    )


def staged(record: RefreshRecord, *, first_batch: int, chunks: int, rows: int) -> Operation:
    """Returns the operation that changes REFRESHING to FINISHING. Raises ValueError if the table is in another
    state."""
    _require(record, REFRESHING)
    after = replace(record, status=FINISHING, first_batch=first_batch, chunks=chunks, rows=rows)
    return _operation(record, STAGED, after, f"{rows} rows differ, in {chunks} chunks")


def finished(record: RefreshRecord, now_ms: int) -> Operation:
    """Returns the operation that changes FINISHING to IDLE. Raises ValueError if the table is in another state."""
    _require(record, FINISHING)
    after = replace(record, status=IDLE, succeeded_ms=now_ms, first_batch=0, chunks=0, rows=0)
    return _operation(record, FINISHED, after, f"{record.rows} rows merged")


def given_up(record: RefreshRecord, why: str) -> PutObject:
    """Returns the change from REFRESHING to IDLE after a failure, with the reason ``why``. Raises ValueError if the
    table is in another state."""
    _require(record, REFRESHING)
    return PutObject(record=replace(record, status=IDLE, failure=why))


def given_up_operation(record: RefreshRecord, why: str) -> Operation:
    """Returns the operation that contains the change of :func:`given_up`. Raises ValueError if the table is not in the
    state REFRESHING."""
    change = given_up(record, why)
    return Operation(
        kind=GIVEN_UP, statement=f"-- refresh {record.refresh} of table {record.name}: {why}",
        objects=(record.name,), changes=(change,), reason=why,
    )  # fmt: skip


def triggered(record: RefreshRecord, now_ms: int) -> Operation:
    """Returns the operation that changes IDLE to REFRESHING because the interval has passed. Raises ValueError if the
    table is in another state."""
    return Operation(
        kind=REFRESH,
        statement=refresh_statement(record),
        objects=(record.name,),
        changes=(begun(record, now_ms),),
        reason=f"refresh_interval_sec = {record.interval_s}",
    )


def is_due(snapshot: Snapshot, record: RefreshRecord, created_ms: int, now_ms: int) -> bool:
    """True if ``refresh_interval_sec`` has passed since the start of the table's last refresh. If there was no refresh,
    the interval begins when the table was created.

    The result is False during a refresh, while the table's source is paused, and for a table without an interval or a
    source. A refresh is also due if the recorded start of the last refresh is at least one interval in the future,
    because the clock must then have been set back.
    """
    if record.status != IDLE or record.interval_s is None:
        return False
    source = source_of(snapshot, record)
    if source is None or pauses_of(snapshot, source.id):
        return False
    return abs(now_ms - (record.triggered_ms or created_ms)) >= record.interval_s * 1000


def refresh_state(
    record: RefreshRecord, status: JobStatus | None, progress: BackfillProgress | None
) -> tuple[str, str]:
    """Returns the state of a refreshable table, and an explanation. The explanation is the progress of the refresh, the
    reason why the refresh makes no progress, or the failure of the last refresh. The explanation is empty if none of
    these applies."""
    if status is not None and status.state == "STALLED":
        return "STALLED", status.reason or ""
    if record.status == IDLE:
        return IDLE, f"the newest refresh failed: {record.failure}" if record.failure else ""
    if status is None or status.state == "STOPPED":
        return record.status, "no process runs the jobs of this warehouse yet"
    if status.state != "RUNNING":
        return record.status, "the table's job is being started"
    return record.status, "" if progress is None else progress_of(progress)


def progress_of(progress: BackfillProgress) -> str:
    """The progress of a refresh as text, such as ``merging: 45.00% (450/1000)``. If the total is unknown, the text has
    only the phase."""
    if not progress.total:
        return progress.phase
    return f"{progress.phase}: {100 * progress.done / progress.total:.2f}% ({progress.done}/{progress.total})"


def left_chunks(record: RefreshRecord, done: int) -> range:
    """The numbers of the chunks that the table's job must still merge. ``done`` is the number of the last batch that
    was committed to the table."""
    return range(max(0, done - record.first_batch + 1), record.chunks)


def _operation(record: RefreshRecord, kind: str, after: RefreshRecord, told: str) -> Operation:
    return Operation(
        kind=kind,
        statement=f"-- refresh {record.refresh} of table {record.name}: {told}",
        objects=(record.name,),
        changes=(PutObject(record=after),),
    )


def _require(record: RefreshRecord, status: str) -> None:
    if record.status != status:
        raise ValueError(f"refresh {record.refresh} of table {record.name} is {record.status}, not {status}")
