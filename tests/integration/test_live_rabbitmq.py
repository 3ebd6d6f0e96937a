"""RabbitMQ's streams as sources in a live session: what is read, random moves, and what a stream loses."""

from __future__ import annotations

import base64
import re
from decimal import Decimal
from typing import TYPE_CHECKING

import pytest

from rw_sql.connectors.registry import connector
from rw_sql.errors import SqlError
from tests.integration.attached import wait_until
from tests.integration.nats_moves import MOVES
from tests.integration.rabbit_moves import RabbitMovedStreams
from tests.support.rabbitmq_server import GUEST, PARTITIONS, SUPER, rabbit_running, super_stream

if TYPE_CHECKING:
    from tests.integration.attached import AttachedSession
    from tests.support.rabbitmq_server import RabbitServer

pytestmark = [pytest.mark.spark, pytest.mark.rabbitmq]


@pytest.mark.long
@pytest.mark.usefixtures("quick_discovery")
def test_a_stream_from_its_first_message_to_its_end(
    session: AttachedSession, rabbit_server: RabbitServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RW_SQL_SECRET_KEY", base64.b64encode(bytes(32)).decode())
    session.allow_unsafe()
    # The oldest messages go once there are more than 2 MB; a segment has up to 100 kB.
    rabbit_server.create("letters", max_length_bytes=2_000_000, stream_max_segment_size_bytes=100_000)
    rabbit_server.publish("letters", [b'{"id": 1}', b"not JSON"], message_id="m1", headers={"trace": "t7"})
    rabbit_server.publish("letters", [b'{"id": 3}'])
    with pytest.raises(SqlError) as missing:
        session.run(
            f"CREATE SOURCE o (id INT) WITH (connector = 'rabbitmq', url = '{rabbit_server.url}', stream = 'letter') "
            "FORMAT PLAIN ENCODE JSON"
        )
    assert 'the upstream of source "o" has no stream "letter"' in missing.value.render()
    session.run(
        "CREATE SECRET guest WITH (backend = 'meta') AS 'guest'",
        f"CREATE CONNECTION n WITH (type = 'rabbitmq', url = '{rabbit_server.url}', username = 'guest', "
        "password = SECRET guest)",
        "CREATE SOURCE o (id INT) INCLUDE key AS key INCLUDE offset AS at INCLUDE header 'trace' VARCHAR AS trace "
        "INCLUDE payload AS payload INCLUDE timestamp AS stored INCLUDE partition AS stream "
        "WITH (connector = 'rabbitmq', connection = n, stream = 'letters') FORMAT PLAIN ENCODE JSON",
        "CREATE MATERIALIZED VIEW v AS SELECT id, at, key, trace, payload, stream FROM o",
    )
    wanted = [
        (1, "0", b"m1", "t7", '{"id": 1}', "letters"),
        (3, "2", None, None, '{"id": 3}', "letters"),
    ]
    assert session.flushed_rows_of("v") == wanted
    assert session.sql("SELECT count(*) FROM o WHERE stored > TIMESTAMP '2026-01-01'")[0][0] == 2
    assert session.sql("SELECT count(*) FROM `o$errors`")[0][0] == 1
    assert session.positions("o") == {"letters": 3}

    # More than this process reads: Spark's own processes do, in the same batch.
    rabbit_server.publish("letters", [b'{"id": %d}' % number for number in range(10, 15_010)])
    session.sql("FLUSH")
    assert session.sql("SELECT count(*), count(DISTINCT at) FROM v")[0] == (15_002, 15_002)
    assert session.sql("SELECT count(*) FROM o")[0][0] == 15_002

    # Unread messages that retention removes are told, with their number, and the statement leads on.
    session.sql("PAUSE SOURCE o")
    kind, given = connector("rabbitmq"), {"url": rabbit_server.url, "stream": "letters"}

    def is_overtaken() -> bool:
        rabbit_server.publish("letters", [b'{"id": 4, "pad": "%s"}' % (b"x" * 1_000)] * 500)
        return kind.look(given).splits["letters"].start > 15_003

    wait_until(is_overtaken, "the server removes unread messages")
    session.sql("RESUME SOURCE o")
    wait_until(lambda: session.job("o").state == "STALLED", "the loss is noticed")
    reason = session.job("o").reason
    told = re.match(r"EXPIRED letters, (\d+) records: PAUSE SOURCE o; INJECT SOURCE OFFSETS o TO EARLIEST", reason)
    assert told is not None, reason
    # The server removes messages in the background, and may have removed more since.
    assert 0 < int(told[1]) <= kind.look(given).splits["letters"].start - 15_003
    session.run("PAUSE SOURCE o", "INJECT SOURCE OFFSETS o TO EARLIEST ALLOW GAPS", "RESUME SOURCE o")
    session.sql("FLUSH")
    seen = kind.look(given).splits["letters"]
    assert session.sql("SELECT count(*) FROM v WHERE id = 4")[0][0] == seen.end - seen.start

    # A stream that is created again is another one, even while the source runs.
    rabbit_server.delete("letters")
    rabbit_server.create("letters")
    rabbit_server.publish("letters", [b'{"id": 7}'] * 2)
    wait_until(lambda: "RECREATED letters" in session.job("o").reason, "the new stream is noticed")
    session.sql("RESET SOURCE SPLITS o")
    wait_until(lambda: session.sql("SELECT count(*) FROM v WHERE id = 7")[0][0] == 2, "it is read from its beginning")
    session.run("DROP SOURCE o CASCADE", "DROP CONNECTION n", "DROP SECRET guest")
    rabbit_server.delete("letters")


@pytest.mark.long
@pytest.mark.usefixtures("quick_discovery")
def test_a_stream_that_only_times_tell_from_another(session: AttachedSession, rabbit_server: RabbitServer) -> None:
    session.allow_unsafe()
    # An empty stream has no first message that would identify it.
    rabbit_server.create("late")
    session.run(
        f"CREATE SOURCE s (id INT) WITH (connector = 'rabbitmq', url = '{rabbit_server.url}', stream = 'late') "
        "FORMAT PLAIN ENCODE JSON",
        "CREATE MATERIALIZED VIEW v AS SELECT id FROM s",
    )
    assert session.flushed_rows_of("v") == []
    for number in range(5):
        rabbit_server.publish("late", [b'{"id": %d}' % number])
        session.sql("FLUSH")
    assert session.rows_of("v") == [(number,) for number in range(5)]
    session.sql("PAUSE SOURCE s")
    rabbit_server.delete("late")
    rabbit_server.create("late")
    rabbit_server.publish("late", [b'{"id": 10}'] * 8)
    session.sql("RESUME SOURCE s")
    wait_until(lambda: "DIVERGED late at 5: the log was cut at 0" in session.job("s").reason, "the reason is shown")
    assert session.sql("SELECT count(*) FROM v")[0][0] == 5
    session.run(
        "PAUSE SOURCE s", "INJECT SOURCE OFFSETS s VALUES ('late' = 0) ALLOW DUPLICATES", "RESUME SOURCE s", "FLUSH"
    )
    assert session.sql("SELECT count(*) FROM v WHERE id = 10")[0][0] == 8
    session.sql("DROP SOURCE s CASCADE")
    rabbit_server.delete("late")


@pytest.mark.long
@pytest.mark.usefixtures("quick_discovery")
def test_moves_are_as_previewed_and_can_be_reverted(session: AttachedSession, rabbit_server: RabbitServer) -> None:
    session.allow_unsafe()
    moved = RabbitMovedStreams(session, rabbit_server, "m", seed=11)
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
def test_the_example_of_its_page_runs(session: AttachedSession, rabbit_server: RabbitServer) -> None:
    rabbit_server.create("orders")
    rabbit_server.publish("orders", [b'{"id": 1, "amount": 2.5}'], message_id="m1", headers={"region": "eu"})
    rabbit_server.publish("orders", [b'{"id": 2, "amount": 0.25}'])
    example = connector("rabbitmq").spec.example.replace("rabbitmq-stream://localhost:5552", rabbit_server.url)
    session.run(*(text for text in example.split(";") if text.strip()))
    assert session.flushed_rows_of("total") == [(2, Decimal("2.75"))]
    assert session.rows_of("orders", "number, message_id, region") == [("0", b"m1", "eu"), ("1", None, None)]
    session.run("DROP SOURCE orders CASCADE")
    rabbit_server.delete("orders")


@pytest.mark.long
def test_a_super_stream_and_a_server_that_is_restarted(session: AttachedSession) -> None:
    with rabbit_running(definitions={**GUEST, **super_stream(SUPER, PARTITIONS)}) as server:
        for number, partition in enumerate(PARTITIONS):
            server.publish(partition, [b'{"id": %d}' % (10 * number + each) for each in range(3)])
        session.allow_unsafe()
        session.run(
            f"CREATE SOURCE s (id INT) INCLUDE partition AS part WITH (connector = 'rabbitmq', url = '{server.url}', "
            f"super_stream = '{SUPER}') FORMAT PLAIN ENCODE JSON",
            "CREATE MATERIALIZED VIEW v AS SELECT id, part FROM s",
        )
        wanted = [(10 * number + each, partition) for number, partition in enumerate(PARTITIONS) for each in range(3)]
        assert session.flushed_rows_of("v") == wanted
        splits = [f"{SUPER}:{partition}" for partition in PARTITIONS]
        assert session.positions("s") == dict.fromkeys(splits, 3)
        server.stop()
        wait_until(lambda: session.job("s").state == "STALLED", "it does not answer")
        wait_until(lambda: "UNREACHABLE cannot connect" in session.job("s").reason, "the reason is shown")
        server.start()
        server.publish(PARTITIONS[1], [b'{"id": 20}'])
        wait_until(lambda: session.job("s").state == "RUNNING", "it runs again")
        assert session.flushed_rows_of("v") == [*wanted, (20, PARTITIONS[1])]
        session.run(
            "PAUSE SOURCE s",
            f"INJECT SOURCE OFFSETS s VALUES ('{PARTITIONS[0]}' = 2) ALLOW DUPLICATES",
            "RESUME SOURCE s",
        )
        session.sql("FLUSH")
        assert session.sql("SELECT count(*) FROM v WHERE id = 2")[0][0] == 2
        session.run("DROP SOURCE s CASCADE")
