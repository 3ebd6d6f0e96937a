"""The key columns of a view's form: only a column of the input itself counts as the input's key."""

from __future__ import annotations

import pytest

from rw_sql.syntax.query.maintained_form import ROW, read_view_query
from rw_sql.syntax.query.trees import GROUPS, OTHER, ROWS


@pytest.mark.parametrize(
    ("query", "keys", "text"),
    [
        ("SELECT * FROM orders", ("id",), "SELECT * FROM orders"),
        ("SELECT o.* FROM orders AS o", ("id",), "SELECT o.* FROM orders AS o"),
        (
            "SELECT customer.* FROM orders",
            ("_rw_key_0",),
            "SELECT customer.*, `id` AS _rw_key_0 FROM orders",
        ),
        (
            "SELECT o.customer.* FROM orders AS o",
            ("_rw_key_0",),
            "SELECT o.customer.*, `id` AS _rw_key_0 FROM orders AS o",
        ),
        (
            "SELECT customer.id, total FROM orders",
            ("_rw_key_0",),
            "SELECT customer.id, total, `id` AS _rw_key_0 FROM orders",
        ),
        (
            "SELECT customer.orders.id FROM orders",
            ("_rw_key_0",),
            "SELECT customer.orders.id, `id` AS _rw_key_0 FROM orders",
        ),
        (
            "WITH o AS (SELECT id, customer, total FROM orders WHERE total > 5) SELECT customer.id, total FROM o",
            ("_rw_key_0",),
            "SELECT customer.id, total, `id` AS _rw_key_0 FROM "
            "(SELECT id, customer, total FROM orders WHERE total > 5) AS o",
        ),
        (
            "SELECT * EXCEPT (id), customer_id AS id FROM (SELECT * FROM orders) AS o",
            ("_rw_key_0",),
            "SELECT * EXCEPT (id), customer_id AS id, `id` AS _rw_key_0 FROM (SELECT * FROM orders) AS o",
        ),
        (
            "SELECT * EXCEPT (total) FROM (SELECT * FROM orders) AS o",
            ("id",),
            "SELECT * EXCEPT (total) FROM (SELECT * FROM orders) AS o",
        ),
        (
            "SELECT o.id AS own, o.customer.id FROM (SELECT * FROM orders) AS o",
            ("own",),
            "SELECT o.id AS own, o.customer.id FROM (SELECT * FROM orders) AS o",
        ),
        (
            "SELECT customer.* FROM (SELECT ID, customer FROM orders) AS o",
            ("_rw_key_0",),
            "SELECT customer.*, `ID` AS _rw_key_0 FROM (SELECT ID, customer FROM orders) AS o",
        ),
        ("SELECT *, total + 1 AS more FROM orders", ("id",), "SELECT *, total + 1 AS more FROM orders"),
        (
            "SELECT * EXCEPT (id), customer_id AS id FROM orders",
            ("_rw_key_0",),
            "SELECT * EXCEPT (id), customer_id AS id, `id` AS _rw_key_0 FROM orders",
        ),
        ("SELECT o.Id FROM (SELECT id, total FROM orders) AS O", ("Id",), None),
    ],
)
def test_a_field_of_a_struct_is_no_key(query: str, keys: tuple[str, ...], text: str | None) -> None:
    form = read_view_query(query).with_keys(("id",))
    assert form is not None
    assert form.keys == keys
    assert text is None or form.text == text


@pytest.mark.parametrize(
    "query",
    [
        "SELECT id, name FROM orders AS o (name, id)",
        "SELECT id FROM (SELECT id, name FROM orders) AS o (name, id)",
        "SELECT id FROM (SELECT * FROM orders) AS o TABLESAMPLE (10 PERCENT)",
    ],
)
def test_an_input_with_other_names_has_no_form_with_keys(query: str) -> None:
    assert read_view_query(query).with_keys(("id",)) is None


@pytest.mark.parametrize(
    ("query", "keys"),
    [
        ("SELECT id, to_json(struct(*)) AS j FROM orders", ("id",)),
        ("SELECT to_json(struct(*)) AS j FROM orders", ("_rw_key_0",)),
        ("SELECT id FROM orders WHERE hash(orders.*) % 2 = 0", ("id",)),
        ("SELECT to_json(struct(*)) AS j FROM (SELECT id, total FROM orders) AS o", ("_rw_key_0",)),
    ],
)
def test_all_columns_of_an_input_may_be_in_a_value_if_none_is_hidden(query: str, keys: tuple[str, ...]) -> None:
    found = read_view_query(query)
    form = found.with_keys(("id",))
    assert form is not None
    assert form.keys == keys
    for hidden in ("_rw_key_0", ROW):
        assert found.with_keys((hidden,)) is None


@pytest.mark.parametrize(
    "query",
    [
        "SELECT to_json(struct(*)) AS j FROM (SELECT total FROM orders) AS o",
        "SELECT j FROM (SELECT to_json(struct(*)) AS j FROM (SELECT total FROM orders) AS o) AS p",
    ],
)
def test_a_value_with_all_columns_above_a_hidden_key_has_no_form(query: str) -> None:
    assert read_view_query(query).with_keys(("id",)) is None


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("SELECT * FROM v", "SELECT * EXCEPT (_rw_row), `_rw_row` AS _rw_key_0 FROM v"),
        (
            "SELECT v.* EXCEPT (a), 1 AS b FROM v",
            "SELECT v.* EXCEPT (a, _rw_row), 1 AS b, `_rw_row` AS _rw_key_0 FROM v",
        ),
        ("SELECT s.* FROM v", "SELECT s.*, `_rw_row` AS _rw_key_0 FROM v"),
    ],
)
def test_the_digest_of_a_row_becomes_a_hidden_key(query: str, text: str) -> None:
    form = read_view_query(query).with_keys((ROW,))
    assert form is not None
    assert form.keys == ("_rw_key_0",)
    assert form.text == text


@pytest.mark.parametrize(
    ("query", "keys", "text"),
    [
        (
            "SELECT * EXCEPT (k) FROM (SELECT k, count(*) AS n FROM s GROUP BY k) AS x",
            ("_rw_key_0",),
            "SELECT * EXCEPT (k), `k` AS _rw_key_0 FROM (SELECT k, COUNT(*) AS n FROM s GROUP BY k) AS x",
        ),
        (
            "SELECT w.* FROM (SELECT w, count(*) AS n FROM s GROUP BY w HAVING count(*) > 1) AS x",
            ("_rw_key_0",),
            "SELECT w.*, `w` AS _rw_key_0, COALESCE(_rw_keep, FALSE) AS _rw_keep FROM (SELECT w, CASE WHEN COUNT(*) > 1"
            " THEN COUNT(*) END AS n, COALESCE(COUNT(*) > 1, FALSE) AS _rw_keep FROM s GROUP BY w) AS x",
        ),
    ],
)
def test_the_keys_of_groups_are_carried_past_a_star_that_does_not_return_them(
    query: str, keys: tuple[str, ...], text: str
) -> None:
    form = read_view_query(query).upserted({})
    assert form is not None
    assert form.keys == keys
    assert form.text == text


@pytest.mark.parametrize("ordinal", ["0", "3", "99999999999999999999"])
def test_an_ordinal_beyond_the_select_list_stays(ordinal: str) -> None:
    """The analysis of the query reports it."""
    found = read_view_query(f"SELECT k, count(*) AS n FROM s GROUP BY 1, {ordinal}")
    assert found.touched_groups(("a", "b"), ("k",)) == f"SELECT k AS a, {ordinal} AS b FROM s"
    for form in (found.exposed(), found.upserted({}), found.signed({})):
        assert form is not None
        assert f"GROUP BY k, {ordinal}" in form.text


def test_a_star_within_an_expression_sees_no_hidden_columns() -> None:
    for inner in ("SELECT count(*) AS n FROM s GROUP BY k", "SELECT k, count(*) AS n FROM s GROUP BY k HAVING n > 1"):
        found = read_view_query(f"SELECT to_json(struct(*)) AS j FROM ({inner}) AS x")
        assert (found.kind, found.why) == (GROUPS, "it has a * within an expression")
        assert found.upserted({}) is None
    visible = read_view_query("SELECT to_json(struct(*)) AS j FROM (SELECT k, count(*) AS n FROM s GROUP BY k) AS x")
    form = visible.upserted({})
    assert form is not None
    assert form.keys == ("_rw_key_0",)
    assert form.text.startswith("SELECT TO_JSON(STRUCT(*)) AS j, `k` AS _rw_key_0 FROM (SELECT k, COUNT(*) AS n FROM")
    assert visible.signed({}) is None
    assert read_view_query("SELECT a, count(*) AS n FROM t GROUP BY a").signed_arguments() == ()
    assert read_view_query("SELECT a, count(t.*) AS n FROM t GROUP BY a").signed_arguments() is None
    assert read_view_query("SELECT a, count(* EXCEPT (b)) AS n FROM t GROUP BY a").signed_arguments() is None
    distinct = read_view_query("SELECT DISTINCT to_json(struct(*)) AS j FROM t")
    assert distinct.decomposed(["a"], is_signed=True) is None
    assert distinct.decomposed(["a"]) is not None


def test_a_join_is_parted_only_by_columns_of_the_relations() -> None:
    found = read_view_query("SELECT o.id FROM o JOIN customer ON o.customer.id = o.ref")
    assert found.partitioned() is None
    assert read_view_query("SELECT o.id FROM o TABLESAMPLE (9 ROWS) JOIN p ON o.id = p.id").partitioned() is None


@pytest.mark.parametrize(
    ("clause", "query"),
    [
        ("x AS (SELECT k, v FROM s)", "SELECT k, count(*) AS c FROM x TABLESAMPLE (10 PERCENT) GROUP BY k"),
        (
            "x AS (SELECT day, kind, n FROM s)",
            "SELECT count(*) AS days FROM x PIVOT (sum(n) FOR kind IN ('a' AS a))",
        ),
        ("x AS (SELECT k FROM s)", "SELECT count(*) AS n FROM (x JOIN r ON x.k = r.k)"),
        ("x AS (SELECT k, v FROM s)", "SELECT count(v) AS n FROM x AS y (v, k)"),
        ("x AS (SELECT k FROM s)", "SELECT k FROM (WITH s AS (SELECT a AS k FROM t) SELECT x.k FROM x) AS y"),
        ("x AS (SELECT k FROM y), y AS (SELECT k FROM s)", "SELECT k FROM x"),
        ("x AS (WITH y AS (SELECT k FROM s) SELECT a.k FROM y AS a JOIN y AS b ON a.k = b.k)", "SELECT k FROM x"),
    ],
)
def test_a_with_query_is_inlined_only_where_its_name_alone_is_used(clause: str, query: str) -> None:
    found = read_view_query(f"WITH {clause} {query}")
    assert found.kind == OTHER
    assert "a WITH query that is not" in found.why


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("WITH x AS (SELECT k FROM s) SELECT k FROM x AS y", "SELECT k FROM (SELECT k FROM s) AS y"),
        (
            "WITH x AS (SELECT k FROM s), y AS (SELECT k FROM x) SELECT k FROM y",
            "SELECT k FROM (SELECT k FROM (SELECT k FROM s) AS x) AS y",
        ),
        ("WITH s AS (SELECT k FROM s) SELECT k FROM s", "SELECT k FROM (SELECT k FROM s) AS s"),
        (
            "WITH x AS (WITH y AS (SELECT k FROM s) SELECT k FROM y) SELECT k FROM x",
            "SELECT k FROM (SELECT k FROM (SELECT k FROM s) AS y) AS x",
        ),
        (
            "WITH y AS (SELECT k FROM s), x AS (WITH y AS (SELECT k + 1 AS k FROM y) SELECT k FROM y) SELECT k FROM x",
            "SELECT k FROM (SELECT k FROM (SELECT k + 1 AS k FROM (SELECT k FROM s) AS y) AS y) AS x",
        ),
        (
            "WITH x AS (SELECT k FROM s) SELECT k FROM (WITH y AS (SELECT k FROM x) SELECT k FROM y) AS z",
            "SELECT k FROM (SELECT k FROM (SELECT k FROM (SELECT k FROM s) AS x) AS y) AS z",
        ),
        (
            "SELECT id FROM (WITH y AS (SELECT customer_id AS id FROM t) SELECT id FROM y) AS z",
            "SELECT id FROM (SELECT id FROM (SELECT customer_id AS id FROM t) AS y) AS z",
        ),
    ],
)
def test_the_text_of_a_query_has_its_with_queries_inlined(query: str, text: str) -> None:
    found = read_view_query(query)
    assert found.kind == ROWS
    assert found.text == text


def test_a_with_query_in_a_subquery_is_not_taken_for_the_relation() -> None:
    query = "SELECT id FROM (WITH y AS (SELECT customer_id AS id FROM t) SELECT id FROM y) AS z"
    form = read_view_query(query).with_keys(("id",))
    assert form is not None
    assert form.keys == ("_rw_key_0",)
