"""Comments in every position of every statement of the grammar: each stays, and nothing else changes."""

from __future__ import annotations

from functools import cache
from time import perf_counter
from typing import TYPE_CHECKING

import pytest

from rw_sql.assets import list_assets, read_asset
from rw_sql.cli.formatting.command import format_script, format_text
from rw_sql.cli.formatting.comments import comments_of
from rw_sql.errors import SqlError
from rw_sql.syntax import parse_statement, split_script
from rw_sql.syntax.lexing.tokens import scan
from tests.conftest import FIXTURES

if TYPE_CHECKING:
    from rw_sql.syntax.statements import Statement

KINDS = (" /* c{} */ ", " -- c{}\n", "\n-- c{}\n", "\n/* c{}\n   it's long */ ", "\n-- c{}\n-- and more\n\n")


@cache
def examples() -> tuple[str, ...]:
    """The statements among the example lines of the grammar, and some with more tokens between which comments fit."""
    found = []
    for name in list_assets("grammar", ".lark"):
        for line in read_asset("grammar", name).splitlines():
            text = line.removeprefix("// example: ")
            if text != line and is_statement(text):
                found.append(text)
    assert len(found) > 60
    found += [
        "CREATE MATERIALIZED VIEW v AS WITH a AS (SELECT x, count(*) n FROM t WHERE y IN (1, 2) GROUP BY x) SELECT "
        "a.x, "
        "CASE WHEN a.n >= 2 AND b.z THEN 'p' ELSE 'q' END AS w, sum(a.n) OVER (PARTITION BY b.k ORDER BY b.t) FROM a "
        "LEFT JOIN (SELECT * FROM u UNION ALL SELECT * FROM v) AS b ON a.x = b.x WHERE a.n BETWEEN 1 AND 2 OR NOT b.z",
        "CREATE SOURCE s (a STRUCT<x VARCHAR, y INTEGER[]>, b DOUBLE PRECISION, c TIMESTAMPTZ AS now(), d NUMERIC(9,2))"
        " INCLUDE key AS k INCLUDE timestamp WITH (connector = 'kafka', topic = E'a\\tb') FORMAT PLAIN ENCODE JSON",
    ]
    return tuple(dict.fromkeys(found))


@cache
def fixtures() -> tuple[str, ...]:
    """The statements of the parser's fixtures."""
    scripts = [path.read_text(encoding="utf-8") for path in sorted((FIXTURES / "syntax").glob("*.sql"))]
    found = [part.text for script in scripts for part in split_script(script) if is_statement(part.text)]
    assert len(found) > 300
    return tuple(found)


def is_statement(text: str) -> bool:
    try:
        parse_statement(text)
    except SqlError:
        return False
    return True


def texts_of(text: str) -> list[str]:
    """The comments of a text, with blanks in the place of their line breaks."""
    return sorted(" ".join(comment.text.split()) for comment in comments_of(text, scan(text)))


def with_comments(text: str, gaps: list[int], kind: str) -> str:
    """The text with comments before these tokens."""
    tokens = scan(text)
    pieces, end = [], 0
    for at, token in enumerate(tokens):
        pieces.append(text[end : token.start] + (kind.format(at) if at in gaps else ""))
        pieces.append(token.text)
        end = token.end
    return "".join(pieces)


def requires_kept(text: str, expected: Statement) -> None:
    formatted = format_script(text)
    assert texts_of(formatted) == texts_of(text), f"{text}\n{formatted}"
    assert parse_statement(formatted) == expected, f"{text}\n{formatted}"
    assert format_script(formatted) == formatted, f"{text}\n{formatted}"


def usable_gaps(text: str) -> list[int]:
    """The positions between tokens where a comment does not change the meaning: not within an operator."""
    expected = parse_statement(text)
    found = []
    for at in range(1, len(scan(text)) - 1):
        commented = with_comments(text, [at], KINDS[0])
        if is_statement(commented) and parse_statement(commented) == expected:
            found.append(at)
    return found


@pytest.mark.parametrize("text", examples(), ids=lambda text: text[:40])
def test_a_comment_in_any_position(text: str) -> None:
    expected, gaps = parse_statement(text), usable_gaps(text)
    assert len(gaps) >= len(scan(text)) * 0.5 - 2
    for kind in KINDS:
        requires_kept(with_comments(text, gaps, kind), expected)
    for number, at in enumerate(gaps):
        requires_kept(with_comments(text, [at], KINDS[number % len(KINDS)]), expected)


@pytest.mark.long
@pytest.mark.parametrize("remainder", range(8))
def test_comments_in_all_positions_of_every_fixture(remainder: int) -> None:
    for number, text in enumerate(fixtures()[remainder::8]):
        requires_kept(with_comments(text, usable_gaps(text), KINDS[number % 5]), parse_statement(text))


def test_other_spellings_mean_the_same() -> None:
    for text in examples():
        squeezed = " ".join(text.lower().split()) if "'" not in text and '"' not in text else text
        for written in (text, squeezed, text.replace(" ", "\n\t ")):
            if is_statement(written) and parse_statement(written) == parse_statement(text):
                requires_kept(written, parse_statement(text))


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_line_ends_and_the_mark_stay(end: str) -> None:
    for script in sorted((FIXTURES / "syntax").glob("*.sql"))[::3]:
        text = "\ufeff" + script.read_text(encoding="utf-8").replace("\n", end)
        formatted = format_text(text)
        assert formatted.startswith("\ufeff")
        if end != "\n":
            assert formatted.count("\n") == (formatted.count("\r\n") if end == "\r\n" else 0)
        assert format_text(formatted) == formatted


def test_comments_of_many_columns_are_put_back_in_their_places() -> None:
    listed = ",\n".join(f"  c{at} VARCHAR /* column {at} */" for at in range(1_000))
    text = f"CREATE SOURCE s (\n{listed}\n)\nWITH (\n  connector = 'datagen'\n);\n"
    start = perf_counter()
    assert format_text(text, is_canonical=True) == text.replace("VARCHAR", "CHARACTER VARYING")
    assert perf_counter() - start < 20
