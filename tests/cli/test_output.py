"""Results are readable in a pipe: nothing is wrapped or cut, NULL is told from the text, bytes are hexadecimal."""

from __future__ import annotations

import io

from rw_sql.cli.output import console_for, print_rows
from rw_sql.session.results import Rows, cell_text


def printed(rows: Rows) -> str:
    stream = io.StringIO()
    print_rows(console_for(stream), rows)
    return stream.getvalue()


def test_a_table_in_a_pipe() -> None:
    rows = Rows(columns=("carrier", "departures"), rows=(("UA", "4534"), ("B6", None)))
    assert printed(rows) == (
        " carrier | departures \n---------|------------\n UA      |       4534 \n B6      |       NULL \n(2 rows)\n"
    )


def test_a_wide_cell_stays_on_one_line() -> None:
    wide = "x" * 500
    assert f" {wide} " in printed(Rows(columns=("text",), rows=((wide,),)))


def test_a_tall_cell_is_printed_row_by_row() -> None:
    rows = Rows(columns=("operation", "plan"), rows=(("9", "a\nb\nc\nd\ne\nf\ng"), ("8", None)))
    assert printed(rows) == (
        "-[ 1 ]-\n operation | 9 \n plan      | a \n           | b \n           | c \n           | d \n"
        "           | e \n           | f \n           | g \n-[ 2 ]-\n operation | 8    \n plan      | NULL \n(2 rows)\n"
    )


def test_square_brackets_are_text() -> None:
    assert "[bold]" in printed(Rows(columns=("text",), rows=(("[bold]",),)))


def test_a_cut_result_says_so() -> None:
    assert "(the first 1 row)" in printed(Rows(columns=("a",), rows=(("1",),), has_more=True))


def test_a_result_without_columns_prints_nothing() -> None:
    assert printed(Rows(columns=(), rows=())) == ""


def test_cells() -> None:
    assert cell_text(None) is None
    assert cell_text(True) == "true"
    assert cell_text(b"\x00hi") == "\\x006869"
    assert cell_text([1, None, "a"]) == "[1, NULL, a]"
    assert cell_text({"a": [True]}) == "{a: [true]}"
