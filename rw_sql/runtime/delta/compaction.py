"""Compacts the small files of a Delta table into larger files. The replaced files are kept until
:mod:`rw_sql.runtime.delta.table_files` deletes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
from deltalake import CommitProperties, PostCommitHookProperties

from rw_sql.connectors.delta.inexact_statistics import without_inexact_min_max

if TYPE_CHECKING:
    from deltalake import DeltaTable

TARGET_BYTES = 32 << 20
"""The approximate size in bytes of the files that compaction writes."""

TURN_BYTES = 128 << 20
"""The approximate maximum number of bytes that one run of upkeep rewrites.

The limit matters because a pause of the job waits until the run of upkeep has ended.
"""

MOST_SMALL_FILES = 20
"""The maximum number of small files that compaction leaves in the part of a table to which the job still appends. This
part is the newest partition or, without partitions, the whole table."""

TINY_BYTES = 512 << 10
"""The size in bytes below which a file is tiny. A compaction of only the tiny files takes a fraction of a second,
regardless of the table's size."""

MOST_LEFT_FILES = 200
"""If the part of a table to which the job still appends has more small files than this number, even a brief compaction
compacts all of them (see :func:`compact`)."""

_NO_HOOKS = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)


def maintenance_properties(what: str) -> CommitProperties:
    """The commit properties for upkeep. With these properties, a commit through a ``DeltaTable`` object fails if
    anything was committed after the version of this object."""
    return CommitProperties(custom_metadata={"rw_sql_upkeep": what}, max_commit_retries=0)


def compact(table: DeltaTable, partition: str | None = None, *, is_brief: bool = False) -> int:
    """Compacts small files, which have less than half of :data:`TARGET_BYTES`. Returns the number of files that were
    replaced.

    ``partition`` is the table's partition column; None if it has none. In a table with partitions, the job appends only
    to the partition with the newest value. Streams that read the table see no row twice, because the commit of a
    compaction is marked as containing no new data (Delta protocol, ``dataChange``).

    If ``is_brief`` is true, only tiny files of the newest partition are compacted. Without this limit, a few new tiny
    files could cause all small files to be rewritten, and the job would write no batch for seconds. ``is_brief`` has no
    effect if the newest partition has more than :data:`MOST_LEFT_FILES` small files, or more than :data:`TURN_BYTES`
    bytes in small files.
    """
    files = pa.table(table.get_add_actions(flatten=True))
    sizes = files.column("size_bytes").to_pylist()
    values = files.column(f"partition.{partition}").to_pylist() if partition is not None else [None] * len(sizes)
    newest = max((value for value in values if value is not None), default=None)
    small: dict[Any, list[int]] = {}
    for value, size in zip(values, sizes, strict=True):
        if size < TARGET_BYTES // 2:
            small.setdefault(value, []).append(size)
    left = small.get(newest, [])
    is_brief = is_brief and len(left) <= MOST_LEFT_FILES and sum(left) <= TURN_BYTES
    if is_brief:
        small = {newest: [size for size in left if size < TINY_BYTES]}
    due = {value: found for value, found in small.items() if len(found) > (MOST_SMALL_FILES if value == newest else 1)}
    chosen: list[Any] = []
    rewritten = 0
    for value, found in sorted(due.items(), key=lambda item: -len(item[1])):
        if chosen and rewritten + sum(found) > TURN_BYTES:
            break
        chosen.append(value)
        rewritten += sum(found)
    if not chosen:
        return 0
    done = table.optimize.compact(
        partition_filters=None if partition is None else [(partition, "in", [str(value) for value in chosen])],
        target_size=2 * TINY_BYTES if is_brief else TARGET_BYTES,
        max_concurrent_tasks=1,
        commit_properties=maintenance_properties("compact"),
        post_commithook_properties=_NO_HOOKS,
        **without_inexact_min_max(pa.schema(table.schema().to_arrow()), is_compaction=True),
    )
    return int(done["numFilesRemoved"])
