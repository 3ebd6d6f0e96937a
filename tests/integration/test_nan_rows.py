"""Rows with NaN are found by filters: for Spark, NaN is greater than every number."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rw_sql.cli.servers.kafka_topics import create_topic, produce

if TYPE_CHECKING:
    from rw_sql.cli.servers.kafka_broker import BrokerInfo
    from tests.integration.attached import AttachedSession

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


def test_a_filter_finds_rows_with_nan(session: AttachedSession, broker: BrokerInfo, topic_name: str) -> None:
    create_topic(broker.bootstrap, topic_name, 1)
    produce(broker.bootstrap, topic_name, [b'{"id":1,"x":"1"}', b'{"id":2,"x":"3"}'])
    session.run(
        f"CREATE SOURCE s (id INT, x VARCHAR) WITH (connector = 'kafka', topic = '{topic_name}', "
        f"properties.bootstrap.server = '{broker.bootstrap}') FORMAT PLAIN ENCODE JSON",
        "CREATE MATERIALIZED VIEW every AS SELECT id, CAST(x AS DOUBLE) AS x FROM s",
        "CREATE MATERIALIZED VIEW greatest AS SELECT id % 2 AS k, max(CAST(x AS DOUBLE)) AS x FROM s GROUP BY id % 2",
        "FLUSH",
    )
    produce(broker.bootstrap, topic_name, [b'{"id":3,"x":"NaN"}', b'{"id":5,"x":"2"}'])
    session.sql("FLUSH")
    for _ in range(2):
        assert [row.id for row in session.spark.sql("SELECT id FROM every WHERE x > 100").collect()] == [3]
        assert [row.k for row in session.spark.sql("SELECT k FROM greatest WHERE x > 100").collect()] == [1]
        # A merge rewrites the row with NaN and another one.
        produce(broker.bootstrap, topic_name, [b'{"id":4,"x":"7"}', b'{"id":7,"x":"1"}'])
        session.sql("FLUSH")
