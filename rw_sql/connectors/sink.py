"""The interface of a sink connector: option spec, check of the target, and a writer of batches.

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

An ``update_before`` row has the old values and directly precedes its ``update`` row; only DEBEZIUM sinks get such
rows.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkShape:
    """The rows that a sink writes.

    ``type`` is append-only, upsert or debezium. ``encode`` is the name of the encoding in upper case, or None if the
    sink has no FORMAT clause.

    ``schema`` is the schema of the rows, as Spark's JSON; ``keys`` are the columns of the primary key.
    ``encode_options`` are the options of the ENCODE clause; ``key_encode`` is TEXT or BYTES, or None if keys are
    encoded like values. ``deletes`` is true if the rows may include deletes.
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
        """The columns with their types in Spark's JSON form: a word, or an object for nested types."""
        return {field["name"]: field["type"] for field in json.loads(self.schema)["fields"]}


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkLook:
    """The state of a sink's target, as the target reports it.

    At most one of these four fields is set: ``error`` (the target does not respond), ``missing`` (an object that the
    options name does not exist), ``misfit`` (the target cannot store these rows), or ``doubt`` (the target may refuse
    most of these rows because of their types). ``hint`` is the remedy for ``missing``, ``misfit`` or ``doubt``.
    ``named`` is the missing object's name as written in the options. If the client refuses the value of an option, and
    therefore sends no request, ``error`` and ``hint`` are set, and ``refused_key`` is the option's key.

    A ``doubt`` prevents CREATE SINK, but existing sinks still run.
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
"""The option that determines the treatment of rows that the target refuses, and the valid values of this option."""


class SinkError(Exception):
    """Raised if the target did not accept a batch. The text of the error contains no secrets and may be shown to the
    user.

    If an error has this class itself, and not a subclass, the target is unavailable. In this case, the batch is retried
    later.
    """


class TargetUnfitError(SinkError):
    """Raised if the target responds but accepts no row, because the target's definition or the user's privileges have
    changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A row that the target refuses. The fields are the row's index in the batch, the reason and, if the target names a
    column, the column.

    ``hint`` is a remedy other than correcting or skipping the row, such as a larger limit of the target.
    """

    index: int
    reason: str
    column: str | None = None
    hint: str | None = None


class RefusedRowsError(SinkError):
    """Raised if the target is available but permanently refuses rows of the batch.

    If ``is_rest_written`` is set, all other rows were written; otherwise no row of the batch was written. ``refusals``
    has at least one refused row. The list may be incomplete: a retry without these rows may report further refused
    rows.
    """

    def __init__(self, refusals: Sequence[Refusal], *, is_rest_written: bool = False) -> None:
        super().__init__(refusals[0].reason)
        self.refusals = tuple(refusals)
        self.is_rest_written = is_rest_written


class TakenOverError(SinkError):
    """Raised if the target has the fence of a later run of the sink. In this case, only the later run may write to the
    target."""

    def __init__(self, later: int, run: int) -> None:
        super().__init__(f"run {later} has taken over from run {run}")


class SinkWriter(Protocol):
    """Writes batches for one run of a sink, one at a time; another thread may call :meth:`cancel`."""

    def fence(self, run: int, generation: int) -> int | None:
        """Fences earlier runs if the target supports fences.

        Returns the number of this generation's last batch in the target, -1 if the target contains no batch of this
        generation, or None if the target does not store batch numbers. Sinks without batch numbers may repeat a batch
        after a crash. Raises TakenOverError if the target has the fence of a later run, and SinkError for other
        failures.
        """
        ...

    def write(self, rows: pa.Table, batch: int) -> None:
        """Writes the rows; returns after the target has stored them durably.

        ``rows`` has the shape's columns and :data:`OP`. The changes take effect in the order of the rows.

        After a crash, the method may be called again with the same batch; after RefusedRowsError, the method is called
        again without the refused rows. Raises SinkError if the target is unavailable, RefusedRowsError if the target
        refuses rows, and TargetUnfitError if the target accepts no row at all.
        """
        ...

    def cancel(self) -> None:
        """Aborts a write in progress. :meth:`write` raises SinkError soon afterwards, and nothing more is written.

        Raises nothing.
        """
        ...

    def close(self) -> None:
        """Closes connections. Raises no error, and may be called repeatedly."""
        ...


@runtime_checkable
class MarkingSink(Protocol):
    """A sink connector whose writers leave marks in the target, so that each batch is written once."""

    def marked_batch(self, options: Mapping[str, str], identity: str, generation: int) -> int | None:
        """The number of the last batch of a sink's generation that the target contains; -1 if the target contains no
        batch of this generation.

        None if the target does not exist or has no marks of the sink. In this case, the sink has not written to the
        target. Raises SinkError if the target does not respond.
        """
        ...


class SinkConnector(Protocol):
    """One kind of target. An instance is stateless and has no connection; it serves all sinks of its kind.

    In the methods, ``options`` is the sink's complete WITH list without ``connector``: it includes the options of its
    connection and the values of secrets, and has been checked against the spec.
    """

    @property
    def spec(self) -> ConnectorSpec:
        """The options that the sink accepts, from ``sources/<name>.sink.toml``."""
        ...

    def check_options(self, options: Mapping[str, str]) -> None:
        """Checks that the options are consistent.

        Does not contact the target. Raises INVALID_PROPERTY or MISSING_PROPERTY.
        """
        ...

    def check_shape(self, options: Mapping[str, str], shape: SinkShape) -> None:
        """Checks that the sink can write rows of this shape. Does not contact the target. Raises SqlError."""
        ...

    def look(
        self, options: Mapping[str, str], shape: SinkShape | None, *, timeout: float = RESOLVE_TIMEOUT_SECONDS
    ) -> SinkLook:
        """Checks whether the target can store rows of this shape.

        Without a shape (for CREATE CONNECTION), the method only checks whether the target responds.

        Errors are returned, never raised. Writes nothing.
        """
        ...

    def open(self, options: Mapping[str, str], shape: SinkShape, identity: str) -> SinkWriter:
        """Opens a writer. ``identity`` identifies this sink among all writers of the target; it never changes.

        Raises SinkError.
        """
        ...
