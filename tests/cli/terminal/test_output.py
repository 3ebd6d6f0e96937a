"""Results are readable in a pipe: nothing is wrapped or cut, NULL differs from the text ``NULL``, and bytes are
hexadecimal."""

from __future__ import annotations

import io
import re
from dataclasses import replace

import pytest
from pyspark.sql.types import _create_row
from rich.console import Console

from rw_sql.cli.terminal.output import Layout, console_for, print_cancelled, print_error, print_rows
from rw_sql.errors import SYNTAX_ERROR, Span, SqlError
from rw_sql.session.results import Rows, cell_text


class Terminal(io.StringIO):
    """A stream that reports to be a terminal."""

    def isatty(self) -> bool:
        return True


def printed(rows: Rows) -> str:
    stream = io.StringIO()
    print_rows(console_for(stream), rows)
    return stream.getvalue()


def test_a_table_in_a_pipe() -> None:
    rows = Rows(columns=("carrier", "departures"), rows=(("UA", "4534"), ("B6", None)))
    assert printed(rows) == (
        " carrier | departures \n---------|------------\n UA      |       4534 \n B6      |       NULL \n(2 rows)\n"
    )


@pytest.mark.parametrize("variable", ["FORCE_COLOR", "TTY_COMPATIBLE"])
def test_a_pipe_is_no_terminal_whatever_the_environment_says(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, "1")
    stream = io.StringIO()
    assert not console_for(stream).is_terminal
    print_rows(console_for(stream), Rows(columns=("n",), rows=(("1",),)))
    assert stream.getvalue() == " n \n---\n 1 \n(1 row)\n"
    monkeypatch.setattr("sys.stderr", stream)
    print_cancelled("cancelled")
    assert stream.getvalue().endswith("\ncancelled\n")


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


_ODD = "a\x1b]0;owned\x07b\x1b[2Jc\rd\u202ee\x85f"
_SHOWN = "a\\x1b]0;owned\\x07b\\x1b[2Jc\\rd\\u202ee\\x85f"


@pytest.mark.parametrize("layout", ["table", "records"])
@pytest.mark.parametrize("is_terminal", [False, True])
def test_a_value_cannot_control_the_terminal(layout: Layout, is_terminal: bool) -> None:
    stream = Terminal() if is_terminal else io.StringIO()
    console = console_for(stream)
    console.width = 200
    print_rows(console, Rows(columns=(_ODD, "b"), rows=((_ODD, "1\r\n2\t3"),)), layout=layout)
    console.print(_ODD)
    said = stream.getvalue()
    assert said.count(_SHOWN) == 3
    assert not re.search("[\x07\r\x85\u202e]|\x1b(?!\\[[0-9;]*m)", said), "only rich's own colours are left"


def test_an_error_cannot_control_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    print_error(f"RW500: {_ODD}\r\nHINT: {_ODD}")
    assert capsys.readouterr().err == f"RW500: {_SHOWN}\nHINT: {_SHOWN}\n"


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


WIDE = Rows(
    columns=("object", "source_rate_limit", "last_error", "updated_at"),
    rows=(("orders", "12", "the broker at localhost:9092 is away " * 3, "2026-11-26 07:01:57"), ("x", None, "", None)),
)


def at_width(rows: Rows, width: int, layout: Layout = "auto", *, is_plan: bool = False) -> list[str]:
    stream = io.StringIO()
    console = Console(file=stream, width=width, force_terminal=True, color_system=None, legacy_windows=False)
    print_rows(console, rows, layout=layout, is_plan=is_plan)
    return stream.getvalue().splitlines()


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_no_line_is_wider_than_the_terminal_and_no_header_is_broken(width: int) -> None:
    lines = at_width(WIDE, width)
    assert max(map(len, lines)) <= width
    assert all(any(column in line for line in lines) for column in WIDE.columns)
    assert lines[0].startswith("╭")
    assert at_width(WIDE, 50)[0] == "-[ 1 ]-"


def test_columns_that_need_little_get_it_and_the_others_share_the_rest() -> None:
    lines = at_width(Rows(columns=("a", "text"), rows=(("1", "word " * 60),)), 60)
    assert lines[0] == "╭───┬" + "─" * 54 + "╮"
    assert not any("wor │" in line for line in lines)


def test_a_layout_may_be_chosen() -> None:
    rows = Rows(columns=("a", "b"), rows=(("1", "2"),))
    assert at_width(rows, 80, "records") == ["-[ 1 ]-", " a | 1 ", " b | 2 ", "(1 row)"]
    assert at_width(WIDE, 60, "table")[0].startswith("╭")


def test_a_picture_is_printed_as_it_is() -> None:
    stream = io.StringIO()
    print_rows(console_for(stream), Rows(columns=("plan",), rows=(("<svg>\n</svg>",),)), is_plan=True)
    assert stream.getvalue() == "<svg>\n</svg>\n"


SPLITS = Rows(
    columns=("split", "start", "next", "log_start", "log_end", "lag", "lag_ms", "status", "fragment"),
    rows=(("orders_v2:0", "125", "4080", "0", "4100", "20", "1423", "OK", "ingest-3"),) * 2,
)


def test_a_table_that_nearly_fits_has_no_lines_between_its_columns() -> None:
    lines = at_width(SPLITS, 80)
    assert lines[0].split() == list(SPLITS.columns)
    assert lines[2].split() == list(SPLITS.rows[0])
    assert lines[-1] == "(2 rows)"
    assert max(map(len, lines)) <= 80
    assert at_width(SPLITS, 60)[0] == "-[ 1 ]-"
    assert at_width(SPLITS, 90)[0].startswith("╭")


def test_a_plan_has_no_frame_at_a_terminal_and_its_long_lines_go_on_indented() -> None:
    plan = Rows(
        columns=("plan",), rows=(("INJECT into o",), ("  dependents: " + ", ".join(["view totals"] * 4),), ("",))
    )
    assert at_width(plan, 40, is_plan=True) == [
        "INJECT into o",
        "  dependents: view totals, view totals,",
        "      view totals, view totals",
        "",
    ]
    assert at_width(plan, 40, "records", is_plan=True)[0] == "-[ 1 ]-"
    assert at_width(replace(plan, has_more=True), 40, is_plan=True)[-1] == "(the first 3 rows)"


def test_a_column_that_is_called_plan_is_no_plan_at_a_terminal_nor_in_a_pipe() -> None:
    rows = Rows(columns=("plan",), rows=(("pro",), (None,)), has_more=True)
    assert at_width(rows, 40) == [
        "╭──────╮",
        "│ plan │",
        "├──────┤",
        "│ pro  │",
        "│ NULL │",
        "╰──────╯",
        "(the first 2 rows)",
    ]
    stream = io.StringIO()
    print_rows(console_for(stream), Rows(columns=("plan",), rows=(("a\nb",),)))
    assert stream.getvalue().splitlines()[-1] == "(1 row)"


def test_a_struct_with_two_fields_of_one_name_has_both() -> None:
    struct = _create_row(["id", "id", "in"], [1, 2, _create_row(["x"], [None])])
    assert cell_text(struct) == "{id: 1, id: 2, in: {x: NULL}}"
    assert cell_text([struct]) == "[{id: 1, id: 2, in: {x: NULL}}]"


@pytest.mark.parametrize("width", [40, 60, 80, 100, 200])
@pytest.mark.parametrize("word", ["CREATE", "fromat", "JSON"])
def test_the_caret_is_below_its_word_in_a_terminal_of_any_width(
    word: str, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (
        "CREATE SOURCE orders (id INT, customer STRING, amount DECIMAL(10, 2)) WITH (connector = 'kafka', topic = "
        "'orders') fromat PLAIN ENCODE JSON"
    )
    at = text.index(word)
    error = SqlError(SYNTAX_ERROR, "wrong", hint="another", span=Span(at, at + len(word), 1, at + 1), text=text)
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("NO_COLOR", "1")
    print_error(error.render())
    _, place, caret, hint = re.sub(r"\x1b\[[0-9;]*m", "", terminal.getvalue()).splitlines()
    assert max(len(place), len(caret)) <= width
    assert place[caret.index("^") : len(caret)] == word
    assert hint == "HINT: another"


@pytest.mark.parametrize(("term", "shown"), [("xterm", "\r\x1b[2Kcancelled\n"), ("dumb", "cancelled\n")])
def test_the_message_after_ctrl_c_stands_alone(term: str, shown: str, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setenv("TERM", term)
    print_cancelled("cancelled")
    assert re.sub(r"\x1b\[[0-9;]*m", "", terminal.getvalue()) == shown
