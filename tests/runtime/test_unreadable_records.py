"""A record that no reader of a source can read: each caller names what works for it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

from rw_sql.connectors.fetching import UnreadableRecordError
from rw_sql.errors import SqlError
from rw_sql.runtime.backfill import job
from rw_sql.runtime.ingest import batch_reader
from rw_sql.runtime.sql import source_scan
from rw_sql.runtime.support.failures import StalledError
from rw_sql.syntax import parse_statement

if TYPE_CHECKING:
    from types import ModuleType

SOURCE = parse_statement(
    "CREATE SOURCE \"Orders\" (id INT) INCLUDE header WITH (connector = 'kafka', topic = 't', "
    "properties.bootstrap.server = 'localhost:9092') FORMAT PLAIN ENCODE JSON"
)


@pytest.fixture(autouse=True)
def unreadable(monkeypatch: pytest.MonkeyPatch) -> None:
    def read_records(*_: object) -> NoReturn:
        raise UnreadableRecordError("t:1", 4, "its timestamp is odd")

    modules: list[ModuleType] = [batch_reader, job, source_scan]
    for module in modules:
        monkeypatch.setattr(module, "read_records", read_records)
    for module in modules[1:]:
        monkeypatch.setattr(module, "definition_of", lambda source: SOURCE)


@pytest.fixture(autouse=True)
def local(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_reader, "require_executors", lambda *_: None)


def anything(**attributes: object) -> Any:
    return SimpleNamespace(**attributes)


def test_the_source_s_reader_names_the_statement_that_omits_it() -> None:
    kind = anything(unstreamable=lambda *_: {"t:1": 4})
    opening = anything(statement=SOURCE, options={})
    reader = anything(opening=opening, _kind=kind, warehouse=None)
    with pytest.raises(OSError, match="UNREADABLE t:1: its timestamp is odd") as caught:
        batch_reader.BatchReader._records(reader, anything(moved={}), anything(sparkSession=None), None)
    assert str(caught.value).endswith("odd: to omit the record, INJECT SOURCE OFFSETS \"Orders\" VALUES ('t:1' = 5)")


def test_a_backfill_does_not_move_the_source() -> None:
    backfill = anything(spec=anything(name="v"))
    with pytest.raises(StalledError) as caught:
        job.BackfillReader._from_upstream(anything(backfill=backfill, source=None, kind=None), anything(), {}, (), None)
    assert caught.value.reason == (
        "UNREADABLE t:1: its timestamp is odd: v cannot contain this record; a view over a source without INCLUDE "
        "header can"
    )


def test_a_select_does_not_move_the_source() -> None:
    scan = anything(
        source=anything(name="Orders", connector="kafka"),
        kind=anything(spark_packages=tuple),
        context=anything(sessions=anything(load=lambda packages: None)),
        ranges={"t:1": (0, 9)},
        options={},
        lives={},
    )
    with pytest.raises(SqlError) as caught:
        source_scan.SourceScan._rows(scan, anything())
    assert caught.value.code == "RW301"
    assert caught.value.message == 'source "Orders" cannot be read: UNREADABLE t:1: its timestamp is odd'
    assert caught.value.hint == "query a source of the same topic without INCLUDE header"
