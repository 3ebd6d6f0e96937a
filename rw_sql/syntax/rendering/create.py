"""Renders CREATE, REPLACE and DROP statements as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rw_sql.syntax.lexing.identifiers import literal, quoted
from rw_sql.syntax.rendering.layout import Clauses
from rw_sql.syntax.rendering.parts import (
    add_format,
    column_list,
    given,
    include_text,
    name_text,
    options_text,
    value_text,
)

if TYPE_CHECKING:
    from rw_sql.syntax.statements import (
        CdcTable,
        CreateConnection,
        CreateMaterializedView,
        CreateSecret,
        CreateSink,
        CreateSource,
        CreateTable,
        Name,
        ReplaceSink,
    )


def create_source(s: CreateSource) -> str:
    head = f"CREATE{given(s.or_replace, 'OR REPLACE')}{given(s.is_temporary, 'TEMPORARY')} SOURCE"
    clauses = Clauses(f"{head}{given(s.if_not_exists, 'IF NOT EXISTS')} {name_text(s.name)}")
    clauses.listed("", column_list(s.columns, (), s.wildcard, s.constraints, s.watermarks))
    for include in s.include:
        clauses.add(include_text(include))
    clauses.listed("WITH", options_text(s.options))
    add_format(clauses, s.format)
    return _add_cdc_table(clauses, s.cdc_table).text()


def create_table(s: CreateTable) -> str:
    head = f"CREATE{given(s.or_replace, 'OR REPLACE')}{given(s.is_temporary, 'TEMPORARY')} TABLE"
    clauses = Clauses(f"{head}{given(s.if_not_exists, 'IF NOT EXISTS')} {name_text(s.name)}")
    clauses.listed("", column_list(s.columns, s.column_names, s.wildcard, s.constraints, s.watermarks))
    clauses.add("APPEND ONLY" if s.is_append_only else "")
    clauses.add(f"ON CONFLICT {s.on_conflict}" if s.on_conflict is not None else "")
    clauses.listed("WITH VERSION COLUMN", [quoted(column) for column in s.version_columns])
    for include in s.include:
        clauses.add(include_text(include))
    clauses.listed("WITH", options_text(s.options))
    add_format(clauses, s.format)
    if s.query is not None:
        clauses.add(f"AS {s.query.text}")
    _add_cdc_table(clauses, s.cdc_table)
    if s.webhook is not None:
        secret = f" SECRET {name_text(s.webhook.secret)}" if s.webhook.secret is not None else ""
        clauses.add(f"VALIDATE{secret} AS {s.webhook.signature.text}")
    return clauses.add(f"ENGINE = {s.engine}" if s.engine is not None else "").text()


def _add_cdc_table(clauses: Clauses, table: CdcTable | None) -> Clauses:
    return clauses.add(f"FROM {name_text(table.source)} TABLE {literal(table.table)}" if table is not None else "")


def create_connection(s: CreateConnection) -> str:
    head = f"CREATE{given(s.or_replace, 'OR REPLACE')} CONNECTION{given(s.if_not_exists, 'IF NOT EXISTS')}"
    clauses = Clauses(f"{head} {name_text(s.name)}")
    return clauses.listed("WITH", options_text(s.options)).text()


def create_secret(s: CreateSecret) -> str:
    clauses = Clauses(f"CREATE SECRET{given(s.if_not_exists, 'IF NOT EXISTS')} {name_text(s.name)}")
    clauses.listed("WITH", options_text(s.options))
    return clauses.add(f"AS {value_text(s.content)}" if s.content is not None else "").text()


def create_sink(s: CreateSink) -> str:
    head = f"CREATE{given(s.or_replace, 'OR REPLACE')} SINK{given(s.if_not_exists, 'IF NOT EXISTS')}"
    clauses = Clauses(f"{head} {name_text(s.name)}")
    if s.into is not None:
        listed = f" ({', '.join(quoted(column) for column in s.into_columns)})" if s.into_columns else ""
        clauses.add(f"INTO {name_text(s.into)}{listed}")
    return _sink(clauses, s)


def replace_sink(s: ReplaceSink) -> str:
    return _sink(Clauses(f"REPLACE SINK {name_text(s.name)}"), s)


def _sink(clauses: Clauses, s: CreateSink | ReplaceSink) -> str:
    clauses.add(f"FROM {name_text(s.relation)}" if s.relation is not None else "")
    clauses.add(f"AS {s.query.text}" if s.query is not None else "")
    clauses.add("EMIT ON WINDOW CLOSE" if s.is_emit_on_window_close else "")
    clauses.listed("WITH", options_text(s.options))
    add_format(clauses, s.format)
    return clauses.text()


def create_materialized_view(s: CreateMaterializedView) -> str:
    head = f"CREATE{given(s.or_replace, 'OR REPLACE')} MATERIALIZED VIEW"
    clauses = Clauses(f"{head}{given(s.if_not_exists, 'IF NOT EXISTS')} {name_text(s.name)}")
    clauses.listed("", [quoted(column) for column in s.columns])
    clauses.listed("WITH", options_text(s.options))
    clauses.add(f"AS {s.query.text}")
    return clauses.add("EMIT ON WINDOW CLOSE" if s.is_emit_on_window_close else "").text()


def drop(kind: str, if_exists: bool, name: Name, is_cascade: bool) -> str:
    return f"DROP {kind}{given(if_exists, 'IF EXISTS')} {name_text(name)}{given(is_cascade, 'CASCADE')}"
