"""Keeps facts about the commits of tables in memory, for upkeep. These facts stay valid, because a commit never
changes.

A job that rests has a new run for almost every batch, and upkeep may run only once in each run. One upkeep reads a
limited number of commits. If each upkeep read the log from the start while a reader is far behind, no upkeep would
finish reading the log. No hour of the log would then ever be dropped. The facts are therefore kept in the context of
the warehouse, which exists longer than the run.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rw_sql.runtime.delta.table_files import TableFiles
from rw_sql.runtime.upkeep.unread_buckets import UnreadBuckets

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from rw_sql.runtime.jobs.context import Context

_KNOWN = "known_commits"


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownCommits:
    """The known facts about one table, whose Delta id is ``table_id``."""

    table_id: str
    unread: UnreadBuckets
    files: TableFiles


@contextmanager
def known_commits(
    context: Context, object_id: int, generation: int, *, table: str, table_id: str
) -> Iterator[KnownCommits]:
    """A context manager with the known facts about the table of an object's generation; ``table`` is the path of the
    table.

    Only one upkeep at a time can use these facts. If a fenced run is still in its last upkeep, the next run begins
    without known facts.
    """
    known, key = _known(context), (object_id, generation)
    taken = known.pop(key, None)
    if taken is None or taken.table_id != table_id:
        taken = KnownCommits(
            table_id=table_id,
            unread=UnreadBuckets(warehouse=context.warehouse, table=table),
            files=TableFiles(
                warehouse=context.warehouse,
                table=table,
                pending=context.warehouse.replaced_files(object_id, generation),
            ),
        )
    try:
        yield taken
    finally:
        known[key] = taken


def forget_commits(context: Context, object_id: int, generations: Collection[int] | None = None) -> None:
    """Forgets the known facts about the tables of some generations of an object, because these tables were deleted. If
    the generations are None, forgets the facts about all generations of the object."""
    known = _known(context)
    for key in list(known):
        if key[0] == object_id and (generations is None or key[1] in generations):
            known.pop(key, None)


def _known(context: Context) -> dict[tuple[int, int], KnownCommits]:
    found: dict[tuple[int, int], KnownCommits] = context.made.setdefault(_KNOWN, {})
    return found
