"""REWIND to a point that is too old, and to a point of a view that was rebuilt since."""

from __future__ import annotations

import shutil
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from rw_sql.errors import SqlError
from rw_sql.metastore.records import Operation, PutObject
from tests.runtime.mini_streams import MiniWarehouse, expected

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def mini(tmp_path: Path) -> MiniWarehouse:
    """A source with a view, which has read rows again after an injection. The injection has a rewind point."""
    mini = MiniWarehouse.at(tmp_path / "warehouse")
    mini.create_view("counts")
    mini.ingest(4, 6)
    mini.read_views()
    mini.run("PAUSE SOURCE s", "INJECT SOURCE OFFSETS s VALUES ('1-0' = 6) ALLOW DUPLICATES")
    mini.settle()
    mini.run("RESUME SOURCE s")
    mini.ingest(4, 5)
    mini.read_views()
    return mini


def test_a_point_that_is_too_old_serves_only_a_rewind_that_was_planned_before(mini: MiniWarehouse) -> None:
    facts = mini.context.metastore.jobs
    (point,) = facts.rewind_points()
    rewind = f"REWIND SOURCE s TO OPERATION {point.operation}"
    old = replace(point, reason="it was older than rewind_point_retention (7d)")
    facts.replace_rewind_points((old,))
    assert [row[-1] for row in mini.run("SHOW UNSAFE OPERATIONS FOR s").rows] == [None]
    with pytest.raises(SqlError, match=r"there is no rewind point: it was older than rewind_point_retention \(7d\)"):
        mini.run(rewind)
    facts.replace_rewind_points((point,))
    assert mini.run("SHOW UNSAFE OPERATIONS FOR s").rows[0][-1] == rewind
    mini.run(rewind)
    facts.replace_rewind_points((old,))
    mini.settle()
    assert mini.log_ids() == list(range(10))
    assert mini.rows("counts") == expected(range(10))["counts"]


def test_a_view_that_was_rebuilt_since_counts_as_created_after_the_operation(mini: MiniWarehouse) -> None:
    """Whether or not its earlier table exists."""
    (point,) = mini.context.metastore.jobs.rewind_points()
    metastore, (view,) = mini.context.metastore, mini.views()
    change = PutObject(record=replace(view, generation=2))
    rebuilt = Operation(kind="TEST", statement="", objects=("counts",), changes=(change,))
    metastore.commit(rebuilt, based_on=metastore.snapshot())
    for _ in range(2):
        with pytest.raises(SqlError, match='materialized view "counts" was created after the operation'):
            mini.run(f"REWIND SOURCE s TO OPERATION {point.operation}")
        shutil.rmtree(mini.context.warehouse.data(view.id, 1), ignore_errors=True)
