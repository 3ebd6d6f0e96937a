"""Writes version checksum files, which save Spark the computation of the state of a table's version.

A checksum file contains a table's protocol and metadata, the number of files, and the total size of the files (Delta
protocol, "Version Checksum File"). If there is no checksum file, Spark runs a job to find the protocol and the
metadata. This job reads every commit since the last checkpoint, and Spark compiles new code for the job at each
version. The library delta-rs does not write checksum files, so rw_sql writes them for its own commits. If a checksum
file is missing because a process was killed, Spark reads the log instead.

After a commit, delta-rs updates its own state of the table, which takes 4 to 10 ms. On a local path, another thread
writes the checksum file at the same time. Without the checksum file, a view needs 0.12 s more to read the new version.
"""

from __future__ import annotations

import json
import logging
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from rw_sql.runtime.delta.delta_log import commit_path, read_actions
from rw_sql.runtime.support.write_obstacles import obstacle_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from deltalake import DeltaTable

    from rw_sql.runtime.support.warehouse import Warehouse

logger = logging.getLogger(__name__)

Action = dict[str, Any]

_LOOK_SECONDS = 0.0005
"""The interval in seconds between two checks for the file of a commit in progress."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableState:
    """The state of a table at a version: the number of live files, their total size in bytes, metadata and
    protocol."""

    version: int
    files: int
    bytes: int
    metadata: Action
    protocol: Action

    def after(self, actions: Iterable[Action]) -> TableState | None:
        """The state after the next commit, which has these actions; None if the commit does not state the size of a
        removed file."""
        files, size, metadata, protocol = self.files, self.bytes, self.metadata, self.protocol
        for action in actions:
            if "add" in action:
                files, size = files + 1, size + action["add"]["size"]
            elif "remove" in action:
                removed = action["remove"].get("size")
                if removed is None:
                    return None
                files, size = files - 1, size - removed
            metadata = _told(action.get("metaData")) or metadata
            protocol = _told(action.get("protocol")) or protocol
        return TableState(version=self.version + 1, files=files, bytes=size, metadata=metadata, protocol=protocol)

    def to_json(self) -> str:
        """The content of the checksum file."""
        return json.dumps(
            {
                "tableSizeBytes": self.bytes,
                "numFiles": self.files,
                "numMetadata": 1,
                "numProtocol": 1,
                "metadata": self.metadata,
                "protocol": self.protocol,
            },
            separators=(",", ":"),
        )


@dataclass(slots=True)
class VersionChecksums:
    """The checksum files of one table. Only the job that commits to the table writes these files."""

    warehouse: Warehouse
    path: str
    _known: TableState | None = field(default=None, init=False)

    def write(self, table: DeltaTable, *, recount: bool = False) -> None:
        """Writes the checksum of the version of ``table``, which was just committed through this object.

        If ``recount`` is true, counts the table's files again instead of updating the previous state.
        """
        try:
            version = table.version()
            if self._known is not None and self._known.version == version:
                return
            written = self._read(version)
            if written is not None:  # Spark writes the checksum of its own commits.
                self._known = written
                return
            state = None if recount else self._next(version)
            self._known = state or self._counted(table)
            if self._known is not None:
                self.warehouse.write_text(_file(self.path, version), self._known.to_json() + "\n")
        except Exception as error:  # noqa: BLE001 - the commit stays valid without a checksum
            # Without the file, Spark computes the state itself.
            self._known = None
            # If there is an obstacle, the owner's next heartbeat logs it.
            if obstacle_of(error, self.warehouse.uri) is None:
                logger.warning("no checksum was written for %s: %s", self.path, error)

    @contextmanager
    def committing(self, table: DeltaTable) -> Iterator[None]:
        """A context manager for one commit through ``table``. On a local path, if the checksum of the version of
        ``table`` is known, writes the checksum of the next version as soon as the commit's file exists.

        If another process commits that version, the checksum describes that process's commit. The caller must still
        call :meth:`write` after the commit.
        """
        known = self._known
        if not self.warehouse.is_local or known is None or known.version != table.version():
            yield
            return
        over = threading.Event()
        thread = threading.Thread(target=self._write_next, args=(known, over), name="rw_sql-checksum", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def _write_next(self, before: TableState, over: threading.Event) -> None:
        """Waits until the version after ``before`` exists, and writes the checksum of this version. Writes nothing if
        ``over`` is set before this version exists. If this method fails, :meth:`write` tries again, and logs the reason
        if it fails too."""
        version = before.version + 1
        try:
            while not self.warehouse.exists(commit_path(self.path, version)):
                if over.wait(_LOOK_SECONDS):
                    return
            state = before.after(read_actions(self.warehouse, self.path, version))
            if state is not None and not self.warehouse.exists(_file(self.path, version)):
                self.warehouse.write_text(_file(self.path, version), state.to_json() + "\n")
                self._known = state
        except Exception:
            logger.debug("version %d of %s has no checksum yet", version, self.path, exc_info=True)

    def _next(self, version: int) -> TableState | None:
        before = self._known
        if before is None or before.version != version - 1:
            before = self._read(version - 1)
        return before.after(read_actions(self.warehouse, self.path, version)) if before is not None else None

    def _counted(self, table: DeltaTable) -> TableState | None:
        """Returns the state at the version of ``table``, computed from the table's list of files."""
        version = table.version()
        told = self._read(version - 1)
        metadata, protocol, seen = (
            self._checkpointed() if told is None else (told.metadata, told.protocol, told.version)
        )
        for newer in range(seen + 1, version + 1):
            for action in read_actions(self.warehouse, self.path, newer):
                metadata = _told(action.get("metaData")) or metadata
                protocol = _told(action.get("protocol")) or protocol
        if metadata is None or protocol is None:
            return None
        sizes = pa.table(table.get_add_actions()).column("size_bytes").to_pylist()
        return TableState(version=version, files=len(sizes), bytes=sum(sizes), metadata=metadata, protocol=protocol)

    def _checkpointed(self) -> tuple[Action | None, Action | None, int]:
        """Returns the metadata and the protocol in the newest checkpoint, and the version of this checkpoint. If the
        table has no checkpoint, returns None, None and -1."""
        folder = f"{self.path}/_delta_log"
        try:
            version = int(json.loads(self.warehouse.read_text(f"{folder}/_last_checkpoint"))["version"])
            with self.warehouse.files.open(f"{folder}/{version:020d}.checkpoint.parquet", "rb") as file:
                rows = pq.read_table(file, columns=["metaData", "protocol"]).to_pylist(maps_as_pydicts="strict")
        except FileNotFoundError:
            return None, None, -1
        metadata = next((row["metaData"] for row in rows if row["metaData"] is not None), None)
        protocol = next((row["protocol"] for row in rows if row["protocol"] is not None), None)
        return _told(metadata), _told(protocol), version

    def _read(self, version: int) -> TableState | None:
        """Reads the state from a version's checksum file, which rw_sql or Spark has written. Returns None if the file
        is missing or incomplete."""
        try:
            told = json.loads(self.warehouse.read_text(_file(self.path, version)))
        except FileNotFoundError:
            return None
        if not told.get("metadata") or not told.get("protocol"):
            return None
        return TableState(
            version=version,
            files=told["numFiles"],
            bytes=told["tableSizeBytes"],
            metadata=told["metadata"],
            protocol=told["protocol"],
        )


def _file(table: str, version: int) -> str:
    return f"{table}/_delta_log/{version:020d}.crc"


def _told(action: Mapping[str, Any] | None) -> Action | None:
    """Returns an action without the fields that are null. In a checkpoint, each action has all fields, and some of
    these fields are null."""
    return None if action is None else {key: value for key, value in action.items() if value is not None}
