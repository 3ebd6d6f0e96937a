"""Plans and completes batches in a query's checkpoint, in place of Spark.

The module serves stateless queries that read one Delta table. This module writes the files that Spark's query would
write. Therefore, Spark's query can continue where this module has ended, and vice versa. The file ``offsets/N`` is
written before batch ``N`` writes anything, and the file ``commits/N`` is written after batch ``N``. Both files are
copies of the previous batch's files, and therefore have the form in which Spark wrote the checkpoint's first files. A
copy differs from the original only in the time of the batch and in the version at the batch's end.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from rw_sql.runtime.positions.progress import batches_in

if TYPE_CHECKING:
    from rw_sql.runtime.support.warehouse import Warehouse

_KEPT = 100
"""The number of batches whose files are kept. Spark keeps the same number of batches
(``spark.sql.streaming.minBatchesToRetain``)."""


@dataclass(slots=True)
class CheckpointBatches:
    """The batches of one query. Not thread-safe. While this object is in use, Spark's query must not run.

    ``done`` is the last completed batch. ``begin`` is the version at which the next batch begins, which is the version
    after the last one that the batch ``done`` has read. If the batch ``done + 1`` was planned but not completed,
    ``planned`` is the version after the last one that this planned batch reads; otherwise, ``planned`` is None.
    """

    warehouse: Warehouse
    checkpoint: str
    done: int
    begin: int
    planned: int | None
    _entry: _Entry
    _commit: str

    @staticmethod
    def of(warehouse: Warehouse, checkpoint: str, table: str) -> CheckpointBatches | None:
        """The batches of a checkpoint whose query reads the Delta table with the id ``table``.

        Returns None if only Spark can continue: no batch is complete, the newest batch ends within a version or within
        a snapshot, or the query has other inputs.
        """
        offsets, commits = (batches_in(warehouse, f"{checkpoint}/{folder}") for folder in ("offsets", "commits"))
        if not commits or commits[-1] not in offsets or offsets[-1] - commits[-1] > 1:
            return None
        done, planned = _entry_of(warehouse, checkpoint, commits[-1]), None
        if done is None or done.table != table:
            return None
        if offsets[-1] > commits[-1]:
            planned = _entry_of(warehouse, checkpoint, offsets[-1])
            if planned is None or planned.table != table:
                return None
        return CheckpointBatches(
            warehouse=warehouse,
            checkpoint=checkpoint,
            done=commits[-1],
            begin=done.end,
            planned=None if planned is None else planned.end,
            _entry=planned or done,
            _commit=warehouse.read_text(f"{checkpoint}/commits/{commits[-1]}"),
        )

    def plan(self, end: int) -> int:
        """Plans the next batch, which reads the versions from ``begin`` to ``end`` (exclusive). Returns the number of
        the batch.

        Raises FileExistsError if another process has planned this batch.
        """
        self._entry = replace(
            self._entry,
            times={**self._entry.times, "batchTimestampMs": int(time.time() * 1000)},
            offset={**self._entry.offset, "reservoirVersion": end},
        )
        number = self.done + 1
        self.warehouse.write_new_text(f"{self.checkpoint}/offsets/{number}", self._entry.to_text())
        self.planned = end
        return number

    def complete(self) -> None:
        """Completes the planned batch, and removes the files of the batch that is ``_KEPT`` batches older."""
        if self.planned is None:
            raise ValueError("no batch is planned")
        number = self.done + 1
        self.warehouse.write_text(f"{self.checkpoint}/commits/{number}", self._commit)
        self.done, self.begin, self.planned = number, self.planned, None
        for folder in ("offsets", "commits"):
            self.warehouse.remove(f"{self.checkpoint}/{folder}/{number - _KEPT}")


def end_of_batch(warehouse: Warehouse, checkpoint: str, number: int) -> int | None:
    """Returns the first version after a planned batch. Returns None if the batch does not end with a whole version, or
    if the batch reads several inputs."""
    entry = _entry_of(warehouse, checkpoint, number)
    return None if entry is None else entry.end


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    """An entry of the offset log. The fields are the version of the entry's format, the batch's times and settings, and
    the offset of the only input."""

    version: str
    times: dict[str, Any]
    offset: dict[str, Any]

    @property
    def end(self) -> int:
        """The version after the last version that the batch reads."""
        return int(self.offset["reservoirVersion"])

    @property
    def table(self) -> str:
        """The Delta id of the table."""
        return str(self.offset["reservoirId"])

    def to_text(self) -> str:
        return "\n".join(
            (self.version, *(json.dumps(line, separators=(",", ":")) for line in (self.times, self.offset)))
        )


def _entry_of(warehouse: Warehouse, checkpoint: str, number: int) -> _Entry | None:
    """Returns a batch's entry. Returns None if the entry does not have exactly one offset of a Delta table, or if the
    batch does not end with a whole version."""
    lines = warehouse.read_text(f"{checkpoint}/offsets/{number}").split("\n")
    try:
        version, times, offset = lines[0], *map(json.loads, lines[1:])
        is_whole = "reservoirId" in offset and not offset.get("isStartingVersion") and offset["index"] < 0
        return _Entry(version=version, times=times, offset=offset) if is_whole else None
    except (KeyError, TypeError, ValueError):
        return None  # The entry has more or fewer offsets, or its file is damaged: Spark reports that.
