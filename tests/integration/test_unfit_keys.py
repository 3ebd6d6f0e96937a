"""Groups by maps and by strings with a collation, which a job cannot find by their values."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rw_sql.errors import SqlError

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.attached import AttachedSession

pytestmark = [pytest.mark.spark, pytest.mark.long]

FEED = "USING delta TBLPROPERTIES (delta.enableChangeDataFeed = true)"


def test_groups_by_a_map_follow_the_changes_of_their_input(session: AttachedSession, tmp_path: Path) -> None:
    own = f"delta.`{tmp_path / 'labelled'}`"
    query = f"SELECT labels, max(n) AS m FROM {own} GROUP BY labels"
    session.run(
        f"CREATE TABLE {own} (labels MAP<STRING, INT>, n INT) {FEED}",
        f"INSERT INTO {own} VALUES (map('a', 1, 'b', 2), 1), (map('b', 2, 'a', 1), 5), (NULL, 3)",
        f"CREATE MATERIALIZED VIEW tops AS {query}",
        "CREATE MATERIALIZED VIEW high AS SELECT labels, m FROM tops WHERE m > 3",
        "FLUSH",
        f"INSERT INTO {own} VALUES (map('a', 1, 'b', 2), 7), (map('c', 3), 4)",
        f"DELETE FROM {own} WHERE n = 3",
        "FLUSH",
    )
    listed = "SELECT to_json(array_sort(map_entries(labels))) AS labels, m FROM"
    rows = [
        ('[{"key":"a","value":1},{"key":"b","value":2}]', 7),
        ('[{"key":"c","value":3}]', 4),
    ]
    assert session.rows_of(f"({listed} tops)") == session.rows_of(f"({listed} high)") == rows


def test_groups_by_a_string_with_a_collation_are_computed_as_a_whole(session: AttachedSession, tmp_path: Path) -> None:
    own = f"delta.`{tmp_path / 'named'}`"
    session.run(
        f"CREATE TABLE {own} (id INT, name STRING) {FEED}",
        f"INSERT INTO {own} VALUES (1, 'Ann'), (2, 'ann'), (3, 'Bob')",
        f"CREATE MATERIALIZED VIEW counts AS SELECT name COLLATE UTF8_LCASE AS name, max(id) AS m FROM {own} "
        "GROUP BY 1",
        f"CREATE MATERIALIZED VIEW names AS SELECT id, name COLLATE UTF8_LCASE AS name FROM {own}",
        "FLUSH",
        f"DELETE FROM {own} WHERE id = 1",
        f"INSERT INTO {own} VALUES (4, 'ANN')",
        "FLUSH",
    )
    assert sorted((name.lower(), top) for name, top in session.rows_of("counts")) == [("ann", 4), ("bob", 3)]
    for query in ("SELECT name, count(*) AS n FROM names GROUP BY name", "SELECT id FROM names WHERE name = 'ann'"):
        with pytest.raises(SqlError, match='column "name" of materialized view "names" has a collation'):
            session.run(f"CREATE MATERIALIZED VIEW refused AS {query}")
    session.run("CREATE MATERIALIZED VIEW ids AS SELECT id FROM names WHERE id > 2")
    assert session.flushed_rows_of("ids") == [(3,), (4,)]
