"""Columns that Spark knows to be never NULL, such as a count, beside a TIMESTAMP, in the tables that rw_sql makes.

A table with a TIMESTAMP lists its features in its protocol. Delta requires one more of them for a column, or a field of
a STRUCT, that may not be NULL, and refuses to open a table without it.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.attached import AttachedSession

pytestmark = [pytest.mark.spark]

_QUERIES = {
    "appended": "SELECT id, at, 1 AS one FROM s",
    "of_groups": "SELECT id, count(*) AS n, max(at) AS last FROM s GROUP BY id",
    "of_parts": "SELECT id, named_struct('one', 1, 'at', at) AS pair, array(1) AS ones, map('k', 1) AS m FROM s",
    "above": "SELECT n, min(last) AS first, named_struct('n', n) AS pair FROM of_groups GROUP BY n",
    "joined": "SELECT a.id, a.one, g.n, g.last FROM appended a JOIN of_groups g ON a.id = g.id",
}


def test_views_and_sinks_with_a_count_beside_a_timestamp(session: AttachedSession, tmp_path: Path) -> None:
    folder, target = tmp_path / "in", tmp_path / "out"
    folder.mkdir()
    rows = [{"id": number % 2, "at": f"2026-07-01 12:00:0{number}"} for number in range(4)]
    (folder / "a.json").write_text("\n".join(json.dumps(row) for row in rows))
    session.sql(
        "CREATE SOURCE s (id INT, at TIMESTAMP) WITH (connector = 'posix_fs', "
        f"posix_fs.root = '{folder}', match_pattern = '*.json') FORMAT PLAIN ENCODE JSON"
    )
    for name, query in _QUERIES.items():
        session.sql(f"CREATE MATERIALIZED VIEW {name} AS {query}")
    location = f"connector = 'deltalake', location = '{target}"
    session.sql(f"CREATE SINK groups FROM of_groups WITH ({location}/groups', type = 'upsert', primary_key = 'id')")
    session.sql(f"CREATE SINK events AS SELECT id, at, 1 AS one FROM s WITH ({location}/events', type = 'append-only')")
    session.sql("FLUSH")
    for name, query in _QUERIES.items():
        kept = {str(row) for row in session.sql(f"SELECT * FROM {name}")}
        assert kept == {str(row) for row in session.sql(query)}, name
    found = session.sql(f"SELECT id, n, CAST(last AS STRING) AS last FROM delta.`{target}/groups` ORDER BY id")
    assert [tuple(row) for row in found] == [(0, 2, "2026-07-01 12:00:02"), (1, 2, "2026-07-01 12:00:03")]
    assert session.sql(f"SELECT sum(one) AS n FROM delta.`{target}/events`")[0].n == 4
