"""A result in a notebook: escaped HTML, and aligned text for front ends without HTML."""

from __future__ import annotations

from rw_sql.magics.table import ResultTable
from rw_sql.session.results import Rows

ROWS = Rows(columns=("name", "<b>"), rows=(("a & b", None), ("long name", "1\n2")))


def test_html_is_escaped() -> None:
    html = ResultTable(ROWS)._repr_html_()
    assert "&lt;b&gt;" in html
    assert "a &amp; b" in html
    assert "<i>NULL</i>" in html
    assert "<small>2 rows</small>" in html


def test_text_is_aligned() -> None:
    assert repr(ResultTable(ROWS)).splitlines() == [
        "name      | <b>",
        "----------+-----",
        "a & b     | NULL",
        "long name | 1 2",
        "(2 rows)",
    ]


def test_an_empty_result_has_its_header() -> None:
    assert repr(ResultTable(Rows(columns=("a",), rows=()))).splitlines() == ["a", "-", "(0 rows)"]
