"""Defines the JSON of requests and answers. A request is a statement with the state of its session. An answer contains
the statement's rows or error."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

import msgspec

from rw_sql import errors
from rw_sql.errors import SPARK_ERROR, ErrorCode, Span, SqlError
from rw_sql.plan.result.confirmation import Question
from rw_sql.plan.result.plan import Table

_CODES = {code.code: code for code in vars(errors).values() if isinstance(code, ErrorCode)}
_TIMESTAMP = "TIMESTAMP"


@dataclass(frozen=True, slots=True, kw_only=True)
class StatementBody:
    """A statement of a session. ``block`` is the state of the session's block: ``open``, ``aborted``, or None if the
    session has no block.

    ``can_ask`` is true if the session can ask its user to confirm the statement. ``user`` is the name of the operating
    system's user who runs the session.
    """

    text: str
    parameters: dict[str, str]
    block: str | None
    can_ask: bool
    user: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorBody:
    """An SqlError in the form in which an answer contains it. ``span`` is the position of the error in the statement's
    text: start, end, line and column."""

    code: str
    message: str
    hint: str | None = None
    detail: str | None = None
    span: tuple[int, int, int, int] | None = None
    hides_literals: bool = False
    plain_keys: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerBody:
    """The outcome of a statement: rows or an error, and the state of the session after the statement.

    If the statement needs a confirmation, ``question`` describes the confirmation, and ``error`` is the error that
    requests it; otherwise, ``question`` is None. ``answered_ms`` is the time of the answer in milliseconds since 1970.
    The metastore removes the answer some time later.
    """

    parameters: dict[str, str]
    block: str | None
    columns: tuple[tuple[str, str], ...] = ()
    rows: tuple[tuple[object, ...], ...] = ()
    error: ErrorBody | None = None
    question: Question | None = None
    answered_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressBody:
    """``what`` is the condition for which a running statement waits. ``jobs`` are the jobs for which it waits: None for
    all jobs, and empty for no job."""

    what: str
    jobs: tuple[str, ...] | None = field(default=())


def error_body(error: Exception) -> ErrorBody:
    """Converts an error to the form in which an answer contains it. An error that is no SqlError, such as an error of
    Spark, of a connector or of the store, keeps its text."""
    if not isinstance(error, SqlError):
        return ErrorBody(code=SPARK_ERROR.code, message=f"{type(error).__name__}: {error}".strip())
    span = error.span
    return ErrorBody(
        code=error.code,
        message=error.message,
        hint=error.hint,
        detail=error.detail,
        span=None if span is None else (span.start, span.end, span.line, span.column),
        hides_literals=error.hides_literals,
        plain_keys=tuple(error.plain_keys),
    )


def error_of(body: ErrorBody) -> SqlError:
    """Converts an error from an answer to an SqlError. An error code that this version of rw_sql does not know becomes
    RW409, and the message then contains the unknown code."""
    kind = _CODES.get(body.code)
    start = body.span
    return SqlError(
        kind or SPARK_ERROR,
        body.message if kind is not None else f"{body.code}: {body.message}",
        hint=body.hint,
        detail=body.detail,
        span=None if start is None else Span(start=start[0], end=start[1], line=start[2], column=start[3]),
        hides_literals=body.hides_literals,
        plain_keys=body.plain_keys,
    )


def rows_body(table: Table) -> tuple[tuple[object, ...], ...]:
    """The rows of a table with values that JSON can contain: times become strings in ISO 8601."""
    return tuple(tuple(v.isoformat() if isinstance(v, datetime) else v for v in row) for row in table.rows)


def table_of(answer: AnswerBody) -> Table:
    """The rows of an answer."""
    times = {at for at, (_, kind) in enumerate(answer.columns) if kind == _TIMESTAMP}
    rows = tuple(
        tuple(datetime.fromisoformat(v) if at in times and isinstance(v, str) else v for at, v in enumerate(row))
        for row in answer.rows
    )
    return Table(columns=answer.columns, rows=rows)


def to_json(body: StatementBody | AnswerBody | ProgressBody) -> str:
    """Encodes a part of a request or answer as JSON."""
    return msgspec.json.encode(body).decode()


def statement_body(text: str) -> StatementBody:
    """Decodes the statement of a request from JSON."""
    return msgspec.json.decode(text, type=StatementBody)


def answer_body(text: str) -> AnswerBody:
    """Decodes the answer to a request from JSON."""
    return msgspec.json.decode(text, type=AnswerBody)


def progress_body(text: str) -> ProgressBody:
    """Decodes the progress of a request from JSON."""
    return msgspec.json.decode(text, type=ProgressBody)
