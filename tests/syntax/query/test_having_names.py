"""Names in GROUP BY and HAVING that mean a column of the input, although a select item has the same name."""

from __future__ import annotations

import pytest

from rw_sql.syntax.query.maintained_form import read_view_query

COLUMNS = {"s": ["id", "status", "amount", "addr"]}


@pytest.mark.parametrize(
    ("query", "part"),
    [
        ("SELECT id / 100 AS id, count(*) AS n FROM s GROUP BY id / 100 HAVING id / 100 > 5", "COALESCE(id / 100 > 5,"),
        ("SELECT id / 100 AS id, count(*) AS n FROM s GROUP BY 1 HAVING (id / 100) > 5 AND n > 1", "id / 100) > 5 AND"),
        (
            "SELECT upper(status) AS status, count(*) AS n FROM s GROUP BY upper(status) "
            "HAVING count(*) FILTER (WHERE status = 'x') > 0",
            "FILTER(WHERE status = 'x')",
        ),
        (
            "SELECT id, sum(amount) AS amount FROM s GROUP BY id HAVING count(*) FILTER (WHERE amount > 100) > 0",
            "FILTER(WHERE amount > 100)",
        ),
        (
            "WITH o AS (SELECT id, addr.city FROM s) SELECT lower(city) AS city, count(*) AS n FROM o GROUP BY city",
            "GROUP BY city",
        ),
        (
            "SELECT lower(city) AS city, count(*) AS n FROM (SELECT id, addr.* FROM s) AS o GROUP BY city",
            "GROUP BY city",
        ),
        ("SELECT id / 100 AS id, count(*) AS n FROM s GROUP BY id / 100 HAVING ID / 100 > 5", "COALESCE(ID / 100 > 5,"),
        ("SELECT id / 100 AS id, count(*) AS n FROM s GROUP BY id / 100 HAVING s.id/(100) > 5", "s.id / (100) > 5,"),
        ("SELECT addr.city, count(*) AS n FROM s GROUP BY city HAVING city > 'a'", "COALESCE((addr.city) > 'a',"),
        ("SELECT addr.city, count(*) AS n FROM s GROUP BY addr.city HAVING n > 1", "GROUP BY addr.city"),
        ("SELECT addr.id, count(*) AS n FROM s GROUP BY id, addr.id", "GROUP BY id, addr.id"),
    ],
)
def test_a_column_of_the_input_is_not_the_item_of_its_name(query: str, part: str) -> None:
    form = read_view_query(query).upserted({}, COLUMNS)
    assert form is not None
    assert part in form.text
