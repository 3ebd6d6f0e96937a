"""Writes batches to a PostgreSQL table, each batch in one transaction, and finds the rows that the table refuses.

COPY loads the rows into a temporary table, and ``INSERT … ON CONFLICT DO UPDATE`` merges these rows into the target. If
the server refuses a batch, another transaction writes the rows in parts: bisection finds the refused rows, and rows
that conflict with other rows are tried again after these other rows. If the server refuses some rows permanently, this
transaction is rolled back. All attempts of a transaction share the temporary tables. Each creation of a table would
lock several objects until the transaction ends, and the server has a limited number of locks for all of its clients.
"""

from __future__ import annotations

import json
import threading
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rw_sql.connectors.jdbc.refusals import UNIQUE_VIOLATION, Fault, RowConflict, fault_of, refusal_of
from rw_sql.connectors.jdbc.url import QUERY_TIMEOUT, query_seconds
from rw_sql.connectors.jdbc.write_order import are_rows_independent, holders_first, unique_columns
from rw_sql.connectors.sink import (
    DELETE,
    ON_ERROR,
    OP,
    REPLACE,
    SKIP,
    UPSERT,
    Refusal,
    RefusedRowsError,
    SinkError,
    TargetUnfitError,
)
from rw_sql.connectors.support.cut_off import cut_off
from rw_sql.connectors.support.messages import without_password
from rw_sql.connectors.support.sink_values import json_values, last_per_key, python_values, refused_rows, split_by_op
from rw_sql.packages import deferred

if TYPE_CHECKING:
    from collections.abc import Mapping
    from decimal import Decimal

    import psycopg
    import pyarrow as pa
    import pyarrow.compute as pc
    from psycopg import Connection

    from rw_sql.connectors.sink import SinkShape
else:
    pa, pc = deferred("pyarrow"), deferred("pyarrow.compute")

_NUL = "\0"
_REPLACEMENT = "\ufffd"
_INDEX = "_rw_index"
_CHANGED, _GONE = "rw_sql_batch", "rw_sql_deletes"
"""The temporary tables of an upsert: the rows of a batch to insert or update, and the keys to delete."""

_MOST_CONFLICTS = 1000
"""If more than this number of rows conflict with other rows, and the caller does not need all refused rows, the rows
are written in another order."""

_MOST_SECONDS = 86400
_CANCEL_SECONDS = 2.0
"""The maximum time, in seconds, until the server accepts a cancellation. The same limit applies to the time until the
cancelled statement has ended."""


class JdbcWriter:
    """See :class:`rw_sql.connectors.sink.SinkWriter`."""

    def __init__(
        self,
        connection: Connection[Any],
        options: Mapping[str, str],
        shape: SinkShape,
        table: tuple[str, str],
        codec: str = "utf-8",
    ) -> None:
        """``codec`` is Python's name for the database's encoding. The connection itself uses UTF-8."""
        from psycopg import sql

        self._connection = connection
        self._options = options
        self._shape = shape
        self._target = sql.Identifier(*table)
        self._is_cancelled = False
        self._writing = threading.Lock()
        on_error = options.get(ON_ERROR)
        self._finds_all = on_error == SKIP
        self._has_equal_keys = False
        self._sorts = True
        self._batch_tables: set[str] = set()
        self._replaced = _Replaced(codec) if on_error == REPLACE else None

    def fence(self, run: int, generation: int) -> int | None:
        """Returns None: the table stores no batch numbers."""
        return None

    def write(self, rows: pa.Table, batch: int) -> None:
        """Writes the batch in one transaction."""
        with self._writing:
            self._write(rows)

    def accepts_parts(self) -> bool:
        """See :class:`rw_sql.runtime.sinks.part_writer.PartWriter`."""
        import psycopg

        keys = {key: self._shape.columns[key] for key in self._shape.keys}
        # A replaced character may make two keys equal.
        if self._replaced is not None and any(kind == "string" for kind in keys.values()):
            return False
        try:
            with self._writing, self._connection.transaction():
                return are_rows_independent(self._connection, self._target, keys)
        except psycopg.Error:
            # Over a closed connection, nothing can be written. With True, the write fails before a whole batch is held
            # in memory.
            return self._connection.closed

    def write_part(self, rows: pa.Table, batch: int) -> None:
        """See :class:`rw_sql.runtime.sinks.part_writer.PartWriter`."""
        self.write(rows, batch)

    def _write(self, rows: pa.Table) -> None:
        import psycopg

        try:
            try:
                self._transact(rows)
            except psycopg.errors.CardinalityViolation:
                # The table considers some different keys equal, such as strings in a collation that ignores case.
                self._has_equal_keys = True
                self._transact(rows)
        except psycopg.Error as error:
            self._write_in_parts(rows, error)
        except RefusedRowsError as error:
            # The refused indexes refer to the rows that last_per_key keeps, so the refused rows are searched again
            # among all rows.
            if found := self._find_refusals(rows):
                raise RefusedRowsError(found) from error

    def _transact(self, rows: pa.Table) -> None:
        with self._connection.transaction():
            self._batch_tables = set()
            self._apply(last_per_key(rows, self._shape.keys))
            if self._is_cancelled:
                raise SinkError("stopped")

    def _write_in_parts(self, rows: pa.Table, error: psycopg.Error) -> None:
        """If a row of a batch caused the error ``error``, writes the batch again in parts. If the error has another
        cause, or if the table still refuses a row, raises the subclass of SinkError that matches the error."""
        if self._is_cancelled:
            raise SinkError("stopped") from error
        fault, text = fault_of(error), without_password(error, self._options)
        if fault is Fault.AWAY:
            raise SinkError(text + self._remedy_of(error)) from error
        if fault is Fault.TABLE:
            raise TargetUnfitError(text) from error
        if found := self._find_refusals(rows, is_unique=error.sqlstate == UNIQUE_VIOLATION):
            raise RefusedRowsError(found) from error

    def _remedy_of(self, error: psycopg.Error) -> str:
        """If a statement took longer than its timeout, returns a hint that names the option to change; otherwise,
        returns the empty string."""
        import psycopg

        if not isinstance(error, psycopg.errors.QueryCanceled) or "timeout" not in str(error):
            return ""
        seconds = min(2 * query_seconds(self._options), _MOST_SECONDS)
        return f": ALTER SINK … CONNECTOR WITH ({QUERY_TIMEOUT} = '{seconds}') gives a batch more time"

    def _find_refusals(self, rows: pa.Table, *, is_unique: bool = False) -> list[Refusal]:
        """The rows that the table refuses. If the table refuses a row, nothing is written; otherwise all rows are
        written. ``is_unique`` is true if a row of the batch is known to conflict with a unique index. Raises SinkError
        if the refused rows cannot be determined."""
        import psycopg

        try:
            return self._refusals(rows, is_unique=is_unique)
        except psycopg.Error as error:
            text = without_password(error, self._options) + self._remedy_of(error)
            raise SinkError("stopped" if self._is_cancelled else text) from error

    def _refusals(self, rows: pa.Table, *, is_unique: bool) -> list[Refusal]:
        import psycopg

        numbered = rows.append_column(_INDEX, pa.array(range(rows.num_rows), pa.int64()))
        kept = last_per_key(numbered, self._shape.keys)
        is_gone = pc.equal(kept.column(OP), DELETE)
        # Deletes come first, as in a real write.
        ordered = pa.concat_tables([kept.filter(is_gone), kept.filter(pc.invert(is_gone))])
        with self._connection.transaction() as transaction:
            self._batch_tables, self._sorts = set(), True
            if self._shape.type == UPSERT:
                self._batch_table(_CHANGED, list(self._shape.columns))
                self._batch_table(_GONE, list(self._shape.keys))
            # A deferred constraint would be checked only at the end, without naming a row.
            self._connection.execute("SET CONSTRAINTS ALL IMMEDIATE")
            found = self._refused_in_rounds(ordered, is_unique=is_unique)
            if self._is_cancelled:
                raise SinkError("stopped")
            if found:
                raise psycopg.Rollback(transaction)
        return sorted(found, key=lambda each: each.index)

    def _refused_in_rounds(self, rows: pa.Table, *, is_unique: bool = False) -> list[Refusal]:
        """Writes the rows that the table accepts, and returns the refusals of the other rows. The column _INDEX has the
        index of each row.

        The table may refuse a row because of another row that the batch also changes. For example, the other row has a
        value that must be unique, and the batch changes this value. Such refused rows are tried again after the other
        rows, until the table refuses all rows that are left. If a row conflicts with a unique index (``is_unique``, or
        found in a round), the rows are sorted first. If the caller does not need all refused rows, the search ends at
        the first row that the table refuses for another reason, and a round ends after _MOST_CONFLICTS conflicts. If
        such a round has written no row, the rows are sorted, and then reversed, before the search ends.
        """
        final: list[Refusal] = []
        found: list[Refusal] = []
        written: set[int] = set()
        is_reversed = False

        def is_over() -> bool:
            return not self._finds_all and (bool(final) or len(found) > _MOST_CONFLICTS)

        def attempt(part: pa.Table) -> Refusal | None:
            if is_over():
                return None
            told = self._attempt(part.drop_columns([_INDEX]))
            if told is None:
                written.update(part.column(_INDEX).to_pylist())
            elif part.num_rows == 1:
                numbered = replace(told, index=part.column(_INDEX)[0].as_py())
                (found if isinstance(told, RowConflict) else final).append(numbered)
            return told

        while True:
            found.clear()
            written.clear()
            was_sorted = is_unique
            if is_unique:
                rows = self._holders_first(rows)
            refused_rows(rows, attempt)
            if final and not self._finds_all:
                return final[:1]
            if len(found) in (0, rows.num_rows):
                return [*final, *found] if self._finds_all else found[:1]
            is_unique = is_unique or any(isinstance(each, RowConflict) and each.is_unique for each in found)
            if written or not is_over():
                is_reversed = False
                rows = _left(rows, written | {each.index for each in final}, {each.index for each in found})
            elif was_sorted == is_unique:
                if is_reversed or self._has_equal_keys:
                    return found[:1]
                is_reversed, rows = True, _reversed(rows)

    def _holders_first(self, rows: pa.Table) -> pa.Table:
        """Returns the rows in another order. If possible, a row that gets a unique value comes after the row that gives
        up this value. Deletes come first."""
        import psycopg

        keys, columns = list(self._shape.keys), list(self._shape.columns)
        if self._shape.type != UPSERT or not self._sorts:
            return rows
        is_gone = pc.equal(rows.column(OP), DELETE)
        changed = rows.filter(pc.invert(is_gone))
        try:
            with self._connection.transaction():
                unique = unique_columns(self._connection, self._target, keys=keys, columns=columns)
                if not unique:
                    return rows
                batch = self._batch_table(_CHANGED, columns)
                self._copy(changed, batch, columns)
                order = holders_first(self._connection, self._target, batch, keys=keys, unique=unique)
        except RefusedRowsError:
            return rows
        except psycopg.errors.QueryCanceled:
            self._sorts = False  # Without the order, the search takes longer, but it still finds the refused rows.
            return rows
        except psycopg.Error as error:
            if fault_of(error) is not Fault.ROW:
                raise
            return rows  # The table's columns do not accept a value of the batch.
        return pa.concat_tables([rows.filter(is_gone), changed.take(pa.array(order, pa.int64()))])

    def _attempt(self, rows: pa.Table) -> Refusal | None:
        """Writes rows. Returns a refusal if the table refuses a row; otherwise None."""
        import psycopg

        if self._is_cancelled:
            raise SinkError("stopped")
        try:
            with self._connection.transaction():
                self._apply(rows)
        except RefusedRowsError as error:
            return error.refusals[0]
        except psycopg.Error as error:
            if fault_of(error) is not Fault.ROW:
                raise
            if rows.num_rows > 1:
                return Refusal(index=0, reason="")
            if error.sqlstate is None and (column := _column_with_nul(rows)) is not None:
                return Refusal(
                    index=0, column=column, reason="PostgreSQL's text cannot contain the character NUL (U+0000)"
                )
            target = self._target.as_string(self._connection)
            return refusal_of(
                error,
                self._connection,
                target,
                list(self._shape.columns),
                is_append_only=self._shape.type != UPSERT,
            )
        return None

    def _apply(self, rows: pa.Table) -> None:
        """Deletes and writes the rows in the table. For an upsert, all rows must have different keys."""
        changed, gone = split_by_op(rows, DELETE)
        if gone.num_rows and self._shape.type == UPSERT:
            self._delete(gone)
        if changed.num_rows:
            self._put(changed)

    def _copy(self, rows: pa.Table, into: Any, columns: list[str]) -> None:
        from psycopg import sql

        values = [self._column(rows, name) for name in columns]
        statement = sql.SQL("COPY {} ({}) FROM STDIN").format(into, _names(columns))
        with self._connection.cursor().copy(statement) as copy:
            for row in zip(*values, strict=True):
                copy.write_row(row)

    def _column(self, rows: pa.Table, name: str) -> list[Any]:
        """A column's values for COPY: nested values as JSON, and arrays of scalars as PostgreSQL arrays.

        NUMERIC values are converted to text, because psycopg writes some numbers with an exponent, which a text column
        would keep.
        """
        kind = rows.schema.field(name).type
        is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind)
        is_json = pa.types.is_nested(kind.value_type if is_list else kind)
        values = json_values(rows, name) if is_json else python_values(rows.column(name), name)
        if self._replaced is not None and _has_text(kind):
            values = [self._replaced.of(value) for value in values]
        if is_json:
            return [None if value is None else json.dumps(value) for value in values]
        if pa.types.is_decimal(kind.value_type if is_list else kind):
            return [
                [_digits(item) for item in value] if isinstance(value, list) else _digits(value) for value in values
            ]
        return values

    def _batch_table(self, name: str, columns: list[str]) -> Any:
        """An empty temporary table with these columns of the target. Within a transaction, each table is created only
        once."""
        from psycopg import sql

        table = sql.Identifier(name)
        if name in self._batch_tables:
            self._connection.execute(sql.SQL("TRUNCATE {}").format(table))
            return table
        self._connection.execute(
            sql.SQL("CREATE TEMPORARY TABLE {} ON COMMIT DROP AS SELECT {} FROM {} WITH NO DATA").format(
                table, _names(columns), self._target
            )
        )
        self._batch_tables.add(name)
        return table

    def _merged_rows(self, batch: Any, columns: list[str]) -> Any:
        """The query that returns a batch's rows. If the target considers some of the keys equal, the query returns only
        the last row of each key."""
        from psycopg import sql

        if not self._has_equal_keys:
            return sql.SQL("SELECT {} FROM {}").format(_names(columns), batch)
        # In a temporary table that is filled only by COPY, ctid follows the order of the rows.
        return sql.SQL("SELECT DISTINCT ON ({keys}) {columns} FROM {batch} ORDER BY {keys}, ctid DESC").format(
            keys=_names(list(self._shape.keys)), columns=_names(columns), batch=batch
        )

    def _put(self, rows: pa.Table) -> None:
        from psycopg import sql

        columns = rows.column_names
        if self._shape.type != UPSERT:
            self._copy(rows, self._target, columns)
            return
        batch = self._batch_table(_CHANGED, columns)
        self._copy(rows, batch, columns)
        others = [column for column in columns if column not in self._shape.keys]
        updates = sql.SQL(", ").join(sql.SQL("{0} = EXCLUDED.{0}").format(sql.Identifier(name)) for name in others)
        action = sql.SQL("UPDATE SET {}").format(updates) if others else sql.SQL("NOTHING")
        self._connection.execute(
            sql.SQL("INSERT INTO {} ({}) {} ON CONFLICT ({}) DO {}").format(
                self._target,
                _names(columns),
                self._merged_rows(batch, columns),
                _names(list(self._shape.keys)),
                action,
            )
        )

    def _delete(self, rows: pa.Table) -> None:
        from psycopg import sql

        keys = list(self._shape.keys)
        batch = self._batch_table(_GONE, keys)
        self._copy(rows, batch, keys)
        matched = sql.SQL(" AND ").join(sql.SQL("t.{0} = s.{0}").format(sql.Identifier(key)) for key in keys)
        self._connection.execute(sql.SQL("DELETE FROM {} t USING {} s WHERE {}").format(self._target, batch, matched))
        if any(rows[key].null_count for key in keys):
            same = sql.SQL(" AND ").join(
                sql.SQL("t.{0} IS NOT DISTINCT FROM s.{0}").format(sql.Identifier(key)) for key in keys
            )
            null = sql.SQL(" OR ").join(sql.SQL("s.{0} IS NULL").format(sql.Identifier(key)) for key in keys)
            self._connection.execute(
                sql.SQL("DELETE FROM {} t USING {} s WHERE ({}) AND {}").format(self._target, batch, null, same)
            )

    def cancel(self) -> None:
        """Cancels the transaction in progress. If the server does not respond, closes the connection."""
        import psycopg

        self._is_cancelled = True
        with suppress(psycopg.Error):  # If the server has ended, the transaction has ended too.
            self._connection.cancel_safe(timeout=_CANCEL_SECONDS)
        if self._writing.acquire(timeout=_CANCEL_SECONDS):
            self._writing.release()
        else:
            cut_off(self._connection, psycopg.Error)

    def close(self) -> None:
        """Closes the connection."""
        self._is_cancelled = True
        self._connection.close()


class _Replaced:
    """Replaces characters that the database cannot store."""

    def __init__(self, codec: str) -> None:
        # A database without an encoding (SQL_ASCII) stores any bytes.
        self._codec = None if codec in ("utf-8", "ascii") else codec
        self._nul = _REPLACEMENT if self._codec is None else "?"

    def of(self, value: Any) -> Any:
        """Returns the value, with a replacement for each character that the database cannot store."""
        if isinstance(value, str):
            text = value.replace(_NUL, self._nul)
            return text if self._codec is None else text.encode(self._codec, "replace").decode(self._codec)
        if isinstance(value, list):
            return [self.of(item) for item in value]
        if isinstance(value, dict):
            return {self.of(name): self.of(item) for name, item in value.items()}
        return value


def _left(rows: pa.Table, done: set[int], last: set[int]) -> pa.Table:
    """The rows whose indexes are not in ``done``. Rows whose indexes are in ``last`` come last."""
    numbers = rows.column(_INDEX).to_pylist()
    left = [at for at, number in enumerate(numbers) if number not in done]
    return rows.take(pa.array(sorted(left, key=lambda at: numbers[at] in last), pa.int64()))


def _reversed(rows: pa.Table) -> pa.Table:
    """The rows in reverse order. Deletes come first."""
    reverse = rows.take(pa.array(range(rows.num_rows - 1, -1, -1), pa.int64()))
    is_gone = pc.equal(reverse.column(OP), DELETE)
    return pa.concat_tables([reverse.filter(is_gone), reverse.filter(pc.invert(is_gone))])


def _digits(number: Decimal | None) -> str | None:
    return None if number is None else format(number, "f")


def _has_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_nested(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _column_with_nul(rows: pa.Table) -> str | None:
    """Returns the first column that contains the character NUL in its text or in an element of its array. ``rows`` has
    only one row."""
    for name in rows.column_names:
        value = rows.column(name)[0].as_py()
        texts = value if isinstance(value, list) else [value]
        if any(isinstance(text, str) and _NUL in text for text in texts):
            return str(name)
    return None


def _names(columns: list[str]) -> Any:
    from psycopg import sql

    return sql.SQL(", ").join(sql.Identifier(column) for column in columns)
