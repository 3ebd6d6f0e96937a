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
    "block",
    [
        "BEGIN DECLARE n INT DEFAULT 0; SELECT n; END",
        "begin end",
        "BEGIN SELECT 1; END outer",
        "BEGIN l1: BEGIN SELECT 1; END l1; SELECT CASE WHEN a THEN 1 ELSE 2 END; END",
        "BEGIN IF a = 1 THEN SELECT 1; ELSE IF a = 2 THEN SELECT 2; END IF; END",
        "BEGIN IF a = 1 THEN BEGIN SELECT 1; END; ELSEIF b THEN SELECT 2; ELSE BEGIN SELECT 3; END; END IF; END",
        "BEGIN CASE a WHEN 1 THEN SELECT 1; ELSE SELECT CASE WHEN b THEN 1 END; END CASE; END",
        "BEGIN WHILE a < 3 DO SET a = a + 1; END WHILE; REPEAT SELECT 1; UNTIL a END REPEAT; SELECT repeat(b, 2); END",
        "BEGIN l: LOOP BEGIN LEAVE l; END; END LOOP l; FOR r AS SELECT a FROM t DO SELECT r.a; END FOR; END",
        "BEGIN DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN SELECT 1; END; SELECT x.end, x.begin, 'END;' FROM x; END",
        "BEGIN DROP TABLE IF EXISTS t; SELECT if(a, 1, 2), substring(a FROM 1 FOR 2), window.end; END",
        "/* a */ BEGIN -- ; b\n /* END; */ SELECT 1; /* c */ END",
        "BEGIN SET x = 'it\\'s; END;'; SELECT 1; END",
        "BEGIN NOT ATOMIC SELECT 1; END",
        "begin not /* a */ atomic end",
        "BEGIN NOT ATOMIC l: BEGIN NOT ATOMIC l2: BEGIN SELECT 1; END l2; END l; SELECT 2; END",
        "BEGIN SELECT 1; BEGIN NOT ATOMIC END; SELECT x.begin NOT IN (1); END",
        "BEGIN SELECT 1; `l`: BEGIN SELECT 2; END `l`; SELECT 3; END",
        "BEGIN `l`: BEGIN SELECT 2; END `l`; END",
        "BEGIN `a ``;`: BEGIN SELECT 2; END `a ``;`; SELECT 1; 2nd: BEGIN SELECT 2; END 2nd; SELECT 3; END",
        "BEGIN WHILE a DO `l`: BEGIN SELECT 1; END; END WHILE; SELECT :`begin`; END",
        "BEGIN SELECT CASE WHEN a THEN begin ELSE b.case END; LOOP SELECT 1; END LOOP begin; END",
    ],
)
def test_a_block_of_spark_is_one_statement(block: str) -> None:
    found = split_script(f"SELECT 0; {block};\n{DROP}BEGIN UNSAFE; {DROP} COMMIT;")
    assert [part.text for part in found] == [
        "SELECT 0", block.removeprefix("/* a */ "), DROP.strip(";\n"), "BEGIN UNSAFE", DROP.strip(";\n"), "COMMIT",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "first",
    [
        *("BEGIN", "BEGIN TRANSACTION", "BEGIN WORK", "BEGIN UNSAFE REASON 'x'", "BEGIN UNSAFF", "SELECT begin"),
        *("BEGIN NOT", "BEGIN NOT UNSAFE", "BEGIN ATOMIC", "BEGIN `l`", "BEGIN `l` BEGIN"),
    ],
)
def test_no_other_begin_begins_a_block(first: str) -> None:
    assert pieces(f"{first}; SELECT 1; SELECT 2") == [first, "SELECT 1", "SELECT 2"]


def test_a_block_that_does_not_end_extends_to_the_end_of_the_script() -> None:
    assert pieces("SELECT 0; BEGIN SELECT 1; IF a THEN SELECT 2; END IF; SELECT 3;") == [
        "SELECT 0",
        "BEGIN SELECT 1; IF a THEN SELECT 2; END IF; SELECT 3;",
    ]


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
