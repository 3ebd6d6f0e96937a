"""Notices that a Delta table was deleted, and perhaps created again, while a handle of it is open.

delta-rs updates a handle from the commits after the handle's version. If another table at the same place has so many
commits, the handle silently becomes a mixture of both. Therefore, the file of a known commit is compared first. This
takes a tenth of a millisecond on a local path, and one request in an object store.
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
    """The log of an open table, by the file of one of its commits. Not thread-safe."""

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
        """Remembers the newest commit of the handle, which has just been read or written."""
        self._version = table.version()
        self._stamp = self._stamp_of(self._version)

    def same_table(self, table: deltalake.DeltaTable) -> deltalake.DeltaTable:
        """The handle if the table is the same; a new handle if only the commit's file was cleaned up.

        Raises TargetUnfitError if the table no longer exists, or is another table.
        """
        if self._stamp[1] is not None and self._stamp_of(self._version) == self._stamp:
            return table
        try:
            found = deltalake.DeltaTable(self._uri, storage_options=self._storage)
        except exceptions.TableNotFoundError as error:
            raise TargetUnfitError(f"the table at {self._uri} was deleted") from error
        if str(found.metadata().id) != self._id:
            raise TargetUnfitError(f"the table at {self._uri} was deleted and created again")
        self.see(found)
        return found

    def _stamp_of(self, version: int) -> _Stamp:
        (found,) = self._files.get_file_info([f"_delta_log/{version:020d}.json"])
        return found.size, found.mtime_ns
