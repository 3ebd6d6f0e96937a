"""Builds an assumed result of Spark's analysis of a query. The result contains a schema with the known columns, and the
columns that identify rows."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rw_sql.plan.ports.queries import STREAM, QueryAnalysis
from rw_sql.plan.queries.analysis.functions import GENERATOR, builtins
from rw_sql.syntax.query.maintained_form import ROW, read_outermost, read_view_query
from rw_sql.syntax.query.tables_read import aliases_of, output_names, plain_tree
from rw_sql.syntax.query.trees import DISTINCT, GROUPS, ONE_ROW, OTHER, ROWS, SESSIONS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sqlglot import exp

    from rw_sql.plan.ports.queries import AnalyzedQuery
    from rw_sql.syntax.query.maintained_form import ViewQuery

UNKNOWN_TYPE = "VOID"
"""The type that stands for an unknown column type. No stored column has this type."""

_HIDDEN = "_rw_"
_WORDS = {
    "BIGINT": "long",
    "INT": "integer",
    "SMALLINT": "short",
    "TINYINT": "byte",
}
_MAKES_ROWS = re.compile(r"\b(?:explode|posexplode|inline|stack|lateral|unnest|json_tuple)", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryColumns:
    """The known columns of a query.

    ``columns`` are pairs (name, Spark type). The type is None if only the name of the column is known. If not even the
    names are known, ``columns`` is None. ``given`` are the column names that the statement lists.
    """

    columns: tuple[tuple[str, str | None], ...] | None = None
    given: tuple[str, ...] = ()


def answer_query(request: AnalyzedQuery, known: QueryColumns | None) -> QueryAnalysis:
    """Returns an assumed analysis with which every check passes. If no columns are known, its schema is empty."""
    query = read_view_query(request.query)
    return QueryAnalysis(
        schema=schema_json(_columns(request, known or QueryColumns())),
        keys=_keys(request, query) if request.form == STREAM and not request.closes_windows else (),
        operators=_operators(request, query),
    )


def written_names(query: str) -> tuple[str, ...]:
    """Returns the names of a query's columns as spelled in the query. In the result, ``*`` stands for columns whose
    number or names are unknown."""
    from sqlglot.errors import SqlglotError

    try:
        names = output_names(query) or ("*",)
        return names if "" not in names else _with_texts(query, names)
    except (SqlglotError, RecursionError):
        return ("*",)


def _with_texts(query: str, names: tuple[str, ...]) -> tuple[str, ...]:
    """Completes ``names``, the names of a query's columns. An empty name is replaced with the text of the column's
    expression, or with ``*`` if the expression is a function that may return several columns."""
    from sqlglot import exp

    tree = plain_tree(query)
    items = tree.selects if isinstance(tree, exp.Query) else []
    texts = [text for item in items for text in aliases_of(item) or (_text_of(item),)]
    return tuple(name or text for name, text in zip(names, texts, strict=False)) if len(texts) == len(names) else ("*",)


def _text_of(item: exp.Expr) -> str:
    text = item.unnest().sql(dialect="spark", normalize_functions=False)
    function = builtins().get(text.partition("(")[0].lower())
    return "*" if function is not None and function.kind == GENERATOR else text


def schema_json(columns: Iterable[tuple[str, str | None]]) -> str:
    """Returns the columns as a Spark schema in JSON."""
    return json.dumps({"type": "struct", "fields": [_field(name, kind or UNKNOWN_TYPE) for name, kind in columns]})


def _columns(request: AnalyzedQuery, known: QueryColumns) -> tuple[tuple[str, str | None], ...]:
    names = written_names(request.query)
    types = dict(known.columns or ())
    if "*" in names:
        hidden = tuple((name, None) for name in names if name.startswith(_HIDDEN))
        if known.columns is not None:
            return (*known.columns, *(column for column in hidden if column[0] not in types))
        is_whole = names == ("*",) and len(request.relations) == 1 and _MAKES_ROWS.search(request.query) is None
        if is_whole and request.relations[0].columns:
            return request.relations[0].columns
        if known.given:
            return (*((f"c{at}", None) for at, _ in enumerate(known.given)), *hidden)
        return hidden
    if known.columns is not None and known.given and names == known.given:
        return tuple((name, kind) for name, (_, kind) in zip(names, known.columns, strict=False))
    if known.columns is not None and len(names) == len(known.columns):
        return tuple((name or names[at], kind) for at, (name, kind) in enumerate(known.columns))
    return tuple((name, types.get(name)) for name in names)


def _keys(request: AnalyzedQuery, query: ViewQuery) -> tuple[str, ...]:
    """Returns the key columns of a query's result; empty if rows are only appended. A row replaces an earlier row with
    equal values in these columns. The key columns include hidden columns for grouping expressions that the query does
    not select."""
    if query.kind == OTHER:
        query = read_outermost(request.query)
    if query.why == SESSIONS or (query.kind in (GROUPS, ONE_ROW) and _makes_rows(query)):
        return (ROW,)
    if query.kind == DISTINCT:
        return written_names(request.query)
    if query.kind not in (GROUPS, ONE_ROW):
        return ()
    relations = {relation.name: [name for name, _ in relation.columns] for relation in request.relations}
    form = query.upserted({}, relations) or query.exposed(relations)
    return form.keys if form is not None and form.keys else (ROW,)


def _operators(request: AnalyzedQuery, query: ViewQuery) -> frozenset[str]:
    if query.kind in (GROUPS, ONE_ROW):
        return frozenset({"Aggregate", "Generate"} if _makes_rows(query) else {"Aggregate"})
    return frozenset({"Project"} if _is_picking(request, query) else {"Project", "Generate"})


def _makes_rows(query: ViewQuery) -> bool:
    """True if a query calls a function that may return several rows for one group."""
    functions = (builtins().get(name) for name in query.calls)
    return any(function is not None and function.kind == GENERATOR for function in functions)


def _is_picking(request: AnalyzedQuery, query: ViewQuery) -> bool:
    return query.kind == ROWS and query.is_direct and _MAKES_ROWS.search(request.query) is None


def _field(name: str, kind: str) -> dict[str, object]:
    return {"name": name, "type": json_type(kind), "nullable": True, "metadata": {}}


def json_type(ddl: str) -> object:
    """Converts a type from Spark's DDL to Spark's JSON form.

    The result is a dictionary for an ARRAY, MAP or STRUCT, and a single lower-case string for every other type.
    """
    text = ddl.strip()
    head, bracket, rest = text.partition("<")
    inner = rest.rstrip()[:-1] if bracket else ""
    match head.strip().upper():
        case "ARRAY" if bracket:
            return {"type": "array", "elementType": json_type(inner), "containsNull": True}
        case "MAP" if bracket and len(parts := _split(inner)) == 2:
            return {
                "type": "map",
                "keyType": json_type(parts[0]),
                "valueType": json_type(parts[1]),
                "valueContainsNull": True,
            }
        case "STRUCT" if bracket:
            pairs = (re.match(r"\s*(`(?:[^`]|``)*`|[^\s:]+)\s*:?\s*(.*)", part, re.DOTALL) for part in _split(inner))
            fields = [_field(pair[1].strip("`").replace("``", "`"), pair[2]) for pair in pairs if pair is not None]
            return {"type": "struct", "fields": fields}
        case word:
            return _WORDS.get(word, re.sub(r"\s+", "", text.lower()) if "(" in text else text.lower())


def _split(text: str) -> list[str]:
    """Splits ``text`` at the commas outside brackets and backquotes."""
    parts, depth, begun, quoted = [], 0, 0, False
    for at, letter in enumerate(text):
        if letter == "`":
            quoted = not quoted
        elif not quoted and letter in "<(":
            depth += 1
        elif not quoted and letter in ">)":
            depth -= 1
        elif not quoted and letter == "," and depth == 0:
            parts.append(text[begun:at])
            begun = at + 1
    return [*parts, text[begun:]]
