"""Converts Spark's errors about a statement to rw_sql's form: a code, one sentence, the position of the wrong word, and
a hint.

Spark's error consists of a condition with parameters, a message, and usually a position. For common conditions, this
module has its own sentences. For other conditions, the result contains the first sentence of Spark's message.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import chain

from sqlglot import exp
from sqlglot.errors import SqlglotError

from rw_sql.errors import (
    INVALID_QUERY,
    SPARK_ERROR,
    SYNTAX_ERROR,
    UNDEFINED_COLUMN,
    UNDEFINED_OBJECT,
    UNSUPPORTED_TYPE,
    Span,
    SqlError,
    near_names,
)
from rw_sql.syntax.dialect.equivalents import missing_function_hint
from rw_sql.syntax.dialect.spark_messages import (
    called_function,
    condensed,
    expression_of,
    listed_names,
    name_parts,
    visible_names,
)
from rw_sql.syntax.lexing.identifiers import spark_name, sql_name
from rw_sql.syntax.lexing.spark_words import CLAUSES, clause_expected, near_clause
from rw_sql.syntax.lexing.tokens import span_of
from rw_sql.syntax.near_statements import near_statement
from rw_sql.syntax.parsing.script import unclosed_block, unclosed_bracket, unclosed_quote, without_strings
from rw_sql.syntax.query import query_hints
from rw_sql.syntax.query.clauses import relations_before, result_clause
from rw_sql.syntax.query.tables_read import parse_spark
from rw_sql.syntax.sql_reader.words import WITHOUT_COMMA, missing_by, trailing_comma


def _none() -> tuple[str, ...]:
    return ()


def _unknown(name: str) -> bool:
    return True


def _no_columns(relation: str) -> tuple[str, ...]:
    return ()


def _no_others() -> Mapping[str, str]:
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkFault:
    """A Spark error. ``span`` is the position that Spark reports; None if Spark reports no position in the statement's
    text."""

    condition: str
    message: str
    parameters: Mapping[str, str] = field(default_factory=dict)
    span: Span | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownNames:
    """The names that exist, for suggestions. Most fields are functions, which look up the names only when they are
    needed.

    ``others`` returns the objects that are not relations, each with its kind. ``columns`` receives a relation's name as
    written in the statement, and returns the relation's columns; empty if they are unknown. ``is_database`` returns
    True if a database or catalog has the given name, or if it cannot be determined whether one exists.
    """

    relations: Callable[[], Iterable[str]] = _none
    functions: Callable[[], Iterable[str]] = _none
    others: Callable[[], Mapping[str, str]] = _no_others
    columns: Callable[[str], Iterable[str]] = _no_columns
    is_database: Callable[[str], bool] = _unknown
    parameters: Iterable[str] = ()


def spark_error(fault: SparkFault, text: str, known: KnownNames) -> SqlError:
    """Converts a fault to an error that points into ``text``."""
    condition = fault.condition.partition(".")[0]
    say = _SAYERS.get(condition, _as_spark_says)
    return say(fault, text, known).located(text)


# Names


def _column(fault: SparkFault, text: str, known: KnownNames) -> SqlError:
    parts = name_parts(fault.parameters.get("objectName") or fault.parameters.get("fieldName", ""))
    span = _place(text, fault, parts)
    others = visible_names(name_parts(name)[-1] for name in listed_names(fault.parameters.get("proposal", "")))
    what = "field" if fault.condition.startswith("UNRESOLVED_FIELD") else "column"
    name = parts[-1] if parts else ""
    path = (*name_parts(fault.parameters.get("columnPath", "")), *parts[:-1])
    owner = f" in {path[-1]}" if path else ""
    near = near_names(name, others, most=1) or near_names(name.lower(), others, most=1)
    read = relations_before(text, span.start) if span is not None and what == "column" and len(parts) == 1 else None
    if not near and read is not None:
        # In a clause such as ORDER BY, Spark accepts the columns of FROM, but proposes only the columns of the SELECT
        # list.
        columns = [visible_names(known.columns(relation)) if relation else [] for relation in read]
        selected, others = others, list(dict.fromkeys([*others, *chain.from_iterable(columns)])) if all(columns) else []
        near = near_names(name.lower(), others, most=1)
        such = f", such as {selected[0]}," if selected else ""
        unlisted = f"write a column of the SELECT list{such} or of a relation in FROM"
    alone = result_clause(text, span.start) if span is not None and what == "column" and len(parts) == 1 else None
    if not near and not others and read is not None:
        hint = unlisted
    elif not near and others and alone is not None:
        hint = f"after {alone[0]}, {alone[1]} takes only columns of the SELECT list: {', '.join(others)}"
    elif near:
        hint = f'did you mean "{near[0]}"?'
    elif others:
        hint = _those_there(what, others)
    elif len(parts) > 1:
        hint = f'"{parts[0]}" must be a relation in FROM, or a column with fields'
    else:
        hint = query_hints.without_from(name)
    return SqlError(UNDEFINED_COLUMN, f'{what} "{name}" does not exist{owner}', hint=hint, span=span)


def _relation(fault: SparkFault, text: str, known: KnownNames) -> SqlError:
    parts = name_parts(fault.parameters.get("relationName") or fault.parameters.get("name", ""))
    span = _place(text, fault, parts)
    while len(parts) > 1 and _find(text, parts[:1]) is None:
        parts = parts[1:]  # drops the words that Spark writes before a name
    name = parts[-1] if parts else ""
    near = near_names(name.lower(), {*known.relations()}, most=1)
    kind = known.others().get(name.lower()) if len(parts) == 1 else None
    if kind is not None:
        is_dropped = text.lstrip()[:4].upper() == "DROP"
        word = sql_name(name)
        shown = f"DROP {kind.upper()} {word}" if is_dropped else query_hints.unreadable(kind, word)
        message = f'"{name}" is a {kind}, {"not a table or view" if is_dropped else "which a query cannot read"}'
        return SqlError(UNDEFINED_OBJECT, message, hint=shown, span=span)
    is_elsewhere = near[:1] == [name.lower()]
    if len(parts) == 2 and (is_elsewhere or not known.is_database(parts[0])):
        fault_of = f'has no relation "{name}"' if known.is_database(parts[0]) else "does not exist"
        message = f'database "{parts[0]}" {fault_of}'
        hint = f"write {spark_name(near[0])} alone" if is_elsewhere else "SHOW DATABASES lists all databases"
        return SqlError(UNDEFINED_OBJECT, message, hint=hint, span=_find(text, parts[:-1]) or span)
    if is_elsewhere and len(parts) > 1:
        hint = f"write {spark_name(near[0])} alone"
        span = _find(text, parts[:-1]) or span
    else:
        word = spark_name(near[0]) if near else ""
        meant = word if "`" in word else f'"{word}"'  # quoted as in a statement, if necessary
        hint = f"did you mean {meant}?" if near else query_hints.no_such_relation(text, name)
    return SqlError(UNDEFINED_OBJECT, f'relation "{".".join(parts)}" does not exist', hint=hint, span=span)


def _those_there(what: str, names: list[str]) -> str:
    if len(names) == 1:
        return f"the only {what} is {names[0]}"
    return f"the {what}s are {', '.join(names)}{' …' if len(names) >= _MOST_PROPOSED else ''}"


def _star(fault: SparkFault, text: str, known: KnownNames) -> SqlError:
    parts = name_parts(fault.parameters.get("targetString", ""))
    columns = visible_names([name_parts(name)[-1] for name in listed_names(fault.parameters.get("columns", ""))])
    return SqlError(
        UNDEFINED_COLUMN,
        f'"{parts[-1] if parts else "*"}" is neither a relation in FROM nor a column',
        hint=f"write * alone; {_those_there('column', columns)}" if columns else "write * alone",
        span=_place(text, fault, parts),
    )


def _type(fault: SparkFault, text: str, known: KnownNames) -> SqlError:
    name = fault.parameters.get("typeName", "").strip('"').lower()
    near = near_names(name, _TYPES, most=1)
    hint = f'did you mean "{near[0]}"?' if near else f"the types are {', '.join(sorted(_TYPES))}"
    return SqlError(UNSUPPORTED_TYPE, f'type "{name}" does not exist', hint=hint, span=_place(text, fault, (name,)))


def _arguments(fault: SparkFault, text: str, known: KnownNames) -> SqlError:
    parts = name_parts(fault.parameters.get("functionName", ""))
    name = parts[-1] if parts else ""
    expected, actual = fault.parameters.get("expectedNum", ""), fault.parameters.get("actualNum", "")
    span, surplus = _place(text, fault, parts), None
    if span is not None and expected.isdecimal():
        surplus = query_hints.surplus_arguments(text, span.start, int(expected))
    return SqlError(
        INVALID_QUERY,
        f'function "{name}" takes {expected} argument{"" if expected == "1" else "s"}, not {actual}',
        hint=query_hints.arguments(name, text[slice(*surplus)] if surplus else ""),
        span=span_of(text, *surplus) if surplus else span,
    )


def _unlike_queries(fault: SparkFault, text: str, known: KnownNames) -> SqlError:
    word = fault.parameters.get("operator", "UNION")
    first, other = fault.parameters.get("firstNumColumns", ""), fault.parameters.get("invalidNumColumns", "")
    return SqlError(
        INVALID_QUERY,
        f"the queries of {word} need the same number of columns, not {first} and {other}",
        hint=query_hints.unlike_queries(first, other),
        span=_place(text, fault, (word.split()[0],)),
    )


def _schema(fault: SparkFault, text: str, known: KnownNames) -> SqlError:
    parts = name_parts(fault.parameters.get("schemaName") or fault.parameters.get("catalogName", ""))
    what = "catalog" if fault.condition.startswith("CATALOG") else "database"
    hint = f"SHOW {what.upper()}S lists all {what}s"
    return SqlError(
        UNDEFINED_OBJECT,
        f'{what} "{parts[-1] if parts else ""}" does not exist',
        hint=hint,
        span=_place(text, fault, parts[-1:]),
    )


def _function(fault: SparkFault, text: str, known: KnownNames) -> SqlError:
    parts = name_parts(fault.parameters.get("routineName") or fault.parameters.get("name", ""))
    name = parts[-1] if parts else ""
    hint = missing_function_hint(name, {*known.functions()})
    return SqlError(
        UNDEFINED_OBJECT, f'function "{name}" does not exist', hint=hint, span=_place(text, fault, parts[-1:])
    )


def _ambiguous(fault: SparkFault, text: str, known: KnownNames) -> SqlError:
    parts = name_parts(fault.parameters.get("name", ""))
    name = parts[-1] if parts else ""
    owners = [name_parts(option) for option in listed_names(fault.parameters.get("referenceNames", ""))]
    written = list(dict.fromkeys(".".join(owner[-2:]) for owner in owners if len(owner) > 1))
    hint = f"write {' or '.join(written)}" if len(written) > 1 else query_hints.ambiguous(name)
    count = max(len(owners), 2)
    return SqlError(
        INVALID_QUERY,
        f'column "{name}" is ambiguous: {count} columns have that name',
        hint=hint,
        span=_place(text, fault, parts),
    )


# Aggregates


def _not_grouped(fault: SparkFault, text: str, known: KnownNames) -> SqlError:
    written = expression_of(fault.parameters.get("expression", ""))
    span = _place(text, fault, name_parts(written) if _IS_NAME.fullmatch(written) else ())
    if not written:
        span = _ungrouped(text) or span  # MISSING_GROUP_BY does not name a column
        if span is None or span.end - span.start > _WIDEST:
            hint = "GROUP BY the columns that are not aggregated"
            return SqlError(INVALID_QUERY, "the query aggregates some columns and not others", hint=hint, span=span)
    shown = text[span.start : span.end] if span is not None else written
    if len(shown) > _WIDEST:
        shown = written
    has_groups = re.search(r"\bGROUP\s+BY\b", without_strings(text), re.IGNORECASE) is not None
    add = f"add {shown} to GROUP BY" if has_groups else f"write GROUP BY {shown}"
    return SqlError(
        INVALID_QUERY,
        f'column "{shown}" is neither in GROUP BY nor aggregated',
        hint=f"{add}, or aggregate it: max({shown})",
        span=span,
    )


def _ungrouped(text: str) -> Span | None:
    """The first column outside aggregates in a SELECT list with aggregates, if the select has no GROUP BY; None if
    there is no such column."""
    try:
        tree = parse_spark(text)
    except (SqlglotError, RecursionError):
        return None
    for select in tree.find_all(exp.Select):
        if select.args.get("group") is not None or not select.find(exp.AggFunc):
            continue
        for column in (column for item in select.expressions for column in item.find_all(exp.Column)):
            if column.find_ancestor(exp.AggFunc, exp.Window) is None and isinstance(column.this, exp.Identifier):
                place = column.this.meta
                return span_of(text, int(place["start"]), int(place["end"]) + 1)
    return None


def _aggregate_in_where(fault: SparkFault, text: str, known: KnownNames) -> SqlError:
    name = called_function(fault.parameters.get("expressionList", ""))
    where = _find(text, ("WHERE",))
    span = _find(text, (name,), where.end if where is not None else 0)
    return SqlError(
        INVALID_QUERY,
        f'aggregate "{name}" cannot be used in WHERE',
        hint=query_hints.aggregate_in("WHERE", name, text, span.start if span is not None else -1),
        span=span or where or fault.span,
    )


def _aggregate_in_group(fault: SparkFault, text: str, known: KnownNames) -> SqlError:
    name = called_function(fault.parameters.get("sqlExpr", ""))
    hint = query_hints.aggregate_in("GROUP BY", name)
    return SqlError(INVALID_QUERY, f'aggregate "{name}" cannot be used in GROUP BY', hint=hint, span=fault.span)


def _nested_aggregate(fault: SparkFault, text: str, known: KnownNames) -> SqlError:
    inner = _CALL.match(text, fault.span.start) if fault.span is not None else None
    if inner is None:
        hint = query_hints.nested("an_aggregate")
        return SqlError(
            INVALID_QUERY, "an aggregate cannot be used inside another aggregate", hint=hint, span=fault.span
        )
    name, span = inner["name"].lower(), span_of(text, *inner.span("name"))
    hint = query_hints.nested(name)
    return SqlError(INVALID_QUERY, f'aggregate "{name}" cannot be used inside another aggregate', hint=hint, span=span)


# Grammar


def _syntax(fault: SparkFault, text: str, known: KnownNames) -> SqlError:
    slip = near_statement(text, known.parameters)
    if slip is not None:
        return slip
    unclosed = unclosed_quote(text) or unclosed_bracket(text) or unclosed_block(text)
    if unclosed is not None:
        return unclosed
    span = fault.span
    if span is None:
        return _as_spark_says(fault, text, known)
    before = list(_WORD.finditer(without_strings(text[: span.start])))
    word = text[span.start : span.end]
    # Spark often parses a mistyped clause as an alias and reports an error after this alias.
    near = _near_clause(before[-1][0], known) if before else None
    if near is not None:
        span = span_of(text, *before[-1].span())
        word = before[-1][0]
    else:
        near = _near_clause(word, known)
    if near is None and before and before[-1][0].upper() in ("GROUP", "ORDER", "PARTITION"):
        message, hint = missing_by(before[-1][0].upper())
        return SqlError(SYNTAX_ERROR, message, hint=hint, span=span_of(text, *before[-1].span()))
    if span.start >= len(text.rstrip().rstrip(";").rstrip()):
        last = before[-1][0] if before else ""
        what = next((what for what, words in _FOLLOWING.items() if last.upper() in words), "the missing part")
        behind = f" after {last}" if last else ""
        return SqlError(SYNTAX_ERROR, f"the statement ends too early{behind}", hint=f"write {what}{behind}", span=span)
    return SqlError(
        SYNTAX_ERROR,
        f"syntax error at or near {word}" if near is None else clause_expected(near, word),
        hint=f"did you mean {near}?" if near is not None else _syntax_hint(word, before),
        span=span,
    )


def _syntax_hint(word: str, before: list[re.Match[str]]) -> str:
    if word.startswith(('"', "'")):
        return "write a name in backquotes: `a name`"
    if word == ",":
        return "omit the comma, or write an item before it"
    if word.upper() in CLAUSES:
        shown = f"between {before[-1][0]} and {word.upper()}" if before else f"before {word.upper()}"
        return f"write the missing part {shown}; as a name, {word} needs backquotes: `{word}`"
    return f"omit {word}, or write the missing part before it"


def _trailing_comma(fault: SparkFault, text: str, known: KnownNames) -> SqlError:
    found = re.search(r"(?P<comma>,)\s*(?P<word>FROM)\b", without_strings(text), re.IGNORECASE)
    span = span_of(text, *found.span("comma")) if found is not None else fault.span
    return SqlError(SYNTAX_ERROR, trailing_comma("FROM"), hint=WITHOUT_COMMA, span=span)


def _unstorable_name(fault: SparkFault, text: str, known: KnownNames) -> SqlError:
    """The error for a column name that Delta Lake refuses. The name is taken from the text of Delta Lake's message,
    because no parameter of the error contains the name."""
    told = re.search(r"Invalid column names?: (?P<names>.+?)\.(?:\s|$)", fault.message)
    if told is None:
        return _as_spark_says(fault, text, known)
    name = told["names"].split(",")[0].strip()
    plain = re.sub(r"\W+", "_", name).strip("_")
    return SqlError(
        SPARK_ERROR,
        f'column "{name}": Delta Lake does not allow spaces, brackets, commas, semicolons or = in a column\'s name',
        hint=f"write {plain}",
        span=_find(text, (name,)) or fault.span,
    )


def _near_clause(word: str, known: KnownNames) -> str | None:
    near = near_clause(word)
    return near if near is not None and word.lower() not in {name.lower() for name in known.relations()} else None


# The others


def _as_spark_says(fault: SparkFault, text: str, known: KnownNames) -> SqlError:
    message, rest = condensed(fault.message, text)
    called = called_function(fault.parameters.get("sqlExpr", ""))
    if rest is None and fault.condition.startswith("DATATYPE_MISMATCH") and called.isidentifier():
        rest = query_hints.arguments(called)
    shown = f"{message} [{fault.condition}]" if fault.condition else message
    return SqlError(SPARK_ERROR, shown, hint=rest, span=fault.span)


_MOST_PROPOSED = 5
"""The maximum number of names that Spark suggests for an unknown name."""

_WIDEST = 40
_WORD = re.compile(r"[\w$]+|`[^`]*`|[^\s\w]")
_CALL = re.compile(r"(?P<name>\w+)\s*\(")
_IS_NAME = re.compile(r"(?:[\w$]+|`[^`]*`)(?:\.(?:[\w$]+|`[^`]*`))*")
_FOLLOWING = {
    "a condition": frozenset({"WHERE", "AND", "OR", "ON", "HAVING", "NOT", "WHEN"}),
    "an expression": frozenset({"SELECT", "BY", ",", "=", "<", ">", "+", "-", "*", "/", "THEN", "ELSE"}),
    "the name of a relation": frozenset({"FROM", "JOIN", "INTO", "TABLE"}),
}
"""Maps the description of a part of a statement to the words that this part must follow. A statement that ends right
after one of these words is incomplete."""

_TYPES = frozenset({
    "array", "bigint", "binary", "boolean", "byte", "char", "date", "decimal", "double", "float", "int", "integer",
    "interval", "long", "map", "numeric", "real", "short", "smallint", "string", "struct", "timestamp", "timestamp_ltz",
    "timestamp_ntz", "tinyint", "varchar", "variant",
})  # fmt: skip
_SAYERS: dict[str, Callable[[SparkFault, str, KnownNames], SqlError]] = {
    "UNRESOLVED_COLUMN": _column,
    "UNRESOLVED_FIELD": _column,
    "UNRESOLVED_MAP_KEY": _column,
    "FIELD_NOT_FOUND": _column,
    "TABLE_OR_VIEW_NOT_FOUND": _relation,
    "VIEW_NOT_FOUND": _relation,
    "DELTA_TABLE_NOT_FOUND": _relation,
    "SCHEMA_NOT_FOUND": _schema,
    "CATALOG_NOT_FOUND": _schema,
    "CANNOT_RESOLVE_STAR_EXPAND": _star,
    "UNSUPPORTED_DATATYPE": _type,
    "WRONG_NUM_ARGS": _arguments,
    "NUM_COLUMNS_MISMATCH": _unlike_queries,
    "UNRESOLVED_ROUTINE": _function,
    "UNRESOLVABLE_TABLE_VALUED_FUNCTION": _function,
    "AMBIGUOUS_REFERENCE": _ambiguous,
    "AMBIGUOUS_COLUMN_OR_FIELD": _ambiguous,
    "AMBIGUOUS_LATERAL_COLUMN_ALIAS": _ambiguous,
    "MISSING_AGGREGATION": _not_grouped,
    "MISSING_GROUP_BY": _not_grouped,
    "INVALID_WHERE_CONDITION": _aggregate_in_where,
    "GROUP_BY_AGGREGATE": _aggregate_in_group,
    "NESTED_AGGREGATE_FUNCTION": _nested_aggregate,
    "TRAILING_COMMA_IN_SELECT": _trailing_comma,
    "DELTA_INVALID_CHARACTERS_IN_COLUMN_NAMES": _unstorable_name,
    "PARSE_SYNTAX_ERROR": _syntax,
    "PARSE_EMPTY_STATEMENT": _syntax,
    "UNCLOSED_BRACKETED_COMMENT": _syntax,
}


def _place(text: str, fault: SparkFault, parts: tuple[str, ...]) -> Span | None:
    """The position of the last part of a name. The function first looks for the name at the position that Spark
    reports, then in the whole text. If the name is in neither, the result is the position that Spark reports."""
    if not parts:
        return fault.span
    start, end = (fault.span.start, fault.span.end) if fault.span is not None else (0, len(text))
    return _find(text, parts, start, end) or _find(text, parts) or fault.span


def _find(text: str, parts: tuple[str, ...], start: int = 0, end: int | None = None) -> Span | None:
    """The span of a name in ``text``, outside strings. The span of a dotted name is the span of the name's last
    part."""
    shown = without_strings(text)
    inner = [rf"`{re.escape(part.replace('`', '``'))}`|(?<![\w$]){re.escape(part)}(?![\w$])" for part in parts]
    last = rf"(?P<last>{inner[-1]})"
    for wanted in [rf"(?:{inner[-2]})\s*\.\s*{last}", last] if len(parts) > 1 else [last]:
        found = re.compile(wanted, re.IGNORECASE).search(shown, start, end if end is not None else len(shown))
        if found is not None:
            return span_of(text, *found.span("last"))
    return None
