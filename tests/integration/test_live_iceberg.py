"""An Iceberg table in a live session: a source of its appends, REFRESH TABLE from it, and a sink to it."""

from __future__ import annotations

import re
from datetime import date
from decimal import Decimal
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from rw_sql.connectors.iceberg import source as iceberg_source
from rw_sql.connectors.registry import connector
from rw_sql.errors import SqlError
from tests.connectors.iceberg.lake import COLUMNS, NAME, Lake
from tests.integration.attached import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.attached import AttachedSession

pytestmark = [pytest.mark.spark, pytest.mark.long]


def test_appends_moves_and_snapshots_that_change_rows(
    session: AttachedSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(iceberg_source, "SMALL_ROWS", 10_000)
    session.allow_unsafe()
    lake = Lake(folder=tmp_path)
    lake.create()
    lake.append((1, "a"), (2, "b"))
    lake.table().delete("id = 2")
    with pytest.raises(SqlError) as refused:
        session.run(f"CREATE SOURCE i (id INT) WITH (connector = 'iceberg', {lake.clause})")
    assert f'column "id" of source "i" cannot be read: column "id" of table {NAME} is BIGINT' in refused.value.render()
    session.run(
        f"CREATE SOURCE i (id BIGINT, WORD VARCHAR) INCLUDE offset AS at WITH (connector = 'iceberg', {lake.clause})",
        "CREATE MATERIALIZED VIEW v AS SELECT id, word, at FROM i",
    )
    assert session.flushed_rows_of("v") == [(1, "a", "0")]
    lake.append((3, None))
    # More than this process reads.
    many = pa.table({"id": range(100, 20_100), "word": ["w"] * 20_000}, schema=COLUMNS)
    lake.table().append(many)
    wait_until(lambda: session.sql("SELECT count(*) FROM v")[0][0] == 20_002, "what was appended is read")
    assert session.rows_of("v")[:2] == [(1, "a", "0"), (3, None, "3")]
    assert session.sql("SELECT count(DISTINCT id) FROM v WHERE at = '4'")[0][0] == 20_000
    assert session.positions("i") == {NAME: 5}

    session.run("PAUSE SOURCE i", f"INJECT SOURCE OFFSETS i VALUES ('{NAME}' = 3) ALLOW DUPLICATES")
    assert session.positions("i") == {NAME: 3}
    session.run(f"UNDO OPERATION {session.epoch()}")
    assert session.positions("i") == {NAME: 5}
    session.run(f"INJECT SOURCE OFFSETS i VALUES ('{NAME}' = 4) ALLOW DUPLICATES", "RESUME SOURCE i")
    wait_until(lambda: session.sql("SELECT count(*) FROM v")[0][0] == 40_002, "the snapshot is read again")

    lake.table().delete("id = 3")
    lake.append((4, "d"))
    wait_until(lambda: session.job("i").state == "STALLED", "the delete is noticed")
    wait_until(lambda: f"snapshot 5 of {NAME} changes existing rows" in session.job("i").reason, "the reason is shown")
    session.run("ALTER SOURCE i CONNECTOR WITH (iceberg.skip_change_snapshots = 'true')")
    wait_until(lambda: session.sql("SELECT count(*) FROM v WHERE id = 4")[0][0] == 1, "the source continues")
    session.run("DROP SOURCE i CASCADE")


def test_the_example_of_its_page_runs(session: AttachedSession, tmp_path: Path) -> None:
    lake = Lake(folder=tmp_path)
    kinds = pa.schema([("id", pa.int64()), ("amount", pa.decimal128(10, 2)), ("day", pa.date32())])
    rows = [{"id": 1, "amount": Decimal("2.50"), "day": date(2026, 1, 31)}]
    lake.create(kinds).append(pa.Table.from_pylist(rows, kinds))
    create, view, _ = connector("iceberg").spec.example.split(";")
    # The catalog of the tests in place of a REST catalog, which has the same options.
    session.run(re.sub(r"catalog.type.*'orders'", lake.clause, create, flags=re.DOTALL), view)
    assert session.flushed_rows_of("per_day") == [(date(2026, 1, 31), Decimal("2.50"))]
    session.run("DROP SOURCE orders CASCADE")


def test_a_table_is_refreshed_and_a_sink_writes_one(session: AttachedSession, tmp_path: Path) -> None:
    source, target = Lake(folder=tmp_path / "in"), Lake(folder=tmp_path / "out")
    for lake in (source, target):
        lake.folder.mkdir()
    source.create()
    source.append((1, "a"), (2, "b"))
    session.run(
        "CREATE TABLE t (id BIGINT PRIMARY KEY, word VARCHAR) "
        f"WITH (connector = 'iceberg', {source.clause}, refresh_mode = 'FULL_RELOAD')",
        "REFRESH TABLE t",
    )
    wait_until(lambda: session.rows_of("t", "id, word") == [(1, "a"), (2, "b")], "it is loaded")
    session.run(
        "CREATE SINK k FROM t WITH (connector = 'iceberg', type = 'upsert', primary_key = 'id', "
        f"create_table_if_not_exists = 'true', {target.clause})"
    )
    wait_until(lambda: session.job("k").lag == 0 and target.rows() == [(1, "a"), (2, "b")], "the sink has written it")
    source.table().overwrite(pa.table({"id": [2, 3], "word": ["B", "c"]}, schema=COLUMNS))
    session.run("REFRESH TABLE t")
    wait_until(lambda: target.rows() == [(2, "B"), (3, "c")], "the changes have arrived")
    summary = target.table().current_snapshot()
    assert summary is not None
    assert summary.summary is not None
    assert summary.summary["rw_sql.batch"] is not None
    session.run("DROP SINK k", "DROP TABLE t")
