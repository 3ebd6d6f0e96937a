"""Kinesis streams as sources in a live session: what is read, shards that split, moves, expired records."""

from __future__ import annotations

import os
from decimal import Decimal
from typing import TYPE_CHECKING

import pytest

from rw_sql.connectors.kinesis import shards
from rw_sql.connectors.registry import connector
from rw_sql.connectors.support.wide_offsets import MOST
from rw_sql.errors import SqlError
from tests.integration.attached import wait_until
from tests.integration.kinesis_moves import MOVES, MovedStream
from tests.support.kinesis_server import REGION, records

if TYPE_CHECKING:
    from tests.integration.attached import AttachedSession
    from tests.support.kinesis_server import KinesisServer

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("quick_discovery")]

FIRST = "shardId-000000000000"


@pytest.fixture(autouse=True)
def _secret(session: AttachedSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KINESIS_KEY", "tests-secret")
    session.sql("CREATE SECRET IF NOT EXISTS kinesis_key WITH (backend = 'env', name = 'KINESIS_KEY')")


def test_a_stream_that_is_split_and_expires(session: AttachedSession, kinesis_server: KinesisServer) -> None:
    session.allow_unsafe()
    kinesis_server.create("clicks")
    numbers = [
        number for _, number in kinesis_server.put("clicks", *records([b'{"id": 1}', b"not JSON", b'{"id": 3}']))
    ]
    with_options = (
        f"connector = 'kinesis', aws.region = '{REGION}', endpoint = '{kinesis_server.endpoint}', "
        "aws.credentials.access_key_id = 'tests', aws.credentials.secret_access_key = SECRET kinesis_key, "
        "kinesis.reader.eof_retry_interval_ms = '50'"
    )
    with pytest.raises(SqlError) as missing:
        session.sql(f"CREATE SOURCE c (id INT) WITH ({with_options}, stream = 'click') FORMAT PLAIN ENCODE JSON")
    assert 'the upstream of source "c" has no stream "click"' in missing.value.render()
    assert 'did you mean "clicks"?' in missing.value.render()
    session.run(
        "CREATE SOURCE c (id INT) INCLUDE key AS key INCLUDE partition AS shard INCLUDE offset AS seq "
        "INCLUDE timestamp AS arrived INCLUDE payload AS payload "
        f"WITH ({with_options}, stream = 'clicks') FORMAT PLAIN ENCODE JSON",
        "CREATE MATERIALIZED VIEW v AS SELECT id, seq, shard, CAST(key AS STRING) AS key, payload FROM c",
    )
    assert session.flushed_rows_of("v") == [
        (1, str(numbers[0]), FIRST, "k", '{"id": 1}'),
        (3, str(numbers[2]), FIRST, "k", '{"id": 3}'),
    ]
    assert session.sql("SELECT offset, reason IS NOT NULL FROM `c$errors`")[0] == (str(numbers[1]), True)
    assert session.sql("SELECT count(*) FROM c WHERE arrived > TIMESTAMP '2026-01-01'")[0][0] == 2
    assert {split: str(at) for split, at in session.positions("c").items()} == {FIRST: str(numbers[2] + 1)}
    (shown,) = session.sql("SHOW SOURCE SPLITS c")
    assert (shown.next, shown.log_end, shown.lag, shown.status) == (str(numbers[2] + 1), str(numbers[2] + 1), 0, "OK")

    # The shard ends while the source runs; the children follow it.
    kinesis_server.split("clicks", FIRST)
    kinesis_server.put("clicks", *((f"key{number}", b'{"id": %d}' % number) for number in range(10, 30)))
    session.sql("FLUSH")
    assert session.sql("SELECT count(*), count(DISTINCT seq), count(DISTINCT shard) FROM v")[0] == (22, 22, 3)
    assert {row.status for row in session.sql("SHOW SOURCE SPLITS c")} == {"OK"}

    # A move to a record, by all digits of its number, and back.
    session.sql("PAUSE SOURCE c")
    with pytest.raises(SqlError, match="do not count records"):
        session.sql(f"SKIP RECORD AT '0' {numbers[2] + 1} ON SOURCE c")
    session.questions.clear()
    session.run(f"INJECT SOURCE OFFSETS c VALUES ('0' = {numbers[2]})", "RESUME SOURCE c")
    (question,) = session.questions[:1]
    assert "DUPLICATES of unknown size (sequence numbers do not count records)" in question.preview
    session.sql("FLUSH")
    assert session.sql("SELECT id, count(*) FROM v WHERE id IN (1, 3) GROUP BY id ORDER BY id") == [(1, 1), (3, 2)]
    assert session.sql("SHOW SOURCE CONTINUITY c")

    # A later view reads the history, and a scan everything, from the stream.
    session.sql("CREATE MATERIALIZED VIEW later AS SELECT id, seq FROM c")
    session.sql("FLUSH")
    assert session.sql("SELECT count(DISTINCT seq) FROM later")[0][0] == 22
    assert session.sql("SELECT count(*) FROM c")[0][0] == 22

    # Expired records that were not read are told, and the statement leads on.
    session.sql("PAUSE SOURCE c")
    child = kinesis_server.open_shards("clicks")[0]
    sent = kinesis_server.put("clicks", *((f"key{number}", b'{"id": 7}') for number in range(40)))
    kinesis_server.expire("clicks", child, upto=[number for shard, number in sent if shard == child][2])
    kinesis_server.remove("clicks", FIRST)
    session.sql("RESUME SOURCE c")
    wait_until(lambda: session.job("c").state == "STALLED", "the loss is noticed")
    reason = session.job("c").reason
    assert reason.startswith(f"EXPIRED {child}: PAUSE SOURCE c; INJECT SOURCE OFFSETS c TO EARLIEST FOR SPLITS"), reason
    session.run(*(f"{text} ALLOW GAPS" if "INJECT" in text else text for text in reason.partition(": ")[2].split("; ")))
    session.sql("FLUSH")
    assert session.sql("SELECT count(*) FROM v WHERE id = 7")[0][0] == 38

    # So are shards that have no records now; the statement repeats nothing.
    session.sql("PAUSE SOURCE c")
    for shard in kinesis_server.open_shards("clicks"):
        kinesis_server.expire("clicks", shard, upto=MOST)
    shards.TAILS.forget()
    session.sql("RESUME SOURCE c")
    wait_until(lambda: session.job("c").state == "STALLED", "the loss is noticed")
    reason = session.job("c").reason
    assert "unread records may be lost: PAUSE SOURCE c; INJECT SOURCE OFFSETS c TO EARLIEST" in reason, reason
    session.run(*reason.partition(": ")[2].split("; "))
    kinesis_server.put("clicks", *((f"key{number}", b'{"id": 8}') for number in range(40)))
    session.sql("FLUSH")
    assert session.sql("SELECT id, count(*) FROM v WHERE id IN (7, 8) GROUP BY id ORDER BY id") == [(7, 38), (8, 40)]
    session.sql("DROP SOURCE c CASCADE")
    kinesis_server.delete("clicks")


@pytest.mark.long
def test_moves_are_as_previewed_and_can_be_reverted(session: AttachedSession, kinesis_server: KinesisServer) -> None:
    session.allow_unsafe()
    moved = MovedStream(session, kinesis_server, "m", seed=11)
    for move in MOVES:
        moved.move(move)
    assert moved.total.duplicates > 0
    before = session.positions("s_m")
    session.run("PAUSE SOURCE s_m", "INJECT SOURCE OFFSETS s_m TO EARLIEST ALLOW DUPLICATES")
    assert session.positions("s_m") != before
    session.sql(f"UNDO OPERATION {session.epoch()}")
    assert session.positions("s_m") == before
    moved.drop()


@pytest.mark.long
def test_a_table_of_the_newest_values(session: AttachedSession, kinesis_server: KinesisServer) -> None:
    kinesis_server.create("users", shards=2)
    kinesis_server.put("users", *((f"u{number % 7}", b'{"n": %d}' % number) for number in range(50)))
    session.run(
        "CREATE TABLE users (n INT, PRIMARY KEY (k)) INCLUDE KEY AS k "
        f"WITH (connector = 'kinesis', stream = 'users', aws.region = '{REGION}', "
        f"endpoint = '{kinesis_server.endpoint}', aws.credentials.access_key_id = 'tests', "
        "aws.credentials.secret_access_key = SECRET kinesis_key) FORMAT UPSERT ENCODE JSON"
    )
    session.sql("FLUSH")
    assert sorted(row.n for row in session.sql("SELECT n FROM users")) == list(range(43, 50))
    kinesis_server.split("users", kinesis_server.open_shards("users")[0])
    kinesis_server.put("users", *((f"u{number % 7}", b'{"n": %d}' % number) for number in range(50, 99)))
    session.sql("FLUSH")
    assert sorted(row.n for row in session.sql("SELECT n FROM users")) == list(range(92, 99))
    session.sql("DROP TABLE users")
    kinesis_server.delete("users")


@pytest.mark.long
def test_the_example_of_its_page_runs(session: AttachedSession, kinesis_server: KinesisServer) -> None:
    kinesis_server.create("orders")
    kinesis_server.put("orders", *records([b'{"id": 1, "amount": 2.5}', b'{"id": 2, "amount": 0.25}']))
    assert os.environ["KINESIS_KEY"]
    session.sql("DROP SECRET kinesis_key")
    example = connector("kinesis").spec.example.replace(
        "aws.region = ", f"endpoint = '{kinesis_server.endpoint}', aws.region = "
    )
    session.run(*(text for text in example.split(";") if text.strip()))
    assert session.flushed_rows_of("total") == [(2, Decimal("2.75"))]
    session.sql("DROP SOURCE orders CASCADE")
    kinesis_server.delete("orders")
