"""Views over a source, compared with batch queries on its rows, and a failing view beside a working one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rw_sql.cli.servers.kafka_topics import create_topic
from tests.integration.attached import AttachedSession, produce_json, wait_until

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rw_sql.cli.servers.kafka_broker import BrokerInfo

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.long]

OVER_SOURCE = {
    "one_row": "SELECT count(*) AS n, sum(price) AS total FROM bids",
    "at_times": "SELECT max(price) AS top FROM bids HAVING count(*) % 2 = 0",
    "without_its_keys": "SELECT count(*) AS n, count(DISTINCT price) AS d, min(id) AS first FROM bids GROUP BY item "
    "HAVING max(id) % 3 > 0",
    "around_a_group": "SELECT item, 100 DIV (n - 1) AS share FROM (SELECT item, count(*) AS n FROM bids GROUP BY item) "
    "AS counted WHERE n > 1",
    "by_alias_in_having": "SELECT item, count(*) AS n FROM bids GROUP BY item HAVING n > 1",
    "by_alias": "SELECT upper(item) AS name, count(DISTINCT price) AS d FROM bids GROUP BY name HAVING count(*) > 1",
    "by_column_of_the_same_name": "SELECT item, max(price) AS price FROM bids GROUP BY item HAVING price > 5 AND "
    "count(price) > 1",
    "one_row_by_alias": "SELECT count(*) AS n FROM bids HAVING n > 5",
    "by_constant": "SELECT 5 AS five, max(price) AS top FROM bids GROUP BY five HAVING top > 5",
}
"""Incremental, over a source."""

ROUNDS: tuple[list[dict[str, object]], ...] = (
    [{"id": 1, "item": "a", "price": 5}, {"id": 2, "item": "b", "price": 7}, {"id": 3, "item": None, "price": None}],
    [{"id": 4, "item": "a", "price": 5}, {"id": 5, "item": "c", "price": -2}, {"id": 6, "item": "b", "price": 1}],
    [{"id": 7, "item": "b", "price": 7}, {"id": 8, "item": None, "price": 4}, {"id": 9, "item": "d", "price": 9}],
)


def compare(session: AttachedSession, queries: Mapping[str, str], when: str) -> None:
    """Every view against its query over tables."""
    session.sql("FLUSH")
    for name, query in queries.items():
        oracle = session.rows_of(f"({query.replace(' bids', ' every_bid')})")
        assert session.rows_of(name) == oracle, f"{name} {when}"


def test_views_over_a_source_equal_batch_queries(session: AttachedSession, broker: BrokerInfo) -> None:
    create_topic(broker.bootstrap, "maintained_bids", 2)
    session.run(
        "CREATE SOURCE bids (id INT, item VARCHAR, price INT) WITH (connector = 'kafka', topic = 'maintained_bids', "
        f"properties.bootstrap.server = '{broker.bootstrap}') FORMAT PLAIN ENCODE JSON",
        "CREATE MATERIALIZED VIEW every_bid AS SELECT * FROM bids",
        *(f"CREATE MATERIALIZED VIEW {name} AS {query}" for name, query in OVER_SOURCE.items()),
    )
    compare(session, OVER_SOURCE, "without a record")
    for number, rows in enumerate(ROUNDS):
        produce_json(broker.bootstrap, "maintained_bids", rows)
        compare(session, OVER_SOURCE, f"after round {number}")


@pytest.mark.long
def test_a_view_that_fails_stops_neither_its_source_nor_its_siblings(
    session: AttachedSession, broker: BrokerInfo
) -> None:
    create_topic(broker.bootstrap, "maintained_numbers", 1)
    session.run(
        "CREATE SOURCE numbers (id INT, n VARCHAR) WITH (connector = 'kafka', topic = 'maintained_numbers', "
        f"properties.bootstrap.server = '{broker.bootstrap}') FORMAT PLAIN ENCODE JSON",
        "CREATE MATERIALIZED VIEW strict AS SELECT id, CAST(n AS INT) AS n FROM numbers",
        "CREATE MATERIALIZED VIEW lenient AS SELECT id, try_cast(n AS INT) AS n FROM numbers",
    )
    produce_json(broker.bootstrap, "maintained_numbers", [{"id": 1, "n": "1"}])
    assert session.flushed_rows_of("strict") == [(1, 1)]
    produce_json(broker.bootstrap, "maintained_numbers", [{"id": 2, "n": "two"}])
    wait_until(lambda: session.job("strict").state == "STALLED", "the view that cannot continue is stalled")
    assert "CAST_INVALID_INPUT" in session.job("strict").reason
    produce_json(broker.bootstrap, "maintained_numbers", [{"id": 3, "n": "3"}])
    assert session.flushed_rows_of("lenient") == [(1, 1), (2, None), (3, 3)]
    assert session.job("numbers").state == session.job("lenient").state == "RUNNING"
    wait_until(lambda: session.job("strict").restarts > 1, "it is tried again")
    assert session.rows_of("strict") == [(1, 1)]
