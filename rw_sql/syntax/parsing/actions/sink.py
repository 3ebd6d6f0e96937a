"""Actions for the statements about sinks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rw_sql.errors import SYNTAX_ERROR, SqlError
from rw_sql.syntax.parsing.actions.parts import dropped, query
from rw_sql.syntax.statements.common import Name, Query
from rw_sql.syntax.statements.sink import CreateSink, DropSink, PauseSink, ReplaceSink, ResumeSink

if TYPE_CHECKING:
    from collections.abc import Callable

    from rw_sql.syntax.lexing.tokens import Token
    from rw_sql.syntax.statements.common import FormatEncode, Option

Into = tuple[Name, tuple[str, ...]]


def into(table: Name | None = None, columns: tuple[str, ...] = ()) -> Into | None:
    return (table, columns) if table is not None else None


def sink_query(text: Token) -> Query:
    return query(text)


def create_sink(
    or_replace: bool | None,
    if_not_exists: bool | None,
    name: Name,
    into: Into | None,
    sink_input: Name | Query,
    is_emit_on_window_close: bool | None,
    options: tuple[Option, ...],
    format_encode: FormatEncode | None,
) -> CreateSink:
    if into is None and not options:
        raise SqlError(SYNTAX_ERROR, "expected WITH", hint="a sink needs WITH (connector = ...), or INTO a table")
    return CreateSink(
        name=name,
        if_not_exists=bool(if_not_exists),
        or_replace=bool(or_replace),
        into=into[0] if into is not None else None,
        into_columns=into[1] if into is not None else (),
        relation=sink_input if isinstance(sink_input, Name) else None,
        query=sink_input if isinstance(sink_input, Query) else None,
        is_emit_on_window_close=bool(is_emit_on_window_close),
        options=options,
        format=format_encode,
    )


def replace_sink(
    name: Name,
    sink_input: Name | Query,
    is_emit_on_window_close: bool | None,
    options: tuple[Option, ...],
    format_encode: FormatEncode | None,
) -> ReplaceSink:
    if not options:
        raise SqlError(SYNTAX_ERROR, "expected WITH", hint="a sink needs WITH (connector = ...)")
    return ReplaceSink(
        name=name,
        relation=sink_input if isinstance(sink_input, Name) else None,
        query=sink_input if isinstance(sink_input, Query) else None,
        is_emit_on_window_close=bool(is_emit_on_window_close),
        options=options,
        format=format_encode,
    )


def drop_sink(if_exists: bool | None, name: Name, is_cascade: bool | None) -> DropSink:
    return DropSink(name=dropped(name), if_exists=bool(if_exists), is_cascade=bool(is_cascade))


def pause_sink(name: Name, reason: str | None) -> PauseSink:
    return PauseSink(name=name, reason=reason)


def resume_sink(name: Name, reason: str | None) -> ResumeSink:
    return ResumeSink(name=name, reason=reason)


SINK_RULES: dict[str, Callable[..., Any]] = {
    "into": into,
    "sink_query": sink_query,
    "create_sink": create_sink,
    "replace_sink": replace_sink,
    "drop_sink": drop_sink,
    "pause_sink": pause_sink,
    "resume_sink": resume_sink,
}
