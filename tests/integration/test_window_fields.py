"""The fields of the column that ``GROUP BY window(…)`` makes, named as in Spark's documentation."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

import pytest

from rw_sql.cli.servers.kafka_topics import create_topic, produce

if TYPE_CHECKING:
    from rw_sql.cli.servers.kafka_broker import BrokerInfo
    from tests.integration.attached import AttachedSession

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

QUERY = (
    "SELECT window.start AS begins, window.end, k, count(*) AS n FROM s WHERE k > 0 "
    "GROUP BY window(at, '10 minutes'), k"
)


@pytest.mark.parametrize("watermark", ["", ", WATERMARK FOR at AS at - INTERVAL '8' DAY"], ids=["plain", "watermark"])
def test_a_window_and_its_fields(session: AttachedSession, broker: BrokerInfo, topic_name: str, watermark: str) -> None:
    create_topic(broker.bootstrap, topic_name, 1)
    minutes = [*range(9), 12]
    produce(broker.bootstrap, topic_name, [b'{"k":1,"at":"2026-01-01T00:%02d:00Z"}' % at for at in minutes])
    session.run(
        f"CREATE SOURCE s (k INT, at TIMESTAMPTZ{watermark}) WITH (connector = 'kafka', topic = '{topic_name}', "
        f"properties.bootstrap.server = '{broker.bootstrap}') FORMAT PLAIN ENCODE JSON",
        f"CREATE MATERIALIZED VIEW v AS {QUERY}",
        "FLUSH",
    )
    first, second, third = (datetime(2026, 1, 1, 0, at) for at in (0, 10, 20))
    assert session.rows_of("v") == [(first, second, 1, 9), (second, third, 1, 1)]
    assert session.spark.sql(QUERY).count() == 2


def test_a_window_without_backticks(session: AttachedSession, broker: BrokerInfo, topic_name: str) -> None:
    create_topic(broker.bootstrap, topic_name, 1)
    query = "SELECT window, count(*) AS n FROM s GROUP BY window(at, '10 minutes')"
    session.run(
        f"CREATE SOURCE s (at TIMESTAMPTZ) WITH (connector = 'kafka', topic = '{topic_name}', "
        f"properties.bootstrap.server = '{broker.bootstrap}') FORMAT PLAIN ENCODE JSON",
        f"CREATE MATERIALIZED VIEW v AS {query}",
        "CREATE MATERIALIZED VIEW w AS SELECT window.start AS begins, n FROM v WHERE window IS NOT NULL",
        "CREATE MATERIALIZED VIEW top AS SELECT window, max(n) AS m FROM v GROUP BY 1",
        "CREATE MATERIALIZED VIEW days AS SELECT window(window.start, '1 day') AS day, max(n) AS m FROM v GROUP BY 1",
        "CREATE MATERIALIZED VIEW apart AS SELECT count(*) AS m FROM v GROUP BY n > 0, v.window",
    )
    for minutes in (range(9), (5, 12)):
        produce(broker.bootstrap, topic_name, [b'{"at":"2026-01-01T00:%02d:00Z"}' % at for at in minutes])
        session.run("FLUSH")
    first, second, third = (datetime(2026, 1, 1, 0, at) for at in (0, 10, 20))
    assert session.rows_of("v") == [((first, second), 10), ((second, third), 1)]
    assert session.rows_of("w") == [(first, 10), (second, 1)]
    assert session.rows_of("top") == [((first, second), 10), ((second, third), 1)]
    assert session.rows_of("days") == [((datetime(2026, 1, 1), datetime(2026, 1, 2)), 10)]
    assert session.rows_of("apart") == [(1,), (1,)]
    assert session.spark.table("v").columns == session.spark.sql(query).columns == ["window", "n"]
