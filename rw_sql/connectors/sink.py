"""What a sink connector is: option spec, a look at the target, and a writer of batches.

The registry lists the built-in ones and finds third parties' through the entry-point group ``rw_sql.sinks``.
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
"""The column of a batch that tells what became of a row."""

INSERT, UPDATE, UPDATE_BEFORE, DELETE = "insert", "update", "update_before", "delete"
"""Values of :data:`OP`. ``update_before`` is the row as it was: ahead of its ``update``, and for DEBEZIUM only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkShape:
    """What a sink writes. ``type`` is append-only, upsert or debezium; ``encode`` is upper case, None without FORMAT.

    ``schema`` is that of its rows, as Spark's JSON; ``keys`` are the columns of the primary key. ``encode_options`` are
    those of the ENCODE clause. ``deletes``: among the rows may be such as delete.
    """

    name: str
    type: str
    schema: str
    encode: str | None = None
    keys: tuple[str, ...] = ()
    encode_options: tuple[tuple[str, str], ...] = ()
    deletes: bool = False

    @property
    def columns(self) -> dict[str, Any]:
        """The columns with their types as Spark's JSON has them: a word, or an object for nested ones."""
        return {field["name"]: field["type"] for field in json.loads(self.schema)["fields"]}


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkLook:
    """A look at a sink's target. At most one is given: ``error`` (nobody answers), ``missing`` (what is named and not
    there), ``misfit`` (it is there and cannot take these rows), ``doubt`` (it may refuse most of these rows, by the
    types of their values); ``hint`` says what to type against the last three. ``named`` is what is ``missing`` as the
    options name it.

    A ``doubt`` keeps a statement from storing the sink, and does not keep a sink that is stored from running.
    """

    error: str | None = None
    missing: str | None = None
    misfit: str | None = None
    doubt: str | None = None
    hint: str | None = None
    named: str = ""


ON_ERROR = "on_error"
STOP, SKIP, REPLACE = "stop", "skip", "replace"
"""The option that says what becomes of a row that the target refuses, and its values."""


class SinkError(Exception):
    """The target did not take a batch. The text is fit for a message: it holds no secret.

    Of the class itself: the target is away, and the batch is written again later.
    """


class TargetUnfitError(SinkError):
    """The target answers and cannot take any row as it is: its definition or the user's rights changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A row that its target refuses: its index in the batch, why, and the column if the target names one.

    ``hint`` says what to type against it, where more helps than to mend the row or to skip it.
    """

    index: int
    reason: str
    column: str | None = None
    hint: str | None = None


class RefusedRowsError(SinkError):
    """The target answers and refuses rows of the batch, whenever they are written again.

    Nothing of the batch is in the target, except with ``is_rest_written``: then all other rows are. ``refusals`` are
    some of the rows, at least one; those that are left may be found when the batch is written without them.
    """

    def __init__(self, refusals: Sequence[Refusal], *, is_rest_written: bool = False) -> None:
        super().__init__(refusals[0].reason)
        self.refusals = tuple(refusals)
        self.is_rest_written = is_rest_written


class SinkWriter(Protocol):
    """Writes batches for one run of a sink. One batch at a time; :meth:`cancel` may come from another thread."""

    def fence(self, run: int, generation: int) -> int | None:
        """Keeps earlier runs out of the target, where it can.

        Returns the newest batch of this generation that the target holds (-1: none), or None where the target does not
        keep that with the rows: such a sink repeats a batch after a kill. Raises SinkError.
        """
        ...

    def write(self, rows: pa.Table, batch: int) -> None:
        """Returns when the target has the rows for good. ``rows`` have the shape's columns and :data:`OP`, in order.

        Called again with the same batch after a kill, and with fewer rows where it raised RefusedRowsError. Raises
        SinkError while the target is away, RefusedRowsError and TargetUnfitError where it answers.
        """
        ...

    def cancel(self) -> None:
        """Ends a write that is going on soon: it raises SinkError. Nothing is written afterwards. Raises nothing."""
        ...

    def close(self) -> None:
        """Ends connections. Raises nothing; once more does nothing."""
        ...


class SinkConnector(Protocol):
    """One kind of target. An instance holds no connection and no state; one serves all sinks of its kind.

    ``options`` below are a sink's whole WITH list with references resolved (connection merged in, secrets replaced by
    their values), checked against the spec, without ``connector``.
    """

    @property
    def spec(self) -> ConnectorSpec:
        """The options it takes, from ``sources/<name>.sink.toml``."""
        ...

    def check_options(self, options: Mapping[str, str]) -> None:
        """Whether the options fit together. Reaches no target. Raises INVALID_PROPERTY, MISSING_PROPERTY."""
        ...

    def check_shape(self, options: Mapping[str, str], shape: SinkShape) -> None:
        """Whether such rows can be written. Reaches no target. Raises SqlError."""
        ...

    def look(
        self, options: Mapping[str, str], shape: SinkShape | None, *, timeout: float = RESOLVE_TIMEOUT_SECONDS
    ) -> SinkLook:
        """Looks whether the target can take such rows; with None, whether it answers (for a connection).

        Faults are told, never raised. Writes nothing.
        """
        ...

    def open(self, options: Mapping[str, str], shape: SinkShape, identity: str) -> SinkWriter:
        """A writer. ``identity`` names this sink among all that write to the target, always the same.

        Raises SinkError.
        """
        ...
