"""Rewrites a view's checkpoint so that the view's query continues in the logs of the sources instead of the staging
tables.

This module rewrites the last committed entry of the offset log and the entry before it, because Delta reads both
entries again when the query starts. The operator state and the watermark remain unchanged. The query therefore
continues with the state that the backfill has produced.
"""

from __future__ import annotations

import json
import time
import uuid
from typing import TYPE_CHECKING, Any

from rw_sql.checkpoints.files import CheckpointFiles
from rw_sql.runtime.spark.sessions import SHUFFLE_PARTITIONS
from rw_sql.runtime.support.failures import StalledError
from rw_sql.runtime.support.faults import fault

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from rw_sql.runtime.support.warehouse import Warehouse


def stands_in(checkpoint: str, tables: Collection[str]) -> bool:
    """True if the offset entries that the query reads at its start refer to one of ``tables`` (Delta ids), or if the
    checkpoint has no entries."""
    files = CheckpointFiles.at(checkpoint)
    newest = _newest_two(files)
    return not newest or any(not _tables_at(files, batch).isdisjoint(tables) for batch in newest)


def begin_at(warehouse: Warehouse, checkpoint: str, table: str, version: int, parallelism: int) -> None:
    """Creates a checkpoint with which a new stateless query begins at ``version`` of ``table``. The only batch in the
    checkpoint ends before this version.

    A checkpoint is used because Spark's options cannot name a start version that does not exist yet. The checkpoint's
    entry includes the number of shuffle partitions, because Spark reads this number from the entry if the next batch
    was planned but not finished. Without this number, each start of a query with a planned but unfinished batch would
    fail.
    """
    conf = {SHUFFLE_PARTITIONS: str(parallelism)}
    times = {"batchWatermarkMs": 0, "batchTimestampMs": int(time.time() * 1000), "conf": conf}
    warehouse.write_text(f"{checkpoint}/metadata", json.dumps({"id": str(uuid.uuid4())}))
    warehouse.write_text(f"{checkpoint}/commits/0", 'v1\n{"nextBatchWatermarkMs":0}')
    # This file is written last, because it makes the checkpoint valid. If the process is killed before this file
    # exists, the next attempt writes all files again.
    warehouse.write_text(f"{checkpoint}/offsets/0", f"v1\n{json.dumps(times)}\n{_offset(table, version)}")


def _offset(table: str, version: int) -> str:
    """Returns the offset of a Delta source before the first file of ``version``, as JSON."""
    return json.dumps(
        {
            "sourceVersion": 1,
            "reservoirId": table,
            "reservoirVersion": version,
            "index": -1,
            "isStartingVersion": False,
        }
    )


def _newest_two(files: CheckpointFiles) -> list[int]:
    return files.batches("offsets")[-2:]


def _entries(files: CheckpointFiles, batch: int) -> list[str]:
    return files.read(f"offsets/{batch}").splitlines()


def _reservoir(line: str) -> dict[str, Any] | None:
    """The offset of a Delta source in a line of an entry; None if the line contains no such offset."""
    if not line.startswith("{"):
        return None
    body = json.loads(line)
    return body if isinstance(body, dict) and "reservoirId" in body else None


def _tables_at(files: CheckpointFiles, batch: int) -> set[str]:
    """The Delta ids of the tables in a batch's offsets."""
    found = (_reservoir(line) for line in _entries(files, batch)[2:])
    return {body["reservoirId"] for body in found if body is not None}


def is_moved_by_half(checkpoint: str, moves: Mapping[str, tuple[str, int]]) -> bool:
    """True if :func:`move` has rewritten only one of the two entries, because the process was killed.

    The query cannot start from a checkpoint with only one rewritten entry. Another call of :func:`move` completes the
    change.
    """
    files = CheckpointFiles.at(checkpoint)
    newest = _newest_two(files)
    if len(newest) < 2:
        return False
    before, last = (_tables_at(files, batch) for batch in newest)
    logs = {log for log, _ in moves.values()}
    return bool(last & moves.keys()) and bool(before & logs) and not before & moves.keys()


def move(checkpoint: str, moves: Mapping[str, tuple[str, int]]) -> None:
    """Rewrites the last two entries, the older one first. Afterwards, both entries refer to the logs. A repeated call
    completes an interrupted call and is otherwise without effect.

    ``moves`` maps the Delta id of a staging table to the Delta id of the log and to the next version of the log to
    read. Raises StalledError if a batch is planned but not committed.
    """
    files = CheckpointFiles.at(checkpoint)
    newest = _newest_two(files)
    committed = files.batches("commits")
    if not newest or not committed or committed[-1] != newest[-1]:
        raise StalledError("its query has planned a batch that it did not finish")
    for batch in newest:
        fault("history.before_move")
        lines = _entries(files, batch)
        moved = [*lines[:2], *(_moved(line, moves) for line in lines[2:])]
        if moved != lines:
            files.write(f"offsets/{batch}", "\n".join(moved))
    fault("history.after_move")


def _moved(line: str, moves: Mapping[str, tuple[str, int]]) -> str:
    body = _reservoir(line)
    if body is None or body["reservoirId"] not in moves:
        return line
    return _offset(*moves[body["reservoirId"]])
