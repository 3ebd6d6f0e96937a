"""SHOW LINEAGE, as rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rw_sql.errors import SqlError
from rw_sql.plan.lower import lower
from rw_sql.runtime.control.inspector import WarehouseInspector
from rw_sql.syntax import parse_statement
from tests.support.warehouses import WrittenWarehouse

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def written(tmp_path: Path) -> WrittenWarehouse:
    written = WrittenWarehouse(tmp_path / "w")
    written.commit(
        written.connection(1, "broker"),
        *written.source(2, "orders", uses=(1,)),
        written.view(3, "totals", 2),
        written.view(4, "top", 3),
        written.sink(5, "out", 3),
    )
    written.lease()
    written.status("ingest-2", "RUNNING")
    return written


def shown(written: WrittenWarehouse, text: str) -> list[tuple[object, ...]]:
    """The rows of a statement."""
    context = written.context()
    snapshot = context.metastore.snapshot()
    plan = lower(parse_statement(text), snapshot, WarehouseInspector(context, snapshot))
    assert plan.table is not None
    return list(plan.table.rows)


def test_all_objects_with_what_they_read(written: WrittenWarehouse) -> None:
    assert shown(written, "SHOW LINEAGE") == [
        ("broker", "connection", None, None, "", "orders"),
        ("orders", "source", "RUNNING", None, "broker", "totals"),
        ("totals", "materialized_view", "STARTING", 0, "orders", "top, out"),
        ("top", "materialized_view", "STARTING", 0, "totals", ""),
        ("out", "sink", "STARTING", 0, "totals", ""),
    ]


def test_lineage_of_one_object_shows_what_it_reads_and_what_reads_it(written: WrittenWarehouse) -> None:
    assert [row[0] for row in shown(written, "SHOW LINEAGE OF top")] == ["broker", "orders", "totals", "top"]
    assert [row[0] for row in shown(written, "SHOW LINEAGE OF public.orders")][-1] == "out"


def test_a_name_that_nothing_has(written: WrittenWarehouse) -> None:
    with pytest.raises(SqlError) as caught:
        shown(written, "SHOW LINEAGE OF totls")
    assert str(caught.value.message) == '"totls" does not exist'
    assert caught.value.hint == 'did you mean "totals"? SHOW LINEAGE lists all objects'
