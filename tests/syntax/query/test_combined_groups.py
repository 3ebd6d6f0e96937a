"""The forms of queries whose groups can be combined."""

from __future__ import annotations

import pytest

from rw_sql.syntax.query.maintained_form import read_view_query

TYPES = {
    "k": "STRING",
    "n": "BIGINT",
    "x": "DOUBLE",
    "d": "DECIMAL(20,2)",
    "s": "STRUCT<a: INT>",
    "raw": "BINARY",
    "_rw_key_0": "INT",
}


@pytest.mark.parametrize(
    ("query", "keys", "columns", "lifted", "functions"),
    [
        (
            "SELECT k, count(*) AS n FROM s WHERE a > 1 GROUP BY k",
            "k",
            "k n",
            "SELECT k, CAST(1 AS BIGINT) AS `n` FROM s WHERE a > 1",
            "key count",
        ),
        (
            "SELECT upper(a) AS k, count(a, b) AS n FROM s AS t GROUP BY 1",
            "k",
            "k n",
            "SELECT UPPER(a) AS k, CAST(CASE WHEN (NOT (a) IS NULL) AND (NOT (b) IS NULL) THEN 1 ELSE 0 END AS BIGINT) "
            "AS `n` FROM s AS t",
            "key count",
        ),
        (
            "SELECT count_if(a > 1 OR b) AS n, sum(x) AS x, k FROM s GROUP BY k",
            "k",
            "n x k",
            "SELECT CAST(CASE WHEN (a > 1 OR b) THEN 1 ELSE 0 END AS BIGINT) AS `n`, CAST(x AS DOUBLE) AS `x`, k "
            "FROM s",
            "count sum key",
        ),
        (
            "SELECT k, sum(d) FILTER (WHERE a OR b) AS d, min(`x y`) AS x FROM s GROUP BY k",
            "k",
            "k d x",
            "SELECT k, CAST(CASE WHEN (a OR b) THEN d END AS DECIMAL(20, 2)) AS `d`, CAST(`x y` AS DOUBLE) AS `x` "
            "FROM s",
            "key sum min",
        ),
        (
            "SELECT max(x) AS x FROM s GROUP BY a % 2",
            "_rw_key_0",
            "x _rw_key_0",
            "SELECT CAST(x AS DOUBLE) AS `x`, a % 2 AS _rw_key_0 FROM s",
            "max key",
        ),
        (
            "SELECT count(*) AS n, max(x) AS x FROM s",
            "_rw_key_0",
            "n x _rw_key_0",
            "SELECT CAST(1 AS BIGINT) AS `n`, CAST(x AS DOUBLE) AS `x`, 0 AS _rw_key_0 FROM s",
            "count max key",
        ),
        ("SELECT DISTINCT k, n FROM s", "k n", "k n", "SELECT k, n FROM s", "key key"),
    ],
)
def test_each_row_becomes_a_group(query: str, keys: str, columns: str, lifted: str, functions: str) -> None:
    found = read_view_query(query).lifted(keys.split(), [(name, TYPES[name]) for name in columns.split()])
    assert found is not None
    assert (found.text, found.functions) == (lifted, tuple(functions.split()))


@pytest.mark.parametrize(
    "query",
    [
        "SELECT k, count(DISTINCT a) AS n FROM s GROUP BY k",
        "SELECT k, avg(a) AS x FROM s GROUP BY k",
        "SELECT k, sum(a) + 1 AS n FROM s GROUP BY k",
        "SELECT k, max_by(a, b) AS n FROM s GROUP BY k",
        "SELECT k, sum(a) AS n FROM s GROUP BY k HAVING sum(a) > 1",
        "SELECT k, sum(a) AS n FROM (SELECT * FROM s) GROUP BY k",
        "SELECT k, n FROM (SELECT k, sum(a) AS n FROM s GROUP BY k)",
        "SELECT s.k, count(*) AS n FROM s JOIN t ON s.k = t.k GROUP BY s.k",
        "SELECT k, max(s) AS s FROM s GROUP BY k",
        "SELECT k, max(raw) AS raw FROM s GROUP BY k",
        "SELECT k, k AS n FROM s GROUP BY k",
        "SELECT k FROM s",
    ],
)
def test_other_queries_have_no_such_form(query: str) -> None:
    name = query.partition(" FROM")[0].rpartition(" ")[2]
    assert (
        read_view_query(query).lifted(["k"], [("k", "STRING"), (name, TYPES[name])][: 2 if "," in query else 1]) is None
    )


@pytest.mark.parametrize("kind", ["DOUBLE", "FLOAT", "BINARY", "STRUCT<a: INT>", "ARRAY<INT>", "VOID"])
def test_values_that_arrow_groups_otherwise_are_no_keys(kind: str) -> None:
    query = read_view_query("SELECT k, count(*) AS n FROM s GROUP BY k")
    assert query.lifted(["k"], [("k", kind), ("n", "BIGINT")]) is None
