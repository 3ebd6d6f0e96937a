"""Files of rw_sql that a power cut has emptied: the job or the owner that reads them goes on without them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from rw_sql.metastore import Snapshot
from rw_sql.runtime.delta import table_files
from rw_sql.runtime.jobs.context import Context
from rw_sql.runtime.jobs.downtime import _file, downtime, note_downtime, waited_ms
from rw_sql.runtime.jobs.made_upstream import made_upstream, note_made, release_upstream
from rw_sql.runtime.positions import logged_ranges
from rw_sql.runtime.positions.commit_history import note_stretches, noted_stretches
from rw_sql.runtime.positions.logged_ranges import note_ranges, read_ranges
from rw_sql.runtime.rewind.restore import MARK, _mark
from rw_sql.runtime.support import warehouse as warehouse_module
from rw_sql.runtime.support.warehouse import Warehouse
from tests.runtime.jobs.test_made_upstream import source_of
from tests.runtime.maintained_log import SPLIT_NAME, MaintainedLog
from tests.runtime.upkeep.test_upkeep_and_time import lease_at

if TYPE_CHECKING:
    from rw_sql.runtime.positions.logged_ranges import ReadRanges


@pytest.fixture
def warehouse(tmp_path: Path) -> Warehouse:
    return Warehouse.at(str(tmp_path))


@pytest.mark.long
def test_ranges_are_computed_from_the_commits_that_are_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_files, "COMMITS_GRACE_SECONDS", 0.0)
    log = MaintainedLog.open(str(tmp_path))
    for _ in range(2):
        log.append(30)
        log.turn()
    log.append(3)
    note_ranges(log.warehouse, log.source)
    assert spans(read_ranges(log.warehouse, log.source)) == ((0, 126),)
    noted, _ = noted_stretches(log.warehouse, log.source)
    assert noted > 0
    paths = (
        log.warehouse.read_ranges(log.source.id, 1),
        log.warehouse.cleaned_ranges(log.source.id, 1),
        log.warehouse.range_history(log.source.id, 1),
    )
    for path in paths:
        assert Path(path).read_text(), path
        Path(path).write_text("")
    logged_ranges._folded.clear()
    logged_ranges._written.clear()
    found = read_ranges(log.warehouse, log.source)
    assert not found.is_complete
    assert spans(found) == ((60, 126),)
    assert noted_stretches(log.warehouse, log.source) == (-1, [])
    # The next notes replace the files.
    note_ranges(log.warehouse, log.source)
    note_stretches(log.warehouse, log.context.metastore.snapshot(), log.source, log.output.table.version())
    logged_ranges._folded.clear()
    assert spans(read_ranges(log.warehouse, log.source)) == ((60, 126),)
    assert noted_stretches(log.warehouse, log.source)[0] == log.output.table.version()


def spans(found: ReadRanges) -> tuple[tuple[int, int], ...]:
    (life,) = found.lives[SPLIT_NAME]
    return life.spans


def test_no_reader_has_waited_too_long_if_the_times_without_an_owner_are_unknown(warehouse: Warehouse) -> None:
    hour = 3_600_000
    lease = lease_at(10 * hour)
    warehouse.write_text(_file(warehouse, lease.group), "")
    assert downtime(warehouse, until_ms=11 * hour) == [(0, 11 * hour)]
    note_downtime(warehouse, lease, 12 * hour)
    assert waited_ms(hour, 13 * hour, downtime(warehouse)) == hour
    note_downtime(warehouse, replace(lease, heartbeat_ms=13 * hour), 15 * hour)
    assert waited_ms(hour, 16 * hour, downtime(warehouse)) == 2 * hour


def test_a_mark_that_cannot_be_read_does_not_end_a_rewind(warehouse: Warehouse) -> None:
    checkpoint = warehouse.view_checkpoint(3, 1)
    assert _mark(warehouse, checkpoint) is None
    warehouse.write_text(f"{checkpoint}/{MARK}", '{"rewind": 12, "operation": 10}')
    assert _mark(warehouse, checkpoint) == 12
    warehouse.write_text(f"{checkpoint}/{MARK}", "")
    assert _mark(warehouse, checkpoint) is None


def test_the_owner_goes_on_if_the_record_of_a_slot_cannot_be_read(
    warehouse: Warehouse, caplog: pytest.LogCaptureFixture
) -> None:
    source = source_of("t", "pulsar://127.0.0.1:1")
    note_made(warehouse, source, slot=True)
    (record,) = Path(warehouse.uri, "checkpoints", f"ranges-{source.id}").iterdir()
    record.write_text("")
    assert made_upstream(warehouse, source) == {}
    context = Context(warehouse=warehouse, metastore=cast("Any", None), sessions=cast("Any", None), owner="me")
    assert release_upstream(context, Snapshot, source.id)
    assert "must be dropped manually" in caplog.text
    note_made(warehouse, source, slot=True)
    assert made_upstream(warehouse, source)["slot"] is True


def test_a_durable_file_is_on_the_disk_before_it_gets_its_name(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = Path(warehouse.uri, "folder", "list.json")
    told: list[tuple[bool, str]] = []

    def sync(synced: str) -> None:
        written = Path(synced)
        told.append((path.exists(), written.name if written.is_dir() else written.read_text()))

    monkeypatch.setattr(warehouse_module, "sync", sync)
    warehouse.write_text(str(path), "{}")
    assert told == []
    path.unlink()
    warehouse.write_text(str(path), "{}", is_durable=True)
    assert told == [(False, "{}"), (True, "folder")]
    assert path.read_text() == "{}"
