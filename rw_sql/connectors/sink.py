"""The interface of a sink connector: option spec, a look at the target, and a writer of batches.

:mod:`rw_sql.connectors.registry` lists the built-in ones and finds others through the entry-point group
``rw_sql.sinks``.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from rw_sql.connectors.base import RESOLVE_TIMEOUT_SECONDS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from rw_sql.connectors.spec import ConnectorSpec

APPEND_ONLY = "append-only"
UPSERT = "upsert"
DEBEZIUM = "debezium"

OP = "_rw_op"
"""The column of a batch with the operation of each row."""

INSERT, UPDATE, UPDATE_BEFORE, DELETE = "insert", "update", "update_before", "delete"
"""Values of :data:`OP`. ``update_before`` is the old row: it precedes its ``update``, and only DEBEZIUM has it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkShape:
    """The output of a sink. ``type`` is append-only, upsert or debezium; ``encode`` is upper case, None without FORMAT.

    ``schema`` is the schema of its rows, as Spark's JSON; ``keys`` are the columns of the primary key.
    ``encode_options`` are those of the ENCODE clause; ``key_encode`` is TEXT or BYTES, None for keys encoded like
    values. ``deletes``: the rows may include deletes.
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
    """The result of a look at a sink's target. At most one of these is set: ``error`` (no answer), ``missing`` (a named
    object does not exist), ``misfit`` (it cannot store these rows), ``doubt`` (by their types, it may refuse most of
    these rows); ``hint`` is the remedy for the last three. ``named`` is the missing object as the options write it.

    A ``doubt`` prevents CREATE SINK; a sink that exists already still runs.
    """

    error: str | None = None
    missing: str | None = None
    misfit: str | None = None
    doubt: str | None = None
    hint: str | None = None
    named: str = ""


ON_ERROR = "on_error"
STOP, SKIP, REPLACE = "stop", "skip", "replace"
"""The option for rows that the target refuses, and its values."""


class SinkError(Exception):
    """The target did not accept a batch. The text can be used in a message: it contains no secret.

    This class itself means that the target is unavailable. The batch is retried later.
    """


class TargetUnfitError(SinkError):
    """The target answers but accepts no row: its definition or the user's privileges have changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A row that the target refuses: its index in the batch, the reason, and the column if the target names one.

    ``hint`` is a remedy other than correcting or skipping the row.
    """

    index: int
    reason: str
    column: str | None = None
    hint: str | None = None


class RefusedRowsError(SinkError):
    """The target is available and refuses rows of the batch permanently.

    No row of the batch is written, except with ``is_rest_written``: then all other rows are written. ``refusals`` has
    at least one row but not necessarily all: more may follow when the batch is retried without them.
    """

    def __init__(self, refusals: Sequence[Refusal], *, is_rest_written: bool = False) -> None:
        super().__init__(refusals[0].reason)
        self.refusals = tuple(refusals)
        self.is_rest_written = is_rest_written


class SinkWriter(Protocol):
    """Writes batches for one run of a sink, one at a time; another thread may call :meth:`cancel`."""

    def fence(self, run: int, generation: int) -> int | None:
        """Fences earlier runs, if the target supports it.

        Returns the newest batch of this generation in the target (-1: none), or None if the target does not store batch
        numbers with the rows: such a sink may repeat a batch after a kill. Raises SinkError.
        """
        ...

    def write(self, rows: pa.Table, batch: int) -> None:
        """Returns when the target has stored the rows durably. ``rows`` has the shape's columns and :data:`OP`, in
        order.

        Called again with the same batch after a kill, and with fewer rows after RefusedRowsError. Raises SinkError
        while the target is unavailable, RefusedRowsError and TargetUnfitError if it answers.
        """
        ...

    def cancel(self) -> None:
        """Makes a write in progress raise SinkError soon. Nothing is written afterwards. Raises nothing."""
        ...

    def close(self) -> None:
        """Closes connections. Raises nothing; may be called repeatedly."""
        ...


class SinkConnector(Protocol):
    """One kind of target. An instance is stateless and has no connection; it serves all sinks of its kind.

    ``options`` below are a sink's whole WITH list with references resolved (connection merged in, secrets replaced by
    their values), checked against the spec, without ``connector``.
    """

    @property
    def spec(self) -> ConnectorSpec:
        """The options it accepts, from ``sources/<name>.sink.toml``."""
        ...

    def check_options(self, options: Mapping[str, str]) -> None:
        """Checks that the options are consistent. Contacts no target. Raises INVALID_PROPERTY, MISSING_PROPERTY."""
        ...

    def check_shape(self, options: Mapping[str, str], shape: SinkShape) -> None:
        """Checks that the sink can write rows of this shape. Contacts no target. Raises SqlError."""
        ...

    def look(
        self, options: Mapping[str, str], shape: SinkShape | None, *, timeout: float = RESOLVE_TIMEOUT_SECONDS
    ) -> SinkLook:
        """Checks whether the target can store rows of this shape; without a shape, checks only whether it responds (for
        a connection).

        Errors are returned, never raised. Writes nothing.
        """
        ...

    def open(self, options: Mapping[str, str], shape: SinkShape, identity: str) -> SinkWriter:
        """Opens a writer. ``identity`` identifies this sink among all writers of the target; it never changes.

        Raises SinkError.
        """
        ...
