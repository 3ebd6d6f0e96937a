"""Stores the requests of sessions without a JVM, and the answers. A request is a statement that a session passes to the
owner of a resource group."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import msgspec

from rw_sql.metastore.facts import ASKED, DONE, TAKEN, WITHDRAWN, Request

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from rw_sql.metastore.keyed_table import Key as _Key
    from rw_sql.metastore.keyed_table import KeyedTable
    from rw_sql.metastore.keyed_table import Row as _Row

_REQUEST_MS = 3_600_000
"""The time, in milliseconds, for which a request is kept after its answer. The session looks for the answer several
times a second, so it normally reads the answer long before the request is removed."""


class RequestStore:
    """Reads and writes the table ``runtime_requests``, which the function ``table`` opens at the first use.
    Thread-safe."""

    def __init__(self, table: Callable[[], KeyedTable]) -> None:
        self._table = table

    def add(self, request: Request) -> None:
        """Adds a request. Writes nothing if the request is already stored.

        A session repeats a call to which the object store did not respond. By then, the owner may already have taken
        the request.
        """
        row = msgspec.to_builtins(request)
        self._table().write(lambda present: [] if (request.request,) in present else [row])

    def find(self, name: str) -> Request | None:
        """The request with the given name; None if the request was never stored, or was removed after
        :data:`_REQUEST_MS`."""
        row = self._table().rows().get((name,))
        return None if row is None else msgspec.convert(row, Request)

    def unanswered(self, group: str) -> tuple[Request, ...]:
        """The requests of a group that are neither done nor withdrawn, oldest first."""
        rows = self._table().rows().values()
        found = [row for row in rows if row["resource_group"] == group and row["state"] in (ASKED, TAKEN)]
        return tuple(msgspec.convert(row, Request) for row in sorted(found, key=lambda row: row["seq"]))

    def change(self, request: Request, later: Request) -> bool:
        """Replaces ``request`` with ``later``. If the stored request differs from ``request`` in ``state`` or
        ``taken_by``, replaces nothing and returns False.

        After a request is done or withdrawn, the text of its statement must not remain in the store. Therefore, this
        method stores a done or withdrawn request without ``body``, and :meth:`tidy` removes the earlier rows, which
        contain the text.
        """
        row = msgspec.to_builtins(later)
        if later.state in (DONE, WITHDRAWN):
            row["body"] = None

        def choose(present: Mapping[_Key, _Row]) -> Sequence[_Row]:
            old = present.get((request.request,))
            is_same = old is not None and (old["state"], old["taken_by"]) == (request.state, request.taken_by)
            return [row] if is_same else []

        return bool(self._table().write(choose))

    def tidy(self) -> None:
        """Removes the replaced rows of requests from the table. The next call deletes the old files that contain these
        rows.

        Does nothing while any request is neither done nor withdrawn, because the call would write the text of this
        request to a new file. If another process then committed first, this file would remain in the store.
        """
        if not any(row["state"] in (ASKED, TAKEN) for row in self._table().rows().values()):
            self._table().tidy()


def recent_requests(rows: list[_Row]) -> list[_Row]:
    """The requests to keep when the table is folded. These are the requests that are neither done nor withdrawn, and
    the requests that were made or answered in the last hour."""
    since = time.time_ns() // 1_000_000 - _REQUEST_MS
    return [
        row for row in rows if row["state"] in (ASKED, TAKEN) or row["asked_ms"] > since or _answered_ms(row) > since
    ]


class _Answered(msgspec.Struct):
    """The part of an answer that determines how long its request is kept."""

    answered_ms: int = 0


def _answered_ms(row: _Row) -> int:
    return 0 if row["answer"] is None else msgspec.json.decode(row["answer"], type=_Answered).answered_ms
