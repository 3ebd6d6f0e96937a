"""Reads a change feed in batches. One batch contains all changes of a key in a commit.

Delta's stream may end a batch within a commit (:mod:`rw_sql.runtime.delta.feed_files`). A later batch may then have the
old row of a key whose new row was in an earlier batch. A reader that applies the later batch would then delete the new
row.

If a batch ends within a commit, this module does not use the rows that Delta's stream has read from this commit.
Instead, the module divides the commit's rows among the batches by the hashes of their keys, in proportion to the sizes
of the files that Delta has planned for each batch. For example, a batch that reads the first tenth of the files gets
the keys with the first tenth of the hashes. The offsets of a batch therefore determine its keys, a repeated batch has
the same rows as the first attempt, and a batch has about the size that Delta has planned.

Delta reads a commit with change files in one batch, regardless of the commit's size. A reader that holds a batch in
memory can use :meth:`FeedByKey.parts` to divide a large batch by keys.

An older version of rw_sql may have read the first part of a commit by files, as Delta has planned, and not by keys. If
it has, the next batch reads the changes of all keys from the first hash on. To detect this case, the file ``feed_keys``
in the checkpoint contains the number of the first batch that ended within a commit and was read by keys.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from typing import TYPE_CHECKING

from rw_sql.connectors.delta.versions import changes_at
from rw_sql.runtime.delta.delta_log import read_actions
from rw_sql.runtime.delta.feed_files import divided_files, is_read_in_part, undivided_bytes
from rw_sql.runtime.jobs.inputs import VERSION
from rw_sql.runtime.positions.progress import batch_ends
from rw_sql.syntax.lexing.identifiers import quoted_for_spark

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType

    from rw_sql.runtime.positions.progress import TableEnd
    from rw_sql.runtime.support.warehouse import Warehouse

HASHES = 2**20
"""The number of possible hashes of a key."""

_MARK = "feed_keys"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRange:
    """The changes of the commit ``version`` whose keys have hashes from ``low`` to ``high`` (exclusive)."""

    version: int
    low: int
    high: int


def hash_after(sizes: Sequence[int], index: int) -> int:
    """Returns the first hash that belongs to the files after ``index``; 0 if ``index`` is -1. ``sizes`` are the sizes
    of the commit's files in bytes. Each file has a share of the hashes in proportion to its size."""
    # Each weight includes 1, so that the number of files determines the result if all sizes are unknown.
    weights = [size + 1 for size in sizes]
    return sum(weights[: index + 1]) * HASHES // max(1, sum(weights))


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedByKey:
    """The change feed of the table at ``path``, for the query with the checkpoint ``checkpoint``.

    ``select`` converts rows of the feed to rows of the query's stream, which have ``keys`` and the feed's column
    VERSION. ``begins_with_snapshot`` is true if the query has no starting version. Its first batches then read the
    table's snapshot.
    """

    warehouse: Warehouse
    path: str
    checkpoint: str
    keys: Sequence[str]
    select: Callable[[DataFrame], DataFrame]
    begins_with_snapshot: bool = False

    def rows(self, frame: DataFrame, batch: int) -> DataFrame:
        """The rows of a planned batch. ``frame`` contains the rows that Delta's stream has read for this batch.

        The caller must call this method for every batch that writes rows. Each evaluation of the result reads the files
        again.
        """
        ranges, has_others = self.divided(batch)
        if not ranges:
            return frame
        frames = [self._changes(frame.sparkSession, part) for part in ranges if part.low < part.high]
        if has_others or not frames:
            frames.append(frame.where(f"{VERSION} NOT IN ({', '.join(str(part.version) for part in ranges)})"))
        return reduce(lambda one, other: one.unionByName(other), frames)

    def parts(self, rows: DataFrame, batch: int, most_bytes: int) -> list[DataFrame]:
        """Divides the rows of a planned batch into parts. In the feed's files, the rows of one part take about
        ``most_bytes`` bytes. All changes of a key are in the same part."""
        count = -(-self._undivided_bytes(batch) // most_bytes)
        if count <= 1:
            return [rows]
        bounds = [HASHES * number // count for number in range(count + 1)]
        return [self._of_keys(rows, low, high) for low, high in pairwise(bounds)]

    def _undivided_bytes(self, batch: int) -> int:
        """If a planned batch reads, as a whole, a commit that exceeds the limit of a batch, the result is at least the
        size of this commit in bytes. Any other batch is within the limit; the result is then the size of at most two of
        its commits, or 0 if the batch reads a snapshot.

        Delta's stream reads a commit that exceeds the limit of a batch only as the first commit of the batch, and ends
        the batch after this commit.
        """
        ends = batch_ends(self.warehouse, self.checkpoint, batch)
        if ends is None:
            return 0
        begin, end = ends
        if end.is_snapshot or (begin is None and self.begins_with_snapshot):
            return 0
        last = end.version if end.is_within else end.version - 1
        first = max(last - 1, 0 if begin is None else begin.version + begin.is_within)
        size = 0
        for version in range(first, last + 1):
            with suppress(FileNotFoundError):
                size += undivided_bytes(read_actions(self.warehouse, self.path, version))
        return size

    def divided(self, batch: int) -> tuple[list[KeyRange], bool]:
        """Returns the parts of commits that a planned batch reads, and True if the batch also reads other commits. If
        the batch ends within a commit, also stores that this batch is read by keys."""
        ends = batch_ends(self.warehouse, self.checkpoint, batch)
        if ends is None:
            return [], True
        begin, end = ends
        of_begin = None if begin is None else self._sizes_within(begin)
        of_end = self._sizes_within(end)
        low = 0
        if begin is not None and of_begin is not None and self._is_by_key(batch - 1):
            low = hash_after(of_begin, begin.index)
        if of_end is not None and not self._is_by_key(batch):
            self.warehouse.write_text(f"{self.checkpoint}/{_MARK}", str(batch), is_durable=True)
        found = []
        others_from = None
        if begin is not None and of_begin is not None:
            is_same = begin.version == end.version
            high = hash_after(of_begin, end.index) if is_same else HASHES
            found.append(KeyRange(version=begin.version, low=low, high=high))
            if is_same:
                return found, False
            others_from = begin.version + 1
        if of_end is not None:
            found.append(KeyRange(version=end.version, low=0, high=hash_after(of_end, end.index)))
        is_end_whole = end.is_within and of_end is None
        return found, others_from is None or others_from < end.version or is_end_whole

    def _sizes_within(self, end: TableEnd) -> tuple[int, ...] | None:
        """The sizes of the files of the commit in which a batch ends; None if the batch does not end within a
        commit."""
        if not end.is_within or end.is_snapshot:
            return None
        actions = read_actions(self.warehouse, self.path, end.version)
        return divided_files(actions) if is_read_in_part(actions, end.index) else None

    def _is_by_key(self, batch: int) -> bool:
        """True if ``batch``, which ended within a commit, was read by keys."""
        try:
            return int(self.warehouse.read_text(f"{self.checkpoint}/{_MARK}")) <= batch
        except FileNotFoundError:
            return False

    def _changes(self, spark: SparkSession, part: KeyRange) -> DataFrame:
        return self._of_keys(self.select(changes_at(spark, self.path, part.version)), part.low, part.high)

    def _of_keys(self, rows: DataFrame, low: int, high: int) -> DataFrame:
        """The rows of the keys with hashes from ``low`` to ``high`` (exclusive)."""
        from pyspark.sql import functions as f

        keys = hashed_keys(rows.schema, self.keys)
        # If Spark can hash no key, all rows get the last hash, and are in the last part of the commit.
        hashed = f.xxhash64(*(f.col(quoted_for_spark(key)) for key in keys)) if keys else f.lit(HASHES - 1)
        number = f.pmod(hashed, f.lit(HASHES))
        return rows.where((number >= low) & (number < high))


def hashed_keys(schema: StructType, keys: Sequence[str]) -> list[str]:
    """Returns the keys whose values Spark can hash: those whose types contain neither MAP nor VARIANT."""
    kinds = {field.name: field.dataType for field in schema.fields}
    return [key for key in keys if _is_hashable(kinds[key])]


def _is_hashable(kind: DataType) -> bool:
    from pyspark.sql.types import ArrayType, MapType, StructType, VariantType

    if isinstance(kind, ArrayType):
        return _is_hashable(kind.elementType)
    if isinstance(kind, StructType):
        return all(_is_hashable(field.dataType) for field in kind.fields)
    return not isinstance(kind, MapType | VariantType)
