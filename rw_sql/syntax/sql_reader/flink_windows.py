"""The error for window functions as Flink SQL writes them: ``TABLE(TUMBLE(TABLE orders, DESCRIPTOR(at), …))``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rw_sql.syntax.lexing.tokens import STRING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rw_sql.syntax.lexing.tokens import Token

_WINDOWS = frozenset({"CUMULATE", "HOP", "SESSION", "TUMBLE"})


def table_call(tokens: Sequence[Token]) -> tuple[str, str] | None:
    """The message and the hint for ``TABLE(function(…))``, whose tokens after TABLE are ``tokens``; None for other
    tokens."""
    if len(tokens) < 3 or tokens[0].text != "(" or tokens[2].text != "(":
        return None
    function = tokens[1].upper
    if function not in _WINDOWS:
        name = tokens[1].text
        return f"TABLE({name}(…)) is not supported in FROM", f"omit TABLE( … ): FROM {name}(…)"
    relation, column, sizes = _arguments(tokens[3:])
    message = f"TABLE({function}(…)) is a form of Flink SQL"
    shown = ", ".join(f"'{size}'" for size in (reversed(sizes) if function == "HOP" else sizes))
    if function == "SESSION":
        return message, f"GROUP BY session_window({column}, {shown})"
    if function == "CUMULATE":
        return message, f"no window is cumulative; GROUP BY window({column}, '10 minutes') makes windows of equal size"
    steps = ", ".join(f"INTERVAL '{size}'" for size in sizes)
    return message, (
        f"GROUP BY window({column}, {shown}), or SET query_dialect = 'risingwave' and "
        f"FROM {function}({relation}, {column}, {steps})"
    )


def _arguments(tokens: Sequence[Token]) -> tuple[str, str, list[str]]:
    """The relation, the column and the intervals of a window function, with placeholders for what is not written."""
    named = [token.text for token in tokens[:2] if token.upper != "TABLE"]
    words = [token.upper for token in tokens]
    at = words.index("DESCRIPTOR") if "DESCRIPTOR" in words else None
    column = tokens[at + 2].text if at is not None and at + 2 < len(tokens) else "a_column"
    sizes = []
    for place, token in enumerate(tokens[:-2]):
        if token.upper == "INTERVAL" and tokens[place + 1].kind == STRING:
            sizes.append(f"{tokens[place + 1].value} {tokens[place + 2].text.lower()}")
    return named[0] if named else "a_relation", column, sizes or ["10 minutes"]
