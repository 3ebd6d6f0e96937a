"""When two queries are the same query: layout, quotes and letter case do not matter; every argument does."""

from __future__ import annotations

import pytest

from rw_sql.syntax.query.canonical_query import canonical_query
from rw_sql.syntax.query.tables_read import table_names, table_places


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("to_char(a, '999')", "to_char(a, '000.00')"),
        ("to_char(a, '999')", "cast(a AS STRING)"),
        ("listagg(a)", "listagg(a, ',')"),
        ("percentile(a, 0.5)", "percentile(a, 0.5, b)"),
        ("max_by(a, b)", "max_by(a, b, 3)"),
        ("date_format(a, 'yyyy')", "date_format(a, 'YYYY')"),
        ("to_date(a)", "to_date(a, 'yyyy-MM-dd')"),
        ("first(a)", "first(a, b)"),
        ("from_utc_timestamp(a, b)", "from_utc_timestamp(cast(a AS TIMESTAMP), b)"),
        ("uuid()", "uuid(7)"),
        ("cast(a AS INT)", "try_cast(a AS INT)"),
        ("a", "A"),
        # Keys of a MAP.
        ("m.a", "m.A"),
        ("m.A.b", "m.a.b"),
        ("s.m.A.b", "s.m.a.b"),
    ],
)
def test_other_calls_are_other_queries(one: str, other: str) -> None:
    texts = [f"SELECT {call} AS x FROM s GROUP BY k" for call in (one, other)]
    assert canonical_query(texts[0]) != canonical_query(texts[1])


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("SELECT id, count(*) AS n FROM s GROUP BY id", "select id,\n  Count( * ) n -- rows\nfrom S group by id"),
        ("SELECT `id` FROM `s`", "SELECT id FROM public.s"),
        ("SELECT S.addr.city FROM s", "SELECT s.addr.city FROM s"),
        ("SELECT Lake.T.id, T.m.a FROM lake.t", "SELECT lake.t.id, t.m.a FROM lake.t"),
        ("SELECT o.id FROM orders AS o JOIN t AS T ON o.id = T.id", "SELECT O.id FROM Orders O JOIN t ON O.id = t.id"),
        ("WITH q AS (SELECT id FROM s) SELECT id FROM q", "WITH Q AS (SELECT id FROM s) SELECT id FROM Q"),
        ("SELECT cast(id AS BIGINT) AS x FROM s", "SELECT id::bigint AS x FROM s"),
        (
            "SELECT window(ts, '1 hour') AS w, count(*) AS n FROM s GROUP BY window(ts, '1 hour')",
            "SELECT WINDOW(ts, '1 hour') w, COUNT(*) n FROM s GROUP BY WINDOW(ts, '1 hour')",
        ),
    ],
)
def test_spellings_of_one_query(one: str, other: str) -> None:
    assert canonical_query(one) == canonical_query(other)


def test_the_catalogs_quoted_names_keep_their_case() -> None:
    assert canonical_query("SELECT id FROM `S`") != canonical_query("SELECT id FROM s")


@pytest.mark.parametrize("call", ["map(id)", "map(id, v, 1)", "regexp_replace(v, 'b')", "split()", "to_date()"])
def test_a_call_with_too_few_arguments_has_a_form_and_its_tables(call: str) -> None:
    query = f"SELECT {call} AS x FROM s JOIN raw.t USING (id)"
    assert call.partition("(")[0] in canonical_query(query).lower()
    assert table_names(query) == ("s", "raw.t")
    assert [place.key for place in table_places(query)] == ["s", "raw.t"]
