"""A view or sink that begins to read a log after rows were dropped is stalled, and does not lack rows silently."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from rw_sql.connectors.sink import SinkShape
from rw_sql.metastore.records import DIFF, KEYS, LivePosition, RebuildRecord, SinkRecord, TableRecord
from rw_sql.model.backfill_ranges import History
from rw_sql.model.job_specs import SinkSpec, view_spec
from rw_sql.model.view_inputs import view_inputs
from rw_sql.runtime.delta import table_files
from rw_sql.runtime.positions import logged_ranges, table_consumers
from rw_sql.runtime.positions.log_size import MILLISECONDS_PER_BUCKET
from rw_sql.runtime.positions.table_consumers import require_versions
from rw_sql.runtime.support.failures import StalledError
from rw_sql.runtime.support.processes import now_ms
from rw_sql.runtime.upkeep.table_upkeep import Retention
from tests.runtime.maintained_log import MaintainedLog, put

if TYPE_CHECKING:
    from pathlib import Path

    from rw_sql.metastore.records import MaterializedViewRecord
    from rw_sql.model.job_specs import ViewSpec
    from rw_sql.model.view_inputs import ViewInput
    from rw_sql.runtime.positions.logged_ranges import ReadRanges

HOUR_MS = 3_600_000
EXPIRED = "EXPIRED s: {} has not begun to read within log.max_hold, and the log of s has dropped rows since: {}"


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MaintainedLog:
    monkeypatch.setattr(table_files, "GRACE_SECONDS", 0.0)
    monkeypatch.setattr(table_files, "COMMITS_GRACE_SECONDS", 0.0)
    return MaintainedLog.open(str(tmp_path))


def fill(log: MaintainedLog) -> None:
    """Appends the rows of three hours."""
    for hour in (1000, 1001, 1002):
        log.hour = hour
        log.append(2)


def drop_hours(log: MaintainedLog) -> None:
    """Upkeep drops the first two hours, because no reader is waited for."""
    log.retention, log.later_seconds = Retention(seconds=0.0, max_hold_seconds=0.0), 1.0
    log.turn()
    assert log.ids() == [8, 9, 10, 11]


def reason(log: MaintainedLog, spec: ViewSpec | SinkSpec) -> str | None:
    """The reason of a stall, which must be final; None without a stall."""
    try:
        require_versions(log.context, spec, f"{log.warehouse.uri}/checkpoints/none")
    except StalledError as error:
        return error.reason if error.is_final else "not final"
    return None


def spec_of(log: MaintainedLog, view: MaterializedViewRecord) -> ViewSpec:
    return view_spec(log.context.metastore.snapshot(), view)


def with_input(spec: ViewSpec, **changes: object) -> ViewSpec:
    (given,) = spec.inputs
    changed: ViewInput = replace(given, **changes)  # type: ignore[arg-type]
    return replace(spec, inputs=(changed,))


def test_a_view_that_begins_after_its_rows_were_dropped_is_stalled(log: MaintainedLog) -> None:
    spec = spec_of(log, log.view("v", created_at_ms=now_ms() - HOUR_MS))
    fill(log)
    log.turn()
    assert reason(log, spec) is None
    drop_hours(log)
    assert reason(log, spec) == EXPIRED.format("v", "REBUILD MATERIALIZED VIEW v")
    history = History(source_id=log.source.id, log_version=1, splits=()).to_text()
    assert reason(log, with_input(spec, history=history)) is None


def test_the_hint_of_a_table_names_a_table(log: MaintainedLog) -> None:
    view = log.view("v", created_at_ms=now_ms() - HOUR_MS)
    id_ = log.context.metastore.snapshot().next_id
    table = TableRecord(
        id=id_, name="t", definition="", query="", inputs=view.inputs, schema="", created_at_ms=view.created_at_ms
    )
    put(log.context.metastore, table)
    fill(log)
    drop_hours(log)
    spec = replace(spec_of(log, view), view_id=id_, name="t")
    assert reason(log, spec) == EXPIRED.format("t", "DROP TABLE t and create it again")


def test_a_recomputed_view_of_a_log_that_had_dropped_rows_before_is_not_stalled(log: MaintainedLog) -> None:
    before = log.view("before", created_at_ms=now_ms() - HOUR_MS, strategy=KEYS)
    whole = log.view("whole", created_at_ms=now_ms() - HOUR_MS, strategy=DIFF)
    fill(log)
    drop_hours(log)
    later = [log.view(f"later_{ms}", created_at_ms=now_ms() + ms, strategy=KEYS) for ms in (0, HOUR_MS)]
    assert reason(log, spec_of(log, before)) == EXPIRED.format("before", "REBUILD MATERIALIZED VIEW before")
    assert [reason(log, spec_of(log, view)) for view in (whole, *later)] == [None] * 3
    rebuild = RebuildRecord(
        id=log.context.metastore.snapshot().next_id,
        name="before",
        view_id=before.id,
        generation=2,
        created_at_ms=now_ms() + HOUR_MS,
    )
    put(log.context.metastore, rebuild)
    assert reason(log, replace(spec_of(log, before), generation=2)) is None


def test_a_table_of_a_captured_database_needs_the_hours_since_its_creation(log: MaintainedLog) -> None:
    put(log.context.metastore, replace(log.source, connector="postgres-cdc"))
    spec = spec_of(log, log.view("t", created_at_ms=now_ms() - HOUR_MS))
    fill(log)
    drop_hours(log)
    assert reason(log, with_input(spec, live_from=LivePosition(0, 0, 1002))) is None
    assert reason(log, with_input(spec, live_from=LivePosition(0, 0, 1001))) is not None


def sink(log: MaintainedLog, name: str, created_at_ms: int, starts: tuple[tuple[int, int], ...] = ()) -> SinkSpec:
    snapshot = log.context.metastore.snapshot()
    record = SinkRecord(
        id=snapshot.next_id,
        name=name,
        definition="",
        connector="kafka",
        options=(),
        inputs=(log.source.id,),
        schema="",
        type="append-only",
        starts=starts,
        created_at_ms=created_at_ms,
    )
    put(log.context.metastore, record)
    return SinkSpec(
        job=f"sink-{record.id}",
        sink_id=record.id,
        name=name,
        connector="kafka",
        options=(),
        shape=SinkShape(name=name, type="append-only", schema=""),
        query="",
        replaces=False,
        inputs=view_inputs(snapshot, record),
        starts=starts,
        identity=name,
        generation=1,
    )


def test_a_sink_that_begins_after_its_rows_were_dropped_is_stalled(log: MaintainedLog) -> None:
    id_ = log.source.id
    fill(log)
    all_starts = ((), ((id_, -1),), ((id_, 9),))
    before, empty, newest = (
        sink(log, f"k{number}", now_ms() - HOUR_MS, starts) for number, starts in enumerate(all_starts)
    )
    drop_hours(log)
    later = sink(log, "later", now_ms() + HOUR_MS)
    assert reason(log, before) == EXPIRED.format("k0", "DROP SINK k0 and create it again")
    assert reason(log, empty) == EXPIRED.format("k1", "DROP SINK k1 and create it again")
    assert [reason(log, spec) for spec in (newest, later)] == [None, None]


def test_the_hour_decides_if_the_time_of_the_drop_is_unknown(
    log: MaintainedLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(log)
    drop_hours(log)
    known = logged_ranges.read_ranges(log.warehouse, log.source)
    assert known.trimmed == 1001

    def noted(*_: object) -> ReadRanges:
        """As in a file of ranges of an earlier version."""
        return replace(known, trimmed_ms=None)

    monkeypatch.setattr(table_consumers, "read_ranges", noted)
    stalls = [
        reason(log, spec_of(log, log.view(f"v{hour}", created_at_ms=hour * MILLISECONDS_PER_BUCKET, strategy=KEYS)))
        is not None
        for hour in (0, 1001, 1002)
    ]
    assert stalls == [False, True, False]
