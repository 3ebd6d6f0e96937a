"""Divides the rows of a commit or snapshot of a log into shares, and stores the shares in the query's checkpoint.

The checkpoint has a folder for each commit or snapshot that is being read in shares:
``shares/<version>-commit-<table>`` or ``shares/<version>-snapshot-<table>``. The file ``files.json`` in this folder
contains the files and shares, and the file ``<index>`` contains the number of shares that were read when a batch ended
at this index. These files are written before the batch writes rows. The folder is removed after the last share is
committed.
"""

from __future__ import annotations

import errno
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rw_sql.runtime.positions.progress import newest_completed, newest_planned, table_ends
from rw_sql.runtime.support.failures import StalledError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rw_sql.runtime.positions.progress import TableEnd
    from rw_sql.runtime.support.warehouse import Warehouse

SHARES = "shares"
"""The folder of a checkpoint that contains the shares."""

_FILES = "files.json"

_REMEDY = "restore the file from a backup, or drop the object of the job and create it again"

_UNSUPPORTED = frozenset({errno.ENOSYS, errno.EINVAL, errno.EPERM, errno.EOPNOTSUPP, errno.ENOTSUP})
"""The ``errno`` values with which a store without conditional writes refuses a conditional write, or with which a file
system refuses a hard link. A conflict with another write, or a lost response, causes another ``errno``."""

Position = tuple[Any, ...]
"""The values of a row in the columns by which a log is sorted. Rows with equal values are in the same share."""


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """A file of a commit or snapshot, with the first and the last position of its rows. ``path`` is relative to the
    table's folder. ``bucket`` is the value of the log's partition column, which is the hour in which the rows were
    written. (The file itself does not contain this column.) ``bucket`` is None if an older version of rw_sql has stored
    this entry."""

    path: str
    first: Position
    last: Position
    bucket: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """The shares of a commit or snapshot, in order. The share with the number ``n`` (counted from 0) ends before the
    position ``cuts[n]``. The last share has no upper bound. ``columns`` are the columns of a position: the columns of
    LOG_ORDER that the log had when it was divided into shares, without INDEX_COLUMN."""

    columns: tuple[str, ...]
    files: tuple[File, ...]
    cuts: tuple[Position, ...]

    def bounds(self, done: int, upto: int | None) -> tuple[Position | None, Position | None]:
        """Returns the first position of the shares from ``done`` to ``upto`` (exclusive), and the first position after
        these shares. If ``upto`` is None, the range includes the last share. The first bound is None if the range
        begins with the first share, and the second bound is None if the range includes the last share."""
        return self.cuts[done - 1] if done else None, None if upto is None else self.cuts[upto - 1]

    def files_between(self, low: Position | None, high: Position | None) -> list[File]:
        """The files that may have rows from ``low`` to ``high`` (exclusive)."""
        return [
            file
            for file in self.files
            if (high is None or _ordered(file.first) < _ordered(high))
            and (low is None or _ordered(file.last) >= _ordered(low))
        ]

    def to_json(self) -> str:
        """The shares as JSON."""
        files = [[file.path, file.first, file.last, file.bucket] for file in self.files]
        return json.dumps({"columns": self.columns, "files": files, "cuts": self.cuts}, separators=(",", ":"))

    @staticmethod
    def from_json(body: Any) -> Shares:
        """Returns the shares from their JSON. Accepts files without ``bucket``, which older versions of rw_sql have
        stored."""
        files = (
            File(path=path, first=tuple(first), last=tuple(last), bucket=bucket[0] if bucket else None)
            for path, first, last, *bucket in body["files"]
        )
        return Shares(columns=tuple(body["columns"]), files=tuple(files), cuts=tuple(map(tuple, body["cuts"])))


def number_of_shares(sizes: Sequence[int], most_bytes: int) -> int:
    """Returns the number of shares for files with the sizes ``sizes`` in bytes. Delta divides the files into at least
    as many batches, because a batch exceeds ``most_bytes`` by less than one file."""
    return sum(sizes) // (most_bytes + max(sizes, default=0)) + 1


def cuts_of(sampled: Iterable[tuple[Position, float]], count: int) -> tuple[Position, ...]:
    """Returns the positions that divide sampled rows into ``count`` shares of about the same size. ``sampled`` has the
    position and the size of each sampled row. If many positions are equal, or if a row is larger than a share, there
    are fewer than ``count`` shares."""
    found = sorted(sampled, key=lambda row: _ordered(row[0]))
    total, before = sum(size for _, size in found), 0.0
    chosen: dict[Position, None] = {}
    number = 1
    for position, size in found:
        # A row belongs to the share that contains its middle.
        while number < count and before + size / 2 >= total * number / count:
            chosen[position] = None
            number += 1
        before += size
    return tuple(position for position in chosen if _ordered(position) > _ordered(found[0][0]))


def _ordered(position: Position) -> tuple[Any, ...]:
    """Returns a sort key for positions that gives the same order as in Spark, where NULL is the smallest value of a
    column."""
    return tuple((value is not None, value) for value in position)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredShares:
    """The shares in a query's checkpoint. Several processes may use the shares at once, because a suspended owner may
    resume after another process has taken over."""

    warehouse: Warehouse
    checkpoint: str

    def of(self, end: TableEnd) -> Shares | None:
        """The shares of the commit or snapshot in which a batch ends; None if this commit or snapshot is not divided.
        Raises StalledError if the shares cannot be read."""
        stored = self._read(f"{place_of(end)}/{_FILES}")
        return None if stored is None else Shares.from_json(stored)

    def put(self, end: TableEnd, shares: Shares) -> Shares:
        """Stores the shares of a commit or snapshot, unless another process has already stored shares. Returns the
        stored shares.

        In a store without conditional writes, a process replaces the shares of another process if both store them
        within the duration of a request.
        """
        folder, text = f"{self._folder}/{place_of(end)}", shares.to_json()
        self.warehouse.make_folders(folder)
        # A store that ignores the condition would replace the shares of a process that has taken over meanwhile.
        stored = self.of(end)
        if stored is not None:
            return stored
        try:
            self.warehouse.write_new_text(f"{folder}/{_FILES}", text, is_durable=True)
        except FileExistsError:
            return self.of(end) or shares
        except OSError as error:
            if error.errno not in _UNSUPPORTED:
                raise
            stored = self.of(end)
            if stored is not None:
                return stored
            self.warehouse.write_text(f"{folder}/{_FILES}", text, is_durable=True)
        return shares

    def done_at(self, end: TableEnd) -> int | None:
        """The number of shares that were read when a batch ended at ``end``; None if the batch was read by files, as
        Delta has planned, and not in shares. Raises StalledError if the number is lost."""
        done: int | None = self._read(f"{place_of(end)}/{end.index}")
        if done is None and self._read(f"{place_of(end)}/{_FILES}") is not None:
            raise StalledError(f"CHECKPOINT lost: {self._folder}/{place_of(end)}/{end.index} does not exist: {_REMEDY}")
        return done

    def note_done(self, end: TableEnd, done: int) -> None:
        """Stores the number of shares that are read when a batch ends at ``end``."""
        self.warehouse.write_text(f"{self._folder}/{place_of(end)}/{end.index}", str(done), is_durable=True)

    def forget_read(self) -> None:
        """Removes the shares of the commits and snapshots that have been read completely. Keeps the shares of the
        commits and snapshots in which the last completed batch or the last planned batch ends. The next batch, or the
        repetition of the planned batch, needs these shares."""
        # The names are listed before the ends of the batches are read. Therefore, a process that was suspended in
        # between does not remove the shares that later batches of the next owner have stored.
        names = self.warehouse.list_names(self._folder)
        planned = newest_planned(self.warehouse, self.checkpoint) if names else -1
        if planned < 0:
            return
        try:
            needed = {
                place_of(end)
                for batch in {newest_completed(self.warehouse, self.checkpoint), planned} - {-1}
                for end in table_ends(self.warehouse, self.checkpoint, batch)
                if end.is_within
            }
        except (FileNotFoundError, ValueError):
            return  # Another process removes old batches, or the file is damaged: Spark reports that.
        for name in names:
            if name not in needed:
                self.warehouse.remove(f"{self._folder}/{name}")

    @property
    def _folder(self) -> str:
        return f"{self.checkpoint}/{SHARES}"

    def _read(self, name: str) -> Any:
        """Returns the content of a file in the folder of the shares; None if the file does not exist. Raises
        StalledError if the file cannot be read."""
        try:
            body = self.warehouse.read_json(f"{self._folder}/{name}")
        except FileNotFoundError:
            return None
        if body is None:
            raise StalledError(f"CHECKPOINT lost: {self._folder}/{name} cannot be read: {_REMEDY}")
        return body


def place_of(end: TableEnd) -> str:
    """The name of the commit or snapshot in which a batch ends. Sorting the names alphabetically sorts them by
    version."""
    return f"{end.version:020d}-{'snapshot' if end.is_snapshot else 'commit'}-{end.table}"
