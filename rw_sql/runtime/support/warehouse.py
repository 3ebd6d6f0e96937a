"""The paths in a warehouse, and access to plain files through fsspec."""

from __future__ import annotations

import errno
import json
import logging
import os
import re
import time
import uuid
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import fsspec

from rw_sql.checkpoints.files import sync
from rw_sql.metastore.location import absolute_path, require_fit, require_folder
from rw_sql.object_stores import StoreFiles, local_location, one_line
from rw_sql.runtime.support.store_environment import complete_environment

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

logger = logging.getLogger(__name__)

_EXISTS = re.compile(
    r"PreconditionFailed|pre-conditions you specified did not hold|specified blob already exists|BlobAlreadyExists"
    r"|error occurred \(412\)"
)
"""Matches the text or the code with which an object store responds to a request to create an object that exists
already."""


@dataclass(frozen=True)
class PlainFiles:
    """Access to the plain files below a URI (or absolute local path)."""

    uri: str

    @property
    def is_local(self) -> bool:
        """True for a local path. If the path is not local, process ids do not show whether the owner of a warehouse is
        alive."""
        return "://" not in self.uri or self.uri.startswith("file://")

    @cached_property
    def files(self) -> AbstractFileSystem:
        """The file system of the warehouse. Listings are not cached, because other processes and Spark write to the
        same files.

        If the store does not respond, the file system raises OSError, regardless of the error that the store's client
        raises.
        """
        system = fsspec.core.url_to_fs(self.uri, use_listings_cache=False)[0]
        return system if self.is_local else cast("AbstractFileSystem", StoreFiles(system))

    def read_text(self, path: str) -> str:
        """Reads the text of a file. Raises FileNotFoundError.

        Uses a single request. Opening the file would first request its size and tag, and fail if the file is
        replaced in between.
        """
        data: bytes = self.files.cat_file(path)
        return data.decode("utf-8")

    def read_json(self, path: str) -> Any:
        """The content of a JSON file of rw_sql. If the content is not JSON, logs a warning and returns None. Raises
        FileNotFoundError.

        After a power cut, a file that was written without ``is_durable`` shortly before may be empty.
        """
        try:
            return json.loads(self.read_text(path))
        except ValueError as error:
            logger.warning("%s is not JSON, as after a power cut, and is ignored: %s", path, error)
            return None

    def write_text(self, path: str, text: str, *, is_durable: bool = False) -> None:
        """Writes a file atomically, creating its folder.

        If ``is_durable`` is true, a file on a local path is on the disk when this method returns. Callers set
        ``is_durable`` only for files that cannot be computed again, because a durable write may take a tenth of a
        second. In an object store, every file is durable.
        """
        if not self.is_local:
            self.files.pipe_file(path, text.encode("utf-8"))
            return
        self.files.makedirs(path.rpartition("/")[0], exist_ok=True)
        unfinished = f"{path}.{uuid.uuid4().hex}.writing"
        try:
            self.files.write_text(unfinished, text, encoding="utf-8")
            if is_durable:
                sync(self.files._strip_protocol(unfinished))
            self.files.mv(unfinished, path)
            if is_durable:
                sync(self.files._strip_protocol(path.rpartition("/")[0]))
        except OSError:
            # A full disk still accepts an empty file, so each repetition of the write would leave an empty file.
            with suppress(OSError):
                self.files.rm_file(unfinished)
            raise

    def write_new_text(self, path: str, text: str, *, is_durable: bool = False) -> None:
        """Writes a file atomically into an existing folder. Raises FileExistsError if the file exists.

        ``is_durable`` has the same meaning as for :meth:`write_text`. In an object store, the client repeats a request
        whose response is lost. In this case, the existing file may be the file that this call has written.
        """
        if not self.is_local:
            self._put_new(path, text.encode("utf-8"))
            return
        unfinished = f"{path}.{uuid.uuid4().hex}.writing"
        try:
            self.files.write_text(unfinished, text, encoding="utf-8")
            if is_durable:
                sync(self.files._strip_protocol(unfinished))
            os.link(self.files._strip_protocol(unfinished), self.files._strip_protocol(path))
            if is_durable:
                sync(self.files._strip_protocol(path.rpartition("/")[0]))
        finally:
            with suppress(OSError):
                self.files.rm_file(unfinished)

    def _put_new(self, path: str, data: bytes) -> None:
        """Writes an object with one request that the store refuses if the object exists."""
        # adlfs has another argument for the condition than the other packages.
        condition = {"overwrite": False} if "abfs" in self.files.protocol else {"mode": "create"}
        try:
            self.files.pipe_file(path, data, **condition)
        except OSError as error:
            # s3fs leaves out the code, and stores differ in the text. The client's own error has the code.
            if error.errno == errno.EEXIST or _EXISTS.search(f"{error} {error.__cause__}") is not None:
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path) from error
            raise

    def older_files(self, folder: str, seconds: float) -> list[str]:
        """The files below a folder that are older than ``seconds``, as relative paths."""
        before = time.time() - seconds
        found: dict[str, dict[str, Any]] = self.files.find(folder, detail=True)
        root = self.files._strip_protocol(folder).rstrip("/") + "/"
        old = (path.removeprefix(root) for path, of in found.items() if _written_at(of) < before)
        return sorted(path for path in old if path and not path.endswith("/"))

    def make_folders(self, *paths: str) -> None:
        """Creates folders with their parents; does nothing in an object store, which has no folders."""
        if self.is_local:
            for path in paths:
                self.files.makedirs(path, exist_ok=True)

    def exists(self, path: str) -> bool:
        """True if a file or folder exists."""
        return bool(self.files.exists(path))

    def has_file(self, path: str) -> bool:
        """True if a file exists that is not empty. Uses a single request in an object store, where :meth:`exists` also
        lists a folder if there is no such file. Raises PermissionError if the store does not report whether the file
        exists."""
        try:
            self.files.cat_file(path, start=0, end=1)
        except FileNotFoundError:
            return False
        return True

    def list_names(self, folder: str) -> list[str]:
        """The names in a folder; empty if the folder does not exist.

        In an object store, Hadoop marks an empty folder with an object, which the listing includes.
        """
        own = str(self.files._strip_protocol(folder)).rstrip("/")
        try:
            found = [str(path).rstrip("/") for path in self.files.ls(folder, detail=False)]
        except FileNotFoundError:
            return []
        return [path.rpartition("/")[2] for path in found if path != own]

    def remove(self, path: str) -> None:
        """Deletes a file, or a folder with its content; does nothing if the path does not exist."""
        try:
            self.files.rm(path, recursive=True)
        except FileNotFoundError:
            return


@dataclass(frozen=True)
class Warehouse(PlainFiles):
    """A warehouse by its URI (or absolute local path). Data paths contain ids and generations, never names."""

    @staticmethod
    def at(location: str) -> Warehouse:
        """The warehouse at a path or URI. Paths are made absolute; a URI of the scheme ``file`` becomes a path.

        Raises SqlError INVALID_PARAMETER for a location that the libraries that access a warehouse would interpret in
        different ways. Raises FILE_UNREADABLE for a path that depends on a deleted current folder or a missing home
        folder, or that has a file in the place of a folder.
        """
        location = local_location(location)
        if "://" not in location:
            path = str(absolute_path(location))
            require_fit(path)
            require_folder(path)
            return Warehouse(path)
        require_fit(location)
        complete_environment(location, os.environ)
        return Warehouse(location.rstrip("/"))

    def data(self, object_id: int, generation: int) -> str:
        """The Delta table of a source's log or a view's rows."""
        return f"{self.uri}/data/{object_id}/{generation}"

    def history(self, view_id: int, generation: int, source_id: int) -> str:
        """The staging table of one input of a view's backfill."""
        return f"{self.uri}/data/{view_id}/history-{generation}-{source_id}"

    def staging(self, table_id: int, generation: int) -> str:
        """The path of the staging table of a table's refreshes. In an object store, the result is the path of a folder
        that contains one staging table per refresh."""
        return f"{self.uri}/data/{table_id}/refresh-{generation}"

    def rejected(self, sink_id: int, generation: int) -> str:
        """The table of rows that a sink's target refused."""
        return f"{self.uri}/data/{sink_id}/rejected-{generation}"

    def view_checkpoint(self, view_id: int, generation: int) -> str:
        """The checkpoint of a view, kept as long as the view."""
        return f"{self.uri}/checkpoints/mv-{view_id}/{generation}"

    def sink_checkpoint(self, sink_id: int, generation: int) -> str:
        """The checkpoint of a sink, kept as long as the sink."""
        return f"{self.uri}/checkpoints/sink-{sink_id}/{generation}"

    def ingest_checkpoints(self, source_id: int) -> str:
        """The folder with an ingest job's checkpoints, one per run."""
        return f"{self.uri}/checkpoints/ingest-{source_id}"

    def replaced_files(self, object_id: int, generation: int) -> str:
        """The folder with lists of a table's replaced files that still exist."""
        return f"{self.uri}/checkpoints/upkeep-{object_id}/{generation}"

    def last_upkeep(self, object_id: int, generation: int) -> str:
        """The file with the version and the time of a table's last upkeep."""
        return f"{self.uri}/checkpoints/upkeep-{object_id}/{generation}-last.json"

    def cleaned_ranges(self, source_id: int, generation: int) -> str:
        """The file with the ranges of offsets that the cleaned-up commits of a source's log had read."""
        return f"{self.uri}/checkpoints/ranges-{source_id}/{generation}-cleaned.json"

    def range_history(self, source_id: int, generation: int) -> str:
        """The file with the ranges of offsets that the cleaned-up commits of a source's log had read, separately for
        the time after each operation."""
        return f"{self.uri}/checkpoints/ranges-{source_id}/{generation}-history.json"

    def read_ranges(self, source_id: int, generation: int) -> str:
        """The file with the ranges of offsets that a source's log contains."""
        return f"{self.uri}/checkpoints/ranges-{source_id}/{generation}.json"

    def files_at(self, path: str) -> PlainFiles:
        """Access to the files below ``path``, which may be a table of the user in another store than the warehouse.

        The scheme of the URI determines the file system, which takes its keys from the environment. Raises OSError if
        the file system cannot be opened, for example because its package is not installed.
        """
        if path.startswith(f"{self.uri}/") or (self.is_local and "://" not in path):
            return self
        complete_environment(path, os.environ)
        found = PlainFiles(path)
        try:
            _ = found.files
        except (ImportError, ValueError) as error:  # The package is missing, or fsspec does not know the scheme.
            raise OSError(f"{path}: {one_line(error)}") from error
        return found


def _written_at(of: dict[str, Any]) -> float:
    """The time when a file was written, in seconds since 1970. If the file system does not report this time, the result
    is the current time."""
    at = next((of[key] for key in _WRITTEN_KEYS if of.get(key) is not None), None)
    if isinstance(at, str):
        at = datetime.fromisoformat(at)
    if isinstance(at, datetime):
        return at.timestamp()
    return float(at) if at is not None else time.time()


_WRITTEN_KEYS = ("mtime", "LastModified", "last_modified", "updated")
"""The names under which the file systems report the time when a file was written. The first name is that of local file
systems and GCS, the second that of S3, the third that of Azure, and the fourth that of GCS."""
