"""Converts column types that use angle brackets, as in Flink SQL and Spark, to rw_sql's form: ``MAP<VARCHAR,
ARRAY<INT>>``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rw_sql.syntax.lexing.tokens import NUMBER, WORD
from rw_sql.syntax.lexing.written_names import name_at

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rw_sql.syntax.lexing.tokens import Token


def generic_type(tokens: Sequence[Token]) -> str | None:
    """Returns the type that begins with the first token, in rw_sql's form: ``MAP(VARCHAR, INT[])``.

    Returns None if the type contains anything but names, names with numbers in round brackets, ARRAY, MAP, STRUCT, ROW
    and ``[]``.
    """
    found = _read(tokens, 0, 0)
    return None if found is None else found[0]


_DEEPEST = 10


def _read(tokens: Sequence[Token], at: int, depth: int) -> tuple[str, int] | None:
    """Returns the type at a position, and the position after the type. ``depth`` is the number of types that enclose
    this type."""
    if depth > _DEEPEST:
        return None
    texts = [token.text for token in tokens[at : at + 2]]
    if len(texts) == 2 and tokens[at].upper in ("ROW", "STRUCT") and texts[1] == "<":
        fields: list[str] = []
        at += 1
        while tokens[at].text in ("<", ","):
            name = name_at(tokens, at + 1, "")
            found = _read(tokens, at + 2, depth + 1)
            if not name or found is None or found[1] >= len(tokens):
                return None
            fields.append(f"{name} {found[0]}")
            at = found[1]
        if tokens[at].text != ">":
            return None
        text = f"STRUCT<{', '.join(fields)}>"
    elif len(texts) == 2 and tokens[at].upper in ("ARRAY", "MAP") and texts[1] in ("<", "("):
        inner: list[str] = []
        close = {"<": ">", "(": ")"}[texts[1]]
        at, word = at + 1, tokens[at].upper
        while tokens[at].text in ("<", "(", ","):
            found = _read(tokens, at + 1, depth + 1)
            if found is None or found[1] >= len(tokens):
                return None
            inner.append(found[0])
            at = found[1]
        if tokens[at].text != close or len(inner) != (2 if word == "MAP" else 1):
            return None
        text = f"MAP({', '.join(inner)})" if word == "MAP" else f"{inner[0]}[]"
    elif at < len(tokens) and tokens[at].kind == WORD and texts[1:] != ["<"]:
        text = tokens[at].text
        if texts[1:] == ["("]:
            end = next((place for place in range(at + 2, len(tokens)) if tokens[place].text == ")"), None)
            if end is None or any(token.kind != NUMBER and token.text != "," for token in tokens[at + 2 : end]):
                return None
            text += f"({', '.join(token.text for token in tokens[at + 2 : end] if token.kind == NUMBER)})"
            at = end
    else:
        return None
    at += 1
    while [token.text for token in tokens[at : at + 2]] == ["[", "]"]:
        text, at = f"{text}[]", at + 2
    return text, at
