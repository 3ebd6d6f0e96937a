"""Defines the ALTER statements that several kinds of objects share.

``kind`` is the object kind in upper case: SOURCE, TABLE, SINK, MATERIALIZED VIEW, ….
"""

from __future__ import annotations

from dataclasses import dataclass

from rw_sql.errors import Span
from rw_sql.syntax.statements.common import (
    ColumnDefinition,
    FormatEncode,
    Name,
    Option,
    OptionKey,
    Statement,
    at,
)
from rw_sql.syntax.statements.session import ParameterValue


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterRename(Statement):
    """``ALTER kind n RENAME TO new``."""

    kind: str
    name: Name
    new_name: Name


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterOwner(Statement):
    """``ALTER kind n OWNER TO role``."""

    kind: str
    name: Name
    owner: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterSetSchema(Statement):
    """``ALTER kind n SET SCHEMA schema``."""

    kind: str
    name: Name
    schema: Name


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterSwap(Statement):
    """``ALTER kind n SWAP WITH other``."""

    kind: str
    name: Name
    other: Name


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterAddColumn(Statement):
    """``ALTER {SOURCE | TABLE} n ADD [COLUMN] [IF NOT EXISTS] column``."""

    kind: str
    name: Name
    column: ColumnDefinition
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterConnector(Statement):
    """``ALTER kind n CONNECTOR WITH (…)``: changes options that are safe to change."""

    kind: str
    name: Name
    options: tuple[Option, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterRefreshSchema(Statement):
    """``ALTER {SOURCE | TABLE} n REFRESH SCHEMA``."""

    kind: str
    name: Name


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterSet(Statement):
    """``ALTER kind n SET parameter {TO | =} {value [, …] | DEFAULT} [DEFERRED]``.

    ``values`` is empty for DEFAULT. ``parameter`` is in lower case: a rate limit, parallelism, backfill_parallelism,
    resource_group, ….
    """

    kind: str
    name: Name
    parameter: str
    values: tuple[ParameterValue, ...] = ()
    is_deferred: bool = False
    parameter_span: Span = at()


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterReset(Statement):
    """``ALTER kind n RESET RESOURCE_GROUP [DEFERRED]``."""

    kind: str
    name: Name
    parameter: str
    is_deferred: bool = False
    parameter_span: Span = at()


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterSetConfig(Statement):
    """``ALTER kind n SET CONFIG (k = v, …)``."""

    kind: str
    name: Name
    options: tuple[Option, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterResetConfig(Statement):
    """``ALTER kind n RESET CONFIG (k, …)``."""

    kind: str
    name: Name
    keys: tuple[OptionKey, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterSetConnection(Statement):
    """``ALTER {SOURCE | TABLE | SINK} n SET CONNECTION {c | NONE} [WITH (VALIDATE = bool)] [REASON 'text']``.

    ``connection`` is None for NONE.
    """

    kind: str
    name: Name
    connection: Name | None
    is_validated: bool = True
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterSourceReset(Statement):
    """``ALTER SOURCE n RESET``."""

    name: Name


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterSourceFormat(Statement):
    """``ALTER SOURCE n FORMAT … ENCODE …``."""

    name: Name
    format: FormatEncode


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterFragment(Statement):
    """``ALTER FRAGMENT id [, …] SET parameter {TO | =} {value | DEFAULT}``."""

    ids: tuple[int, ...]
    parameter: str
    values: tuple[ParameterValue, ...] = ()
    parameter_span: Span = at()
