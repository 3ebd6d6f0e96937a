"""Defines the statements about parameters, confirmation, blocks and waiting, and EXPLAIN."""

from __future__ import annotations

from dataclasses import dataclass

from rw_sql.errors import Span
from rw_sql.syntax.statements.common import Name, NumberValue, Statement, TextValue, WordValue, at

ParameterValue = TextValue | NumberValue | WordValue


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterSystemSet(Statement):
    """``ALTER SYSTEM SET name {TO | =} {value | DEFAULT}``.

    ``value`` is None for DEFAULT.
    """

    parameter: str
    value: ParameterValue | None
    parameter_span: Span = at()


@dataclass(frozen=True, slots=True, kw_only=True)
class SetParameter(Statement):
    """``SET [SESSION | LOCAL] name {TO | =} {value [, …] | DEFAULT}``.

    ``value`` is None for DEFAULT.
    """

    parameter: str
    value: ParameterValue | None
    more_values: tuple[ParameterValue, ...] = ()
    is_local: bool = False
    parameter_span: Span = at()


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirm(Statement):
    """``CONFIRM 'token'``: confirms the one request that was refused with this token."""

    token: str
    token_span: Span = at()


@dataclass(frozen=True, slots=True, kw_only=True)
class Flush(Statement):
    """``FLUSH``: waits until all records that exist when FLUSH begins have reached every running dependent.

    FLUSH waits neither for paused objects nor for jobs that stay STALLED for more than a few seconds and several
    retries. The result lists the paused objects and the stalled jobs.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Explain(Statement):
    """``EXPLAIN [ANALYZE] [(option, …)] statement``: shows the effect of the statement without running it."""

    statement: Statement
    is_analyze: bool = False
    options: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SetTimeZone(Statement):
    """``SET [SESSION | LOCAL] TIME ZONE {'zone' | zone | DEFAULT}``.

    ``zone`` is None for DEFAULT.
    """

    zone: TextValue | WordValue | None
    is_local: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class BeginUnsafe(Statement):
    """``BEGIN UNSAFE [REASON 'text']``: begins a block. COMMIT runs the block's statements as one operation."""

    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BeginTransaction(Statement):
    """``BEGIN [TRANSACTION | WORK]``, ``START TRANSACTION``: accepted by the parser, but refused when it is run."""

    is_start: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit(Statement):
    """``COMMIT``: commits a BEGIN UNSAFE block."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollback(Statement):
    """``ROLLBACK``: discards a BEGIN UNSAFE block."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnsafeBlock(Statement):
    """``BEGIN UNSAFE [REASON 'text']; …; COMMIT``: the block that COMMIT runs.

    The session builds this block; the parser never does.
    """

    statements: tuple[Statement, ...]
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UndoOperation(Statement):
    """``UNDO OPERATION id [ALLOW {GAPS | DUPLICATES}, …] [REASON 'text']``."""

    operation: int
    allow: tuple[str, ...] = ()
    reason: str | None = None
    operation_span: Span = at()


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait(Statement):
    """``WAIT [{TABLE | MATERIALIZED VIEW | SINK | INDEX} n]``.

    ``kind`` and ``name`` are None if the statement names no object.
    """

    kind: str | None = None
    name: Name | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Recover(Statement):
    """``RECOVER``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelJobs(Statement):
    """``CANCEL JOBS id [, …]``."""

    ids: tuple[int, ...]
