"""Tables of the ranges that this process has read. Each table is kept until the batch of its range uses the table."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Hashable


class FetchedRanges:
    """Tables with the columns of ``schema``. If all tables together exceed ``most_bytes``, the oldest tables are
    dropped. Thread-safe."""

    def __init__(self, schema: pa.Schema, most_bytes: int) -> None:
        self._schema = schema
        self._most = most_bytes
        self._size = 0
        self._lock = threading.Lock()
        self._known: OrderedDict[tuple[Hashable, int], tuple[int, pa.Table, str | None]] = OrderedDict()

    def put(self, of: Hashable, start: int, end: int, table: pa.Table, incarnation: str | None = None) -> None:
        """Keeps the records of a range of the split ``of``. The split had the given incarnation when the records were
        read."""
        with self._lock:
            self._drop((of, start))
            self._known[of, start] = (end, table, incarnation)
            self._size += table.nbytes
            while self._size > self._most and len(self._known) > 1:
                self._drop(next(iter(self._known)))

    def get(self, of: Hashable, start: int, end: int, incarnation: str | None = None) -> pa.Table | None:
        """The records of a range, if the range consists of kept ranges of the split ``of``; None otherwise.

        If ``incarnation`` is given, only records of that incarnation are returned.
        """
        tables = []
        with self._lock:
            at = start
            while at != end:
                found = self._known.get((of, at))
                if found is None or found[0] > end or incarnation not in (None, found[2]):
                    return None
                at = found[0]
                tables.append(found[1])
        return pa.concat_tables(tables) if tables else self._schema.empty_table()

    def _drop(self, key: tuple[Hashable, int]) -> None:
        found = self._known.pop(key, None)
        if found is not None:
            self._size -= found[1].nbytes
