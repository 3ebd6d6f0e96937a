"""Views and sinks over the user's own Delta tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.integration.attached import AttachedSession, wait_until

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.spark, pytest.mark.long]


def test_changes_of_a_users_table_reach_views_and_sinks(session: AttachedSession, tmp_path: Path) -> None:
    own = tmp_path / "own orders"
    where = f"delta.`{own}`"
    feed = "TBLPROPERTIES (delta.enableChangeDataFeed = true)"
    session.run(
        f"CREATE TABLE {where} (id INT, n INT) USING delta {feed}",
        f"INSERT INTO {where} VALUES (1, 10), (2, 20), (2, 21)",
        f"CREATE MATERIALIZED VIEW total AS SELECT count(*) AS rows, sum(n) AS n FROM {where}",
        f"CREATE MATERIALIZED VIEW big AS SELECT id, n FROM {where} WHERE n > 15",
    )
    assert session.flushed_rows_of("total") == [(3, 51)]
    session.run(
        f"UPDATE {where} SET n = n + 100 WHERE id = 1",
        f"DELETE FROM {where} WHERE n = 21",
        f"INSERT INTO {where} VALUES (3, 1)",
    )
    assert session.flushed_rows_of("total") == [(3, 131)]
    assert session.rows_of("big") == [(1, 110), (2, 20)]


@pytest.mark.alone
def test_appends_flow_without_a_change_feed_and_anything_else_says_what_to_type(session: AttachedSession) -> None:
    session.run(
        "CREATE TABLE shop_events (id INT) USING delta",
        "CREATE MATERIALIZED VIEW seen AS SELECT id FROM shop_events",
        "INSERT INTO shop_events VALUES (1), (2)",
    )
    try:
        assert session.flushed_rows_of("seen") == [(1,), (2,)]
        session.run("INSERT INTO shop_events VALUES (3)")
        assert session.flushed_rows_of("seen") == [(1,), (2,), (3,)]
        session.run("DELETE FROM shop_events WHERE id = 2")
        wait_until(lambda: session.job("seen").state == "STALLED", "the view stands still")
        reason = session.job("seen").reason
        assert reason.startswith("CHANGED shop_events: ")
        enable, drop = reason.partition("shows which: ")[2].removesuffix(" and create it again").split("; ")
        session.run(enable, drop, "CREATE MATERIALIZED VIEW seen AS SELECT id FROM shop_events")
        assert session.flushed_rows_of("seen") == [(1,), (3,)]
        session.run("DELETE FROM shop_events WHERE id = 1")
        assert session.flushed_rows_of("seen") == [(3,)]
    finally:
        session.run("DROP MATERIALIZED VIEW IF EXISTS seen", "DROP TABLE shop_events")
