"""Reads the progress of a view or sink from its checkpoint. The functions of this module work in any process, without
Spark and without the process that runs the query."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from rw_sql.runtime.delta.delta_log import read_actions
from rw_sql.runtime.delta.feed_files import is_read_in_part

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rw_sql.runtime.support.warehouse import Warehouse


def batches_in(warehouse: Warehouse, folder: str) -> list[int]:
    """The numbers of the batches that have a file in ``folder``, a folder of a checkpoint such as ``offsets``, in
    ascending order."""
    return sorted(int(name) for name in warehouse.list_names(folder) if name.isdecimal())


def _delta_offsets(warehouse: Warehouse, checkpoint: str, batch: int) -> list[dict[str, Any]]:
    """The offsets at which one planned batch ends in its Delta inputs. The batch's file in the checkpoint contains one
    line with its version, one line with metadata, and then one line with an offset for each input."""
    lines = warehouse.read_text(f"{checkpoint}/offsets/{batch}").split("\n")[2:]
    found = [json.loads(line) for line in lines if line.startswith("{")]
    return [offset for offset in found if "reservoirId" in offset]


def committed_versions(
    warehouse: Warehouse, checkpoint: str, *, feeds: Mapping[str, str] | None = None, before: int = 0
) -> dict[str, int]:
    """Maps the Delta table id of each input to the first version that the query has not read completely. The result
    describes the state after the last completed batch or, if ``before`` is not 0, after the batch that is ``before``
    batches older. The result is empty if the batch in question does not exist.

    If several batches read the initial snapshot of a table, no version counts as read before the last of these batches
    is completed. ``feeds`` maps the Delta table ids of the tables that are read through their change feed to the paths
    of these tables. The function then reads the commits of these tables, because the offset in a change feed may refer
    to one file of a commit although the batch reads the whole commit.
    """
    committed = batches_in(warehouse, f"{checkpoint}/commits")
    if len(committed) <= before:
        return {}
    reached: dict[str, int] = {}
    for offset in _delta_offsets(warehouse, checkpoint, committed[-1 - before]):
        table = offset["reservoirId"]
        is_first, index = bool(offset.get("isStartingVersion")), offset["index"]
        version = 0 if is_first else offset["reservoirVersion"]
        path = (feeds or {}).get(table)
        if path is not None and not is_first and index >= 0:
            version += not _is_in_part(warehouse, path, table, version, index)
        reached[table] = min(reached.get(table, version), version)
    return reached


def _is_in_part(warehouse: Warehouse, path: str, table: str, version: int, index: int) -> bool:
    """True if a batch that ends at the file ``index`` of a commit of a change feed has read only a part of this commit.
    If the commit was cleaned up, the result is False, because the next batch could not read the rest of the commit."""
    try:
        return _is_commit_in_part(warehouse, path, table, version, index)
    except FileNotFoundError:
        return False


@lru_cache(maxsize=1024)
def _is_commit_in_part(warehouse: Warehouse, path: str, table: str, version: int, index: int) -> bool:
    # The table's id is a parameter only because another table may replace the table at this path.
    del table
    return is_read_in_part(read_actions(warehouse, path, version), index)


def newest_planned(warehouse: Warehouse, checkpoint: str) -> int:
    """The number of the last planned batch; -1 if no batch is planned."""
    return max(batches_in(warehouse, f"{checkpoint}/offsets"), default=-1)


def newest_completed(warehouse: Warehouse, checkpoint: str) -> int:
    """The number of the last batch that the query has completed; -1 if it has completed no batch."""
    return max(batches_in(warehouse, f"{checkpoint}/commits"), default=-1)


REWOUND = "_rw_sql/rewound"
"""The path of a file within a checkpoint that a REWIND has restored. The file contains the epoch of the REWIND and the
number of the restored checkpoint's last batch. The REWIND writes this file last, so a checkpoint with this file is
complete."""


def rewind_mark(warehouse: Warehouse, checkpoint: str) -> Mapping[str, int] | None:
    """The content of :data:`REWOUND`; None if no REWIND has restored the checkpoint, or if the file does not contain
    valid JSON."""
    try:
        mark: Mapping[str, int] = warehouse.read_json(f"{checkpoint}/{REWOUND}")
    except FileNotFoundError:
        return None
    return mark


def is_just_rewound(warehouse: Warehouse, checkpoint: str, planned: int) -> bool:
    """True if a REWIND has restored the checkpoint of a sink, and the sink's query has planned no batch after the
    REWIND. ``planned`` is the number of the checkpoint's last planned batch.

    A REWIND gives the sink a new generation. The sink creates the table of this generation when the sink starts. Until
    then, the checkpoint contains batches, but the table does not exist.
    """
    mark = rewind_mark(warehouse, checkpoint)
    # Earlier versions have not stored the batch.
    return mark is not None and planned <= mark.get("batch", planned)


def end_versions(warehouse: Warehouse, checkpoint: str, batch: int) -> dict[str, int]:
    """For each input of a planned batch, maps the id of the input's Delta table to the last version from which the
    batch reads rows.

    If several batches read the rows of this version, the planned batch reads only some of them.
    """
    found: dict[str, int] = {}
    for offset in _delta_offsets(warehouse, checkpoint, batch):
        is_begun = offset.get("isStartingVersion") or offset["index"] >= 0
        version = offset["reservoirVersion"] if is_begun else offset["reservoirVersion"] - 1
        found[offset["reservoirId"]] = max(found.get(offset["reservoirId"], 0), version)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class TableEnd:
    """The end of a batch in a Delta table. ``table`` is the table's Delta id.

    The batch reads all rows of the versions before ``version``. If ``index`` is not negative, the batch also reads the
    files of the commit ``version`` up to ``index`` (counted from 0). If ``is_snapshot`` is true, the batch instead
    reads the files, up to ``index``, of the table's snapshot at ``version``.
    """

    table: str
    version: int
    index: int
    is_snapshot: bool

    @property
    def is_within(self) -> bool:
        """True if the batch ends within a commit or snapshot."""
        return self.index >= 0


def table_ends(warehouse: Warehouse, checkpoint: str, batch: int) -> list[TableEnd]:
    """The ends of a planned batch in the Delta tables that the query reads."""
    return [
        TableEnd(
            table=str(offset["reservoirId"]),
            version=int(offset["reservoirVersion"]),
            index=int(offset["index"]),
            is_snapshot=bool(offset.get("isStartingVersion")),
        )
        for offset in _delta_offsets(warehouse, checkpoint, batch)
    ]


def batch_ends(
    warehouse: Warehouse, checkpoint: str, batch: int, *, known: Mapping[int, list[TableEnd]] | None = None
) -> tuple[TableEnd | None, TableEnd] | None:
    """Returns the end of the batch before a planned batch (None if the planned batch is the first batch), and the end
    of the planned batch.

    The result is None for a query that does not read exactly one Delta table. ``known`` maps the numbers of some
    batches to their results of :func:`table_ends`. For these batches, the function does not read the checkpoint.
    """
    numbers = (batch - 1, batch) if batch else (batch,)
    known = known or {}
    found = [known.get(number) or table_ends(warehouse, checkpoint, number) for number in numbers]
    if any(len(ends) != 1 for ends in found):
        return None
    ends = [end for (end,) in found]
    if ends[0].table != ends[-1].table:
        return None
    return ends[0] if batch else None, ends[-1]


def planned_stretch(warehouse: Warehouse, checkpoint: str, batch: int) -> tuple[range, bool] | None:
    """Returns the versions that a planned batch reads of the query's only Delta input, and whether the batch reads all
    rows of each version.

    The result is None for the query's first batch, and for a batch that reads rows of the initial snapshot. The result
    is also None if the query has several Delta inputs, or reads its input more than once, as in a self-join.
    """
    if batch == 0:
        return None
    befores, afters = (_delta_offsets(warehouse, checkpoint, number) for number in (batch - 1, batch))
    if len(befores) != 1 or len(afters) != 1:
        return None
    (before,), (after,) = befores, afters
    if before.get("isStartingVersion") or after.get("isStartingVersion"):
        return None
    last = after["reservoirVersion"] if after["index"] < 0 else after["reservoirVersion"] + 1
    return range(before["reservoirVersion"], last), before["index"] < 0 and after["index"] < 0


def first_end(warehouse: Warehouse, checkpoint: str) -> int | None:
    """The last version that a query's first batch reads of the query's only Delta input. The batch reads all rows up to
    this version. The result is None if the batch reads only a part of a version, or if the query has several inputs."""
    offsets = _delta_offsets(warehouse, checkpoint, 0)
    if len(offsets) != 1 or offsets[0].get("isStartingVersion") or offsets[0]["index"] >= 0:
        return None
    return int(offsets[0]["reservoirVersion"]) - 1


def watermark_ms(warehouse: Warehouse, checkpoint: str) -> int | None:
    """The watermark of a view's next batch, in milliseconds since 1970. The batch drops rows with an earlier event
    time.

    Returns None if the batch drops no rows, because the query has no state or has not read any event time yet.
    """
    if not warehouse.list_names(f"{checkpoint}/state"):
        return None
    committed = batches_in(warehouse, f"{checkpoint}/commits")
    if not committed:
        return None
    lines = warehouse.read_text(f"{checkpoint}/commits/{committed[-1]}").splitlines()
    mark = json.loads(lines[1]).get("nextBatchWatermarkMs", 0) if len(lines) > 1 else 0
    return int(mark) or None


def has_state(warehouse: Warehouse, checkpoint: str) -> bool:
    """True if the query of the checkpoint keeps state, such as open windows."""
    return bool(warehouse.list_names(f"{checkpoint}/state"))


_OWED_SECONDS = 5.0
"""The time in seconds, in addition to the minimum time between two batches, that :func:`owes_windows` waits for the
query to plan a batch without input."""

_owed_since: dict[tuple[str, str], tuple[int, float]] = {}
"""Maps each checkpoint (warehouse, path) to its last completed batch, and to the time (``time.monotonic()``) at which
:func:`owes_windows` first saw that this batch had moved the watermark."""


def owes_windows(warehouse: Warehouse, checkpoint: str, *, interval_seconds: float = 0.0) -> bool:
    """True if the query's last completed batch has moved the watermark, and the query has not yet written the windows
    that close at this watermark.

    Spark writes these windows in the next batch. If there is no new input, Spark plans a batch without input, either at
    once or after ``interval_seconds``, the minimum time between two batches. If the query is stopped first, Spark does
    not plan the batch without input. Therefore, the result becomes False if the query plans no further batch within
    ``interval_seconds`` plus :data:`_OWED_SECONDS`.
    """
    if not has_state(warehouse, checkpoint):
        return False
    committed = batches_in(warehouse, f"{checkpoint}/commits")
    if not committed or committed[-1] not in (offsets := batches_in(warehouse, f"{checkpoint}/offsets")):
        return False
    (used, following), place = _marks(warehouse, checkpoint, committed[-1]), (warehouse.uri, checkpoint)
    if following <= used:
        _owed_since.pop(place, None)
        return False
    if offsets[-1] > committed[-1]:
        return True
    if _owed_since.get(place, (-1, 0.0))[0] != committed[-1]:
        _owed_since[place] = committed[-1], time.monotonic()
    return time.monotonic() - _owed_since[place][1] < _OWED_SECONDS + interval_seconds


def _marks(warehouse: Warehouse, checkpoint: str, batch: int) -> tuple[int, int]:
    """Returns two watermarks in milliseconds since 1970: the watermark of a completed batch, and the watermark of the
    batch that follows."""
    told = [warehouse.read_text(f"{checkpoint}/{folder}/{batch}").splitlines() for folder in ("offsets", "commits")]
    offset, commit = (json.loads(lines[1]) if len(lines) > 1 else {} for lines in told)
    return int(offset.get("batchWatermarkMs", 0)), int(commit.get("nextBatchWatermarkMs", 0))
