"""Statements about parameters, confirmation and waiting, and EXPLAIN."""

from __future__ import annotations

from dataclasses import dataclass

from rw_sql.errors import Span
from rw_sql.syntax.statements.common import NumberValue, Statement, TextValue, WordValue, at

ParameterValue = TextValue | NumberValue | WordValue


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterSystemSet(Statement):
    """``ALTER SYSTEM SET name {TO | =} {value | DEFAULT}``; ``value`` is None for DEFAULT."""

    parameter: str
    value: ParameterValue | None
    parameter_span: Span = at()


@dataclass(frozen=True, slots=True, kw_only=True)
class SetParameter(Statement):
    """``SET name {TO | =} {value | DEFAULT}`` for this session; ``value`` is None for DEFAULT."""

    parameter: str
    value: ParameterValue | None
    parameter_span: Span = at()


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirm(Statement):
    """``CONFIRM 'token'``: the yes for one refused request."""

    token: str
    token_span: Span = at()


@dataclass(frozen=True, slots=True, kw_only=True)
class Flush(Statement):
    """``FLUSH``: wait until every record there was at the call is in every running dependent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explain(Statement):
    """``EXPLAIN statement``: what it would do, and nothing done."""

    statement: Statement
