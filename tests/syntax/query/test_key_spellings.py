"""A grouping expression that is spelled otherwise among the select items is one of the view's columns."""

from __future__ import annotations

import pytest

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
        ("SELECT addr.city, max(a) AS m FROM s GROUP BY s.addr.City", "city"),
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
