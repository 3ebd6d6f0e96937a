"""Statements in the recorded hints can be typed: each has the syntax of rw_sql or is the beginning of a sentence."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from rw_sql.errors import SqlError
from rw_sql.syntax import parse_statement
from tests.conftest import FIXTURES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FILES = sorted(path for path in FIXTURES.rglob("*.txt") if "\nHINT: " in path.read_text(encoding="utf-8"))

_OPENING = re.compile(
    r"(?<![\w'(])(?:"
    r"CREATE (?:SOURCE|TABLE|SINK|CONNECTION|SECRET|MATERIALIZED VIEW)|"
    r"ALTER (?:SOURCE|TABLE|SINK|CONNECTION|SECRET|MATERIALIZED VIEW)|"
    r"DROP (?:SOURCE|TABLE|SINK|CONNECTION|SECRET|MATERIALIZED VIEW)|"
    r"(?:PAUSE|RESUME) (?:SOURCE|SINK)|INJECT SOURCE OFFSETS|RESET SOURCE SPLITS|REWIND SOURCE|SKIP RECORD|"
    r"REBUILD MATERIALIZED VIEW|WAIT|SHOW CREATE|CANCEL JOBS"
    r")\b"
)
_FOLLOWS = re.compile(r"\s*(?:$|[;,.:?)…]|(?:and|or|then)\b|[a-z][\w']*(?!\w|\s*[=(.]))")
_PLACEHOLDERS = (
    (r"\(…, ", "(a INT, "),
    (r", …\)", ")"),
    (r"= …(?=[,)])", "= 1"),
    (r"KEY \(…\)", "KEY (a)"),
    (r"(?<=(?:SOURCE|.TABLE) )([\w.]+) \(…\)", r"\1 (a INT)"),
    (r"(?<!\w)WITH \(…\)", "WITH (connector = 'kafka')"),
    (r"\(…\)", "(a = 'b')"),
    ("'…'", "'a'"),
)


def statements(hint: str) -> Iterator[str]:
    """The text of the hint from each statement in it to a semicolon, without placeholders in brackets."""
    for opening in _OPENING.finditer(hint):
        text = hint[opening.start() :].partition(";")[0]
        for placeholder, value in _PLACEHOLDERS:
            text = re.sub(placeholder, value, text)
        yield text


def is_typed(text: str) -> bool:
    """True if a sentence may continue, or end, where the parser stops to read the text."""
    ends = [match.end() for match in re.finditer(r"'[^']*'|\"[^\"]*\"|[\w$-]+|\S", text)]
    end = next((end for end in reversed(ends) if _is_read(text[:end])), 0)
    read = re.sub(r"'[^']*'", "", text[:end])
    is_whole = read.count("(") == read.count(")") and read.count("[") == read.count("]")
    return is_whole and _FOLLOWS.match(text, end) is not None


def _is_read(text: str) -> bool:
    """True if the parser reads the text to its end: as a statement, or as the beginning of one."""
    try:
        parse_statement(text)
    except SqlError as error:
        return error.span is None or error.span.start >= len(text)
    return True


@pytest.mark.parametrize(
    ("hint", "is_good"),
    [
        ("write CREATE TABLE o (id INT PRIMARY KEY, …) WITH (…) FORMAT DEBEZIUM ENCODE JSON", True),
        ("write CREATE TABLE WITH (id INT PRIMARY KEY) WITH (…) FORMAT DEBEZIUM ENCODE JSON", False),
        ("write WAIT MATERIALIZED VIEW totals, WAIT TABLE totals or WAIT SINK totals", True),
        ("INJECT SOURCE OFFSETS s VALUES ('s:0' = 5)", True),
        ("INJECT SOURCE OFFSETS s VALUES ('s:0' = -)", False),
    ],
)
def test_a_broken_statement_in_a_hint_is_found(hint: str, is_good: bool) -> None:
    assert all(is_typed(text) for text in statements(hint)) is is_good


@pytest.mark.parametrize("path", FILES, ids=[str(path.relative_to(FIXTURES)) for path in FILES])
def test_statements_in_recorded_hints_parse(path: Path) -> None:
    hints = re.findall(r"^HINT: (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    assert [text for hint in hints for text in statements(hint) if not is_typed(text)] == []
