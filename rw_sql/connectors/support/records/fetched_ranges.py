"""Caches the records of the ranges that this process has read. Later batches use them. If the cache exceeds a size
limit, the oldest records are dropped."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    _Key = tuple[Hashable, int, int]

_MOST_RANGES = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fetched:
    """A range that was read. ``table`` is None if the range's records were dropped."""

    count: int
    incarnation: str | None
    table: pa.Table | None


class FetchedRanges:
    """Maps ranges of splits to tables with the columns of ``schema``, and to the number of records in each range. If
    all tables together exceed ``most_bytes``, the oldest tables are dropped. The numbers of their records are kept.
    Thread-safe.

    Several sources may share the ranges of a split. The key ``of`` must therefore contain everything that determines
    the records of a range besides its offsets.
    """

    def __init__(self, schema: pa.Schema, most_bytes: int) -> None:
        self._schema = schema
        self._most = most_bytes
        self._size = 0
        self._lock = threading.Lock()
        self._known: OrderedDict[_Key, _Fetched] = OrderedDict()
        self._with_table: OrderedDict[_Key, None] = OrderedDict()
        self._ends: dict[tuple[Hashable, int], set[int]] = {}

    def put(self, of: Hashable, start: int, end: int, table: pa.Table, incarnation: str | None = None) -> None:
        """Stores the records of a range of the split ``of``. ``incarnation`` is the split's incarnation at the time
        of the read."""
        key = of, start, end
        with self._lock:
            self._forget(key)
            self._known[key] = _Fetched(count=table.num_rows, incarnation=incarnation, table=table)
            self._ends.setdefault((of, start), set()).add(end)
            self._with_table[key] = None
            self._size += table.nbytes
            while self._size > self._most and len(self._with_table) > 1:
                self._drop_table(next(iter(self._with_table)))
            while len(self._known) > _MOST_RANGES:
                self._forget(next(iter(self._known)))

    def get(self, of: Hashable, start: int, end: int, incarnation: str | None = None) -> pa.Table | None:
        """The records of a range, if stored ranges of the split ``of`` together form exactly this range; otherwise
        None.

        If ``incarnation`` is not None, only ranges of that incarnation are used.
        """
        with self._lock:
            found = self._path(
                of, start, end, lambda each: each.table is not None and incarnation in (None, each.incarnation)
            )
        if found is None:
            return None
        return pa.concat_tables([each.table for each in found]) if found else self._schema.empty_table()

    def count(self, of: Hashable, start: int, end: int) -> int | None:
        """Returns the number of records in a range, if stored ranges together form exactly this range; otherwise
        None. The records themselves may already be dropped."""
        with self._lock:
            found = self._path(of, start, end, lambda each: True)
        return None if found is None else sum(each.count for each in found)

    def _path(self, of: Hashable, start: int, end: int, is_usable: Callable[[_Fetched], bool]) -> list[_Fetched] | None:
        """Returns adjacent usable ranges that together form ``[start, end)``; None if there are none. Stored ranges
        may overlap, because the batches of several sources may read different ranges of one split."""
        path: list[tuple[int, _Fetched]] = []
        tried: set[int] = set()
        at = start
        while at != end:
            to = max(
                (
                    to
                    for to in self._ends.get((of, at), ())
                    if to <= end and to not in tried and is_usable(self._known[of, at, to])
                ),
                default=None,
            )
            if to is not None:
                tried.add(to)
                path.append((at, self._known[of, at, to]))
                at = to
            elif path:
                at = path.pop()[0]
            else:
                return None
        return [found for _, found in path]

    def _drop_table(self, key: _Key) -> None:
        found = self._known[key]
        if found.table is not None:
            self._size -= found.table.nbytes
        self._known[key] = replace(found, table=None)
        del self._with_table[key]

    def _forget(self, key: _Key) -> None:
        if key not in self._known:
            return
        if key in self._with_table:
            self._drop_table(key)
        del self._known[key]
        ends = self._ends[key[:2]]
        ends.discard(key[2])
        if not ends:
            del self._ends[key[:2]]
