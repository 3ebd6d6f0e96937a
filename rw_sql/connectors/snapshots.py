"""Protocols that a connector may implement in addition to :class:`rw_sql.connectors.base.Connector`: readers of all
current rows for REFRESH TABLE, and the comparison of columns for upstreams with typed columns.

All of these protocols are optional. A connector implements a protocol if it has the protocol's methods.
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
    """A connector for REFRESH TABLE. The connector returns all current rows of the upstream at once."""

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

        ``encode`` is FORMAT PLAIN's encoding (CSV, JSON, PARQUET, NATIVE) in upper case, and ``encode_options`` are the
        options of this encoding. Reading may be lazy: the caller keeps a reference to the DataFrame until all actions
        on it have finished, so resources may be released when the DataFrame is garbage-collected. A missing upstream
        column, a value that does not fit its type, or a record that cannot be decoded must raise an error in this call
        or in a later action. A refresh therefore takes effect either completely or not at all. If several rows have the
        same key, the method may return any one of them.
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
        """All current lines of the upstream as undecoded records (``value``, ``_rw_split``, ``_rw_offset``).

        ``columns`` are the names of the fields; the fields of CSV files with a header line are reordered to match
        ``columns``. The caller uses this method instead of :meth:`SnapshotReader.read_snapshot` for CSV and JSON lines;
        the same guarantees apply to this method.
        """
        ...


@runtime_checkable
class ArrowReader(SnapshotReader, Protocol):
    """A :class:`SnapshotReader` that can read a small upstream into this process's memory, without Spark."""

    def read_arrow(
        self, options: Mapping[str, str], columns: Mapping[str, pa.DataType], *, most_rows: int, most_bytes: int
    ) -> pa.Table | None:
        """Returns all current rows of the upstream, with exactly ``columns`` (name → type), in that order.

        Returns None if there are more than ``most_rows`` rows, if the rows need more than ``most_bytes`` of memory, or
        if the result might differ from the result of :meth:`SnapshotReader.read_snapshot` in any value or error. In all
        these cases, the caller uses :meth:`SnapshotReader.read_snapshot`.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnMisfit:
    """The error message and hint for a declared column that the upstream cannot provide."""

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

        Also returns None if the upstream does not respond, because the connector's ``look`` reports that error.
        """
        ...


@runtime_checkable
class ColumnLister(ColumnChecker, Protocol):
    """A connector whose sources may omit the column list and then take their columns from the upstream."""

    def columns(self, options: Mapping[str, str]) -> Mapping[str, str]:
        """The upstream's columns, in the upstream's order, with their types in canonical SQL. Raises SqlError
        UPSTREAM_UNREACHABLE."""
        ...


@runtime_checkable
class ColumnReader(ColumnChecker, Protocol):
    """A :class:`SnapshotReader` whose upstream has typed columns."""

    def row_estimate(self, options: Mapping[str, str]) -> int | None:
        """The approximate number of rows; None if the number cannot be determined quickly.

        Raises no error if the upstream does not respond.
        """
        ...

    def read_columns(
        self,
        spark: SparkSession,
        options: Mapping[str, str],
        columns: Mapping[str, str],
        misfit: Callable[[str, Column, Mapping[str, Column]], Column],
    ) -> DataFrame:
        """Does the same as :meth:`SnapshotReader.read_snapshot`, with a custom error message for values that do not
        fit.

        ``misfit`` builds the message from the column's name, the value as text, and all values of the row as text.
        """
        ...
