"""UNDO OPERATION on a live session: rows show where the reader went on."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from rw_sql.cli.kafka_topics import create_topic
from tests.integration.attached import AttachedSession, produce_json, wait_until

if TYPE_CHECKING:
    from rw_sql.cli.kafka_broker import BrokerInfo

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


def newest_operation(session: AttachedSession) -> int:
    """The number of the newest unsafe operation, as the audit lists it."""
    return int(session.sql("SHOW UNSAFE OPERATIONS")[0].operation)


def test_what_a_move_did_is_given_back(session: AttachedSession, broker: BrokerInfo, topic_name: str) -> None:
    other = f"{topic_name}.other"
    create_topic(broker.bootstrap, topic_name, 2)
    create_topic(broker.bootstrap, other, 1)
    for partition in (0, 1):
        produce_json(broker.bootstrap, topic_name, [{"id": 10 * partition + at} for at in range(10)], partition)
    produce_json(broker.bootstrap, other, [{"id": 100 + at} for at in range(5)])
    session.allow_unsafe()
    session.run(
        f"CREATE SOURCE s (id INT) WITH (connector = 'kafka', topic = '{topic_name}', "
        f"properties.bootstrap.server = '{broker.bootstrap}') FORMAT PLAIN ENCODE JSON",
        "CREATE MATERIALIZED VIEW m AS SELECT id FROM s",
    )
    once = Counter(range(20))
    assert counted(session) == once
    definition = session.sql("SHOW CREATE SOURCE s")[0].create_sql
    # A running source is moved away, and back: it goes on where it was.
    session.run(f"ALTER SOURCE s UNSAFE SET (topic = '{other}')")
    moved = newest_operation(session)
    assert counted(session) == once + Counter(range(100, 105))
    produce_json(broker.bootstrap, topic_name, [{"id": 20}], 0)
    session.run(f"UNDO OPERATION {moved} REASON 'wrong topic'")
    assert session.sql("SHOW CREATE SOURCE s")[0].create_sql == definition
    assert session.positions("s")[f"{topic_name}:0"] in (10, 11)
    assert counted(session) == once + Counter(range(100, 105)) + Counter([20])
    # An injection that has repeated rows is undone: it goes on where the reader stood when it was said.
    session.run("PAUSE SOURCE s", "INJECT SOURCE OFFSETS s VALUES ('1' = 4)", "RESUME SOURCE s")
    injected = newest_operation(session)
    expected = once + Counter(range(100, 105)) + Counter([20]) + Counter(range(14, 20))
    assert counted(session) == expected
    produce_json(broker.bootstrap, topic_name, [{"id": 21}], 1)
    wait_until(lambda: session.positions("s")[f"{topic_name}:1"] == 11, "the new record is read")
    session.run(f"UNDO OPERATION {injected}")
    assert counted(session) == expected + Counter([21, 21])
    audit = session.sql("SHOW UNSAFE OPERATIONS FOR s")[0]
    assert (audit.kind, audit.outcome) == ("UNDO OPERATION", "applied")


def counted(session: AttachedSession) -> Counter[int]:
    """How often each id is in the view, once all is read."""
    return Counter(id_ for (id_,) in session.flushed_rows_of("m"))
