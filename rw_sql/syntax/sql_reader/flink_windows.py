"""The error for window functions as Flink SQL writes them: ``TABLE(TUMBLE(TABLE orders, DESCRIPTOR(at), …))``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rw_sql.syntax.lexing.tokens import STRING, WORD
from rw_sql.syntax.lexing.written_names import name_at, whole_names

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
    merged = whole_names(tokens)
    words = [token.upper for token in merged]
    table = words.index("TABLE") + 1 if "TABLE" in words else 0
    described = words.index("DESCRIPTOR") + 2 if "DESCRIPTOR" in words else -1
    sizes = []
    for sign, size, unit in zip(merged, merged[1:], merged[2:], strict=False):
        if sign.upper == "INTERVAL" and size.kind == STRING and unit.kind == WORD:
            sizes.append(f"{size.value} {unit.text.lower()}")
    relation, column = name_at(merged, table, "a_relation"), name_at(merged, described, "a_column")
    return relation, column, sizes or ["10 minutes"]
