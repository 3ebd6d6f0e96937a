"""Defines the read-only statements: SHOW and DESCRIBE."""

from __future__ import annotations

from dataclasses import dataclass

from rw_sql.errors import Span
from rw_sql.syntax.statements.common import Name, Option, Statement, at


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowObjects(Statement):
    """``SHOW {SOURCES | MATERIALIZED VIEWS | JOBS | …} [FROM schema] [LIKE 'p' | ILIKE 'p' | WHERE e]``.

    ``kind`` is upper case, as written: SOURCES, MATERIALIZED VIEWS, JOBS, TABLES, SINKS, CONNECTIONS, SECRETS, ….
    """

    kind: str
    schema: str | None = None
    schema_span: Span = at()
    like: str | None = None
    ilike: str | None = None
    where: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowSourceSplits(Statement):
    """``SHOW SOURCE SPLITS n``."""

    name: Name


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowUnsafeOperations(Statement):
    """``SHOW UNSAFE OPERATIONS [FOR n]``."""

    name: Name | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowCreate(Statement):
    """``SHOW CREATE {SOURCE | MATERIALIZED VIEW | TABLE | …} n``.

    ``kind`` is upper case.
    """

    kind: str
    name: Name


@dataclass(frozen=True, slots=True, kw_only=True)
class Describe(Statement):
    """``DESCRIBE n``."""

    name: Name


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowColumns(Statement):
    """``SHOW {COLUMNS | INDEXES} FROM n [LIKE 'p' | ILIKE 'p' | WHERE e]``."""

    kind: str
    name: Name
    like: str | None = None
    ilike: str | None = None
    where: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowSourceContinuity(Statement):
    """``SHOW SOURCE CONTINUITY n``: the predicted and the observed duplicates and gaps of each split."""

    name: Name


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowMetrics(Statement):
    """``SHOW METRICS``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowLineage(Statement):
    """``SHOW LINEAGE [OF n]``: all objects, each with the objects that it reads.

    With OF, the statement shows only ``n``, the objects on which ``n`` depends, and the objects that depend on ``n``.
    """

    name: Name | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowCheckpoint(Statement):
    """``SHOW CHECKPOINT 'path' [WITH (…)]``: the positions of a checkpoint that rw_sql does not manage.

    ``options`` are the options for the brokers (``properties.…`` and ``connection``), and ``tables`` are the Delta
    tables that the job reads.
    """

    path: str
    options: tuple[Option, ...] = ()
    tables: tuple[str, ...] = ()
    path_span: Span = at()
    table_span: Span = at()


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowParameter(Statement):
    """``SHOW {name | ALL | TIME ZONE | TRANSACTION ISOLATION LEVEL}``.

    ``parameter`` is lower case.
    """

    parameter: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeFragments(Statement):
    """``DESCRIBE FRAGMENTS n``."""

    name: Name


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeFragment(Statement):
    """``DESCRIBE FRAGMENT id``."""

    id: int
