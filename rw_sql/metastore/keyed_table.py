"""Implements a metastore table whose newest row for each key is the current row."""

from __future__ import annotations

from threading import Lock, RLock, Thread
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from deltalake.exceptions import DeltaError

from rw_sql.metastore.failed_writes import FailedWrites
from rw_sql.metastore.projections import newest_rows
from rw_sql.metastore.table import CommitConflict, StoredTable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from rw_sql.metastore.commit_log import Looks

Row = dict[str, Any]
Key = tuple[Any, ...]


class KeyedTable:
    """A table to which writers append rows. The newest row of each key is a *current* row. This object caches the
    current rows in memory and updates the cache incrementally.

    Upkeep *folds* the table: it replaces the content of the table with the current rows that the function ``trim``
    returns. ``trim`` receives all current rows. Upkeep folds the table only if ``trim`` keeps no row, or if the number
    of removed rows exceeds the number of kept rows by more than ``worth_folding``.
    """

    def __init__(
        self,
        uri: str,
        keys: Sequence[str],
        trim: Callable[[list[Row]], list[Row]],
        *,
        worth_folding: int,
        failed_writes: FailedWrites | None = None,
        looks: Looks | None = None,
    ) -> None:
        self._failed_writes = failed_writes or FailedWrites()
        self._table = StoredTable(uri, failed_writes=self._failed_writes, looks=looks)
        self._worth_folding = worth_folding
        self._tending = Lock()
        self._keys = keys
        self._trim = trim
        self._blank: Row = dict.fromkeys(self._table.schema.names)
        self._rows: dict[Key, Row] = {}
        self._version = -1
        self._tidied_version = -1
        self._lock = RLock()

    def rows(self, *, is_exact: bool = False) -> Mapping[Key, Row]:
        """The current rows, by key. The returned mapping never changes: after a write, the method returns a new
        mapping.

        If the table is in an object store and ``is_exact`` is false, the rows may be as old as
        :class:`~rw_sql.metastore.commit_log.Looks` permits.
        """
        newest = self._table.latest_version(is_exact=is_exact)
        if newest <= self._version:
            return self._rows
        with self._lock:
            try:
                new = self._table.read_new(newest=newest)
                rows = {} if new.is_whole else dict(self._rows)
                for row in new.rows.sort_by("seq").to_pylist():
                    key = self._key(row)
                    if key not in rows or rows[key]["seq"] <= row["seq"]:
                        rows[key] = row
                self._rows, self._version = rows, new.version
            except BaseException:
                # Ctrl-C can interrupt this method after the handle has marked rows as read and before they are cached.
                self._table.mark_unread()
                raise
            return rows

    def write(self, choose: Callable[[Mapping[Key, Row]], Sequence[Row]]) -> Sequence[Row]:
        """Appends the rows that ``choose`` computes from the current rows, with compare-and-set.

        If another process commits first, the method calls ``choose`` again, with the new current rows. Returns the rows
        that were written. If ``choose`` returns no rows, the method writes nothing.
        """
        with self._lock:
            while True:
                present = self.rows(is_exact=True)
                chosen = choose(present)
                if not chosen or self._append(present, chosen):
                    return chosen

    def _append(self, present: Mapping[Key, Row], chosen: Sequence[Row]) -> bool:
        """Commits the rows ``chosen`` if the table has not changed since ``choose`` received ``present``. Returns False
        if the table has changed."""
        with self._table.lock:  # In an object store, a poll by another thread advances the handle too.
            before = self._version
            self._table.advance(before)
            if self._table.version != before:
                return False
            stamped = [{**self._blank, **row, "seq": before + 1} for row in chosen]
            try:
                self._table.append(pa.Table.from_pylist(stamped, self._table.schema))
            except CommitConflict:
                return self._has_stored(stamped)
            except BaseException:
                # The commit may have succeeded despite the error, for example if only the response was lost.
                self._table.mark_unread()
                raise
            self._rows = {**present, **{self._key(row): row for row in stamped}}
            self._version = before + 1
            if self._table.is_upkeep_due(before):
                self._tend()
            return True

    def _has_stored(self, stamped: Sequence[Row]) -> bool:
        """True if the table contains the rows ``stamped`` although the object store refused their commit.

        The client of an object store may repeat a write that has succeeded; the store then refuses the repeated write.
        Rows of another process would differ from ``stamped``, because each row contains its version and a value that is
        specific to its process, such as the name of an owner.
        """
        if self._table.is_local:
            return False
        present = self.rows(is_exact=True)
        stored = [{name: row[name] for name in self._blank} for row in stamped]
        return all(present.get(self._key(row)) == row for row in stored)

    def tidy(self) -> None:
        """Folds the table even if only one row would be removed. Deletes the files that the previous call replaced.

        Therefore, after two calls, no file contains a row that was replaced before the first call. Does nothing if
        nothing was written since the previous call, or while another thread runs upkeep.
        """
        if not self._tending.acquire(blocking=False):
            return
        seen: list[tuple[bool, int]] = []

        def fold(table: StoredTable) -> pa.Table | None:
            kept = self._folded(table, is_forced=True)
            seen.append((kept is not None, table.version))
            return kept

        try:
            if self._table.latest_version() == self._tidied_version:
                return
            self.rows(is_exact=True)
            self._opened(self._table.uri).upkeep(replace=fold)
            # After a fold, the next call must still remove the old files. After a failure, it must repeat everything.
            self._tidied_version = next((version for has_folded, version in seen if not has_folded), -1)
        finally:
            self._tending.release()

    def _tend(self) -> None:
        """Runs upkeep: on this thread for a local table, and on another thread for a table in an object store.

        In an object store, upkeep takes hundreds of requests, for which the writer should not wait.
        """
        if self._table.is_local:
            self._table.upkeep(replace=self._folded)
        elif self._tending.acquire(blocking=False):
            Thread(target=self._tend_apart, name="rw_sql-upkeep", daemon=True).start()

    def _tend_apart(self) -> None:
        try:
            self._opened(self._table.uri).upkeep(replace=self._folded)
        except (DeltaError, OSError) as error:
            self._failed_writes.warn(f"upkeep of {self._table.uri}", error)
        finally:
            self._tending.release()

    def _opened(self, uri: str) -> StoredTable:
        return StoredTable(uri, failed_writes=self._failed_writes)

    def _key(self, row: Row) -> Key:
        return tuple(row[name] for name in self._keys)

    def _folded(self, table: StoredTable, *, is_forced: bool = False) -> pa.Table | None:
        """The rows to keep when the table is folded; None if folding would remove too few rows. ``table`` is the handle
        with which upkeep reads this table. If ``is_forced`` is true, the table is folded even if only one row would be
        removed."""
        with self._lock:
            present = list(self._rows.values())
        # Cached rows need not be read; in an object store, reading costs three requests per file.
        is_known = not table.has_above("seq", max((row["seq"] for row in present), default=-1))
        rows = self._trim(present if is_known else newest_rows(table.read(), self._keys, "seq").to_pylist())
        replaced = table.count() - len(rows)
        if replaced <= 0 if is_forced else rows and replaced <= len(rows) + self._worth_folding:
            return None
        return pa.Table.from_pylist(rows, self._table.schema)
