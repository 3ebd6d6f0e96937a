"""Messages contain statements to type: the names of objects in them are written as SQL writes them.

Without quotes, ``RESET SOURCE SPLITS Orders`` moves the source ``orders``, which is another one than ``"Orders"``.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "rw_sql"
FILES = sorted(PACKAGE.rglob("*.py"))

_BEFORE_A_NAME = re.compile(
    r"\b(SOURCES?|VIEW|TABLE|SINK|CONNECTION|SECRET|SPLITS|OFFSETS|RECORD|CONTINUITY|REWIND|REFRESH|WAIT|DESCRIBE) $"
)
_NAMES = ("name", "key")


def unquoted_names(tree: ast.AST) -> list[tuple[int, str]]:
    """The lines of f-strings with a statement, such as ``DROP SINK {sink.name}``, and the name in it."""
    found = []
    for text in ast.walk(tree):
        if not isinstance(text, ast.JoinedStr):
            continue
        for before, value in zip(text.values, text.values[1:], strict=False):
            if (
                isinstance(before, ast.Constant)
                and _BEFORE_A_NAME.search(str(before.value))
                and isinstance(value, ast.FormattedValue)
                and isinstance(value.value, ast.Attribute)
                and value.value.attr in _NAMES
            ):
                found.append((text.lineno, ast.unparse(value.value)))
    return found


def test_names_without_quotes_are_found() -> None:
    code = 'a = f"PAUSE SOURCE {source.name} first"\nb = f"DROP SINK {sql_name(sink.name)}"\nc = f"sink {sink.name}"'
    assert unquoted_names(ast.parse(code)) == [(1, "source.name")]


@pytest.mark.parametrize("file", FILES, ids=[str(file.relative_to(PACKAGE)) for file in FILES])
def test_statements_in_messages_can_be_typed(file: Path) -> None:
    assert unquoted_names(ast.parse(file.read_text(encoding="utf-8"))) == []
