"""FLUSH with sources at rest: one look at their cluster, and one at a source that has records to read."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from rw_sql.errors import SqlError
from rw_sql.metastore.records import (
    PutSplitStates,
)
from rw_sql.runtime.observe import cluster_looks
from rw_sql.runtime.observe import flush as flush_module
from rw_sql.runtime.observe.flush import flush
from tests.runtime.rested_sources import World

if TYPE_CHECKING:
    pass


@pytest.fixture
def flushed(world: World, monkeypatch: pytest.MonkeyPatch) -> World:
    """A warehouse whose FLUSH looks at the cluster in memory. Its Spark is alive."""
    for place in (cluster_looks, flush_module):
        monkeypatch.setattr(place, "connector", lambda _: world.cluster)
    world.context = replace(world.context, sessions=cast("Any", SimpleNamespace(require_alive=lambda: None)))
    return world


def test_flush_looks_on_its_own_only_at_a_source_with_records_to_read(flushed: World) -> None:
    for id_ in (10, 20, 30):
        flushed.source(id_)
    told = [row.detail for row in flush(flushed.context, 60.0)]
    assert told[:3] == ["read to t10:0=0", "read to t20:0=0", "read to t30:0=0"]
    assert flushed.cluster.requests == [3]
    assert flushed.cluster.looks == 0
    flushed.cluster.ends["t20:0"] = 1
    with pytest.raises(SqlError, match='source "s20" is 1 record behind'):
        flush(flushed.context, 0.05)
    assert flushed.cluster.looks == 1


def test_flush_does_not_take_a_topic_that_was_created_again_for_the_one_that_was_read(flushed: World) -> None:
    for id_ in (10, 20):
        flushed.source(id_)
    first = '{"cluster":"c","incarnation":"first","offset":0}'
    flushed.commit(PutSplitStates(fragment="ingest-20", states={"t20:0": first}))
    with pytest.raises(SqlError, match='source "s20" is 0 records behind'):
        flush(flushed.context, 0.05)
    flushed.cluster.ids["t20"] = "first"
    assert [row.change for row in flush(flushed.context, 60.0)] == ["FLUSHED"] * 4


def test_flush_asks_a_source_itself_if_the_end_of_a_split_is_not_known(flushed: World) -> None:
    for id_ in (10, 20):
        flushed.source(id_, splits=2)
    flushed.cluster.ends["t20:1"] = 1
    flushed.cluster.unreadable.add("t20:1")
    with pytest.raises(SqlError, match='source "s20" is 1 record behind'):
        flush(flushed.context, 0.05)
    flushed.cluster.error = "it does not answer"
    told = [row.detail for row in flush(flushed.context, 60.0)]
    assert told[:2] == ["not waited for: it does not answer"] * 2
