"""Random odd texts: each is a statement or an error with a code, in bounded time and memory."""

from __future__ import annotations

import contextlib
import time
import tracemalloc

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from proof.mutate import Mutator, judge, texts
from rw_sql.errors import TOO_COMPLEX, UNTERMINATED, SqlError
from rw_sql.syntax import parse, split_script

SOURCES = texts()
QUICK = settings(max_examples=200, derandomize=True, suppress_health_check=list(HealthCheck))

WORDS = st.sampled_from(
    [
        "CREATE",
        "SOURCE",
        "TABLE",
        "SINK",
        "SECRET",
        "CONNECTION",
        "MATERIALIZED",
        "VIEW",
        "AS",
        "SELECT",
        "FROM",
        "WHERE",
        "WITH",
        "(",
        ")",
        ",",
        ";",
        "=",
        ".",
        "'x'",
        '"y"',
        "1",
        "-1",
        "ALTER",
        "DROP",
        "SET",
        "UNSAFE",
        "RESET",
        "INJECT",
        "OFFSETS",
        "SPLITS",
        "VALUES",
        "NULL",
        "IF",
        "NOT",
        "EXISTS",
        "FORMAT",
        "PLAIN",
        "ENCODE",
        "JSON",
        "INCLUDE",
        "key",
        "a",
        "b",
        "INT",
        "STRUCT",
        "<",
        ">",
        "[",
        "]",
        "MAP",
        "*",
        "+",
        "-",
        "/",
        "::",
        "->",
        "||",
        "AND",
        "OR",
        "IN",
        "CASE",
        "WHEN",
        "THEN",
        "END",
        "INTERVAL",
        "'1'",
        "SECOND",
        "OVER",
        "PARTITION",
        "BY",
        "JOIN",
        "ON",
        "USING",
        "UNION",
        "ALL",
        "--",
        "/*",
        "*/",
        "$$",
        "`",
        "E'",
    ]
)


@QUICK
@given(st.text(max_size=200))
def test_any_text(text: str) -> None:
    judge(text)


@QUICK
@given(st.lists(WORDS, max_size=40).map(" ".join))
def test_any_words(text: str) -> None:
    judge(text)


@QUICK
@given(st.lists(WORDS, max_size=30).map(" ".join), st.sampled_from(SOURCES), st.floats(0, 1))
def test_words_behind_a_beginning(words: str, source: str, share: float) -> None:
    judge(source[: int(len(source) * share)] + " " + words)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4))
def test_damaged_fixtures(seed: int) -> None:
    mutator = Mutator(1_000_000 + seed, SOURCES)
    for _ in range(250):
        judge(mutator.draw())


HEAD = "CREATE MATERIALIZED VIEW v AS SELECT "


@pytest.mark.long
@pytest.mark.parametrize("depth", [1_000, 20_000])
@pytest.mark.parametrize(
    ("opening", "closing"),
    [
        ("(", ")"),
        ("(SELECT ", ")"),
        ("CASE WHEN ", " THEN 1 END"),
        ("- ", ""),
        ("NOT ", ""),
        ("f(", ")"),
        ("ARRAY[", "]"),
        ("CAST(", " AS INT)"),
        ("1 IN (", ")"),
        ("a[", "]"),
    ],
)
def test_deep_nesting_is_refused(opening: str, closing: str, depth: int) -> None:
    with pytest.raises(SqlError) as caught:
        parse(HEAD + opening * depth + "1" + closing * depth)
    assert caught.value.kind in (TOO_COMPLEX,)


@pytest.mark.long
@pytest.mark.parametrize(
    "text",
    [
        "CREATE TABLE t (a " + "STRUCT<x " * 20_000 + "INT" + ">" * 20_000 + ")",
        "CREATE TABLE t (a INT" + "[]" * 50_000 + ")",
        "CREATE TABLE t (a " + "MAP(INT, " * 20_000 + "INT" + ")" * 20_000 + ")",
        "CREATE TABLE t AS SELECT * FROM " + "(" * 50_000,
        "EXPLAIN " * 50_000 + "FLUSH",
        "/*" * 100_000,
        "/*" * 50_000 + "*/" * 50_000,
        "((((" * 50_000,
    ],
    ids=["struct", "array", "map", "tables", "explain", "comments", "closed comments", "brackets"],
)
def test_deep_statements_are_bounded(text: str) -> None:
    started = time.thread_time()
    try:
        judge(text)
    except SqlError as error:
        pytest.fail(str(error))
    assert time.thread_time() - started < 10


@pytest.mark.parametrize("opening", ["'", '"', "`", "$$", "$a$", "E'", "/*", "E'\\", "'" * 99_999, '"' * 99_999])
def test_unbalanced_quotes(opening: str) -> None:
    text = "CREATE SOURCE s WITH (a = " + opening + "x" * 500_000
    started = time.thread_time()
    with pytest.raises(SqlError) as caught:
        parse(text)
    assert caught.value.kind is UNTERMINATED
    assert len(split_script(text)) == 1
    assert time.thread_time() - started < 5


@pytest.mark.long
@pytest.mark.parametrize(
    "text",
    [
        "CREATE SOURCE s (" + ", ".join(f"c{n} INT" for n in range(60_000)) + ") WITH (connector = 'datagen')",
        "CREATE SOURCE s WITH (connector = 'datagen', a = '" + "x" * 1_000_000 + "')",
        "CREATE SOURCE s WITH (connector = 'datagen', " + ", ".join(f"k{n} = 'v'" for n in range(50_000)) + ")",
        "INJECT SOURCE OFFSETS s VALUES (" + ", ".join(f"'o:{n}' = {n}" for n in range(50_000)) + ")",
        HEAD + " + ".join(["a"] * 200_000) + " FROM t",
        HEAD + ", ".join(f"a{n}" for n in range(100_000)) + " FROM t",
        HEAD + "1 UNION ALL SELECT " * 40_000 + "1",
        "DROP SOURCE s; " + " " * 1_000_000 + "DROP SOURCE t",
        "-- comment\n" * 90_000,
        "a." * 400_000,
    ],
    ids=["columns", "text", "options", "splits", "sum", "list", "union", "script", "comments", "dots"],
)
def test_a_megabyte_takes_seconds(text: str) -> None:
    started = time.thread_time()
    with contextlib.suppress(SqlError):
        parse(text)
    assert time.thread_time() - started < 30


@pytest.mark.long
def test_a_megabyte_takes_little_memory() -> None:
    text = "CREATE SOURCE s (" + ", ".join(f"c{n} INT" for n in range(60_000)) + ") WITH (connector = 'datagen')"
    tracemalloc.start()
    parse(text)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 400 * len(text)


def test_nul_bytes_are_refused_at_their_place() -> None:
    for text in ("\0", "CREATE\0SOURCE s", "CREATE SOURCE s\0 (v INT)", HEAD + "a\0 FROM t"):
        with pytest.raises(SqlError) as caught:
            parse(text)
        assert caught.value.column == text.index("\0") + 1


@pytest.mark.parametrize("plane", range(17))
def test_every_plane(plane: int) -> None:
    for point in (plane * 0x10000 + offset for offset in (0x20, 0xE0, 0x100, 0x4E00, 0xFFFD)):
        character = chr(point)
        judge(character)
        judge(f"CREATE SOURCE {character} WITH (connector = 'datagen')")
        judge(f"CREATE SOURCE \"{character}\" WITH (connector = '{character}')")
        judge(f"{HEAD}{character} FROM t")
