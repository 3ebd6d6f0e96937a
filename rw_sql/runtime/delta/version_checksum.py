"""Tells Spark what a version of a table is, so that it need not find out: the version checksum file beside a commit.

Such a file holds a table's protocol and metadata, how many files it has, and their bytes (Delta protocol, "Version
Checksum File"). Where a version has none, Spark reads every commit since the last checkpoint for the first two, in a
job of its own whose generated code is another for each version. delta-rs writes none; we do for what it commits.
Where one is missing, because a process was killed in between, all is as before.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from rw_sql.runtime.delta.delta_log import read_actions

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from deltalake import DeltaTable

    from rw_sql.runtime.support.warehouse import Warehouse

logger = logging.getLogger(__name__)

Action = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableState:
    """What a table comes to at a version: its live files, their bytes, and its two actions that are no files."""

    version: int
    files: int
    bytes: int
    metadata: Action
    protocol: Action

    def after(self, actions: Iterable[Action]) -> TableState | None:
        """What the next version comes to; None where its commit does not say how large what it removes is."""
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
    """The checksum files of one table, written by the one job that commits to it."""

    warehouse: Warehouse
    path: str
    _known: TableState | None = field(default=None, init=False)

    def write(self, table: DeltaTable, *, anew: bool = False) -> None:
        """Writes the checksum of the version that the handle stands at, which was just committed through it.

        ``anew`` counts the table's files instead of going on from the version before.
        """
        try:
            version = table.version()
            if self._known is not None and self._known.version == version:
                return
            told = self._read(version)
            if told is not None:  # Spark's own, of a commit of Spark's
                self._known = told
                return
            state = None if anew else self._next(version)
            self._known = state or self._counted(table)
            if self._known is not None:
                self.warehouse.write_text(_file(self.path, version), self._known.to_json() + "\n")
        except Exception as error:  # noqa: BLE001 - the commit is made, whatever becomes of this
            # Spark finds out by itself.
            self._known = None
            logger.warning("no checksum of %s: %s", self.path, error)

    def _next(self, version: int) -> TableState | None:
        before = self._known
        if before is None or before.version != version - 1:
            before = self._read(version - 1)
        return before.after(read_actions(self.warehouse, self.path, version)) if before is not None else None

    def _counted(self, table: DeltaTable) -> TableState | None:
        """The state at the handle's version, by what the handle knows of its files."""
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
        """The metadata and the protocol in the newest checkpoint, and its version; None and -1 where there is none."""
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
        """What a version's checksum file says, ours or Spark's; None where there is none, or not all of it."""
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
    """An action without what it does not say: a checkpoint has each field, and delta-rs writes some that are null."""
    return None if action is None else {key: value for key, value in action.items() if value is not None}
