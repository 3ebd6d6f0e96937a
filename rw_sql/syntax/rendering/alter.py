"""Renders ALTER statements as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rw_sql.syntax.lexing.identifiers import quoted
from rw_sql.syntax.rendering.layout import Clauses
from rw_sql.syntax.rendering.parts import (
    add_format,
    allow_text,
    column_text,
    constraint_text,
    given,
    keys_text,
    name_text,
    options_text,
    parameter_text,
    reason_text,
    switches_text,
    value_text,
    watermark_text,
)
from rw_sql.syntax.rendering.type_names import canonical_type

if TYPE_CHECKING:
    from rw_sql.syntax import statements as ast


def rename(s: ast.AlterRename) -> str:
    return f"ALTER {s.kind} {name_text(s.name)} RENAME TO {name_text(s.new_name)}"


def owner(s: ast.AlterOwner) -> str:
    return f"ALTER {s.kind} {name_text(s.name)} OWNER TO {quoted(s.owner)}"


def set_schema(s: ast.AlterSetSchema) -> str:
    return f"ALTER {s.kind} {name_text(s.name)} SET SCHEMA {name_text(s.schema)}"


def swap(s: ast.AlterSwap) -> str:
    return f"ALTER {s.kind} {name_text(s.name)} SWAP WITH {name_text(s.other)}"


def add_column(s: ast.AlterAddColumn) -> str:
    column = column_text(s.column)
    return f"ALTER {s.kind} {name_text(s.name)} ADD COLUMN{given(s.if_not_exists, 'IF NOT EXISTS')} {column}"


def connector(s: ast.AlterConnector) -> str:
    return Clauses(f"ALTER {s.kind} {name_text(s.name)}").listed("CONNECTOR WITH", options_text(s.options)).text()


def refresh_schema(s: ast.AlterRefreshSchema) -> str:
    return f"ALTER {s.kind} {name_text(s.name)} REFRESH SCHEMA"


def set_(s: ast.AlterSet) -> str:
    text = f"ALTER {s.kind} {name_text(s.name)} SET {s.parameter.upper()} = {parameter_text(s.values)}"
    return text + given(s.is_deferred, "DEFERRED")


def reset(s: ast.AlterReset) -> str:
    return f"ALTER {s.kind} {name_text(s.name)} RESET {s.parameter.upper()}{given(s.is_deferred, 'DEFERRED')}"


def set_config(s: ast.AlterSetConfig) -> str:
    return Clauses(f"ALTER {s.kind} {name_text(s.name)}").listed("SET CONFIG", options_text(s.options)).text()


def reset_config(s: ast.AlterResetConfig) -> str:
    return Clauses(f"ALTER {s.kind} {name_text(s.name)}").listed("RESET CONFIG", keys_text(s.keys)).text()


def set_connection(s: ast.AlterSetConnection) -> str:
    connection = name_text(s.connection) if s.connection is not None else "NONE"
    clauses = Clauses(f"ALTER {s.kind} {name_text(s.name)} SET CONNECTION {connection}")
    clauses.listed("WITH", switches_text(validate=None if s.is_validated else False))
    return clauses.add(reason_text(s.reason).lstrip()).text()


def source_reset(s: ast.AlterSourceReset) -> str:
    return f"ALTER SOURCE {name_text(s.name)} RESET"


def source_format(s: ast.AlterSourceFormat) -> str:
    clauses = Clauses(f"ALTER SOURCE {name_text(s.name)}")
    add_format(clauses, s.format)
    return clauses.text()


def unsafe_set(kind: str, s: ast.AlterSourceUnsafeSet | ast.AlterTableUnsafeSet) -> str:
    clauses = Clauses(f"ALTER {kind} {name_text(s.name)} UNSAFE")
    clauses.listed("SET", options_text(s.set_options))
    clauses.listed("UNSET", keys_text(s.unset_options), comma=bool(s.set_options))
    clauses.add(allow_text(s.allow))
    clauses.listed("WITH", switches_text(validate=None if s.is_validated else False))
    return clauses.add(reason_text(s.reason).lstrip()).text()


def fragment(s: ast.AlterFragment) -> str:
    ids = ", ".join(map(str, s.ids))
    return f"ALTER FRAGMENT {ids} SET {s.parameter.upper()} = {parameter_text(s.values)}"


def connection_options(s: ast.AlterConnectionOptions) -> str:
    clauses = Clauses(f"ALTER CONNECTION{given(s.if_exists, 'IF EXISTS')} {name_text(s.name)}")
    for at, change in enumerate(s.changes):
        items = options_text(change.options) if change.options else keys_text(change.keys)
        clauses.listed(change.verb, items, comma=at > 0)
    clauses.listed("WITH", switches_text(validate=None if s.is_validated else False))
    return clauses.add(reason_text(s.reason).lstrip()).text()


def secret(s: ast.AlterSecret) -> str:
    clauses = Clauses(f"ALTER SECRET {name_text(s.name)}").listed("WITH", options_text(s.options))
    return clauses.add(f"AS {value_text(s.content)}").text()


def materialized_view_query(s: ast.AlterMaterializedViewQuery) -> str:
    return Clauses(f"ALTER MATERIALIZED VIEW {name_text(s.name)}").add(f"AS {s.query.text}").text()


def add_constraint(s: ast.AlterTableAddConstraint) -> str:
    return f"ALTER TABLE {name_text(s.name)} ADD {constraint_text(s.constraint)}"


def drop_connector(s: ast.AlterTableDropConnector) -> str:
    return f"ALTER TABLE {name_text(s.name)} DROP CONNECTOR"


def drop_column(s: ast.AlterTableDropColumn) -> str:
    text = f"ALTER TABLE {name_text(s.name)} DROP COLUMN{given(s.if_exists, 'IF EXISTS')} {quoted(s.column)}"
    return text + given(s.is_cascade, "CASCADE")


def rename_column(s: ast.AlterTableRenameColumn) -> str:
    return f"ALTER TABLE {name_text(s.name)} RENAME COLUMN {quoted(s.column)} TO {quoted(s.new_column)}"


def rename_constraint(s: ast.AlterTableRenameConstraint) -> str:
    return f"ALTER TABLE {name_text(s.name)} RENAME CONSTRAINT {quoted(s.constraint)} TO {quoted(s.new_constraint)}"


def table_watermark(s: ast.AlterTableWatermark) -> str:
    return f"ALTER TABLE {name_text(s.name)} ALTER {watermark_text(s.watermark)}"


def table_column(s: ast.AlterTableColumn) -> str:
    text = f"ALTER TABLE {name_text(s.name)} ALTER COLUMN {quoted(s.column)} {s.change}"
    if s.data_type is not None:
        text += f" {canonical_type(s.data_type)}"
    if s.expression is not None:
        text += f"{' USING' if s.data_type is not None else ''} {s.expression.text}"
    return text
