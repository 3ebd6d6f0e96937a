"""Implements a Delta table of the metastore, with compare-and-set appends and incremental reads. The processes that
write to the table also run its upkeep."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from threading import RLock
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import fsspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import (
    CommitProperties,
    DeltaTable,
    PostCommitHookProperties,
    Transaction,
    WriterProperties,
    write_deltalake,
)
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError

from rw_sql.metastore.commit_log import LocalLog, Looks, StoreLog, app_transaction
from rw_sql.metastore.failed_writes import FailedWrites
from rw_sql.object_stores import StoreFiles, delta_errors

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from deltalake import Schema

UPKEEP_EVERY = 50
"""The number of versions between two runs of upkeep."""

_TARGET_BYTES = 8 << 20
_FULL_VACUUM_EVERY = 40 * UPKEEP_EVERY
_ORPHAN_HOURS = 24
_MOST_TRIES = 200
_READS_AT_ONCE = 16
_BATCH_ROWS = 1000
_COMMITS_READ = 10
"""The number of commits, counted back from the latest, that are searched for an app transaction. If none of these
commits has the transaction, delta-rs reads the whole log."""
# Upkeep writes checkpoints and cleans the log. delta-rs's hooks would do this in the middle of a commit.
_NO_HOOKS = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
_WRITER = WriterProperties(compression="ZSTD", compression_level=1)


class CommitConflict(Exception):  # noqa: N818 - not an error: the caller retries
    """Raised instead of a commit if the table has a newer version than the handle. Nothing was committed."""


def join(directory: str, name: str) -> str:
    """The path or URI of a table under ``directory``, which is a path or URI."""
    return f"{directory.rstrip('/')}/{name}"


def is_table(uri: str) -> bool:
    """True if there is a Delta table at the path or URI ``uri``.

    For a URI, this function opens the table, because ``DeltaTable.is_deltatable`` blocks all threads of the process
    until the store responds, and for up to three minutes if it does not respond. Opening the table blocks no other
    thread. On a local path, the function calls ``is_deltatable``, which takes less time than opening the table.
    """
    if "://" not in uri:
        return DeltaTable.is_deltatable(uri)
    try:
        DeltaTable(uri)
    except TableNotFoundError:
        return False
    return True


def create_table(
    uri: str, schema: Schema, properties: Mapping[str, str | None], partition_by: Sequence[str] = ()
) -> None:
    """Creates the table if it does not exist. Several threads and processes can call this function at the same time."""
    if is_table(uri):
        return
    try:
        DeltaTable.create(
            uri,
            schema,
            mode="ignore",
            partition_by=list(partition_by),
            configuration=dict(properties),
            # With retries, the second creator would commit the table's metadata again with another id. A reader that
            # knows the first id, such as a stream with a checkpoint, would then no longer recognize the table.
            commit_properties=CommitProperties(max_commit_retries=0),
        )
    except (DeltaError, OSError):
        if not is_table(uri):
            raise


@dataclass(frozen=True, slots=True, kw_only=True)
class NewRows:
    """The rows that :meth:`StoredTable.read_new` has read, up to the version ``version``.

    If ``is_whole`` is true, ``rows`` are all rows of the table. Otherwise, ``rows`` are the rows that were added since
    the last read, and may include rows that were already read.
    """

    rows: pa.Table
    is_whole: bool
    version: int


class StoredTable:
    """A handle of a table. The handle is at one version of the table. Thread-safe.

    Reads and writes are based on the handle's version, which :meth:`refresh` advances. ``upkeep_offset`` is a number of
    versions by which upkeep is shifted. Tables that are written together have different offsets, so their upkeep is due
    after different commits.
    """

    def __init__(
        self,
        uri: str,
        *,
        upkeep_offset: int = 0,
        failed_writes: FailedWrites | None = None,
        looks: Looks | None = None,
    ) -> None:
        self.uri = uri
        self._failed_writes = failed_writes or FailedWrites()
        self.lock = RLock()
        self._upkeep_offset = upkeep_offset
        began = time.monotonic()
        self._handle = DeltaTable(uri)
        self.schema = pa.schema(self._handle.schema().to_arrow())
        self._store: StoreFiles | None = None
        self._read: set[str] = set()
        self._read_version = -1
        # For each app, the newest version at which the number of its last transaction is known, and this number.
        self._transactions: dict[str, tuple[int, int]] = {}
        self._log: LocalLog | StoreLog
        if "://" not in uri:
            self._log = LocalLog(uri)
        else:
            self._log = StoreLog(uri, self._fetch, looks or Looks())
            self._log.listed(self._handle.version(), began)

    @property
    def is_local(self) -> bool:
        """True if the table is on a local path."""
        return isinstance(self._log, LocalLog)

    @property
    def version(self) -> int:
        """The handle's version."""
        return self._handle.version()

    def latest_version(self, *, is_exact: bool = False) -> int:
        """The newest version. Finding it takes a few microseconds on a local path, and one request in an object store.
        For a table in an object store, the result may be as old as :class:`Looks` permits, unless ``is_exact`` is
        true."""
        newest = self._log.newest(self._handle.version(), is_exact=is_exact)
        return self._listed_version() if newest is None else newest

    def _listed_version(self) -> int:
        """Lists the log, advances the handle to the newest version, and returns this version."""
        began = time.monotonic()
        with self.lock:
            self._update()
            if isinstance(self._log, StoreLog):
                self._log.listed(self._handle.version(), began)
            return self._handle.version()

    def _update(self) -> None:
        try:
            self._handle.update_incremental()
        except DeltaError:  # The versions in between were cleaned up.
            self._reopen()

    def refresh(self) -> None:
        """Advances the handle to the newest version."""
        with self.lock:
            self.advance(self.latest_version(is_exact=True))

    def advance(self, version: int) -> None:
        """Advances the handle to ``version`` or a newer version."""
        with self.lock:
            if version > self._handle.version():
                self._update()

    def transaction(self, app: str, version: int | None = None) -> int:
        """The number of the last app transaction ``app`` at ``version``; 0 if there is no such transaction.

        ``version`` is an existing version, by default the handle's version. If none of the latest commits up to
        ``version`` has this transaction, the handle advances, and the result may be the number at a newer version.
        """
        with self.lock:
            at = self.version if version is None else version
            number = self._logged_transaction(app, at)
            if number is None:
                self.advance(at)
                at = self.version
                number = self._handle.transaction_version(app) or 0
            self._transactions[app] = max(self._transactions.get(app, (-1, 0)), (at, number))
            return number

    def known_transaction(self, app: str) -> int:
        """The number of the last app transaction ``app`` that this object has found or written; 0 if there was none."""
        return self._transactions.get(app, (-1, 0))[1]

    def _logged_transaction(self, app: str, version: int) -> int | None:
        """The number of the last app transaction ``app`` in the latest commits up to ``version``.

        None if these commits do not have this transaction. The method does not use delta-rs, which would fetch every
        commit since the last checkpoint.
        """
        known_at, known = self._transactions.get(app, (-1, 0))
        for at in range(version, version - _COMMITS_READ, -1):
            if at == known_at:
                return known
            text = self._log.read(at)
            if text is None:
                return None
            number = app_transaction(text, app)
            if number is not None:
                return number
        return None

    def append(self, rows: pa.Table, *, transaction: tuple[str, int] | None = None, overwrite: bool = False) -> None:
        """Commits rows as the version after the handle's version, and advances the handle.

        Raises CommitConflict if this version exists. If ``overwrite`` is true, the new rows replace all rows of the
        table. If :meth:`read_new` has returned all rows before the append, its next call does not return the appended
        rows.
        """
        with self.lock:
            before = self.version
            # If the next version was created and cleaned up, delta-rs fails without stating the cause.
            if self.is_local and self.latest_version() > before:
                raise CommitConflict(self.uri)
            properties = CommitProperties(
                max_commit_retries=0, app_transactions=[Transaction(*transaction)] if transaction else None
            )
            try:
                with delta_errors():
                    write_deltalake(
                        self._handle,
                        rows,
                        mode="overwrite" if overwrite else "append",
                        writer_properties=_WRITER,
                        commit_properties=properties,
                        post_commithook_properties=_NO_HOOKS,
                    )
            except CommitFailedError as error:
                raise CommitConflict(self.uri) from error
            except DeltaError as error:
                # In an object store, delta-rs finds the newest version itself, but cannot read cleaned-up commits.
                if not self.is_local and self._listed_version() > before:
                    raise CommitConflict(self.uri) from error
                raise
            if transaction is not None and self.version == before + 1:
                # The log then does not need to be read to find the transaction that was just written.
                self._transactions[transaction[0]] = (before + 1, transaction[1])
            if self._read_version != before or self.version != before + 1:
                return
            if (added := self._added(before, before + 1)) is not None:
                self._read |= added
                self._read_version = before + 1
            elif not self.is_local and not overwrite:
                # The commit is not read from the object store, because the handle already has the list of the commit's
                # files.
                self._read = self._files()
                self._read_version = before + 1

    def read_new(
        self, columns: list[str] | None = None, *, above: tuple[str, int] | None = None, newest: int | None = None
    ) -> NewRows:
        """Returns the rows that were added since the last call, up to the newest version. ``above`` has the same
        meaning as in :meth:`read`.

        If the new commits removed no file, the method reads only these commits and their files, and does not advance
        the handle. On a local path, this takes half a millisecond. ``newest`` is the newest version, if the caller has
        just looked for new commits; the method then does not look again. None makes the method look.
        """
        with self.lock:
            for attempt in range(_MOST_TRIES):
                if newest is None or attempt > 0:
                    newest = self.latest_version()
                newest = max(newest, self._read_version)  # Another thread may have read newer rows.
                added = self._added(self._read_version, newest)
                try:
                    if added is not None:
                        rows = self._read_files(added, columns)
                        self._read |= added
                        self._read_version = newest
                        return NewRows(rows=rows, is_whole=False, version=newest)
                    self.refresh()
                    files = self._files()
                    is_whole = not self._read <= files
                    wanted = files if is_whole else files - self._read
                    if above is not None:
                        wanted &= self._files_above(*above)
                    rows = self._read_files(wanted, columns)
                except FileNotFoundError:  # The file was replaced and then vacuumed.
                    self._reopen()
                    continue
                self._read = files
                self._read_version = self.version
                return NewRows(rows=rows, is_whole=is_whole, version=self._read_version)
        raise OSError(f"the files of {self.uri} no longer exist")

    def read(
        self,
        columns: list[str] | None = None,
        *,
        above: tuple[str, int] | None = None,
        among: tuple[str, Collection[int]] | None = None,
    ) -> pa.Table:
        """The rows at the handle's version.

        If ``above``, a pair (column, value), is given, the method skips each file whose statistics show that the column
        has no greater value. If ``among``, a pair (column, values), is given, the result has only the rows with one of
        these values. Rows with other values are dropped during reading, so they are never all in memory at once.
        """
        with self.lock:
            for _ in range(_MOST_TRIES):
                files = self._files()
                if above is not None:
                    files &= self._files_above(*above)
                try:
                    return self._read_files(files, columns, among)
                except FileNotFoundError:
                    self._reopen()
        raise OSError(f"the files of {self.uri} no longer exist")

    def has_above(self, column: str, value: int) -> bool:
        """True if the files' statistics at the handle's version permit a row with a value greater than ``value`` in
        ``column``."""
        with self.lock:
            return bool(self._files_above(column, value))

    def count(self) -> int:
        """The number of rows at the handle's version, from the files' statistics."""
        with self.lock:
            return int(self._handle.count())

    def mark_read(self) -> None:
        """Makes the next :meth:`read_new` begin after the handle's version."""
        with self.lock:
            self._read = self._files()
            self._read_version = self.version

    def mark_unread(self) -> None:
        """Makes the next :meth:`read_new` return all rows."""
        with self.lock:
            self._read = set()
            self._read_version = -1

    def is_upkeep_due(self, before: int) -> bool:
        """True if upkeep is due after the commit of version ``before + 1``."""
        first, last = before + self._upkeep_offset, before + 1 + self._upkeep_offset
        return first // UPKEEP_EVERY != last // UPKEEP_EVERY

    def upkeep(
        self,
        fold: Callable[[pa.Table], pa.Table | None] | None = None,
        *,
        replace: Callable[[StoredTable], pa.Table | None] | None = None,
    ) -> None:
        """Removes replaced files, compacts or folds the other files, writes a checkpoint, and cleans the log.

        Folding replaces all rows with the rows to keep. The function ``fold`` receives all rows and returns the rows to
        keep, or None if the table is not to be folded. A caller that has cached the rows passes the function
        ``replace`` instead, which receives this handle and, like ``fold``, returns the rows to keep or None. If another
        process commits first, the next run of upkeep does the remaining work. Only the next run removes the files that
        this run has replaced, because readers of an older version need time to finish. Files of failed commits are
        removed after a day.
        """
        with self.lock:
            version = self._handle.version()
            is_full = version // _FULL_VACUUM_EVERY != max(0, version - UPKEEP_EVERY) // _FULL_VACUUM_EVERY
            try:
                with delta_errors():
                    self._handle.vacuum(
                        retention_hours=_ORPHAN_HOURS if is_full else 0,
                        dry_run=False,
                        enforce_retention_duration=False,
                        full=is_full,
                        post_commithook_properties=_NO_HOOKS,
                    )
                    self.refresh()
                    folded = fold(self.read()) if fold else replace(self) if replace else None
                    if folded is not None:
                        self.append(folded, overwrite=True)
                    else:
                        self._handle.optimize.compact(
                            target_size=_TARGET_BYTES, writer_properties=_WRITER, post_commithook_properties=_NO_HOOKS
                        )
                    self.refresh()
                    self._handle.create_checkpoint()
                    self._handle.cleanup_metadata()
            except (CommitConflict, CommitFailedError):
                self.refresh()
            except (DeltaError, OSError) as error:
                self._failed_writes.warn(f"upkeep of {self.uri}", error)
                self._reopen()

    def _reopen(self) -> None:
        self._handle = DeltaTable(self.uri)
        self._transactions.clear()

    def _added(self, since: int, until: int) -> set[str] | None:
        """Returns the files that the commits in ``(since, until]`` added, if these commits removed no files.

        Returns None if a commit removed files, if the content of a commit is not available, or if there are more than
        :data:`UPKEEP_EVERY` commits. In these cases, the caller must use the handle.
        """
        if since < 0 or until - since > UPKEEP_EVERY:
            return None
        added: set[str] = set()
        for version in range(since + 1, until + 1):
            text = self._log.text(version)
            if text is None:
                return None
            for line in filter(None, text.split("\n")):
                action = json.loads(line)
                if "remove" in action:
                    return None
                if "add" in action:
                    added.add(unquote(action["add"]["path"]))
        return added

    def _files(self) -> set[str]:
        return {uri.rpartition("/")[2] for uri in self._handle.file_uris()}

    def _files_above(self, column: str, value: int) -> set[str]:
        actions = pa.table(self._handle.get_add_actions(flatten=True))
        paths = actions.column("path").to_pylist()
        newest = f"max.{column}"
        most = actions.column(newest).to_pylist() if newest in actions.column_names else [None] * len(paths)
        return {path for path, most_in in zip(paths, most, strict=True) if most_in is None or most_in > value}

    def _read_files(
        self, files: set[str], columns: list[str] | None, among: tuple[str, Collection[int]] | None = None
    ) -> pa.Table:
        schema = self.schema if columns is None else pa.schema([self.schema.field(name) for name in columns])
        if not files:
            return schema.empty_table()
        names = sorted(f"{self.uri}/{name}" for name in files)

        def read(name: str) -> pa.Table:
            # Each file is opened as a ParquetFile, because read_table builds a dataset, which is three times slower for
            # a single row and requires every file to have every column.
            file = pq.ParquetFile(self._opened(name))
            return _conformed(file.read(columns=columns) if among is None else _rows_among(file, *among), schema)

        if self.is_local or len(names) == 1:
            return pa.concat_tables([read(name) for name in names])
        with ThreadPoolExecutor(min(len(names), _READS_AT_ONCE)) as pool:
            return pa.concat_tables(list(pool.map(read, names)))

    def _opened(self, name: str) -> pa.NativeFile | pa.BufferReader:
        """One of the table's files, open for reading.

        In an object store, fsspec fetches the file with one request. The file system of delta-rs would need three
        requests, and would block all threads of the process while it waits for the store.
        """
        if self.is_local:
            return pa.OSFile(name)
        return pa.BufferReader(self._fetch(name))

    def _fetch(self, name: str) -> bytes:
        """The content of a file in the table's object store."""
        if self._store is None:
            self._store = StoreFiles(fsspec.core.url_to_fs(self.uri, use_listings_cache=False)[0])
        return self._store.cat_file(name)


def _rows_among(file: pq.ParquetFile, column: str, values: Collection[int]) -> pa.Table:
    """The rows of a file that have one of the given values in a column. If no row has one of these values, the function
    does not read the other columns of the file."""
    wanted = pa.array(values, pa.int64())
    if not pc.any(pc.is_in(file.read(columns=[column])[column], wanted)).as_py():
        return file.schema_arrow.empty_table()
    batches = file.iter_batches(batch_size=_BATCH_ROWS)
    return pa.Table.from_batches([b.filter(pc.is_in(b.column(column), wanted)) for b in batches], file.schema_arrow)


def _conformed(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Adds the columns of the schema that ``table`` lacks. A file that was written before a column was added does not
    contain this column."""
    columns: list[Any] = [
        table.column(f.name).cast(f.type) if f.name in table.column_names else pa.nulls(table.num_rows, f.type)
        for f in schema
    ]
    return pa.table(columns, schema=schema)
