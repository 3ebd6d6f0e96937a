"""Which objects read which, of all objects or around one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rw_sql.model.lineage import lineage_of
from tests.support.warehouses import WrittenWarehouse

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def written(tmp_path: Path) -> WrittenWarehouse:
    written = WrittenWarehouse(tmp_path)
    written.commit(
        written.connection(1, "broker"),
        *written.source(2, "orders", uses=(1,)),
        *written.source(3, "clicks"),
        written.view(4, "totals", 2),
        written.view(5, "joined", 2, 3),
        written.view(6, "top", 5),
        written.sink(7, "out", 6, uses=(1,)),
    )
    return written


def test_everything_is_in_it(written: WrittenWarehouse) -> None:
    lineage = lineage_of(written.metastore.snapshot())
    assert [record.name for record in lineage.objects] == [
        "broker",
        "orders",
        "clicks",
        "totals",
        "joined",
        "top",
        "out",
    ]
    assert lineage.edges == ((1, 2), (1, 7), (2, 4), (2, 5), (3, 5), (5, 6), (6, 7))
    assert lineage.inputs_of()[5] == (2, 3)
    assert lineage.readers_of()[2] == (4, 5)


def test_around_one_object_are_those_before_and_behind_it(written: WrittenWarehouse) -> None:
    snapshot = written.metastore.snapshot()
    assert {record.id for record in lineage_of(snapshot, of=5).objects} == {1, 2, 3, 5, 6, 7}
    assert {record.id for record in lineage_of(snapshot, of=4).objects} == {1, 2, 4}
    assert lineage_of(snapshot, of=4).edges == ((1, 2), (2, 4))
