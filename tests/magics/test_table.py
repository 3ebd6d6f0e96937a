"""A result in a notebook: escaped HTML, and aligned text for front ends without HTML."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from IPython.core.formatters import DisplayFormatter

from rw_sql.magics.cell import StatementMagic
from rw_sql.magics.result import CellResult
from rw_sql.magics.table import ResultTable
from rw_sql.session.results import Rows
from rw_sql.session.scripts import StatementText

if TYPE_CHECKING:
    from collections.abc import Callable

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


def test_numbers_are_right_aligned() -> None:
    rows = Rows(columns=("name", "n"), rows=(("a", "1"), ("b", "1000"), ("c", None)))
    assert repr(ResultTable(rows, numbers=[False, True])).splitlines() == [
        "name |    n",
        "-----+-----",
        "a    |    1",
        "b    | 1000",
        "c    | NULL",
        "(3 rows)",
    ]
    assert ResultTable(rows, numbers=[False, True])._repr_html_().count("text-align: right") == 4


def test_many_rows_scroll_and_text_says_how_many_are_left_out() -> None:
    rows = Rows(columns=("n",), rows=tuple((str(number),) for number in range(200)), has_more=True)
    html = ResultTable(rows)._repr_html_()
    assert html.startswith('<div style="max-height: ')
    assert html.count("<tr>") == 201
    assert html.endswith("<small>the first 200 rows; .df has all rows</small>")
    assert repr(ResultTable(rows)).splitlines()[-2:] == ["… 180 more", "(the first 200 rows; .df has all rows)"]


def test_a_plan_keeps_its_lines_and_its_columns() -> None:
    html = ResultTable(Rows(columns=("plan",), rows=(("a\n  b",),)), is_plan=True)._repr_html_()
    assert 'white-space: pre; text-align: left; vertical-align: top; font-family: monospace">a\n  b</td>' in html


def test_the_lines_of_a_plan_are_one_text_and_long_texts_are_not_squeezed() -> None:
    plan = Rows(columns=("plan",), rows=(("split  old",), ("  a      1",), (None,)))
    html = ResultTable(plan, is_plan=True)._repr_html_()
    assert 'font-family: monospace">split  old\n  a      1\n</td></tr></tbody>' in html
    assert html.endswith("</table>")
    html = ResultTable(Rows(columns=("a", "b"), rows=(("word " * 10, "short"),)))._repr_html_()
    assert html.count("min-width: 18em") == 1


def test_a_picture_is_shown_as_one() -> None:
    def shown(cell: str, *, is_plan: bool = True) -> dict[str, str] | None:
        return ResultTable(Rows(columns=("plan",), rows=((cell,),)), is_plan=is_plan).picture()

    assert shown("<svg xmlns=''></svg>") == {
        "image/svg+xml": "<svg xmlns=''></svg>",
        "text/plain": "<svg xmlns=''></svg>",
    }
    assert shown("flowchart LR\n  a")["text/vnd.mermaid"] == "flowchart LR\n  a"  # type: ignore[index]
    assert shown("changes nothing") is None
    assert shown("<svg ", is_plan=False) is None
    assert shown("flowchart LR", is_plan=False) is None


def test_a_column_that_is_called_plan_is_no_plan() -> None:
    html = ResultTable(Rows(columns=("plan",), rows=(("pro",), (None,)), has_more=True))._repr_html_()
    assert "<i>NULL</i>" in html
    assert "<small>the first 2 rows; .df has all rows</small>" in html


def test_a_plan_with_more_lines_than_are_shown_says_so() -> None:
    plan = Rows(columns=("plan",), rows=(("a",), ("b",)), has_more=True)
    html = ResultTable(plan, is_plan=True)._repr_html_()
    assert html.endswith("</table><small>the first 2 rows; .df has all rows</small>")


@pytest.mark.parametrize(
    ("statement", "shown"),
    [
        ("SELECT plan FROM customers", {"text/html", "text/plain"}),
        ("-- the move\nEXPLAIN (FORMAT SVG) PAUSE SOURCE s", {"image/svg+xml", "text/plain"}),
    ],
)
def test_only_an_explain_in_a_cell_is_a_picture(
    statement: str, shown: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = SimpleNamespace(fields=[])
    rows = [("<svg xmlns=''></svg>",)]
    frame = SimpleNamespace(columns=["plan"], dtypes=[("plan", "string")], schema=schema, take=lambda _: rows)

    def run_statements(*_: object, on_result: Callable[[StatementText, object], None], **__: object) -> None:
        on_result(StatementText(text=statement, line=1, column=1), frame)

    monkeypatch.setattr("rw_sql.session.scripts.run_statements", run_statements)
    monkeypatch.setattr("rw_sql.session.attach.attached_to", lambda _: SimpleNamespace())
    magic = StatementMagic(SimpleNamespace(user_ns={}))
    monkeypatch.setattr(magic, "_session", SimpleNamespace)
    result = magic.run("", statement)
    assert set(DisplayFormatter().format(result)[0]) == shown


def test_beside_a_picture_there_is_no_table_for_a_front_end_to_prefer() -> None:
    result = object.__new__(CellResult)
    result._table = ResultTable(Rows(columns=("plan",), rows=(("<svg xmlns=''></svg>",),)), is_plan=True)
    shown, _ = DisplayFormatter().format(result)
    assert set(shown) == {"image/svg+xml", "text/plain"}
    result._table = ResultTable(ROWS)
    shown, _ = DisplayFormatter().format(result)
    assert set(shown) == {"text/html", "text/plain"}
