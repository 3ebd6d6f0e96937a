"""Reads the numbers of rows in the commits of Delta tables. The module keeps the numbers in memory, because a commit
never changes.

Each scrape of the metrics and each request for the status page needs the numbers of all commits that the readers have
not read yet. Without this module's cache, each scrape and each request would read the files of these commits again.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from concurrent.futures import wait
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from rw_sql.runtime.decoding.decoder import ERROR
from rw_sql.runtime.delta.delta_log import (
    added_rows,
    column_count,
    committed_ms,
    has_new_data,
    job_commit,
    latest_version,
    read_actions,
    table_id,
    takes_data,
    written_rows,
)
from rw_sql.runtime.observe.row_counts import RowCounts
from rw_sql.runtime.support.background import prepare

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rw_sql.runtime.jobs.context import Context
    from rw_sql.runtime.observe.row_counts import Kind
    from rw_sql.runtime.support.warehouse import Warehouse

_MOST_KEPT = 50_000
"""The maximum number of commits in a cache, over all tables. Each commit takes about 350 bytes."""

_READ_AT_ONCE = 16
"""The maximum number of commits of a table in an object store that are read in parallel."""

_KEY = "commit_numbers"


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitNumbers:
    """The numbers of one commit.

    ``at_ms`` is the time of the commit. ``run`` and ``batch`` are the numbers of the run and the batch that made the
    commit; None if no job made the commit. ``batch`` is -1 for a fence or a RESTORE. ``added`` is the number of rows in
    new files, and ``written`` is the number of rows that the commit adds, replaces or removes. A number is None if the
    commit does not show this number. ``by_table`` contains the numbers of rows by upstream table (change data capture
    only). ``adds`` is true if the commit adds any data, and ``takes`` is true if the commit removes any data.
    ``committed`` and ``errors`` are the numbers of rows and of undecodable records of a job's batch; 0 in other
    commits.
    """

    at_ms: int | None
    run: int | None
    batch: int | None
    added: int | None
    written: int | None
    by_table: Mapping[str, int] | None
    adds: bool
    takes: bool
    committed: int
    errors: int

    @staticmethod
    def of(actions: list[dict[str, Any]]) -> CommitNumbers:
        """The numbers of the commit that consists of ``actions``."""
        made = job_commit(actions)
        is_batch = made is not None and made.batch >= 0
        written = written_rows(actions)
        return CommitNumbers(
            at_ms=committed_ms(actions),
            run=None if made is None else made.run,
            batch=None if made is None else made.batch,
            added=added_rows(actions),
            written=written,
            by_table=None if made is None else made.rows,
            adds=has_new_data(actions),
            takes=takes_data(actions),
            committed=(column_count(actions, None) if written is None else written) if is_batch else 0,
            errors=column_count(actions, ERROR) if is_batch else 0,
        )

    @property
    def is_batch(self) -> bool:
        """True if a job committed a batch with this commit."""
        return self.batch is not None and self.batch >= 0

    def rows_for(self, upstream: str | None, *, is_feed: bool) -> int | None:
        """The number of rows that a reader gets from this commit; None if the commit does not show this number.

        If ``upstream`` is given, the reader gets only the rows of this upstream table. If ``is_feed`` is true, the
        reader also gets replaced and removed rows.
        """
        if is_feed:
            return self.written
        if upstream is not None and self.added != 0 and self.by_table is not None:
            return self.by_table.get(upstream, 0)
        return self.added

    def has_rows_for(self, upstream: str | None, *, is_feed: bool) -> bool:
        """True if a reader gets rows from this commit, or if the commit does not show whether the reader gets any."""
        rows = self.rows_for(upstream, is_feed=is_feed)
        return rows > 0 if rows is not None else self.adds or (is_feed and self.takes)


class CommitCache:
    """Stores the numbers of the most recently read commits of all tables. Thread-safe."""

    def __init__(self, warehouse: Warehouse) -> None:
        self._warehouse = warehouse
        self._known: OrderedDict[tuple[str, str, int], CommitNumbers] = OrderedDict()
        self._ids: dict[str, str] = {}
        self._lock = threading.Lock()
        self.counts = RowCounts()
        """The row counts of the commits that readers have not read yet."""
        self.without_rows: dict[Kind, tuple[int, int]] = {}
        """Maps a table and a kind of reader to a range of versions (the end is exclusive). The commits in this range
        have no rows for readers of this kind."""

    def is_own(self, table: str) -> bool:
        """True if a table is inside the warehouse. The path of a table inside the warehouse is never used again for
        another table."""
        return table.startswith(f"{self._warehouse.uri}/")

    def id_of(self, table: str) -> str:
        """The Delta id of a table. Raises TableNotFoundError if there is no table.

        The id of a table outside the warehouse is read each time, because another program may replace the table.
        """
        if not self.is_own(table):
            return table_id(self._warehouse, table)
        known = self._ids.get(table)
        if known is None:
            known = self._ids[table] = table_id(self._warehouse, table)
        return known

    def known(self, table: str, id_: str, version: int) -> CommitNumbers | None:
        """The numbers of a commit if they are in memory, otherwise None. ``id_`` is the Delta id of a table outside the
        warehouse, and empty for a table of the warehouse."""
        key = (table, id_, version)
        with self._lock:
            found = self._known.get(key)
            if found is not None:
                self._known.move_to_end(key)
            return found

    def read(self, table: str, id_: str, version: int) -> CommitNumbers:
        """Does the same as :meth:`known`, but reads the commit if its numbers are not in memory. Raises
        FileNotFoundError if the commit's file was cleaned up."""
        found = self.known(table, id_, version)
        if found is None:
            found = CommitNumbers.of(read_actions(self._warehouse, table, version))
            with self._lock:
                self._known[table, id_, version] = found
                while len(self._known) > _MOST_KEPT:
                    self._known.popitem(last=False)
        return found

    def commits(self, table: str) -> Iterator[tuple[int, CommitNumbers]]:
        """The numbers of the existing commits of a table of the warehouse, newest first."""
        for version in range(latest_version(self._warehouse, table), -1, -1):
            try:
                numbers = self.read(table, "", version)
            except FileNotFoundError:  # this commit and all earlier commits were cleaned up
                return
            yield version, numbers


def commit_cache(context: Context) -> CommitCache:
    """The cache of a warehouse in this process."""
    found: CommitCache | None = context.made.get(_KEY)
    if found is None:
        found = context.made.setdefault(_KEY, CommitCache(context.warehouse))
    return found


class LogReading:
    """Reads the logs of tables for one measurement. Reads the newest version and the id of each table only once, and
    reads commits within a time limit.

    ``seconds`` limits the time for reading commits that are not in the cache. If the time limit is reached, some
    numbers remain unknown. The next measurement continues where this measurement ended.
    """

    def __init__(self, context: Context, seconds: float) -> None:
        self.cache = commit_cache(context)
        self._warehouse = context.warehouse
        self._left = seconds
        self._newest: dict[str, int | OSError] = {}
        self._ids: dict[str, str] = {}

    @property
    def left(self) -> float:
        """The seconds that are left for reading commits that are not in the cache; negative if the limit is passed."""
        return self._left

    def newest(self, table: str) -> int:
        """Returns the table's newest version, read at the first call for this table in this measurement; -1 if the
        table did not exist at that time. If the table's store did not respond to the first call, every call in this
        measurement raises the OSError of the first call."""
        found = self._newest.get(table)
        if found is None:
            try:
                found = latest_version(self._warehouse, table)
            except OSError as error:
                found = error
            self._newest[table] = found
        if isinstance(found, OSError):
            raise found
        return found

    def id_of(self, table: str) -> str:
        """The Delta id of a table. Raises TableNotFoundError if there is no table."""
        if table not in self._ids:
            self._ids[table] = self.cache.id_of(table)
        return self._ids[table]

    def read(self, table: str, version: int) -> CommitNumbers:
        """The numbers of a commit. If the cache does not contain these numbers, reads the commit's file, even if the
        time limit is reached. Raises FileNotFoundError if the file was cleaned up."""
        key = self.key_of(table)
        known = self.cache.known(*key, version)
        if known is not None:
            return known
        with self._timed():
            return self.cache.read(*key, version)

    def read_ahead(self, table: str, version: int, newest: int) -> None:
        """If the table is in an object store, reads up to ``_READ_AT_ONCE`` commits into the cache, from ``version`` on
        and at most up to ``newest``. The commits are read in parallel, because each commit takes a request. This method
        ignores errors; a later :meth:`read` raises them."""
        if version >= newest or self._warehouse.files_at(table).is_local:
            return
        key = self.key_of(table)
        versions = range(version, min(newest, version + _READ_AT_ONCE - 1) + 1)
        with self._timed():
            wait([prepare(partial(self.cache.read, *key, each), f"commit-{each}") for each in versions])

    @contextmanager
    def _timed(self) -> Iterator[None]:
        started = time.monotonic()
        try:
            yield
        finally:
            self._left -= time.monotonic() - started

    def is_known(self, table: str, version: int) -> bool:
        """True if the numbers of a commit are in memory."""
        return self.cache.known(*self.key_of(table), version) is not None

    def key_of(self, table: str) -> tuple[str, str]:
        """Returns the values that identify a table in the cache. These are the table's path and, if the table is
        outside the warehouse, the table's Delta id."""
        return table, "" if self.cache.is_own(table) else self.id_of(table)
