"""Defines the statements that create, drop and change sources."""

from __future__ import annotations

from dataclasses import dataclass

from rw_sql.errors import Span
from rw_sql.syntax.statements.common import (
    CdcTable,
    ColumnDefinition,
    FormatEncode,
    IncludeColumn,
    Name,
    NullValue,
    NumberValue,
    Option,
    OptionKey,
    Statement,
    TableConstraint,
    TextValue,
    Watermark,
    at,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateSource(Statement):
    """``CREATE SOURCE [IF NOT EXISTS] n [(columns)] [INCLUDE …] [WITH (…)] [FORMAT … ENCODE …] [FROM s TABLE 't']``.

    ``wildcard`` is the index of ``*`` among the columns; ``watermarks`` has at most one item.
    """

    name: Name
    if_not_exists: bool = False
    is_temporary: bool = False
    or_replace: bool = False
    columns: tuple[ColumnDefinition, ...] = ()
    wildcard: int | None = None
    constraints: tuple[TableConstraint, ...] = ()
    watermarks: tuple[Watermark, ...] = ()
    include: tuple[IncludeColumn, ...] = ()
    options: tuple[Option, ...] = ()
    format: FormatEncode | None = None
    cdc_table: CdcTable | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DropSource(Statement):
    """``DROP SOURCE [IF EXISTS] n [CASCADE | RESTRICT]``."""

    name: Name
    if_exists: bool = False
    is_cascade: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterSourceUnsafeSet(Statement):
    """``ALTER SOURCE n UNSAFE SET (k = v, …) [, UNSET (k, …)] [ALLOW …] [WITH (VALIDATE = bool)] [REASON 'text']``.

    ``allow`` lists the predicted effects (GAPS, DUPLICATES) to which the user consents in advance. RESET and UNDO have
    the clause ALLOW too.
    """

    name: Name
    set_options: tuple[Option, ...] = ()
    unset_options: tuple[OptionKey, ...] = ()
    allow: tuple[str, ...] = ()
    is_validated: bool = True
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseSource(Statement):
    """``PAUSE SOURCE n [REASON 'text']``."""

    name: Name
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseAllSources(Statement):
    """``PAUSE ALL SOURCES [REASON 'text']``."""

    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeSource(Statement):
    """``RESUME SOURCE n [REASON 'text']``."""

    name: Name
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeAllSources(Statement):
    """``RESUME ALL SOURCES [REASON 'text']``."""

    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitId:
    """A split in a statement: ``'orders:0'``, or ``'0'`` if the source has only one topic."""

    id: str
    span: Span = at()


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetSourceSplits(Statement):
    """``RESET SOURCE SPLITS n [FOR SPLITS (…)] [ALLOW …] [WITH (name = bool, …)] [REASON 'text']``. The names are
    REDISCOVER, FORGET_OFFSETS and VALIDATE."""

    name: Name
    splits: tuple[SplitId, ...] = ()
    allow: tuple[str, ...] = ()
    is_rediscovering: bool = True
    is_forgetting_offsets: bool = False
    is_validated: bool = True
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitEntry:
    """``'split' = state``: a number (the next offset to read), a state as JSON text, or NULL to reset the split."""

    split: SplitId
    value: NumberValue | TextValue | NullValue


@dataclass(frozen=True, slots=True, kw_only=True)
class InjectValues:
    """``VALUES ('split' = state, …)``."""

    entries: tuple[SplitEntry, ...]
    span: Span = at()


@dataclass(frozen=True, slots=True, kw_only=True)
class InjectFromFile:
    """``FROM FILE 'path'``."""

    path: str
    span: Span = at()


@dataclass(frozen=True, slots=True, kw_only=True)
class InjectFromGroup:
    """``FROM GROUP 'consumer group'``: the committed offsets of the group."""

    group: str
    span: Span = at()


@dataclass(frozen=True, slots=True, kw_only=True)
class InjectFromCheckpoint:
    """``FROM CHECKPOINT 'path'``: the last committed offsets of a Structured Streaming checkpoint."""

    path: str
    span: Span = at()


@dataclass(frozen=True, slots=True, kw_only=True)
class InjectFromSource:
    """``FROM SOURCE other``: the positions of another source."""

    source: Name
    span: Span = at()


@dataclass(frozen=True, slots=True, kw_only=True)
class InjectTo:
    """``TO EARLIEST | LATEST``: ``where`` is 'earliest' or 'latest'."""

    where: str
    span: Span = at()


@dataclass(frozen=True, slots=True, kw_only=True)
class InjectToOffset:
    """``TO OFFSET n``: the same next offset in every split."""

    offset: int
    span: Span = at()


@dataclass(frozen=True, slots=True, kw_only=True)
class InjectToTimestamp:
    """``TO TIMESTAMP '2026-01-31 08:00:00+01:00'``: the first record at or after this time. The time zone is
    required."""

    timestamp: str
    span: Span = at()


@dataclass(frozen=True, slots=True, kw_only=True)
class InjectShift:
    """``TO SHIFT ±n``: moves each split's position by ``n`` records."""

    records: int
    span: Span = at()


@dataclass(frozen=True, slots=True, kw_only=True)
class InjectBack:
    """``BACK BY INTERVAL 'text'``: the first record whose time is at least the current time minus the interval."""

    interval: str
    span: Span = at()


InjectTarget = (
    InjectValues
    | InjectFromFile
    | InjectFromGroup
    | InjectFromCheckpoint
    | InjectFromSource
    | InjectTo
    | InjectToOffset
    | InjectToTimestamp
    | InjectShift
    | InjectBack
)


@dataclass(frozen=True, slots=True, kw_only=True)
class InjectSourceOffsets(Statement):
    """``INJECT SOURCE OFFSETS n target [FOR SPLITS (…)] [ALLOW …] [WITH (CONVENTION, VALIDATE)] [REASON 'text']``.

    ``allow`` has upper-case words: GAPS, DUPLICATES, CLAMP. ``convention`` is 'next' or 'last_seen'.
    """

    name: Name
    target: InjectTarget
    splits: tuple[SplitId, ...] = ()
    allow: tuple[str, ...] = ()
    convention: str = "next"
    is_validated: bool = True
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class InjectCheckpointOffsets(Statement):
    """``INJECT CHECKPOINT OFFSETS 'path' target …``: moves the positions of a job that rw_sql does not run.

    WITH sets the following fields. ``options`` are the options for the brokers (``properties.…`` and ``connection``),
    and ``tables`` are the Delta tables that the job reads. If ``is_exactly`` is true, all Kafka splits that the
    statement does not name are removed. ``watch`` is the time for which the checkpoint's files must stay unchanged. If
    ``is_assumed_stopped`` is true, the user asserts that the job is stopped.
    """

    path: str
    target: InjectTarget
    splits: tuple[SplitId, ...] = ()
    allow: tuple[str, ...] = ()
    options: tuple[Option, ...] = ()
    tables: tuple[str, ...] = ()
    convention: str = "next"
    is_exactly: bool = False
    is_assumed_stopped: bool = False
    is_validated: bool = True
    watch: str | None = None
    reason: str | None = None
    path_span: Span = at()
    watch_span: Span = at()
    table_span: Span = at()


@dataclass(frozen=True, slots=True, kw_only=True)
class SkipRecord(Statement):
    """``SKIP RECORD AT 'split' offset ON SOURCE n [REASON 'text']``."""

    split: SplitId
    offset: int
    name: Name
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RewindSource(Statement):
    """``REWIND SOURCE n TO OPERATION id [ALLOW DUPLICATES] [REASON 'text']``."""

    name: Name
    operation: int
    allow: tuple[str, ...] = ()
    reason: str | None = None
    operation_span: Span = at()
