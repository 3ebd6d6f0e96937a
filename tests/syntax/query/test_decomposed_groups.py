"""The forms of queries whose groups can be combined."""

from __future__ import annotations

import pytest

from rw_sql.syntax.query.combined_groups import Lifted
from rw_sql.syntax.query.maintained_form import read_view_query

TYPES = {
    "k": "STRING",
    "n": "BIGINT",
    "x": "DOUBLE",
    "d": "DECIMAL(20,2)",
    "s": "STRUCT<a: INT>",
    "raw": "BINARY",
    "_rw_key_0": "INT",
    "_rw_part_0": "DOUBLE",
    "_rw_part_1": "BIGINT",
    "_rw_typed_0": "DOUBLE",
}


def lifted(query: str, **types: str) -> Lifted | None:
    parts = read_view_query(query).decomposed(["a", "b", "k", "s", "x", "x y", "d"])
    return None if parts is None else parts.lifted(TYPES | types)


@pytest.mark.parametrize(
    ("query", "text", "functions"),
    [
        (
            "SELECT k, count(*) AS n FROM s WHERE a > 1 GROUP BY k",
            "SELECT k, CAST(1 AS BIGINT) AS `n` FROM s WHERE a > 1",
            "k:key n:count",
        ),
        (
            "SELECT upper(a) AS k, count(a, b) AS n FROM s AS t GROUP BY 1",
            "SELECT UPPER(a) AS k, CAST(CASE WHEN (NOT (a) IS NULL) AND (NOT (b) IS NULL) THEN 1 ELSE 0 END AS BIGINT) "
            "AS `n` FROM s AS t",
            "k:key n:count",
        ),
        (
            "SELECT count_if(a > 1 OR b) AS n, sum(x) AS x, a + 1 AS k FROM s GROUP BY k, a + 1",
            "SELECT CAST(CASE WHEN (a > 1 OR b) THEN 1 ELSE 0 END AS BIGINT) AS `n`, CAST(x AS DOUBLE) AS `x`, "
            "a + 1 AS k, k AS _rw_key_0 FROM s",
            "n:count x:sum k:key _rw_key_0:key",
        ),
        (
            "SELECT k, sum(d) FILTER (WHERE a OR b) AS d, min(`x y`) AS x FROM s GROUP BY k",
            "SELECT k, CAST(CASE WHEN (a OR b) THEN d END AS DECIMAL(20, 2)) AS `d`, CAST(`x y` AS DOUBLE) AS `x` "
            "FROM s",
            "k:key d:sum x:min",
        ),
        (
            "SELECT max(x) AS x FROM s GROUP BY a % 2",
            "SELECT CAST(x AS DOUBLE) AS `x`, a % 2 AS _rw_key_0 FROM s",
            "x:max _rw_key_0:key",
        ),
        (
            "SELECT count(*) AS n, max(x) AS x FROM s",
            "SELECT CAST(1 AS BIGINT) AS `n`, CAST(x AS DOUBLE) AS `x`, 0 AS _rw_key_0 FROM s",
            "n:count x:max _rw_key_0:key",
        ),
        ("SELECT DISTINCT k, n FROM s", "SELECT k, n FROM s", "k:key n:key"),
        (
            "SELECT window(a, '1 hour').start AS k, count(*) AS n FROM s GROUP BY window(a, '1 hour')",
            "SELECT window(a, '1 hour').start AS k, CAST(1 AS BIGINT) AS `n` FROM s",
            "k:key n:count",
        ),
        (
            "SELECT a % 2 AS n, count(*) AS d FROM s GROUP BY n",
            "SELECT a % 2 AS n, CAST(1 AS BIGINT) AS `d` FROM s",
            "n:key d:count",
        ),
    ],
)
def test_each_row_becomes_a_group(query: str, text: str, functions: str) -> None:
    types = {"d": "BIGINT"} if " AS d" in query and "sum(d)" not in query else {}
    found = lifted(query, **types)
    assert found is not None
    assert (found.text, found.derived) == (text, "")
    assert dict(found.functions) == dict(pair.split(":") for pair in functions.split())


def test_other_columns_are_derived_from_hidden_ones() -> None:
    found = lifted("SELECT upper(a) AS k, round(avg(b), 1) AS x, upper(a) || count(b) AS n FROM s GROUP BY upper(a)")
    assert found is not None
    assert found.text == (
        "SELECT UPPER(a) AS k, CAST(b AS DOUBLE) AS `_rw_part_0`, "
        "CAST(CASE WHEN (NOT (b) IS NULL) THEN 1 ELSE 0 END AS BIGINT) AS `_rw_part_1` FROM s"
    )
    assert found.functions == {"k": "key", "x": "derived", "n": "derived", "_rw_part_0": "sum", "_rw_part_1": "count"}
    assert found.derived == (
        "SELECT `k`, (ROUND((CASE WHEN `_rw_part_1` > 0 THEN `_rw_part_0` / CAST(`_rw_part_1` AS DOUBLE) END), 1)) "
        "AS `x`, (`k` || `_rw_part_1`) AS `n`, `_rw_part_0`, `_rw_part_1` FROM _rw_groups"
    )


def test_signed_rows_are_added_and_subtracted() -> None:
    query = "SELECT k, count(*) AS n, sum(d) AS d, avg(a) FILTER (WHERE b > 1) AS x FROM s GROUP BY k"
    parts = read_view_query(query).decomposed(["a", "b", "d", "k"], is_signed=True)
    assert parts is not None
    assert parts.names == ("k", "n", *(f"_rw_part_{number}" for number in range(5)))
    kinds = {0: "BIGINT", 1: "DECIMAL(20,2)", 2: "DECIMAL(30,0)", 3: "BIGINT", 4: "BIGINT"}
    types = {"k": "STRING", "n": "BIGINT", "_rw_typed_0": "DOUBLE", "_rw_typed_1": "BIGINT"} | {
        f"_rw_part_{number}": kind for number, kind in kinds.items()
    }
    found = parts.lifted(types)
    assert found is not None
    signed = "CASE WHEN _rw_sign > 0 THEN CAST({0} AS {1}) ELSE -CAST({0} AS {1}) END"
    one = signed.format("1", "BIGINT")
    assert found.text == (
        f"SELECT k, CAST({one} AS BIGINT) AS `n`, "
        f"CAST(CASE WHEN (NOT (d) IS NULL) THEN {one} ELSE 0 END AS BIGINT) AS `_rw_part_0`, "
        f"CAST({signed.format('d', 'DECIMAL(20, 2)')} AS DECIMAL(20, 2)) AS `_rw_part_1`, "
        f"CAST(CASE WHEN (b > 1) THEN {signed.format('a', 'DECIMAL(20, 0)')} END "
        "AS DECIMAL(30, 0)) AS `_rw_part_2`, "
        f"CAST(CASE WHEN (b > 1) AND (NOT (a) IS NULL) THEN {one} ELSE 0 END AS BIGINT) AS `_rw_part_3`, "
        f"CAST({one} AS BIGINT) AS `_rw_part_4` FROM s"
    )
    assert [found.functions[name] for name in parts.names] == ["key", "count", "count", "sum", "sum", "count", "rows"]
    assert found.derived == (
        "SELECT `k`, `n`, (CASE WHEN `_rw_part_4` > 0 THEN ((CASE WHEN `_rw_part_0` > 0 THEN `_rw_part_1` END)) END) "
        "AS `d`, (CASE WHEN `_rw_part_4` > 0 THEN "
        "((CASE WHEN `_rw_part_3` > 0 THEN CAST(`_rw_part_2` AS DOUBLE) / CAST(`_rw_part_3` AS DOUBLE) END)) END) "
        "AS `x`, " + ", ".join(f"`_rw_part_{number}`" for number in range(5)) + " FROM _rw_groups"
    )
    assert parts.lifted(types | {"_rw_typed_1": "DOUBLE"}) is None  # Subtraction would not be exact.
    assert parts.lifted(types | {"_rw_typed_0": "DECIMAL(14,6)"}) is None


@pytest.mark.parametrize("call", ["min(a)", "max(a)", "1 + max(a)", "count(DISTINCT a)", "collect_list(a)"])
def test_what_cannot_be_subtracted_is_not_combined(call: str) -> None:
    query = read_view_query(f"SELECT k, {call} AS n FROM s GROUP BY k")
    assert query.decomposed(["a", "k"], is_signed=True) is None


def test_only_groups_have_a_number_of_rows() -> None:
    distinct = read_view_query("SELECT DISTINCT k FROM s").decomposed(["k"], is_signed=True)
    assert distinct is not None
    assert distinct.names == ("k", "_rw_part_0")
    assert distinct.typed_text == "SELECT k, COUNT(*) AS _rw_part_0 FROM s GROUP BY 1"
    found = distinct.lifted({"k": "STRING", "_rw_part_0": "BIGINT"})
    assert found is not None
    assert dict(found.functions) == {"k": "key", "_rw_part_0": "rows"}
    one_row = read_view_query("SELECT count(*) AS n FROM s").decomposed(["k"], is_signed=True)
    assert one_row is not None
    assert one_row.names == ("n", "_rw_key_0")


@pytest.mark.parametrize(
    "query",
    [
        "SELECT k, count(DISTINCT a) AS n FROM s GROUP BY k",
        "SELECT k, avg(DISTINCT a) AS x FROM s GROUP BY k",
        "SELECT k, max_by(a, b) AS n FROM s GROUP BY k",
        "SELECT k, size(collect_set(a)) AS n FROM s GROUP BY k",
        "SELECT k, sum(a) + stddev(a) AS n FROM s GROUP BY k",
        "SELECT k, sum(a) AS n FROM s GROUP BY k HAVING sum(a) > 1",
        "SELECT k, sum(a) AS n FROM (SELECT * FROM s) GROUP BY k",
        "SELECT k, n FROM (SELECT k, sum(a) AS n FROM s GROUP BY k)",
        "SELECT s.k, count(*) AS n FROM s JOIN t ON s.k = t.k GROUP BY s.k",
        "SELECT k, max(s) AS s FROM s GROUP BY k",
        "SELECT k, max(raw) AS raw FROM s GROUP BY k",
        "SELECT upper(a) AS k, a || count(*) AS n FROM s GROUP BY upper(a)",
        "SELECT k, count(*) FROM s GROUP BY k",
        "SELECT k, count(* EXCEPT (a)) AS n FROM s GROUP BY k",
        "SELECT left(b, 1) AS k, count(*) AS n FROM s AS t(a, b) GROUP BY k",
        "SELECT left(b, 1) AS k, sum(n) AS n FROM s UNPIVOT (n FOR b IN (x, y)) GROUP BY k",
        "SELECT CAST(window(a, '1 hour') AS STRING) AS k, count(*) AS n FROM s GROUP BY window(a, '1 hour')",
        "SELECT k FROM s",
        "SELECT DISTINCT * FROM s",
    ],
)
def test_other_queries_have_no_such_form(query: str) -> None:
    assert lifted(query) is None


def test_a_constant_key_does_not_replace_equal_constants() -> None:
    found = lifted("SELECT round(sum(x), 1) AS x, 1 AS n FROM s GROUP BY 2")
    assert found is not None
    assert found.derived == "SELECT (ROUND(`_rw_part_0`, 1)) AS `x`, `n`, `_rw_part_0` FROM _rw_groups"
    found = lifted("SELECT sum(x) + 0 AS x FROM s")
    assert found is not None
    assert found.derived == "SELECT (`_rw_part_0` + 0) AS `x`, `_rw_key_0`, `_rw_part_0` FROM _rw_groups"


def test_the_column_of_an_include_clause_is_a_visible_key() -> None:
    parts = read_view_query("SELECT _rw_kafka_partition, count(*) AS n FROM s GROUP BY 1, 1").decomposed([])
    assert parts is not None
    assert (parts.columns, parts.keys) == (("_rw_kafka_partition", "n"), ("_rw_kafka_partition",))
    assert parts.is_whole


def test_an_average_of_decimals_is_not_derived() -> None:
    query = "SELECT k, avg(d) AS d FROM s GROUP BY k"
    assert lifted(query) is not None
    assert lifted(query, _rw_typed_0="DECIMAL(24,6)") is None


@pytest.mark.parametrize("kind", ["DOUBLE", "FLOAT", "BINARY", "STRUCT<a: INT>", "ARRAY<INT>", "VOID"])
def test_values_that_arrow_groups_otherwise_are_no_keys(kind: str) -> None:
    assert lifted("SELECT k, count(*) AS n FROM s GROUP BY k", k=kind) is None


@pytest.mark.parametrize("is_signed", [False, True])
def test_values_of_an_unknown_type_are_not_combined(is_signed: bool) -> None:
    parts = read_view_query("SELECT k, count(*) AS n FROM s GROUP BY k").decomposed(["k"], is_signed=is_signed)
    assert parts is not None
    assert parts.lifted({}) is None
    assert parts.lifted({"k": "STRING"}) is None
