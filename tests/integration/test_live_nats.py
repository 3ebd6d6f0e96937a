"""NATS streams as sources in a live session: what is read, random moves, and what a stream loses."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import TYPE_CHECKING

import pytest

from rw_sql.connectors.registry import connector
from rw_sql.errors import SqlError
from tests.integration.attached import wait_until
from tests.integration.nats_moves import MOVES, MovedStreams
from tests.support.nats_server import nats_running

if TYPE_CHECKING:
    from tests.integration.attached import AttachedSession
    from tests.support.nats_server import NatsServer

pytestmark = [pytest.mark.spark, pytest.mark.nats]


@pytest.mark.long
@pytest.mark.usefixtures("quick_discovery")
def test_a_stream_from_its_first_message_to_its_end(session: AttachedSession, nats_server: NatsServer) -> None:
    session.allow_unsafe()
    nats_server.create("ORDERS", "orders.>")
    nats_server.publish("orders.eu", [b'{"id": 1}', b"not JSON"], headers={"trace": "t7"})
    nats_server.publish("orders.us.ca", [b'{"id": 3}'])
    with pytest.raises(SqlError) as missing:
        session.run(
            f"CREATE SOURCE o (id INT) WITH (connector = 'nats', server_url = '{nats_server.url}', stream = 'ORDER', "
            "subject = 'orders.>') FORMAT PLAIN ENCODE JSON"
        )
    assert 'the upstream of source "o" has no stream "ORDER"' in missing.value.render()
    assert 'did you mean "ORDERS"?' in missing.value.render()
    session.run(
        f"CREATE CONNECTION n WITH (type = 'nats', server_url = '{nats_server.url}')",
        "CREATE SOURCE o (id INT) INCLUDE subject AS subject INCLUDE offset AS seq INCLUDE header 'trace' VARCHAR AS "
        "trace INCLUDE payload AS payload INCLUDE timestamp AS stored INCLUDE partition AS stream "
        "WITH (connector = 'nats', connection = n, stream = 'ORDERS', subject = 'orders.>') FORMAT PLAIN ENCODE JSON",
        "CREATE MATERIALIZED VIEW v AS SELECT id, seq, subject, trace, payload, stream FROM o",
    )
    wanted = [
        (1, "1", "orders.eu", "t7", '{"id": 1}', "ORDERS"),
        (3, "3", "orders.us.ca", None, '{"id": 3}', "ORDERS"),
    ]
    assert session.flushed_rows_of("v") == wanted
    assert session.sql("SELECT count(*) FROM o WHERE stored > TIMESTAMP '2026-01-01'")[0][0] == 2
    assert session.sql("SELECT count(*) FROM `o$errors`")[0][0] == 1
    assert session.positions("o") == {"ORDERS": 4}

    # More than this process reads: Spark's own processes do, in the same batch.
    nats_server.publish("orders.eu", [json.dumps({"id": number}).encode() for number in range(10, 15_010)])
    session.sql("FLUSH")
    assert session.sql("SELECT count(*), count(DISTINCT seq) FROM v")[0] == (15_002, 15_002)
    assert session.sql("SELECT count(*) FROM o")[0][0] == 15_002

    # Unread messages that a purge removes are told, with their number, and the statement leads on.
    session.sql("PAUSE SOURCE o")
    nats_server.publish("orders.eu", [b'{"id": 4}'] * 5)
    nats_server.purge("ORDERS", seq=15_007)
    session.sql("RESUME SOURCE o")
    wait_until(lambda: session.job("o").state == "STALLED", "the loss is noticed")
    reason = session.job("o").reason
    assert reason.startswith("EXPIRED ORDERS, 3 records: PAUSE SOURCE o; INJECT SOURCE OFFSETS o TO EARLIEST"), reason
    session.run("PAUSE SOURCE o", "INJECT SOURCE OFFSETS o TO EARLIEST ALLOW GAPS", "RESUME SOURCE o")
    session.sql("FLUSH")
    assert session.sql("SELECT count(*) FROM v WHERE id = 4")[0][0] == 2

    # A stream that is created again is another one, even while the source runs.
    nats_server.delete("ORDERS")
    nats_server.create("ORDERS", "orders.>")
    nats_server.publish("orders.eu", [b'{"id": 5}'] * 2)
    wait_until(lambda: session.job("o").state == "STALLED", "the new stream is noticed")
    wait_until(lambda: "RECREATED ORDERS" in session.job("o").reason, "the reason is shown")
    session.sql("RESET SOURCE SPLITS o")
    wait_until(lambda: session.sql("SELECT count(*) FROM v WHERE id = 5")[0][0] == 2, "it is read from its beginning")
    session.run("DROP SOURCE o CASCADE", "DROP CONNECTION n")
    nats_server.delete("ORDERS")


@pytest.mark.long
@pytest.mark.usefixtures("quick_discovery")
def test_moves_are_as_previewed_and_can_be_reverted(session: AttachedSession, nats_server: NatsServer) -> None:
    session.allow_unsafe()
    moved = MovedStreams(session, nats_server, "m", seed=11)
    for move in MOVES:
        moved.move(move)
    assert moved.total.duplicates > 0
    assert moved.total.gaps > 0
    before = moved.session.positions("s_m")
    session.run("PAUSE SOURCE s_m", "INJECT SOURCE OFFSETS s_m TO EARLIEST ALLOW DUPLICATES")
    assert moved.session.positions("s_m") != before
    session.sql(f"UNDO OPERATION {session.epoch()}")
    assert moved.session.positions("s_m") == before
    moved.drop()


@pytest.mark.long
def test_the_example_of_its_page_runs(session: AttachedSession, nats_server: NatsServer) -> None:
    nats_server.create("ORDERS", "orders.>")
    nats_server.publish("orders.us.ca", [b'{"id": 1, "amount": 2.5}'])
    nats_server.publish("orders.asia", [b'{"id": 2, "amount": 1}'])
    nats_server.publish("orders.eu", [b'{"id": 3, "amount": 0.25}'])
    example = connector("nats").spec.example.replace("nats://localhost:4222", nats_server.url)
    session.run(*(text for text in example.split(";") if text.strip()))
    assert session.flushed_rows_of("total") == [(2, Decimal("2.75"))]
    assert session.rows_of("orders", "sequence") == [("1",), ("3",)]
    session.run("DROP SOURCE orders CASCADE")
    nats_server.delete("ORDERS")


@pytest.mark.long
def test_a_server_that_is_away_stalls_the_source_until_it_is_back(session: AttachedSession) -> None:
    with nats_running() as first:
        first.create("S")
        first.publish("S", [b'{"id": 1}'])
        session.run(
            f"CREATE SOURCE s (id INT) WITH (connector = 'nats', server_url = '{first.url}', stream = 'S', "
            "subject = 'S') FORMAT PLAIN ENCODE JSON",
            "CREATE MATERIALIZED VIEW v AS SELECT id FROM s",
        )
        assert session.flushed_rows_of("v") == [(1,)]
    wait_until(lambda: session.job("s").state == "STALLED", "it does not answer")
    wait_until(lambda: "UNREACHABLE cannot connect" in session.job("s").reason, "the reason is shown")
    # Its streams are gone, so it is another upstream: never continued by number.
    with nats_running(port=first.port) as second:
        second.create("S")
        second.publish("S", [b'{"id": 2}'] * 3)
        wait_until(lambda: "RECREATED S" in session.job("s").reason, "the other stream is noticed")
        assert session.rows_of("v") == [(1,)]
        session.run("DROP SOURCE s CASCADE")


@pytest.mark.long
def test_undo_of_other_subjects_reads_the_messages_of_the_former_ones(
    session: AttachedSession, nats_server: NatsServer
) -> None:
    session.allow_unsafe()
    nats_server.create("AB", "ab.>")
    nats_server.publish("ab.a", [b'{"id": 1}'])
    nats_server.publish("ab.b", [b'{"id": 2}'])
    session.run(
        f"CREATE SOURCE s (id INT) WITH (connector = 'nats', server_url = '{nats_server.url}', stream = 'AB', "
        "subject = 'ab.a') FORMAT PLAIN ENCODE JSON",
        "CREATE MATERIALIZED VIEW v AS SELECT id FROM s",
    )
    assert session.flushed_rows_of("v") == [(1,)]
    rows = session.sql("ALTER SOURCE s UNSAFE SET (subject = 'ab.b')")
    assert any("TO EARLIEST" in row.detail for row in rows)
    moved = session.epoch()
    nats_server.publish("ab.a", [b'{"id": 3}'])
    nats_server.publish("ab.b", [b'{"id": 4}'])
    assert session.flushed_rows_of("v") == [(1,), (4,)]
    session.sql(f"UNDO OPERATION {moved}")
    assert session.flushed_rows_of("v") == [(1,), (3,), (4,)]
    session.run("DROP SOURCE s CASCADE")
    nats_server.delete("AB")
