"""The error for window functions as Flink SQL writes them: ``TABLE(TUMBLE(TABLE orders, DESCRIPTOR(at), …))``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from rw_sql.syntax.lexing.identifiers import literal, spark_word
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

_LENGTHS = {
    "CUMULATE": ("STEP", "SIZE", "OFFSET"),
    "HOP": ("SLIDE", "SIZE", "OFFSET"),
    "SESSION": ("GAP",),
    "TUMBLE": ("SIZE", "OFFSET"),
}
"""The functions, each with its arguments that are intervals, in the order of a call without names."""

_EXAMPLE = "10 minutes"
"""Stands for an interval that is not written."""

_SIMPLE = re.compile(r"\d+ \w+")
_UNITS = ("day", "hour", "minute", "second")


def table_call(tokens: Sequence[Token]) -> tuple[str, str] | None:
    """The message and the hint for ``TABLE(function(…))``, whose tokens after TABLE are ``tokens``; None for other
    tokens."""
    if len(tokens) < 3 or tokens[0].text != "(" or tokens[2].text != "(":
        return None
    function = tokens[1].upper
    if function not in _LENGTHS:
        name = tokens[1].text
        message = f"TABLE({name}(…)) is not supported in FROM"
        if function == "GENERATE_SERIES" and (range_ := _range(tokens[3:])) is not None:
            return message, f"write {range_} instead of TABLE({name}(…))"
        return message, _IN_FROM.get(function, f"omit TABLE( … ): FROM {name}(…)")
    relation, column, given = _arguments(tokens[3:], function)
    message = f"TABLE({function}(…)) is a form of Flink SQL, which is not supported here"
    size, offset, time = given.get("SIZE", _EXAMPLE), given.get("OFFSET"), _in_spark(column)
    if function == "SESSION":
        keys = "".join(f"{_in_spark(key)}, " for key in _partition(tokens[3:]))
        gap = given.get("GAP", _EXAMPLE)
        return message, f"GROUP BY {keys}session_window({time}, '{gap}'); over a source, add EMIT ON WINDOW CLOSE"
    shown = [size]
    if function == "HOP" or offset is not None:
        shown.append(given.get("SLIDE", _EXAMPLE) if function == "HOP" else size)
    if offset is not None:
        shown.append(offset)
    window = f"GROUP BY window({', '.join([time, *map(literal, shown)])})"
    if function == "CUMULATE":
        return message, f"no window is cumulative; {window} makes windows of equal size"
    if offset is not None or any(_SIMPLE.fullmatch(length) is None for length in shown):
        return message, window
    steps = ", ".join(f"INTERVAL '{length}'" for length in reversed(shown))
    return message, f"{window}, or SET query_dialect = 'risingwave' and FROM {function}({relation}, {column}, {steps})"


def _in_spark(name: str) -> str:
    """A name in the quotes of Spark, from a name in double quotes."""
    return re.sub(r'"((?:[^"]|"")*)"', lambda found: spark_word(found[1].replace('""', '"')), name)


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


def _arguments(tokens: Sequence[Token], function: str) -> tuple[str, str, dict[str, str]]:
    """The relation, the column and the intervals of a window function, by the names of their arguments. Names that are
    not written are replaced with placeholders."""
    merged = whole_names(tokens)
    words = [token.upper for token in merged]
    table = words.index("TABLE") + 1 if "TABLE" in words else 0
    described = words.index("DESCRIPTOR") + 2 if "DESCRIPTOR" in words else -1
    found: dict[str, str] = {}
    in_order = iter(_LENGTHS[function])
    for at, word in enumerate(words):
        length = _length(merged[at + 1 :]) if word == "INTERVAL" else None
        if length is not None:
            is_named = at > 2 and words[at - 2 : at] == ["=", ">"]
            found[words[at - 3] if is_named else next(in_order, "")] = length
    return name_at(merged, table, "a_relation"), name_at(merged, described, "a_column"), found


def _length(tokens: Sequence[Token]) -> str | None:
    """The interval after INTERVAL as Spark writes it: ``10 minutes`` for ``'10' MINUTES``, ``1 hour 30 minute`` for
    ``'1:30' HOUR TO MINUTE``. None for other tokens."""
    if len(tokens) < 2 or tokens[0].kind != STRING or tokens[1].kind != WORD:
        return None
    unit, text = tokens[1].text.lower(), tokens[0].value
    last = tokens[3].text.lower() if len(tokens) > 3 and tokens[2].upper == "TO" else unit
    if last == unit or unit not in _UNITS or last not in _UNITS:
        return f"{text} {unit}"
    units = _UNITS[_UNITS.index(unit) : _UNITS.index(last) + 1]
    return " ".join(f"{int(part)} {of}" for part, of in zip(re.findall(r"\d+", text), units, strict=False))
