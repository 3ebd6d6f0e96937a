"""Pulsar topics as sources in a live session: what is read, moves, partitions that are added, removed messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rw_sql.connectors.pulsar.ids import offset_from_text
from rw_sql.connectors.registry import connector
from rw_sql.errors import SqlError
from tests.integration.attached import wait_until
from tests.support.pulsar_server import new_name

if TYPE_CHECKING:
    from tests.integration.attached import AttachedSession
    from tests.support.pulsar_server import PulsarServer

pytestmark = [pytest.mark.spark, pytest.mark.pulsar, pytest.mark.usefixtures("quick_discovery")]


def test_a_topic_that_grows_moves_and_expires(session: AttachedSession, pulsar_server: PulsarServer) -> None:
    session.allow_unsafe()
    topic = new_name()
    first, second = f"{topic}-partition-0", f"{topic}-partition-1"
    pulsar_server.create(topic, 1)
    with_options = f"connector = 'pulsar', service.url = '{pulsar_server.url}'"
    with pytest.raises(SqlError) as missing:
        session.sql(f"CREATE SOURCE c (id INT) WITH ({with_options}, topic = 'no/such/t') FORMAT PLAIN ENCODE JSON")
    assert 'the upstream of source "c" has no topic "no/such/t"' in missing.value.render()
    session.run(
        "CREATE SOURCE c (id INT) INCLUDE key AS key INCLUDE partition AS part INCLUDE offset AS seq "
        "INCLUDE payload AS payload INCLUDE header 'app' AS app INCLUDE message_id_data AS data "
        f"WITH ({with_options}, topic = '{topic}', subscription.name = 's-{topic}') FORMAT PLAIN ENCODE JSON",
        "CREATE MATERIALIZED VIEW v AS SELECT id, seq, part, CAST(key AS STRING) AS key, payload, "
        "CAST(app AS STRING) AS app FROM c",
    )
    sent = pulsar_server.send(
        first, [b'{"id": 1}', b"not JSON", b'{"id": 3}'], key="k", batch=3, properties={"app": "a"}
    )
    ids = [text.replace(":-1:", ":0:") for text in sent]
    wait_until(lambda: len(session.rows_of("v")) == 2, "they are read")
    assert session.flushed_rows_of("v") == [
        (1, ids[0], first, "k", '{"id": 1}', "a"),
        (3, ids[2], first, "k", '{"id": 3}', "a"),
    ]
    offsets = [offset_from_text(text) or 0 for text in sent]
    assert session.sql("SELECT offset, reason IS NOT NULL FROM `c$errors`")[0] == (str(offsets[1]), True)
    assert session.sql("SELECT count(*) FROM c WHERE data IS NOT NULL")[0][0] == 2
    assert {split: str(at) for split, at in session.positions("c").items()} == {first: str(offsets[2] + 1)}
    (shown,) = session.sql("SHOW SOURCE SPLITS c")
    assert (shown.next, shown.log_end, shown.lag, shown.status) == (str(offsets[2] + 1), str(offsets[2] + 1), 0, "OK")

    # A partition is added while the source runs, and read from its first message.
    pulsar_server.grow(topic, 2)
    pulsar_server.send(second, [b'{"id": %d}' % number for number in range(10, 30)], batch=7)
    wait_until(lambda: session.sql("SELECT count(*) FROM v")[0][0] == 22, "the new partition is read")
    assert session.sql("SELECT count(DISTINCT seq) FROM v")[0][0] == 22

    # A move to a message, by its id, and back.
    session.sql("PAUSE SOURCE c")
    with pytest.raises(SqlError, match="do not count records"):
        session.sql(f"SKIP RECORD AT '0' {offsets[2] + 1} ON SOURCE c")
    before = session.positions("c")
    session.questions.clear()
    session.run(f"INJECT SOURCE OFFSETS c VALUES ('0' = '{ids[2]}')", "RESUME SOURCE c")
    (question,) = session.questions[:1]
    # Within an entry, the places in its batch are a bound.
    assert "DUPLICATES at most 1 (message ids do not count messages)" in question.preview
    assert "in all: DUPLICATES at most 1, GAP 0" in question.preview
    session.sql("FLUSH")
    assert session.sql("SELECT id, count(*) FROM v WHERE id IN (1, 3) GROUP BY id ORDER BY id") == [(1, 1), (3, 2)]
    assert session.sql("SHOW SOURCE CONTINUITY c")
    assert session.positions("c") == before
    session.run("PAUSE SOURCE c", "INJECT SOURCE OFFSETS c TO EARLIEST ALLOW DUPLICATES")
    assert session.positions("c") != before
    session.sql(f"UNDO OPERATION {session.epoch()}")
    assert session.positions("c") == before
    session.sql("RESUME SOURCE c")

    # A later view reads the history, and a scan everything, from the topic.
    session.sql("CREATE MATERIALIZED VIEW later AS SELECT id, seq FROM c")
    session.sql("FLUSH")
    assert session.sql("SELECT count(DISTINCT seq) FROM later")[0][0] == 22
    assert session.sql("SELECT count(*) FROM c")[0][0] == 22

    # Messages that were removed before they were read are told, and the statement leads on.
    session.sql("PAUSE SOURCE c")
    wait_until(lambda: session.job("c").state == "PAUSED", "it is paused")
    options = {"topic": topic, "service.url": pulsar_server.url, "subscription.name": f"s-{topic}"}
    connector("pulsar").release(options, slot=True, publication=False)  # type: ignore[attr-defined]
    pulsar_server.send(first, [b'{"id": 7}'] * 3)
    pulsar_server.roll_over(first)
    pulsar_server.send(first, [b'{"id": 8}'] * 3)
    session.sql("RESUME SOURCE c")
    wait_until(lambda: session.job("c").state == "STALLED", "the loss is noticed")
    reason = session.job("c").reason
    assert reason.startswith(f"EXPIRED {first}: PAUSE SOURCE c; INJECT SOURCE OFFSETS c TO EARLIEST FOR SPLITS"), reason
    session.run(*(f"{text} ALLOW GAPS" if "INJECT" in text else text for text in reason.partition(": ")[2].split("; ")))
    session.sql("FLUSH")
    assert session.sql("SELECT id, count(*) FROM v WHERE id IN (7, 8) GROUP BY id") == [(8, 3)]

    # The subscription ends with the source.
    assert f"s-{topic}" in pulsar_server.internal(first)["cursors"]
    session.sql("DROP SOURCE c CASCADE")
    wait_until(lambda: f"s-{topic}" not in pulsar_server.internal(first)["cursors"], "the subscription is removed")
    assert f"s-{topic}" not in pulsar_server.internal(second)["cursors"]


@pytest.mark.long
def test_a_table_of_the_newest_values(session: AttachedSession, pulsar_server: PulsarServer) -> None:
    topic = new_name()
    session.sql(
        "CREATE TABLE t (id INT PRIMARY KEY, name VARCHAR) WITH (connector = 'pulsar', "
        f"service.url = '{pulsar_server.url}', topic = '{topic}') FORMAT UPSERT ENCODE JSON"
    )
    pulsar_server.send(topic, [b'{"id": 1, "name": "a"}', b'{"id": 1, "name": "b"}'], key='{"id": 1}')
    pulsar_server.send(topic, [b'{"id": 2, "name": "c"}'], key='{"id": 2}')
    wait_until(lambda: session.rows_of("t") == [(1, "b"), (2, "c")], "they are read")


@pytest.mark.long
def test_a_move_to_another_topic_keeps_the_first_subscription(
    session: AttachedSession, pulsar_server: PulsarServer
) -> None:
    session.allow_unsafe()
    old, new = new_name(), new_name()
    pulsar_server.send(old, [b'{"id": 1}'])
    pulsar_server.send(new, [b'{"id": 1}', b'{"id": 2}'])
    session.run(
        f"CREATE SOURCE c (id INT) WITH (connector = 'pulsar', service.url = '{pulsar_server.url}', topic = '{old}') "
        "FORMAT PLAIN ENCODE JSON",
        "CREATE MATERIALIZED VIEW v AS SELECT id FROM c",
    )
    wait_until(lambda: session.rows_of("v") == [(1,)], "it is read")
    session.run(
        "PAUSE SOURCE c",
        f"ALTER SOURCE c UNSAFE SET (topic = '{new}')",
        "RESET SOURCE SPLITS c",
        "RESUME SOURCE c",
    )
    wait_until(lambda: session.sql("SELECT count(*) FROM v")[0][0] == 3, "both are read")
    assert pulsar_server.internal(old)["cursors"]
    assert pulsar_server.internal(new)["cursors"]
    session.sql("DROP SOURCE c CASCADE")
    wait_until(lambda: not pulsar_server.internal(new)["cursors"], "the subscription is removed")
    wait_until(lambda: not pulsar_server.internal(old)["cursors"], "the former subscription is removed")


@pytest.mark.long
def test_a_rewind_reverts_what_a_move_brought(session: AttachedSession, pulsar_server: PulsarServer) -> None:
    session.allow_unsafe()
    session.run("ALTER SYSTEM SET rewind_point_timeout = '20s'")
    topic = new_name()
    pulsar_server.send(topic, [b'{"id": %d}' % number for number in range(5)], batch=2)
    session.run(
        f"CREATE SOURCE c (id INT) WITH (connector = 'pulsar', service.url = '{pulsar_server.url}', topic = '{topic}') "
        "FORMAT PLAIN ENCODE JSON",
        "CREATE MATERIALIZED VIEW v AS SELECT id FROM c",
        "CREATE MATERIALIZED VIEW t AS SELECT count(*) AS n, sum(id) AS total FROM c",
    )

    def require(*ids: int) -> None:
        session.sql("FLUSH")
        wait_until(lambda: session.rows_of("v") == [(id_,) for id_ in sorted(ids)], f"the rows are {sorted(ids)}")
        wait_until(lambda: session.rows_of("t") == [(len(ids), sum(ids))], "the sums are theirs")

    def moved(statement: str) -> int:
        """Runs a move of the paused source; returns its operation, which has a rewind point."""
        session.sql(statement)
        operation = int(session.sql("SHOW UNSAFE OPERATIONS FOR c")[0].operation)
        wait_until(
            lambda: (
                session.sql("SHOW UNSAFE OPERATIONS FOR c")[0].rewind == f"REWIND SOURCE c TO OPERATION {operation}"
            ),
            "the rewind point is made",
        )
        return operation

    require(0, 1, 2, 3, 4)
    before = session.positions("c")
    session.sql("PAUSE SOURCE c")
    operation = moved("INJECT SOURCE OFFSETS c TO EARLIEST ALLOW DUPLICATES")
    session.sql("RESUME SOURCE c")
    pulsar_server.send(topic, [b'{"id": 5}', b'{"id": 6}'])
    require(0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 5, 6)

    # While the source runs: the messages since then are read again, and no others.
    session.questions.clear()
    answers = session.sql(f"REWIND SOURCE c TO OPERATION {operation}")
    assert (answers[0].change, answers[0].detail) == ("REWOUND", f"to just before operation {operation}")
    assert "note: v: 7 rows are removed, 5 stay" in session.questions[-1].preview
    require(0, 1, 2, 3, 4, 5, 6)
    pulsar_server.send(topic, [b'{"id": 7}'])
    require(*range(8))
    assert {row.operation: row.status for row in session.sql("SHOW SOURCE CONTINUITY c")}[operation] == "TAKEN BACK"

    # A paused source stays paused, at the position from before the operation.
    session.sql("PAUSE SOURCE c")
    before = session.positions("c")
    pulsar_server.send(topic, [b'{"id": 8}'])
    operation = moved("INJECT SOURCE OFFSETS c TO EARLIEST ALLOW DUPLICATES")
    session.sql(f"REWIND SOURCE c TO OPERATION {operation}")
    assert session.job("c").state == "PAUSED"
    assert session.positions("c") == before
    session.sql("RESUME SOURCE c")
    require(*range(9))

    # Skipped messages are acknowledged with those after them: once the broker has removed them, no rewind reads them.
    session.sql("PAUSE SOURCE c")
    ledger = int(pulsar_server.send(topic, [b'{"id": 9}'] * 3)[-1].partition(":")[0])
    operation = moved("INJECT SOURCE OFFSETS c TO LATEST ALLOW GAPS")
    session.sql("RESUME SOURCE c")
    pulsar_server.roll_over(topic)
    pulsar_server.send(topic, [b'{"id": 10}'] * 2)
    require(*range(9), 10, 10)

    def is_removed() -> bool:
        pulsar_server.admin("POST", f"persistent/public/default/{topic}/trim")
        return int(pulsar_server.internal(topic)["ledgers"][0]["ledgerId"]) > ledger

    wait_until(is_removed, "the skipped messages are removed")
    with pytest.raises(SqlError, match="no longer has the records to continue with") as refused:
        session.sql(f"REWIND SOURCE c TO OPERATION {operation}")
    assert refused.value.code == "RW334"
    pulsar_server.send(topic, [b'{"id": 11}'])
    require(*range(9), 10, 10, 11)
    session.sql("DROP SOURCE c CASCADE")
