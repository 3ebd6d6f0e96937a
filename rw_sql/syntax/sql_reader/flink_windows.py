"""Makes the error for window functions in the syntax of Flink SQL: ``TABLE(TUMBLE(TABLE orders, DESCRIPTOR(at),
…))``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from rw_sql.syntax.lexing.identifiers import literal, spark_word
from rw_sql.syntax.lexing.tokens import NUMBER, STRING, WORD
from rw_sql.syntax.lexing.written_names import name_at, spelled, whole_names

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rw_sql.syntax.lexing.tokens import Token

_LENGTHS = {
    "CUMULATE": ("STEP", "SIZE", "OFFSET"),
    "HOP": ("SLIDE", "SIZE", "OFFSET"),
    "SESSION": ("GAP",),
    "TUMBLE": ("SIZE", "OFFSET"),
}
"""Maps each window function to the names of its interval arguments, in the order of a call without argument names."""

_EXAMPLE = "10 minutes"
"""The interval that a hint shows in place of an interval that the statement lacks."""

_SIMPLE = re.compile(r"\d+ \w+")
_PART = r"(?:[+-]\s*)?\d+(?:\.\d+)?\s*[A-Za-z]+"
_WITH_UNITS = re.compile(rf"{_PART}(?:\s*{_PART})*")
"""Matches an interval's text that contains the units."""

_NUMBER = re.compile(r"([+-]\s*)?(\d+(?:\.\d+)?)")
_SIGNS = ("+", "-")
_UNITS = ("day", "hour", "minute", "second")


def table_call(tokens: Sequence[Token], before: Sequence[Token]) -> tuple[str, str] | None:
    """Returns the message and the hint if ``tokens``, the tokens after TABLE, are a ``(function(…))``; otherwise None.
    ``before`` are the query's tokens before TABLE."""
    if len(tokens) < 3 or tokens[0].text != "(" or tokens[2].text != "(":
        return None
    function = tokens[1].upper
    if function not in _LENGTHS:
        name = tokens[1].text
        message = f"TABLE({name}(…)) is not supported in FROM"
        if function == "GENERATE_SERIES":
            return message, _numbers(tokens, before)
        if function == "UNNEST":
            return message, _lateral(_in_spark(spelled(_inside(tokens[3:]))), tokens, before)
        return message, f"omit TABLE( … ): FROM {name}(…)"
    inner = _inside(tokens[3:])
    relation, column, given = _arguments(inner, function)
    message = f"TABLE({function}(…)) is a form of Flink SQL, which is not supported here"
    size, offset, time = given.get("SIZE", _EXAMPLE), given.get("OFFSET"), _in_spark(column)
    if function == "SESSION":
        keys = "".join(f"{_in_spark(key)}, " for key in _partition(inner))
        gap = given.get("GAP", _EXAMPLE)
        return message, f"GROUP BY {keys}session_window({time}, '{gap}'); over a source, add EMIT ON WINDOW CLOSE"
    shown = [size]
    if function == "HOP" or offset is not None:
        shown.append(given.get("SLIDE", _EXAMPLE) if function == "HOP" else size)
    if offset is not None:
        shown.append(offset)
    window = f"GROUP BY window({', '.join([time, *map(literal, shown)])})"
    if function == "CUMULATE":
        return message, f"rw_sql has no cumulative windows; {window} makes windows of equal size"
    if offset is not None or any(_SIMPLE.fullmatch(length) is None for length in shown):
        return message, window
    steps = ", ".join(f"INTERVAL '{length}'" for length in reversed(shown))
    return message, f"{window}, or SET query_dialect = 'risingwave' and FROM {function}({relation}, {column}, {steps})"


def _in_spark(name: str) -> str:
    """Converts a name in double quotes to a name in Spark's quotes."""
    return re.sub(r'"((?:[^"]|"")*)"', lambda found: spark_word(found[1].replace('""', '"')), name)


def _numbers(tokens: Sequence[Token], before: Sequence[Token]) -> str:
    """The hint for ``TABLE(generate_series(…))``. The hint proposes Spark's ``range``, whose column is called ``id``
    unless an alias renames it. The arguments of ``range`` cannot be columns."""
    name, inner = tokens[1].text, _inside(tokens[3:])
    range_ = _range(tokens[3:])
    if range_ is None and inner:
        return _lateral(_sequence(inner), tokens, before)
    range_ = range_ or "range(first, last + 1)"
    if _alias(tokens)[1]:
        return f"write {range_} instead of TABLE({name}(…))"
    return f"write {range_} AS numbers(n) instead of TABLE({name}(…)); n is its column"


def _lateral(array: str, tokens: Sequence[Token], before: Sequence[Token]) -> str:
    """The hint for ``TABLE(unnest(array))`` and for other functions whose rows are the elements of an array."""
    inner = _inside(tokens[3:])
    written = spelled(inner)
    if not written or any(token.kind == STRING for token in inner) or len(written) > _WIDEST or "\n" in array:
        array, written = _SEQUENCE if tokens[1].upper == "GENERATE_SERIES" else "an_array", "…"
    alias, column = _alias(tokens)
    view = f"LATERAL VIEW explode({array}) {alias or 'exploded'} AS {column or 'a_value'}"
    call = f"TABLE({tokens[1].text}({written})){f' AS {alias}({column})' if column else ''}"
    match [token.upper for token in before[-2:]]:
        case [_, ","]:
            return f"omit the comma, and write {view} instead of {call}"
        case ["CROSS", "JOIN"]:
            return f"write {view} instead of CROSS JOIN {call}"
        case [*_, "FROM"]:
            return f"write explode({array}) instead of TABLE({tokens[1].text}({written}))"
    return f"write FROM a_relation {view}"


def _alias(tokens: Sequence[Token]) -> tuple[str, str]:
    """The alias after ``(function(…))`` with its only column, as written. The result is empty if there is no alias, or
    if the alias names several columns."""
    behind = list(tokens[len(_inside(tokens[3:])) + 5 :])
    if behind and behind[0].upper == "AS":
        del behind[0]
    alias = name_at(behind, 0, "")
    is_listed = alias and [token.text for token in behind[1:4:2]] == ["(", ")"]
    return (alias, name_at(behind, 2, "")) if is_listed else ("", "")


_WIDEST = 40
_SEQUENCE = "CASE WHEN first <= last THEN sequence(first, last) END"


def _sequence(arguments: Sequence[Token]) -> str:
    """The array with the numbers of ``generate_series``. If the last number is less than the first number,
    ``generate_series`` returns no rows. Spark's ``sequence``, in contrast, counts downwards if no step is given, and
    fails if a step is given."""
    written = _parts(arguments)
    parts = [_in_spark(spelled(part)) for part in written]
    if len(parts) not in (2, 3):
        return _SEQUENCE
    first, last, *step = parts
    condition = f"{first} {'>=' if step and step[0].startswith('-') else '<='} {last}"
    if step and [token.kind for token in written[2] if token.text not in ("+", "-")] != [NUMBER]:
        condition = f"{step[0]} > 0 AND {first} <= {last} OR {step[0]} < 0 AND {first} >= {last}"
    return f"CASE WHEN {condition} THEN sequence({', '.join(parts)}) END"


def _range(tokens: Sequence[Token]) -> str | None:
    """Spark's ``range`` with the arguments of ``generate_series``. Unlike ``range``, ``generate_series`` includes its
    last number.

    Returns None if the arguments are not numbers in rising order. An argument may also be an expression that computes a
    number. ``tokens`` are the tokens after the bracket.
    """
    arguments = _parts(_inside(tokens))
    step = arguments[2:]
    is_forward = not step or (len(step) == 1 and [token.kind for token in step[0]] == [NUMBER])
    kinds = {token.kind for part in arguments for token in part}
    if len(arguments) < 2 or not is_forward or kinds & {STRING, WORD}:
        return None
    first, last, *more = [spelled(part) for part in arguments]
    end = str(int(last) + 1) if re.fullmatch(r"[0-9]{1,18}", last) else f"{last} + 1"
    return f"range({', '.join([first, end, *more])})"


def _parts(tokens: Sequence[Token]) -> list[list[Token]]:
    """The arguments of a function. ``tokens`` are the tokens inside the brackets of the function."""
    parts: list[list[Token]] = [[]]
    depth = 0
    for token in tokens:
        if not depth and token.text == ",":
            parts.append([])
            continue
        depth += (token.text == "(") - (token.text == ")")
        parts[-1].append(token)
    return parts


def _inside(tokens: Sequence[Token]) -> Sequence[Token]:
    """The tokens up to the bracket that closes the function. ``tokens`` are the tokens after the opening bracket."""
    depth = 0
    for at, token in enumerate(tokens):
        depth += (token.text == "(") - (token.text == ")")
        if depth < 0:
            return tokens[:at]
    return tokens


def _partition(tokens: Sequence[Token]) -> list[str]:
    """The columns of PARTITION BY, as written. ``tokens`` are the tokens inside the brackets of the function."""
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
    """The relation, the column and the intervals of a window function, by the names of their arguments. Placeholders
    stand for arguments that are missing. ``tokens`` are the tokens inside the brackets of the function."""
    merged = whole_names(tokens)
    words = [token.upper for token in merged]
    table = words.index("TABLE") + 1 if "TABLE" in words else 0
    described = words.index("DESCRIPTOR") + 2 if "DESCRIPTOR" in words else -1
    found: dict[str, str] = {}
    in_order = iter(_LENGTHS[function])
    for at, word in enumerate(words):
        if word != "INTERVAL":
            continue
        sign = words[at - 1] if at and words[at - 1] in _SIGNS else ""
        first = at - len(sign)
        is_named = first > 2 and words[first - 2 : first] == ["=", ">"]
        name, length = words[first - 3] if is_named else next(in_order, ""), _length(merged[at + 1 :])
        if length is not None:
            found[name] = _negated(length) if sign == "-" else length
    return name_at(merged, table, "a_relation"), name_at(merged, described, "a_column"), found


def _length(tokens: Sequence[Token]) -> str | None:
    """The interval after INTERVAL as Spark writes it: ``10 minutes`` for ``'10' MINUTES`` and for ``'10 minutes'``,
    ``1 hour 30 minute`` for ``'1:30' HOUR TO MINUTE``, ``-8 hour`` for ``-'8' HOUR``. None for other tokens."""
    sign = tokens[0].text if tokens and tokens[0].text in _SIGNS else ""
    length = _unsigned_length(tokens[len(sign) :])
    return _negated(length) if length is not None and sign == "-" else length


def _unsigned_length(tokens: Sequence[Token]) -> str | None:
    if not tokens or tokens[0].kind != STRING:
        return None
    text = tokens[0].value.strip()
    if len(tokens) < 2 or tokens[1].kind != WORD:
        return text if _WITH_UNITS.fullmatch(text) else None
    unit = tokens[1].text.lower()
    last = tokens[3].text.lower() if len(tokens) > 3 and tokens[2].upper == "TO" else unit
    if last == unit or unit not in _UNITS or last not in _UNITS:
        return f"{text} {unit}"
    units = _UNITS[_UNITS.index(unit) : _UNITS.index(last) + 1]
    length = " ".join(f"{int(part)} {of}" for part, of in zip(re.findall(r"\d+", text), units, strict=False))
    return _negated(length) if text.startswith("-") else length


def _negated(length: str) -> str:
    """A Spark interval with the opposite sign: ``-1 hour -30 minute`` for ``1 hour 30 minute``."""
    return _NUMBER.sub(lambda found: found[2] if (found[1] or "")[:1] == "-" else f"-{found[2]}", length)
