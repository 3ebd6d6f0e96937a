"""The interface of a sink connector: the spec of its options, the check of its target, and its writer of batches.

:mod:`rw_sql.connectors.registry` lists the built-in sink connectors and finds others through the entry-point group
``rw_sql.sinks``.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from rw_sql.connectors.base import RESOLVE_TIMEOUT_SECONDS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from rw_sql.connectors.spec import ConnectorSpec

APPEND_ONLY = "append-only"
UPSERT = "upsert"
DEBEZIUM = "debezium"

OP = "_rw_op"
"""The column of a batch that contains the operation of each row."""

INSERT, UPDATE, UPDATE_BEFORE, DELETE = "insert", "update", "update_before", "delete"
"""Values of :data:`OP`.

An ``update_before`` row contains the old values of an updated row, and directly precedes the ``update`` row. Only
DEBEZIUM sinks get ``update_before`` rows.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkShape:
    """Describes the rows that a sink writes.

    ``type`` is append-only, upsert or debezium. ``encode`` is the name of the encoding in upper case; None if the sink
    has no FORMAT clause.

    ``schema`` is the schema of the rows, as Spark's JSON; ``keys`` are the columns of the primary key.
    ``encode_options`` are the options of the ENCODE clause. ``key_encode`` is TEXT or BYTES; None if keys are encoded
    like values. ``deletes`` is true if the rows may include deleted rows.
    """

    name: str
    type: str
    schema: str
    encode: str | None = None
    keys: tuple[str, ...] = ()
    encode_options: tuple[tuple[str, str], ...] = ()
    deletes: bool = False
    key_encode: str | None = None

    @property
    def columns(self) -> dict[str, Any]:
        """Maps each column's name to its type in Spark's JSON form. This form is a string for simple types, and a
        dict for nested types."""
        return {field["name"]: field["type"] for field in json.loads(self.schema)["fields"]}


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkLook:
    """The result of a check of a sink's target.

    At most one of these four fields is set: ``error`` (the target does not respond), ``missing`` (an object that the
    options name does not exist), ``misfit`` (the target cannot store these rows), or ``doubt`` (the target may refuse
    most of these rows because of their types). ``hint`` is the remedy for ``missing``, ``misfit`` or ``doubt``.
    ``named`` is the missing object's name as written in the options. If the client library rejects the value of an
    option before it sends a request, ``refused_key`` is the option's key, and ``error`` and ``hint`` are set.

    CREATE SINK fails on a ``doubt``, but existing sinks keep running.
    """

    error: str | None = None
    missing: str | None = None
    misfit: str | None = None
    doubt: str | None = None
    hint: str | None = None
    named: str = ""
    refused_key: str | None = None


ON_ERROR = "on_error"
STOP, SKIP, REPLACE = "stop", "skip", "replace"
"""The valid values of the option ``on_error``, which determines what happens to rows that the target refuses."""


class SinkError(Exception):
    """Raised if the target did not accept a batch. The text of the error contains no secrets and may be shown to the
    user.

    An error of exactly this class, and not of a subclass, means that the target is unavailable. The batch is then
    retried later.
    """


class TargetUnfitError(SinkError):
    """Raised if the target responds but can accept no row at all, because its definition or the user's privileges
    have changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A row that the target refuses. ``index`` is the row's index in the batch. ``column`` is None if the target's
    error names no column.

    ``hint`` is a remedy, such as a higher limit in the target. It is None if the user can only correct or skip the row.
    """

    index: int
    reason: str
    column: str | None = None
    hint: str | None = None


class RefusedRowsError(SinkError):
    """Raised if the target is available but permanently refuses rows of the batch.

    If ``is_rest_written`` is true, all rows that are not in ``refusals`` were written; otherwise, no row of the batch
    was written. ``refusals`` is not empty, but may be incomplete: a retry without these rows may report further rows.
    """

    def __init__(self, refusals: Sequence[Refusal], *, is_rest_written: bool = False) -> None:
        super().__init__(refusals[0].reason)
        self.refusals = tuple(refusals)
        self.is_rest_written = is_rest_written


class TakenOverError(SinkError):
    """Raised if a later run of the sink has fenced the target. Only the later run may then write to the target."""

    def __init__(self, later: int, run: int) -> None:
        super().__init__(f"run {later} has taken over from run {run}")


class SinkWriter(Protocol):
    """Writes the batches of one run of a sink, one after the other. Only :meth:`cancel` may be called by another
    thread."""

    def fence(self, run: int, generation: int) -> int | None:
        """Prevents earlier runs of the sink from writing, if the target supports fences.

        Returns the number of this generation's last batch in the target; -1 if the target contains no batch of this
        generation. Returns None if the target does not store batch numbers; after a crash, the sink may then write a
        batch twice. Raises TakenOverError if a later run has fenced the target, and SinkError for other failures.
        """
        ...

    def write(self, rows: pa.Table, batch: int) -> None:
        """Writes the rows; returns after the target has stored them durably.

        ``rows`` has the shape's columns and :data:`OP`. The changes take effect in the order of the rows.

        After a crash, the caller may write the same batch again. After RefusedRowsError, the caller may write the batch
        without the refused rows. Raises SinkError if the target is unavailable, RefusedRowsError if the target refuses
        rows, and TargetUnfitError if the target accepts no row at all.
        """
        ...

    def cancel(self) -> None:
        """Aborts a call of :meth:`write` in another thread. That call soon raises SinkError, and writes nothing more.

        Raises nothing.
        """
        ...

    def close(self) -> None:
        """Closes the writer's connections. Raises no error. The caller may call this method several times."""
        ...


@runtime_checkable
class MarkingSink(Protocol):
    """A sink connector whose writers store the numbers of batches in the target. Therefore, each batch is written
    exactly once."""

    def marked_batch(self, options: Mapping[str, str], identity: str, generation: int) -> int | None:
        """The number of the last batch of a sink's generation in the target; -1 if the target contains no batch of this
        generation.

        None if the target does not exist or contains no batch number of the sink, because the sink has never written to
        it. Raises SinkError if the target does not respond.
        """
        ...


class SinkConnector(Protocol):
    """The connector for one kind of target. One instance serves all sinks of this kind. It has no state and no
    connections.

    In all methods, ``options`` is the sink's complete WITH list without ``connector``. It includes the options of the
    sink's CONNECTION object, and the values of secrets. It was checked against the spec.
    """

    @property
    def spec(self) -> ConnectorSpec:
        """The options that the sink accepts, from ``sources/<name>.sink.toml``."""
        ...

    def check_options(self, options: Mapping[str, str]) -> None:
        """Checks that the options do not contradict each other.

        Sends no request to the target. Raises INVALID_PROPERTY or MISSING_PROPERTY.
        """
        ...

    def check_shape(self, options: Mapping[str, str], shape: SinkShape) -> None:
        """Checks that the sink can write rows of this shape. Sends no request to the target. Raises SqlError if it
        cannot."""
        ...

    def look(
        self, options: Mapping[str, str], shape: SinkShape | None, *, timeout: float = RESOLVE_TIMEOUT_SECONDS
    ) -> SinkLook:
        """Checks whether the target can store rows of this shape.

        If ``shape`` is None, as for CREATE CONNECTION, the method only checks whether the target responds.

        Errors are returned, never raised. Writes nothing.
        """
        ...

    def open(self, options: Mapping[str, str], shape: SinkShape, identity: str) -> SinkWriter:
        """Opens a writer. ``identity`` never changes, and distinguishes this sink from all other writers of the target.

        Raises SinkError.
        """
        ...
