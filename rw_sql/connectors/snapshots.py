"""Optional protocols that a connector can implement in addition to :class:`rw_sql.connectors.base.Connector`. Some
protocols read all current rows for REFRESH TABLE. Others compare or list the columns of upstreams with typed columns.

A connector implements a protocol if it has the protocol's methods.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession


@runtime_checkable
class SnapshotReader(Protocol):
    """A connector that REFRESH TABLE supports: it can return all current rows of the upstream."""

    def read_snapshot(
        self,
        spark: SparkSession,
        options: Mapping[str, str],
        columns: Mapping[str, str],
        *,
        encode: str = "NATIVE",
        encode_options: Mapping[str, str] | None = None,
    ) -> DataFrame:
        """Returns all current rows of the upstream, with exactly ``columns`` (name → Spark type), in that order.

        ``encode`` is the ENCODE after FORMAT PLAIN (CSV, JSON, PARQUET or NATIVE) in upper case, and ``encode_options``
        are its options. The DataFrame may be lazy. The caller keeps a reference to it until all actions on it have
        finished. The connector may release its resources when the DataFrame is garbage-collected. A missing upstream
        column, a value that does not fit its type, and a record that cannot be decoded must each raise an error, in
        this call or in a later action. Thus, a refresh takes effect either completely or not at all. If several rows
        have the same key, the method needs to return only one of them, and may choose which one.
        """
        ...


@runtime_checkable
class LineReader(Protocol):
    """A :class:`SnapshotReader` whose records are lines of text, for ENCODE CSV or JSON."""

    def read_lines(
        self,
        spark: SparkSession,
        options: Mapping[str, str],
        columns: Sequence[str],
        *,
        encode: str,
        encode_options: Mapping[str, str],
    ) -> DataFrame:
        """Returns all current lines of the upstream as undecoded records with the columns ``value``, ``_rw_split`` and
        ``_rw_offset``.

        ``columns`` are the names of the fields. If a CSV file has a header line, its fields are reordered to match
        ``columns``. For CSV and JSON lines, the caller uses this method instead of
        :meth:`SnapshotReader.read_snapshot`. The guarantees of that method also apply here.
        """
        ...


@runtime_checkable
class ArrowReader(SnapshotReader, Protocol):
    """A :class:`SnapshotReader` that can read a small upstream into this process's memory, without Spark."""

    def read_arrow(
        self, options: Mapping[str, str], columns: Mapping[str, pa.DataType], *, most_rows: int, most_bytes: int
    ) -> pa.Table | None:
        """Returns all current rows of the upstream, with exactly ``columns`` (name → type), in that order.

        Returns None if there are more than ``most_rows`` rows, or if they need more than ``most_bytes`` of memory. Also
        returns None if any value or error might differ from the result of :meth:`SnapshotReader.read_snapshot`. If the
        result is None, the caller uses that method.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnMisfit:
    """The error message and the hint for a column that the statement declares but the upstream cannot provide."""

    column: str
    message: str
    hint: str
    is_missing: bool = False


@runtime_checkable
class ColumnChecker(Protocol):
    """A connector whose upstream has typed columns."""

    def column_misfit(self, options: Mapping[str, str], columns: Mapping[str, str]) -> ColumnMisfit | None:
        """The first of ``columns`` (name → Spark type) that the upstream cannot provide; None if the upstream provides
        all of these columns.

        Also returns None if the upstream does not respond: the connector's ``look`` reports this error.
        """
        ...


@runtime_checkable
class ColumnLister(ColumnChecker, Protocol):
    """A connector whose sources need no column list. Without a column list, a source gets its columns from the
    upstream."""

    def columns(self, options: Mapping[str, str]) -> Mapping[str, str]:
        """The upstream's columns, in the upstream's order, with their types in canonical SQL. Raises SqlError
        UPSTREAM_UNREACHABLE."""
        ...


@runtime_checkable
class ColumnReader(ColumnChecker, Protocol):
    """A :class:`SnapshotReader` whose upstream has typed columns."""

    def row_estimate(self, options: Mapping[str, str]) -> int | None:
        """The approximate number of rows in the upstream; None if the upstream cannot report it quickly.

        Also returns None if the upstream does not respond.
        """
        ...

    def read_columns(
        self,
        spark: SparkSession,
        options: Mapping[str, str],
        columns: Mapping[str, str],
        misfit: Callable[[str, Column, Mapping[str, Column]], Column],
    ) -> DataFrame:
        """Does the same as :meth:`SnapshotReader.read_snapshot`, but uses ``misfit`` to build the error message for a
        value that does not fit its type.

        ``misfit`` gets the column's name, the value as text, and all values of the row as text.
        """
        ...
