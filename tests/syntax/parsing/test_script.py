"""Splitting a script into its statements."""

from __future__ import annotations

import pytest

from rw_sql.errors import UNTERMINATED, SqlError
from rw_sql.syntax import parse_statement, split_script

DROP = "DROP SOURCE s;\n"
GLOB = "/* the files are in /data/in/*.csv */\n"


def pieces(text: str) -> list[str]:
    return [part.text for part in split_script(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/* a */ DROP SOURCE s /* b */; /* c /* d */ e */ -- f\n", ["DROP SOURCE s"]),
        ("/**/;/* a; b */\n", []),
        (DROP + "/* a\n" + DROP, ["DROP SOURCE s", "/* a\n" + DROP]),
        (DROP + GLOB + DROP, ["DROP SOURCE s", GLOB + DROP]),
        ("/* a */ /* b; c", ["/* b; c"]),
        ("SELECT 1 /* a */; SELECT 2 " + GLOB + DROP, ["SELECT 1", "SELECT 2 " + GLOB + DROP]),
        ("DROP SOURCE s " + GLOB + "; SELECT 2", ["DROP SOURCE s " + GLOB + "; SELECT 2"]),
    ],
)
def test_a_comment_that_does_not_end_is_no_space_between_statements(text: str, expected: list[str]) -> None:
    assert pieces(text) == expected


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        (DROP + "\n  /* a\n" + DROP, (3, 3), "a comment starts here and does not end"),
        (DROP + GLOB + DROP, (2, 29), "this /* opens a second comment, so the comment around it does not end"),
        (DROP + "/* a\n/* b */\n" + DROP, (2, 1), "a comment starts here and does not end"),
        ("\ufeff/* a\n" + DROP, (1, 1), "a comment starts here and does not end"),
        ("\ufeff" + GLOB + DROP, (1, 29), "this /* opens a second comment, so the comment around it does not end"),
    ],
)
def test_the_error_names_the_comment(text: str, place: tuple[int, int], message: str) -> None:
    part = split_script(text)[-1]
    with pytest.raises(SqlError) as caught:
        parse_statement(part.text)
    error = part.locate(caught.value, text)
    assert (error.kind, error.message) == (UNTERMINATED, message)
    assert (error.line, error.column) == place
    assert error.span is not None
    assert text[error.span.start : error.span.end] == "/*"
