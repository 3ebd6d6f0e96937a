"""The paths in a warehouse, and access to its files that are not Delta tables. The access uses fsspec."""

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
"""Matches the text or the code of an object store's response to a request to create an object that already exists."""


@dataclass(frozen=True)
class PlainFiles:
    """Access to the files below a URI or an absolute local path."""

    uri: str

    @property
    def is_local(self) -> bool:
        """True for a path on this machine's file systems; False for an object store. The owner of a warehouse in an
        object store may be on another machine. Its process id then does not show whether the owner is alive."""
        return "://" not in self.uri or self.uri.startswith("file://")

    @cached_property
    def files(self) -> AbstractFileSystem:
        """The file system that contains the URI. Listings are not cached, because other processes and Spark create and
        delete files in the same folders.

        If an object store does not respond, the file system always raises OSError. Other errors of the store's client
        are converted to OSError.
        """
        system = fsspec.core.url_to_fs(self.uri, use_listings_cache=False)[0]
        return system if self.is_local else cast("AbstractFileSystem", StoreFiles(system))

    def read_text(self, path: str) -> str:
        """Reads the text of a file. Raises FileNotFoundError.

        In an object store, this takes a single request. If the file were opened instead, the client would first request
        its size and tag, and the read would fail if another process replaced the file between these two requests.
        """
        data: bytes = self.files.cat_file(path)
        return data.decode("utf-8")

    def read_json(self, path: str) -> Any:
        """The content of a JSON file that rw_sql has written. If the content is not JSON, logs a warning and returns
        None. Raises FileNotFoundError.

        A file that was written without ``is_durable`` shortly before a power cut may be empty afterwards.
        """
        try:
            return json.loads(self.read_text(path))
        except ValueError as error:
            logger.warning("%s is not JSON, as after a power cut, and is ignored: %s", path, error)
            return None

    def write_text(self, path: str, text: str, *, is_durable: bool = False) -> None:
        """Writes a file atomically. If the file's folder does not exist, creates the folder.

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
        whose response was lost. FileExistsError may then refer to the file that the first request of this call has
        written.
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
        """The files below a folder that were last written more than ``seconds`` ago, as paths relative to the
        folder."""
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
        """True if a file exists at this path. Must be called only for files that are never empty. In an object store,
        this method takes a single request, whereas :meth:`exists` also lists a folder if the file does not exist.
        Raises PermissionError if the store refuses to report whether the file exists."""
        try:
            self.files.cat_file(path, start=0, end=1)
        except FileNotFoundError:
            return False
        return True

    def list_names(self, folder: str) -> list[str]:
        """The names in a folder; empty if the folder does not exist.

        In an object store, Hadoop marks an empty folder with an object. This object is not among the names.
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
    """A warehouse at a URI or an absolute local path. The paths of its tables and checkpoints contain ids and
    generations of objects, never their names."""

    @staticmethod
    def at(location: str) -> Warehouse:
        """The warehouse at a path or URI. Paths are made absolute; a URI of the scheme ``file`` becomes a path.

        Raises SqlError INVALID_PARAMETER for a location that Spark, delta-rs and fsspec would interpret in different
        ways. Raises FILE_UNREADABLE for a relative path if the current folder was deleted, and for a path with ``~`` if
        the user has no home folder. Also raises FILE_UNREADABLE if a file is in the place of one of the path's folders.
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
        """The path of the Delta table that contains a source's log, or the rows of a view or table."""
        return f"{self.uri}/data/{object_id}/{generation}"

    def history(self, view_id: int, generation: int, source_id: int) -> str:
        """The path of the staging table from which a view's backfill reads one input."""
        return f"{self.uri}/data/{view_id}/history-{generation}-{source_id}"

    def staging(self, table_id: int, generation: int) -> str:
        """The path of the staging table for all refreshes of a table. In an object store, this is instead the path of a
        folder with one staging table per refresh."""
        return f"{self.uri}/data/{table_id}/refresh-{generation}"

    def rejected(self, sink_id: int, generation: int) -> str:
        """The path of the table with the rows that a sink's target refused."""
        return f"{self.uri}/data/{sink_id}/rejected-{generation}"

    def view_checkpoint(self, view_id: int, generation: int) -> str:
        """The path of a view's checkpoint, which is kept as long as the view exists."""
        return f"{self.uri}/checkpoints/mv-{view_id}/{generation}"

    def sink_checkpoint(self, sink_id: int, generation: int) -> str:
        """The path of a sink's checkpoint, which is kept as long as the sink exists."""
        return f"{self.uri}/checkpoints/sink-{sink_id}/{generation}"

    def ingest_checkpoints(self, source_id: int) -> str:
        """The folder with the checkpoints of a source's ingest job, one per run."""
        return f"{self.uri}/checkpoints/ingest-{source_id}"

    def replaced_files(self, object_id: int, generation: int) -> str:
        """The folder with lists of data files that commits have removed from a table and that upkeep must still
        delete."""
        return f"{self.uri}/checkpoints/upkeep-{object_id}/{generation}"

    def last_upkeep(self, object_id: int, generation: int) -> str:
        """The JSON file with the table's version at its last upkeep, and the times of its last upkeep, search and
        compaction."""
        return f"{self.uri}/checkpoints/upkeep-{object_id}/{generation}-last.json"

    def cleaned_ranges(self, source_id: int, generation: int) -> str:
        """The file with the ranges of offsets that were read by those commits of a source's log that upkeep has
        deleted."""
        return f"{self.uri}/checkpoints/ranges-{source_id}/{generation}-cleaned.json"

    def range_history(self, source_id: int, generation: int) -> str:
        """The file with the ranges that :meth:`cleaned_ranges` contains, but recorded separately for the time after
        each operation on the source."""
        return f"{self.uri}/checkpoints/ranges-{source_id}/{generation}-history.json"

    def read_ranges(self, source_id: int, generation: int) -> str:
        """The file with the ranges of offsets that a source's log contains."""
        return f"{self.uri}/checkpoints/ranges-{source_id}/{generation}.json"

    def files_at(self, path: str) -> PlainFiles:
        """Access to the files below ``path``, which may be a table of the user. Its store may differ from the
        warehouse's store.

        The scheme of the URI determines the file system. Access keys come from the environment. Raises OSError if the
        file system cannot be opened, for example because its package is not installed.
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
"""The names under which the file systems report the time when a file was written. Local file systems use the first
name, S3 the second, Azure the third, and GCS the first and the fourth."""
