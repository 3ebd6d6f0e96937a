"""Detects that a Delta table was deleted, created again or replaced while this process has a handle on the table.

delta-rs updates a handle by applying the commits after the handle's version. If the table was created again and already
has later versions than the handle, the handle silently becomes a mixture of the old and the new table. Before each
update, the sink therefore checks that the file of a known commit still has the same size and modification time. The
check takes a tenth of a millisecond on a local path, and one request in an object store.

``CREATE OR REPLACE TABLE`` keeps the log and gives the table another id. After each update, the sink therefore compares
the table's id with the id that the table had when the sink opened it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rw_sql.connectors.sink import TargetUnfitError
from rw_sql.packages import deferred

if TYPE_CHECKING:
    import deltalake
    from deltalake import exceptions
else:
    deltalake, exceptions = map(deferred, ("deltalake", "deltalake.exceptions"))

_Stamp = tuple[int | None, int | None]


class SeenLog:
    """Checks whether the log of an open table is still the same log. The check compares the size and the modification
    time of one commit's file. Not thread-safe."""

    def __init__(self, table: deltalake.DeltaTable, storage: dict[str, str]) -> None:
        from deltalake.fs import DeltaStorageHandler

        self._uri = table.table_uri
        self._storage = storage
        self._id = str(table.metadata().id)
        self._files = DeltaStorageHandler(self._uri, storage)
        self._version = -1
        self._stamp: _Stamp = (None, None)
        self.see(table)

    def see(self, table: deltalake.DeltaTable) -> None:
        """Remembers the size and the modification time of the file of the handle's newest commit."""
        self._version = table.version()
        self._stamp = self._stamp_of(self._version)

    def same_table(self, table: deltalake.DeltaTable) -> deltalake.DeltaTable:
        """Returns ``table`` if the remembered file is unchanged. If the file is missing or changed, but the table has
        the same id, returns a new handle. The cleanup of the log may have removed the file.

        Raises TargetUnfitError if the table was deleted, or was deleted and created again.
        """
        if self._stamp[1] is not None and self._stamp_of(self._version) == self._stamp:
            return table
        return self._reopened()

    def newest(self, table: deltalake.DeltaTable) -> deltalake.DeltaTable:
        """Advances the handle to the newest version. Returns a new handle if delta-rs cannot apply the commits in
        between. The cleanup of the log may have removed these commits."""
        try:
            table.update_incremental()
        except exceptions.DeltaError:
            return self._reopened()
        return table

    def _reopened(self) -> deltalake.DeltaTable:
        try:
            found = deltalake.DeltaTable(self._uri, storage_options=self._storage)
        except exceptions.TableNotFoundError as error:
            raise TargetUnfitError(f"the table at {self._uri} was deleted") from error
        if str(found.metadata().id) != self._id:
            raise TargetUnfitError(f"the table at {self._uri} was deleted and created again")
        self.see(found)
        return found

    def require_id(self, table: deltalake.DeltaTable) -> None:
        """Raises TargetUnfitError if the table's id has changed because another table replaced it."""
        if str(table.metadata().id) != self._id:
            raise TargetUnfitError(f"the table at {self._uri} was replaced by another table")

    def read(self, version: int) -> str | None:
        """The text of a commit; None if the commit was cleaned up."""
        try:
            with self._files.open_input_file(_file_of(version)) as file:
                return bytes(file.read()).decode()
        except FileNotFoundError:
            return None

    def _stamp_of(self, version: int) -> _Stamp:
        (found,) = self._files.get_file_info([_file_of(version)])
        return found.size, found.mtime_ns


def _file_of(version: int) -> str:
    return f"_delta_log/{version:020d}.json"
