"""A table of a REST catalog, by the same options: the source and the sink, and the login."""

from __future__ import annotations

import socket
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from rw_sql.connectors.base import SplitState
from rw_sql.connectors.iceberg import history, reader, rest
from rw_sql.connectors.iceberg.sink import IcebergSink
from rw_sql.connectors.iceberg.source import IcebergConnector
from rw_sql.connectors.sink import UPDATE, SinkError
from rw_sql.connectors.spec import OptionError
from tests.connectors.iceberg.lake import NAME, Lake
from tests.support.redirecting_server import redirecting
from tests.support.rest_catalog import rest_catalog
from tests.support.sink_batches import batch, shape

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TOKEN = "a token"


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(folder=tmp_path)


@pytest.fixture
def options(lake: Lake) -> Iterator[dict[str, str]]:
    with rest_catalog(lake.catalog, TOKEN) as url:
        yield {"catalog.uri": url, "catalog.token": TOKEN, "database.name": "db", "table.name": "orders"}


def test_a_source(lake: Lake, options: dict[str, str]) -> None:
    kind = IcebergConnector()
    kind.check_options(options)
    lake.catalog().create_namespace("db")
    assert kind.look(options).missing == (NAME,)
    lake.create()
    lake.append((1, "a"))
    lake.append((2, "b"))
    assert kind.look(options).splits[NAME].end == 3
    positions = {NAME: SplitState(split=NAME, offset=2)}
    assert [(left.start, left.end) for left in kind.stretches(options, positions)] == [(2, 3)]
    table = kind._table(options)
    parts, _ = reader.appended(table, history.snapshots(table, 2, 3), ["word"])
    rows: list[Any] = [row for part in parts for found in reader.read_files(table, part) for row in found.to_pylist()]
    assert rows == [{"_rw_offset": 2, "word": "b"}]
    told = kind.look({**options, "catalog.token": "another"})
    assert told.error is not None
    assert "another" not in told.error


@pytest.mark.parametrize(
    ("uri", "kind"),
    [
        ("https://me:hidden@catalog:8181", "rest"),
        ("jdbc:postgresql://me:hidden@catalog/db", "jdbc"),
        ("jdbc:postgresql://catalog/db?user=me&password=hidden", "jdbc"),
    ],
)
def test_an_address_has_no_login(uri: str, kind: str) -> None:
    given = {"catalog.uri": uri, "catalog.type": kind, "database.name": "db", "table.name": "t"}
    for each in (IcebergConnector(), IcebergSink()):
        with pytest.raises(OptionError, match="must not contain a login") as caught:
            each.check_options(given | ({"warehouse.path": "/tmp/w"} if kind == "jdbc" else {}))
        assert caught.value.hides_literals
        assert "hidden" not in str(caught.value)


def test_a_server_that_answers_nothing(options: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rest, "ANSWER_SECONDS", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as mute:
        error = IcebergConnector().look({**options, "catalog.uri": f"http://127.0.0.1:{mute.getsockname()[1]}"}).error
        assert error is not None
        assert "timed out" in error


def test_a_server_that_answers_no_login(options: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rest, "ANSWER_SECONDS", 0.5)
    del options["catalog.token"]
    with socket.create_server(("127.0.0.1", 0)) as mute, ThreadPoolExecutor() as threads:
        uri = f"http://127.0.0.1:{mute.getsockname()[1]}"
        asked = threads.submit(IcebergConnector().look, {**options, "catalog.uri": uri, "catalog.credential": "a:b"})
        try:
            assert "timed out" in (asked.result(10.0).error or "")
        finally:
            mute.shutdown(socket.SHUT_RDWR)


def test_a_look_waits_no_longer_than_its_timeout(options: dict[str, str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        given = {**options, "catalog.uri": f"http://127.0.0.1:{mute.getsockname()[1]}"}
        asked_at = time.monotonic()
        assert "timed out" in (IcebergConnector().look(given, timeout=0.5).error or "")
        assert time.monotonic() - asked_at < 10.0


def test_a_catalog_that_does_not_answer_delays_no_other(options: dict[str, str], lake: Lake) -> None:
    kind = IcebergConnector()
    lake.create()
    lake.append((1, "a"))
    with socket.create_server(("127.0.0.1", 0)) as mute, ThreadPoolExecutor() as threads:
        asked = threads.submit(kind.look, {**options, "catalog.uri": f"http://127.0.0.1:{mute.getsockname()[1]}"})
        connection, _ = mute.accept()
        found = threads.submit(kind.look, options)
        try:
            assert found.result(5.0).splits[NAME].end == 2
            assert not asked.done()
        finally:
            connection.close()


@pytest.mark.parametrize("login", [{"catalog.token": TOKEN}, {"catalog.credential": "me:hidden"}], ids=str)
def test_another_server_gets_no_login(options: dict[str, str], login: dict[str, str]) -> None:
    given = {key: value for key, value in options.items() if key != "catalog.token"} | login
    with redirecting() as servers:
        servers.status = 307
        error = IcebergConnector().look({**given, "catalog.uri": servers.url}).error
        assert error == f"{servers.url}: the server redirects to {servers.target}: use that address"
        assert servers.received == []


def test_a_sink(lake: Lake, options: dict[str, str]) -> None:
    sink, made = IcebergSink(), {**options, "create_table_if_not_exists": "true"}
    first = sink.open(made, shape("upsert", "id"), "me")
    assert first.fence(1, 1) == -1
    first.write(batch((1, "a"), (2, "b")), 0)
    second = sink.open(made, shape("upsert", "id"), "me")
    assert second.fence(2, 1) == 0
    with pytest.raises(SinkError, match="run 2 has taken over from run 1"):
        first.write(batch((3, "late")), 1)
    second.write(batch((1, "c", UPDATE)), 1)
    assert lake.rows() == [(1, "c"), (2, "b")]
