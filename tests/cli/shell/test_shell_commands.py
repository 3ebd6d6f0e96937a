"""Backslash commands: how a text is split at them, and the statement for each."""

from __future__ import annotations

import pytest

from rw_sql.cli.shell.commands import HELP, NAMES, Piece, is_open, listing, split_commands, switched, unknown
from rw_sql.cli.shell.loop import _name_in
from rw_sql.cli.shell.result_forms import JOBS, definition_of, jobs_in_short
from rw_sql.cli.terminal.output import fits
from rw_sql.errors import INVALID_COMMAND, SqlError
from rw_sql.session.results import Rows
from rw_sql.syntax import parse_statement


def pieces(text: str) -> list[tuple[str, str]]:
    return [(piece.name or piece.kind, piece.text.strip()) for piece in split_commands(text)]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("\\d", [("d", "")]),
        ("\\d orders;", [("d", "orders")]),
        ("SHOW JOBS \\watch 2", [("statements", "SHOW JOBS"), ("watch", "2")]),
        ("SELECT 1;\n\\x\nSELECT 2;", [("statements", "SELECT 1;"), ("x", ""), ("statements", "SELECT 2;")]),
        ("\\! echo 'a;b';", [("!", "echo 'a;b';")]),
        ("SELECT '\\d', \"\\x\" -- \\q", [("statements", "SELECT '\\d', \"\\x\" -- \\q")]),
        ("\\set a it's\n\\dj", [("statements", "\\set a it's"), ("dj", "")]),
        ("\\?", [("?", "")]),
        ("", []),
    ],
)
def test_a_text_is_split_at_its_commands(text: str, found: list[tuple[str, str]]) -> None:
    assert pieces(text) == found


@pytest.mark.parametrize(
    ("text", "is_inside"),
    [
        ("SELECT 1;", False),
        ("SELECT 1", True),
        ("BEGIN UNSAFE;", False),
        ("BEGIN SELECT 1;", True),
        ("BEGIN SELECT 1; IF a THEN SELECT 2; END IF;", True),
        ("BEGIN SELECT 1; END;", False),
    ],
)
def test_a_block_of_spark_is_open_until_its_end(text: str, is_inside: bool) -> None:
    assert is_open(text) is is_inside


def test_a_plus_is_no_part_of_the_name() -> None:
    assert split_commands("\\d+ m") == (Piece(kind="command", text="m", name="d", has_plus=True),)


@pytest.mark.parametrize(
    ("name", "pattern", "statement"),
    [
        ("ds", "", "SHOW SOURCES"),
        ("ds", "ord*", "SHOW SOURCES LIKE 'ord%'"),
        ("dm", "it's?", "SHOW MATERIALIZED VIEWS LIKE 'it''s_'"),
        ("dt", "", "SHOW TABLES"),
        ("dk", "a", "SHOW SINKS LIKE 'a'"),
        ("dc", "", "SHOW CONNECTIONS"),
        ("dj", "", "SHOW JOBS"),
        ("do", "orders", "SHOW UNSAFE OPERATIONS FOR orders"),
        ("dl", "", "SHOW LINEAGE"),
    ],
)
def test_lists_are_statements_of_the_language(name: str, pattern: str, statement: str) -> None:
    assert listing(name, pattern) == statement
    parse_statement(statement)


def test_other_commands_list_nothing() -> None:
    assert listing("x", "") is None


def test_switches() -> None:
    given = [("", False), ("", True), ("ON", False), ("off", True)]
    assert [switched(text, before, "") for text, before in given] == [True, False, True, False]
    with pytest.raises(SqlError, match='"maybe" is neither on nor off'):
        switched("maybe", True, "")


def test_an_unknown_command_gets_a_near_name() -> None:
    error = unknown("timin")
    assert error.kind is INVALID_COMMAND
    assert error.hint == "did you mean \\timing? \\? lists all commands"


def test_the_help_has_every_command() -> None:
    assert set(NAMES).issuperset(("d", "ds", "dm", "dt", "dj", "dk", "dc", "do", "x", "timing", "watch", "e", "i", "o"))
    assert set(NAMES).issuperset(("c", "!", "?"))
    assert all(meaning for _, meaning in HELP)


def test_jobs_that_do_not_fit_are_shown_in_short_with_their_reasons_below() -> None:
    reason = "EXPIRED refunds:0: RESUME SOURCE refunds"
    rows = Rows(
        columns=JOBS,
        rows=(
            ("ingest-5", "source", "refunds", "STALLED", reason, None, "60", None, "0"),
            ("mv-11", "materialized_view", "totals_by_country", "RUNNING", "", None, "80", "2", "0"),
        ),
    )
    assert not fits(rows, 80)
    short, below = jobs_in_short(rows)
    assert fits(short, 80)
    assert short.columns == ("job", "object", "kind", "state", "lag")
    assert short.rows[1] == ("mv-11", "totals_by_country", "materialized_view", "RUNNING", "80")
    assert below == f"refunds is STALLED: {reason}\n\\x shows all columns\n"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("orders", "orders"),
        ("ORDERS", "orders"),
        ('"Orders"', "Orders"),
        ('"my ""view"""', 'my "view"'),
        ('raw."my view"', "raw.my view"),
        ("public.orders", "orders"),
        ("my view", None),
        ('"open', None),
        ("a.", None),
    ],
)
def test_a_name_is_written_as_in_a_statement(text: str, name: str | None) -> None:
    assert _name_in(text) == name


def test_a_definition_is_copied_even_after_a_comment() -> None:
    rows = Rows(columns=("name", "create_sql"), rows=(("s", "CREATE SOURCE s"),))
    assert definition_of("-- s\nSHOW CREATE SOURCE s", rows) == "CREATE SOURCE s;"
    assert definition_of("SELECT name, create_sql FROM t", rows) is None
