"""The forms of a view's query that its job runs: keys and conditions as columns, sums over changes."""

from __future__ import annotations

import pytest

from rw_sql.errors import SqlError
from rw_sql.syntax.query.maintained_form import read_view_query, renamed_columns
from rw_sql.syntax.query.rename_relation import renamed_relation
from rw_sql.syntax.query.trees import DISTINCT, GROUPS, JOIN, ONE_ROW, OTHER, ROWS


@pytest.mark.parametrize(
    ("query", "kind"),
    [
        ("SELECT a FROM t WHERE b > 1", ROWS),
        ("SELECT a FROM (SELECT a, b FROM t WHERE b > 1) AS x WHERE a > 1", ROWS),
        ("WITH x AS (SELECT a FROM t) SELECT a FROM x", ROWS),
        ("SELECT a, count(*) AS n FROM t GROUP BY a", GROUPS),
        ("SELECT a FROM (SELECT a, count(*) AS n FROM t GROUP BY a) AS x WHERE n > 1", GROUPS),
        ("SELECT count(*) AS n FROM t", ONE_ROW),
        ("SELECT max(n) AS m FROM (SELECT a, count(*) AS n FROM t GROUP BY a) AS x", ONE_ROW),
        ("SELECT DISTINCT a FROM t", DISTINCT),
        ("SELECT t.a FROM t JOIN u ON t.a = u.a", JOIN),
        ("SELECT a FROM t ORDER BY a LIMIT 3", OTHER),
        ("SELECT a, row_number() OVER (ORDER BY a) AS n FROM t", OTHER),
        ("SELECT a, sum(b) OVER (PARTITION BY a) AS s FROM t", OTHER),
        ("SELECT a, count(*) AS n FROM t GROUP BY ROLLUP (a)", OTHER),
        ("SELECT a FROM t WHERE b IN (SELECT b FROM u)", OTHER),
        ("SELECT a FROM (SELECT a, b FROM t) AS x WHERE b > (SELECT avg(b) FROM t)", OTHER),
        ("SELECT a, (SELECT max(b) FROM t) AS top FROM (SELECT a FROM t) AS x", OTHER),
        ("SELECT a FROM (SELECT a, max(b) AS m FROM t GROUP BY a) AS x WHERE m > (SELECT avg(b) FROM t)", OTHER),
        ("SELECT t.a FROM t JOIN u ON t.a = u.a AND t.b = (SELECT max(b) FROM t)", OTHER),
        ("SELECT t.a FROM t LEFT JOIN u ON t.a = u.a AND EXISTS (SELECT 1 FROM t WHERE b = u.b)", OTHER),
        ("SELECT a, e FROM t LATERAL VIEW explode(b) AS e", OTHER),
        ("SELECT a FROM t UNION ALL SELECT a FROM u", OTHER),
        ("WITH x AS (SELECT a FROM t) SELECT x.a FROM x JOIN x AS y ON x.a = y.a", OTHER),
        ("SELECT DISTINCT a, count(*) AS n FROM t GROUP BY a", OTHER),
    ],
)
def test_what_a_query_is(query: str, kind: str) -> None:
    found = read_view_query(query)
    assert found.kind == kind
    assert bool(found.why) == (kind == OTHER)


def test_groups_that_are_not_selected_become_hidden_keys() -> None:
    form = read_view_query("SELECT count(*) AS n FROM t GROUP BY a, 1 + b, window(at, '1 hour')").upserted({})
    assert form is not None
    assert form.keys == ("_rw_key_0", "_rw_key_1", "_rw_key_2")
    assert form.text == (
        "SELECT COUNT(*) AS n, a AS _rw_key_0, 1 + b AS _rw_key_1, window(at, '1 hour').start AS _rw_key_2 FROM t "
        "GROUP BY a, 1 + b, window(at, '1 hour')"
    )


def test_an_alias_that_hides_a_group_is_no_key() -> None:
    form = read_view_query("SELECT upper(a) AS a, b AS c, count(*) AS n FROM t GROUP BY a, b").upserted({})
    assert form is not None
    assert form.keys == ("_rw_key_0", "c")


def test_having_becomes_a_column_and_guards_the_others() -> None:
    form = read_view_query("SELECT a, sum(b) / sum(c) AS r FROM t GROUP BY 1 HAVING sum(c) <> 0").upserted({})
    assert form is not None
    assert form.keys == ("a",)
    assert form.text == (
        "SELECT a, CASE WHEN SUM(c) <> 0 THEN SUM(b) / SUM(c) END AS r, COALESCE(SUM(c) <> 0, FALSE) AS _rw_keep "
        "FROM t GROUP BY a"
    )


def test_keys_and_conditions_are_carried_out_of_subqueries() -> None:
    query = (
        "SELECT 10 / n AS q FROM (SELECT a AS z, count(*) AS n FROM t GROUP BY a HAVING count(*) > 1) AS x WHERE n > 3"
    )
    form = read_view_query(query).upserted({})
    assert form is not None
    assert form.keys == ("_rw_key_0",)
    assert "WHERE" not in form.text
    assert form.text.startswith("SELECT CASE WHEN CASE WHEN _rw_keep THEN COALESCE(n > 3, FALSE) ELSE FALSE END THEN")


def test_a_star_brings_what_is_below_along() -> None:
    form = read_view_query("SELECT * FROM (SELECT count(*) AS n FROM t GROUP BY a HAVING max(b) > 1) AS x").upserted({})
    assert form is not None
    assert form.keys == ("_rw_key_0",)
    assert form.text.startswith("SELECT * EXCEPT (_rw_keep), COALESCE(_rw_keep, FALSE) AS _rw_keep FROM (")


def test_different_values_are_counted_by_their_set() -> None:
    form = read_view_query("SELECT count(DISTINCT a) AS n, count(DISTINCT a, b) AS m FROM t").upserted({})
    assert form is not None
    assert "CAST(size(collect_set(a)) AS BIGINT) AS n" in form.text
    assert "collect_set(CASE WHEN NOT a IS NULL AND NOT b IS NULL THEN struct(a, b) END)" in form.text
    assert read_view_query("SELECT sum(DISTINCT a) AS n FROM t").upserted({}) is None


@pytest.mark.parametrize("kind", ["DOUBLE", "FLOAT"])
def test_equal_floating_point_values_are_one_element_of_a_set(kind: str) -> None:
    """Up to Spark 4.1, a set may contain NaN several times."""
    query = read_view_query("SELECT count(DISTINCT x) AS n, count(DISTINCT x + 1, b) AS m FROM t")
    assert query.distinct_arguments() == ("x", "x + 1", "b")
    form = query.upserted({"x": kind, "x + 1": kind, "b": "BIGINT"})
    assert form is not None
    one, other = (f"CASE WHEN ({x}) = 0 THEN '0' ELSE CAST(({x}) AS STRING) END" for x in ("x", "x + 1"))
    assert f"size(collect_set({one}))" in form.text
    assert f"struct({other}, b)" in form.text


@pytest.mark.parametrize("kind", ["ARRAY<DOUBLE>", "STRUCT<`a`: FLOAT>", "MAP<STRING, DOUBLE>"])
def test_nested_floating_point_values_are_not_counted_by_their_set(kind: str) -> None:
    assert read_view_query("SELECT count(DISTINCT x) AS n FROM t").upserted({"x": kind}) is None


def test_sums_over_changes_subtract_what_left() -> None:
    query = read_view_query("SELECT a, count(*) AS n, sum(b) AS s FROM v GROUP BY a")
    assert query.signed_arguments() == ("b",)
    assert query.probe(("b",)) == "SELECT b AS a0 FROM v"
    form = query.signed({"b": "INT"})
    assert form is not None
    assert "COALESCE(SUM(_rw_sign), 0) > 0" in form.text
    assert "WHEN _rw_sign < 0 THEN -CAST((b) AS BIGINT)" in form.text


@pytest.mark.parametrize("call", ["sum(b)", "avg(b)"])
def test_floating_point_sums_cannot_be_signed(call: str) -> None:
    assert read_view_query(f"SELECT {call} AS s FROM v").signed({"b": "DOUBLE"}) is None


@pytest.mark.parametrize("call", ["max(b)", "collect_list(b)", "count(DISTINCT b)", "count(a, b)", "stddev(b)"])
def test_other_aggregates_cannot_be_signed(call: str) -> None:
    query = read_view_query(f"SELECT a, {call} AS s FROM v GROUP BY a")
    assert query.signed_arguments() is None
    exposed = query.exposed()
    assert exposed is not None
    assert query.touched_groups(exposed.keys, ["a", "b"]) == "SELECT a AS a FROM v"


@pytest.mark.parametrize(
    ("query", "touched"),
    [
        ("SELECT upper(a) AS u, max(b) AS m FROM v GROUP BY u", "SELECT UPPER(a) AS u FROM v"),
        ("SELECT b % 2 AS p, max(b) AS m FROM v GROUP BY p + 1", "SELECT (b % 2) + 1 AS _rw_key_0 FROM v"),
        # As in Spark, the name of a column is that column, whatever an item is named.
        ("SELECT upper(a) AS A, max(b) AS m FROM v GROUP BY a", "SELECT a AS _rw_key_0 FROM v"),
        # A key that is written twice is one column.
        ("SELECT a, a AS c, max(b) AS m FROM v GROUP BY 1, 2", "SELECT a AS a FROM v"),
    ],
)
def test_a_group_may_be_the_name_of_an_item(query: str, touched: str) -> None:
    found = read_view_query(query)
    exposed = found.exposed({"v": ["a", "b"]})
    assert exposed is not None
    assert found.touched_groups(exposed.keys, ["a", "b"]) == touched


S = {"s": ["item", "at", "u"]}


@pytest.mark.parametrize(
    ("query", "keys", "text"),
    [
        (
            "SELECT item, count(*) AS n FROM s GROUP BY item HAVING n > 1",
            ("item",),
            "SELECT item, CASE WHEN (COUNT(*)) > 1 THEN COUNT(*) END AS n, COALESCE((COUNT(*)) > 1, FALSE) AS _rw_keep "
            "FROM s GROUP BY item",
        ),
        (
            "SELECT date(at) AS day, count(*) AS n FROM s GROUP BY day HAVING count(*) > 1",
            ("day",),
            "SELECT CAST(at AS DATE) AS day, CASE WHEN COUNT(*) > 1 THEN COUNT(*) END AS n, COALESCE(COUNT(*) > 1, "
            "FALSE) AS _rw_keep FROM s GROUP BY CAST(at AS DATE)",
        ),
        (
            "SELECT date(at) AS day, count(DISTINCT u) AS u FROM s GROUP BY day",
            ("day",),
            "SELECT CAST(at AS DATE) AS day, CAST(size(collect_set(u)) AS BIGINT) AS u FROM s "
            "GROUP BY CAST(at AS DATE)",
        ),
        (
            "SELECT count(*) AS n FROM s HAVING n > 1",
            ("_rw_key_0",),
            "SELECT CASE WHEN (COUNT(*)) > 1 THEN COUNT(*) END AS n, 0 AS _rw_key_0, COALESCE((COUNT(*)) > 1, FALSE) "
            "AS _rw_keep FROM s",
        ),
        (
            "SELECT window(at, '1 hour') AS w, count(*) AS n FROM s GROUP BY w HAVING w.start > '2026'",
            ("w",),
            "SELECT window(at, '1 hour') AS w, CASE WHEN (window(at, '1 hour')).start > '2026' THEN COUNT(*) END AS n, "
            "COALESCE((window(at, '1 hour')).start > '2026', FALSE) AS _rw_keep FROM s GROUP BY window(at, '1 hour')",
        ),
        # In GROUP BY, the name of a column is that column. In HAVING, it is that column if it has a value there.
        (
            "SELECT upper(item) AS item, max(u) AS u FROM s GROUP BY item HAVING item > 'a' AND u > 1 AND min(u) > 0",
            ("_rw_key_0",),
            "SELECT CASE WHEN item > 'a' AND (MAX(u)) > 1 AND MIN(u) > 0 THEN UPPER(item) END AS item, CASE WHEN item "
            "> 'a' AND (MAX(u)) > 1 AND MIN(u) > 0 THEN MAX(u) END AS u, item AS _rw_key_0, COALESCE(item > 'a' AND "
            "(MAX(u)) > 1 AND MIN(u) > 0, FALSE) AS _rw_keep FROM s GROUP BY item",
        ),
        # A number in GROUP BY would be the place of an item.
        (
            "SELECT 5 AS five, max(u) AS m FROM s GROUP BY five",
            ("five",),
            "SELECT 5 AS five, MAX(u) AS m FROM s GROUP BY five",
        ),
        (
            "SELECT 5 AS five, max(u) AS m FROM s GROUP BY 1",
            ("five",),
            "SELECT 5 AS five, MAX(u) AS m FROM s GROUP BY 1",
        ),
        (
            "SELECT o.day, count(*) AS n FROM (SELECT date(at) AS day FROM s) AS o GROUP BY day HAVING n > 1",
            ("day",),
            "SELECT o.day, CASE WHEN (COUNT(*)) > 1 THEN COUNT(*) END AS n, COALESCE((COUNT(*)) > 1, FALSE) AS "
            "_rw_keep FROM (SELECT CAST(at AS DATE) AS day FROM s) AS o GROUP BY day",
        ),
    ],
)
def test_the_names_of_items_in_group_by_and_having_are_their_expressions(
    query: str, keys: tuple[str, ...], text: str
) -> None:
    form = read_view_query(query).upserted({"u": "INT"}, S)
    assert form is not None
    assert (form.keys, form.text) == (keys, text)


def test_names_are_left_as_they_are_if_the_columns_of_an_input_are_unknown() -> None:
    query = "SELECT date(at) AS day, count(*) AS n FROM s JOIN other USING (item) GROUP BY day"
    form = read_view_query(query).upserted({}, S)
    assert form is not None
    assert form.keys == ("_rw_key_0",)
    assert form.text.endswith("GROUP BY day")


def test_the_names_of_items_are_their_expressions_in_sums_over_changes() -> None:
    form = read_view_query("SELECT date(at) AS day, sum(u) AS t FROM s GROUP BY day HAVING t > 1").signed(
        {"u": "INT"}, S
    )
    assert form is not None
    assert form.keys == ("day",)
    assert form.text.endswith("GROUP BY CAST(at AS DATE)")
    assert " t > 1" not in form.text


STORED = {"v": ["window", "device", "n", "at"]}


@pytest.mark.parametrize(
    ("query", "keys", "touched"),
    [
        ("SELECT window, max(n) AS m FROM v GROUP BY 1", ("window",), "SELECT window AS window FROM v"),
        (
            "SELECT device, max(n) AS m FROM v GROUP BY device, v.window",
            ("device", "_rw_key_1"),
            "SELECT device AS device, v.window AS _rw_key_1 FROM v",
        ),
        (
            "SELECT window(at, '1 hour') AS w, max(n) AS m FROM v GROUP BY 1",
            ("w",),
            "SELECT window(at, '1 hour') AS w FROM v",
        ),
        (
            "SELECT m FROM (SELECT window(at, '1 hour') AS w, max(n) AS m FROM v GROUP BY w) AS x",
            ("_rw_key_0",),
            "SELECT window(at, '1 hour') AS _rw_key_0 FROM v",
        ),
        (
            "SELECT max(n) AS m FROM v GROUP BY window(at, '1 hour')",
            ("_rw_key_0",),
            "SELECT window(at, '1 hour').start AS _rw_key_0 FROM v",
        ),
    ],
)
def test_only_windows_that_the_query_makes_are_stored_by_their_start(
    query: str, keys: tuple[str, ...], touched: str
) -> None:
    found = read_view_query(query)
    exposed = found.exposed(STORED)
    assert exposed is not None
    assert exposed.keys == keys
    assert found.touched_groups(keys, STORED["v"]) == touched
    assert (".start" in exposed.text) == (".start" in touched)


def test_a_window_that_a_subquery_makes_is_stored_by_its_start() -> None:
    for below in (
        "SELECT window(at, '1 hour') AS window, n FROM v",
        "SELECT window, n FROM (SELECT window(at, '1 hour') AS window, n FROM v) AS y",
    ):
        form = read_view_query(f"SELECT max(n) AS m FROM ({below}) AS x GROUP BY x.window").upserted({}, STORED)
        assert form is not None
        assert "x.window.start AS _rw_key_0" in form.text
    stored = read_view_query("SELECT max(n) AS m FROM (SELECT window, n FROM v) AS x GROUP BY x.window").upserted(
        {}, STORED
    )
    assert stored is not None
    assert "x.window AS _rw_key_0" in stored.text


@pytest.mark.parametrize(
    "query",
    [
        "SELECT DISTINCT v.a FROM v LEFT JOIN w ON v.a = w.a",
        "SELECT DISTINCT m FROM (SELECT a, max(b) AS m FROM v GROUP BY a) AS x",
    ],
)
def test_a_distinct_over_more_than_one_relation_is_not_followed_row_by_row(query: str) -> None:
    assert read_view_query(query).touched_rows() is None


def test_rows_take_the_keys_of_what_they_come_from() -> None:
    form = read_view_query("SELECT v.k AS own, upper(z) AS u FROM v WHERE z > ''").with_keys(("k", "_rw_key_0"))
    assert form is not None
    assert form.keys == ("own", "_rw_key_1")
    assert form.text == "SELECT v.k AS own, UPPER(z) AS u, `_rw_key_0` AS _rw_key_1 FROM v WHERE z > ''"


def test_a_join_is_parted_by_what_it_wants_equal() -> None:
    found = read_view_query("SELECT a.x, b.y FROM a LEFT JOIN b ON b.k = a.k AND a.z > 1").partitioned()
    assert found is not None
    form, touched, types = found
    assert form.text == "SELECT a.x, b.y, a.k AS _rw_key_0 FROM a LEFT JOIN b ON b.k = a.k AND a.z > 1"
    assert touched == "SELECT a.k AS _rw_key_0 FROM a UNION ALL SELECT b.k AS _rw_key_0 FROM b"
    assert types == "SELECT a.k AS a0, b.k AS a1 FROM a CROSS JOIN b"
    assert read_view_query("SELECT a.x FROM a JOIN b ON a.k > b.k").partitioned() is None


def test_columns_take_other_names() -> None:
    assert (
        renamed_columns("SELECT 1 AS x", ("x",), ("a b",)) == "SELECT `x` AS `a b` FROM (SELECT 1 AS x) AS `_rw_query`"
    )


@pytest.mark.parametrize(
    ("query", "dialect", "expected"),
    [
        ("SELECT v.a FROM v", "spark", "SELECT v.a FROM w AS v"),
        ("SELECT x.a FROM public.v AS x", "spark", "SELECT x.a FROM public.w AS x"),
        ("SELECT a FROM u WHERE b IN (SELECT b FROM V)", "spark", "SELECT a FROM u WHERE b IN (SELECT b FROM w AS v)"),
        ("WITH v AS (SELECT 1) SELECT * FROM v", "spark", "WITH v AS (SELECT 1) SELECT * FROM v"),
        (
            "SELECT window_start FROM TUMBLE(v, at, INTERVAL '1 MINUTE')",
            "risingwave",
            "SELECT window_start FROM TUMBLE(w, at, INTERVAL '1 MINUTE')",
        ),
    ],
)
def test_a_relation_takes_another_name(query: str, dialect: str, expected: str) -> None:
    assert renamed_relation(query, "v", "w", dialect) == expected


def test_a_windowed_relation_that_names_its_columns_keeps_its_name() -> None:
    query = "SELECT v.a, window_start FROM TUMBLE(v, at, INTERVAL '1 MINUTE')"
    with pytest.raises(SqlError, match="reads TUMBLE of"):
        renamed_relation(query, "v", "w", "risingwave")
