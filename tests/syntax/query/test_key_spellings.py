"""A grouping expression that is spelled otherwise among the select items is one of the view's columns."""

from __future__ import annotations

import pytest
from sqlglot import exp

from rw_sql.syntax.query.maintained_form import read_view_query

COLUMNS = ["k", "at", "a", "addr"]
RELATIONS = {"s": COLUMNS, "p": ["k", "x", "o"]}


@pytest.mark.parametrize(
    ("query", "key"),
    [
        ("SELECT o.k, max(a) AS m FROM s AS o GROUP BY k", "k"),
        ("SELECT k, max(a) AS m FROM s AS o GROUP BY o.k", "k"),
        ("SELECT K, max(a) AS m FROM s GROUP BY k", "K"),
        ("SELECT `k`, max(a) AS m FROM s GROUP BY K", "k"),
        ("SELECT (k) AS c, max(a) AS m FROM s GROUP BY c", "c"),
        ("SELECT (k) AS c, max(a) AS m FROM s GROUP BY (s.k)", "c"),
        ("SELECT k, max(a) AS m FROM s GROUP BY k, s.k, (K)", "k"),
        ("SELECT upper(S.k) AS u, max(a) AS m FROM s GROUP BY UPPER((k))", "u"),
        ("SELECT addr.city, max(a) AS m FROM s GROUP BY s.Addr.city", "city"),
        ("SELECT (k), max(a) AS m FROM s GROUP BY k", "k"),
        ("SELECT ((o.k)), max(a) AS m FROM s AS o GROUP BY k HAVING m > 1", "k"),
        ("SELECT (c) FROM (SELECT k AS c, max(a) AS m FROM s GROUP BY k) AS g", "c"),
        ("SELECT k, max(a) AS m FROM s GROUP BY (1)", "k"),
        ("SELECT (k), max(a) AS m FROM s GROUP BY ((1))", "k"),
        ("SELECT addr.city, max(a) AS m FROM s GROUP BY city", "city"),
        ("SELECT addr.place.street.at.number.odd, max(a) AS m FROM s GROUP BY odd", "odd"),
        ("SELECT lake.s.k, max(a) AS m FROM lake.s GROUP BY k", "k"),
        ("SELECT window(at, '1 hour').start AS hour, max(a) AS m FROM s GROUP BY window(at, '1 hour')", "hour"),
        ("SELECT window.start AS hour, max(a) AS m FROM s GROUP BY window(at, '1 hour')", "hour"),
        ("SELECT window, max(a) AS m FROM s GROUP BY window(s.at, '1 hour')", "window"),
        ("SELECT (c) AS d FROM (SELECT k AS c, max(a) AS m FROM s GROUP BY k) AS g", "d"),
    ],
)
def test_a_selected_group_is_a_key_column_however_it_is_spelled(query: str, key: str) -> None:
    found = read_view_query(query)
    kept, exposed = found.upserted({}, RELATIONS), found.exposed(RELATIONS)
    assert kept is not None
    assert exposed is not None
    assert kept.keys == exposed.keys == (key,)
    touched = found.touched_groups(exposed.keys, COLUMNS)
    assert touched is not None
    assert " AS " in touched
    assert "_rw_key_" not in touched + kept.text + exposed.text


@pytest.mark.parametrize(
    ("query", "keys"),
    [
        ("SELECT q.k, x, count(*) AS n FROM s AS q JOIN p ON q.k = p.k GROUP BY q.k, p.x", ("k", "x")),
        ("SELECT q.at, p.x, count(*) AS n FROM s AS q JOIN p USING (k) GROUP BY at, x", ("at", "x")),
        # The name alone means the columns of both sides.
        ("SELECT p.k, count(*) AS n FROM s FULL JOIN p USING (k) GROUP BY k, p.k", ("_rw_key_0", "k")),
        ("SELECT s.k AS x, p.k AS y, count(*) AS n FROM s LEFT JOIN p ON s.a = p.x GROUP BY s.k, p.k", ("x", "y")),
        ("SELECT s.k, count(*) AS n FROM s LEFT JOIN p ON s.a = p.x GROUP BY p.k, s.k", ("_rw_key_0", "k")),
        ("SELECT a.k AS x, b.k AS y, count(*) AS n FROM c.s AS a, d.s AS b GROUP BY a.k, b.k", ("x", "y")),
        ("SELECT c.s.k AS x, d.s.k AS y, count(*) AS n FROM c.s, d.s GROUP BY c.s.k, d.s.k", ("x", "y")),
        ("SELECT p.x, count(*) AS n FROM s NATURAL JOIN p GROUP BY x", ("_rw_key_0",)),
        # It may be a field of the column o.
        ("SELECT o.at, count(*) AS n FROM s AS o JOIN p ON o.k = p.k GROUP BY at", ("_rw_key_0",)),
        ("SELECT k + 1 AS k, count(*) AS n FROM s GROUP BY k", ("_rw_key_0",)),
        ("SELECT addr.k, count(*) AS n FROM s GROUP BY k, addr.k", ("_rw_key_0", "k")),
        # The key of a MAP is a value, unlike the field of a struct, and the type of the column is not known.
        ("SELECT addr.A AS x, addr.a AS y, count(*) AS n FROM s GROUP BY addr.A, addr.a", ("x", "y")),
        ("SELECT s.addr.A AS x, Addr.a AS y, count(*) AS n FROM s GROUP BY addr.A, S.addr.a", ("x", "y")),
        ("SELECT addr.A AS x, addr.a AS y, count(*) AS n FROM s AS addr GROUP BY addr.A, addr.a", ("x",)),
        ("SELECT addr.B AS x, addr.b AS y, count(*) AS n FROM s AS addr GROUP BY addr.B, addr.b", ("x", "y")),
        ("SELECT addr.city, count(*) AS n FROM s GROUP BY addr.City", ("_rw_key_0",)),
    ],
)
def test_the_name_of_an_input_before_a_column_may_have_a_meaning(query: str, keys: tuple[str, ...]) -> None:
    exposed = read_view_query(query).exposed(RELATIONS)
    assert exposed is not None
    assert exposed.keys == keys


def test_a_kept_group_is_computed_for_every_row() -> None:
    form = read_view_query("SELECT o.k, max(a) AS m FROM s AS o GROUP BY k HAVING m > 1").upserted({}, RELATIONS)
    assert form is not None
    assert form.text == (
        "SELECT o.k, CASE WHEN (MAX(a)) > 1 THEN MAX(a) END AS m, COALESCE((MAX(a)) > 1, FALSE) AS _rw_keep "
        "FROM s AS o GROUP BY k"
    )


def test_a_value_of_a_group_is_derived_however_the_group_is_spelled() -> None:
    found = read_view_query("SELECT s.k, concat(K, 'x') AS c, count(*) AS n FROM s GROUP BY k").decomposed(COLUMNS)
    assert found is not None
    assert found.keys == ("k",)
    lifted = found.lifted({"k": "STRING", "n": "BIGINT"})
    assert lifted is not None
    assert lifted.derived == "SELECT `k`, (CONCAT(`k`, 'x')) AS `c`, `n` FROM _rw_groups"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("addr.Region", "addr.region"),
        ("addr.a.b.c.d.Region", "addr.a.b.c.d.region"),
        ("to_json(struct(k AS A))", "to_json(struct(k AS a))"),
        ("to_json(struct(K))", "to_json(struct(k))"),
        ("to_json(arrays_zip(a, K))", "to_json(arrays_zip(a, k))"),
        ("to_json(CAST(addr AS STRUCT<A: INT>))", "to_json(CAST(addr AS STRUCT<a: INT>))"),
    ],
)
def test_values_that_differ_by_the_case_of_a_name_are_not_derived_from_each_other(one: str, other: str) -> None:
    query = f"SELECT {one} AS x, {other} AS y, concat({other}, '!') AS z, count(*) AS n FROM s GROUP BY {one}, {other}"
    exposed, found = read_view_query(query).exposed(RELATIONS), read_view_query(query).decomposed(COLUMNS)
    assert exposed is not None
    assert found is not None
    assert exposed.keys == found.keys == ("x", "y")
    lifted = found.lifted({"x": "STRING", "y": "STRING", "n": "BIGINT"})
    assert lifted is not None
    assert lifted.derived == "SELECT `x`, `y`, (CONCAT(`y`, '!')) AS `z`, `n` FROM _rw_groups"


def test_a_key_without_a_name_is_a_hidden_column() -> None:
    exposed = read_view_query("SELECT (k + 1), max(a) AS m FROM s GROUP BY k + 1").exposed(RELATIONS)
    assert exposed is not None
    assert exposed.keys == ("_rw_key_0",)


@pytest.mark.parametrize("number", [1, 2])
def test_an_ordinal_in_parentheses_is_the_item_in_all_forms(number: int) -> None:
    item = ["k", "upper(k)"][number - 1]
    query = f"SELECT k, upper(k) AS u, sum(a) AS t FROM s GROUP BY ({number})"
    plain = query.replace(f"({number})", item)
    for form in ("exposed", "upserted", "signed"):
        arguments = () if form == "exposed" else ({"a": "BIGINT"},)
        found, expected = (getattr(read_view_query(text), form)(*arguments, RELATIONS) for text in (query, plain))
        assert (found.keys, found.text) == (expected.keys, expected.text)
        assert "GROUP BY 1" not in found.text


def test_long_conditions_and_many_keys_do_not_take_quadratic_time(monkeypatch: pytest.MonkeyPatch) -> None:
    count, copies = 300, 0
    copy = exp.Expression.copy

    def counted(self: exp.Expression) -> exp.Expression:
        nonlocal copies
        copies += sum(1 for _ in self.walk())
        return copy(self)

    monkeypatch.setattr(exp.Expression, "copy", counted)
    condition = " OR ".join(f"k = {number}" for number in range(count))
    keys = ", ".join(f"c{number}" for number in range(count))
    derived = ", ".join(f"concat(c{number}, 'x') AS d{number}" for number in range(count))
    columns = [f"c{number}" for number in range(count)]
    assert read_view_query(f"SELECT k, max(a) AS m FROM s GROUP BY k HAVING {condition}").upserted({}, RELATIONS)
    wide = read_view_query(f"SELECT {keys}, {derived}, count(*) AS n FROM s GROUP BY {keys}")
    assert wide.exposed({"s": columns})
    assert wide.decomposed(columns)
    assert copies < 200 * count


@pytest.mark.parametrize(
    ("query", "is_known"),
    [
        ("SELECT k, session_window(at, '5 minutes') AS w, count(*) AS n FROM s GROUP BY k, w", False),
        (
            "SELECT k, session_window.start AS t, count(*) AS n FROM s GROUP BY k, SESSION_WINDOW(at, '5 minutes')",
            False,
        ),
        ("SELECT k, count(*) AS n FROM s GROUP BY k, `session_window`(at, '5 minutes')", False),
        ("SELECT DISTINCT k, session_window(at, '5 minutes') AS w FROM s", False),
        ("SELECT k, max(session_window(at, '5 minutes').start) AS m FROM s GROUP BY k", True),
        ("SELECT k, window(at, '5 minutes') AS w, count(*) AS n FROM s GROUP BY k, w", True),
    ],
)
def test_the_session_windows_of_changed_rows_are_not_known_from_these_rows(query: str, is_known: bool) -> None:
    found = read_view_query(query)
    exposed = found.exposed(RELATIONS)
    touched = found.touched_rows() if exposed is None else found.touched_groups(exposed.keys, COLUMNS)
    assert (touched is not None) is is_known
    assert ("session windows" in found.why) is not is_known
