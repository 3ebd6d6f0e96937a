"""The error for window functions as Flink SQL writes them: ``TABLE(TUMBLE(TABLE orders, DESCRIPTOR(at), …))``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rw_sql.syntax.lexing.tokens import NUMBER, STRING, WORD
from rw_sql.syntax.lexing.written_names import name_at, spelled, whole_names

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rw_sql.syntax.lexing.tokens import Token

_IN_FROM = {
    "GENERATE_SERIES": "write range(first, last + 1)",
    "UNNEST": "write FROM t LATERAL VIEW explode(array) AS x",
}
"""Hints for functions that Spark does not have in FROM."""

_WINDOWS = frozenset({"CUMULATE", "HOP", "SESSION", "TUMBLE"})


def table_call(tokens: Sequence[Token]) -> tuple[str, str] | None:
    """The message and the hint for ``TABLE(function(…))``, whose tokens after TABLE are ``tokens``; None for other
    tokens."""
    if len(tokens) < 3 or tokens[0].text != "(" or tokens[2].text != "(":
        return None
    function = tokens[1].upper
    if function not in _WINDOWS:
        name = tokens[1].text
        message = f"TABLE({name}(…)) is not supported in FROM"
        if function == "GENERATE_SERIES" and (range_ := _range(tokens[3:])) is not None:
            return message, f"write {range_} instead of TABLE({name}(…))"
        return message, _IN_FROM.get(function, f"omit TABLE( … ): FROM {name}(…)")
    relation, column, sizes = _arguments(tokens[3:])
    message = f"TABLE({function}(…)) is a form of Flink SQL, which is not supported here"
    shown = ", ".join(f"'{size}'" for size in (reversed(sizes) if function == "HOP" else sizes))
    if function == "SESSION":
        keys = "".join(f"{key}, " for key in _partition(tokens[3:]))
        return message, f"GROUP BY {keys}session_window({column}, {shown}); over a source, add EMIT ON WINDOW CLOSE"
    if function == "CUMULATE":
        return (
            message,
            f"no window is cumulative; GROUP BY window({column}, '{sizes[:2][-1]}') makes windows of equal size",
        )
    steps = ", ".join(f"INTERVAL '{size}'" for size in sizes)
    return message, (
        f"GROUP BY window({column}, {shown}), or SET query_dialect = 'risingwave' and "
        f"FROM {function}({relation}, {column}, {steps})"
    )


def _range(tokens: Sequence[Token]) -> str | None:
    """``range`` of Spark with the arguments of ``generate_series``, which includes its last number, unlike ``range``.

    None if the arguments are not numbers in rising order. ``tokens`` follow the bracket.
    """
    arguments: list[list[Token]] = [[]]
    depth = 0
    for token in tokens:
        if not depth and token.text == ")":
            break
        if not depth and token.text == ",":
            arguments.append([])
            continue
        depth += (token.text == "(") - (token.text == ")")
        arguments[-1].append(token)
    else:
        return None
    step = arguments[2:]
    is_forward = not step or (len(step) == 1 and [token.kind for token in step[0]] == [NUMBER])
    if len(arguments) < 2 or not is_forward or any(token.kind == STRING for part in arguments for token in part):
        return None
    first, last, *more = [spelled(part) for part in arguments]
    return f"range({', '.join([first, f'{last} + 1', *more])})"


def _partition(tokens: Sequence[Token]) -> list[str]:
    """The columns of PARTITION BY, as written. ``tokens`` follow the bracket of the function."""
    merged = whole_names(tokens)
    words = [token.upper for token in merged]
    if "PARTITION" not in words:
        return []
    at, keys = words.index("PARTITION") + 2, list[str]()
    at += words[at : at + 1] == ["("]
    while key := name_at(merged, at, ""):
        if words[at] == "DESCRIPTOR" or words[at + 1 : at + 2] == ["="]:  # another argument
            break
        keys.append(key)
        if words[at + 1 : at + 2] != [","]:
            break
        at += 2
    return keys


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
