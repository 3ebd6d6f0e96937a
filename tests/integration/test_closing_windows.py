"""Views with EMIT ON WINDOW CLOSE: FLUSH waits for the windows, and a rebuild never hides them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from threading import Event, Thread
from typing import TYPE_CHECKING

import pytest

from rw_sql.cli.servers.kafka_topics import create_topic
from tests.integration.attached import AttachedSession, produce_json

if TYPE_CHECKING:
    from rw_sql.cli.servers.kafka_broker import BrokerInfo

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
VIEW = """
CREATE MATERIALIZED VIEW v AS SELECT window_start, count(*) AS n
FROM tumble(s, at, INTERVAL '1' MINUTE) GROUP BY window_start EMIT ON WINDOW CLOSE
"""


def test_closed_windows_are_flushed_and_stay_during_a_rebuild(
    session: AttachedSession, broker: BrokerInfo, topic_name: str
) -> None:
    create_topic(broker.bootstrap, topic_name, 1)
    session.run(
        "SET query_dialect = 'risingwave'",
        f"CREATE SOURCE s (id INT, at TIMESTAMPTZ, WATERMARK FOR at AS at) WITH (connector = 'kafka', "
        f"topic = '{topic_name}', properties.bootstrap.server = '{broker.bootstrap}') FORMAT PLAIN ENCODE JSON",
        VIEW,
    )
    for minutes in (3, 6):
        times = (BEGIN + timedelta(minutes=minute) for minute in range(minutes - 3, minutes + 1))
        produce_json(broker.bootstrap, topic_name, ({"id": 1, "at": at.isoformat()} for at in times))
        assert len(session.flushed_rows_of("v")) == minutes
    fewest, is_over = [6], Event()

    def read() -> None:
        while not is_over.wait(0.02):
            fewest.append(len(session.rows_of("v")))

    reading = Thread(target=read)
    reading.start()
    try:
        session.run("REBUILD MATERIALIZED VIEW v")
    finally:
        is_over.set()
        reading.join()
    assert min(fewest) == 6
    assert len(session.flushed_rows_of("v")) == 6
