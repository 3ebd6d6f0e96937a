"""Markers of arguments in Spark statements: what replaces them so that a parser without the arguments can read them."""

from __future__ import annotations

import pytest

from rw_sql.syntax.dialect.markers import with_values, without_fields


@pytest.mark.parametrize(
    ("text", "args", "wanted"),
    [
        ("SELECT * FROM s WHERE x >= :p", {"p": 3}, "SELECT * FROM s WHERE x >= NULL"),
        ("SELECT :p, :P, :p", {"p": None}, "SELECT NULL, :P, NULL"),
        ("SELECT * FROM IDENTIFIER(:t)", {"t": "it's"}, "SELECT * FROM IDENTIFIER('it\\'s')"),
        ("SELECT x::INT, ':p', `:p`, v:p -- :p\n, :p", {"p": 1}, "SELECT x::INT, ':p', `:p`, v:p -- :p\n, NULL"),
        ("SELECT ?, '?', ? /* ? */", [1, "a"], "SELECT NULL, '?', 'a' /* ? */"),
        ("SELECT ?::INT, ?", [1], "SELECT NULL::INT, NULL"),
        ("SELECT ?, :p", None, "SELECT ?, :p"),
        ("SELECT a[:i], (:i)", {"i": 1}, "SELECT a[NULL], (NULL)"),
        ("SELECT {df.A} FROM {df} WHERE '{x}' = :p", {"p": 1}, "SELECT ______ FROM ____ WHERE '{x}' = NULL"),
    ],
)
def test_markers_become_literals(text: str, args: dict[str, object] | list[object] | None, wanted: str) -> None:
    assert with_values(text, args) == wanted


def test_fields_keep_their_length() -> None:
    text = "SELECT {c} FROM {df} JOIN raw.`my {view}` ON \"{a}\" = 'b{c}'"
    assert without_fields(text) == "SELECT ___ FROM ____ JOIN raw.`my {view}` ON \"{a}\" = 'b{c}'"
