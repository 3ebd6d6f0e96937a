"""Keeps in memory the facts that upkeep has read from the commits of tables. These facts stay valid, because a commit
never changes.

A job that suspends when it is idle has a new run for almost every batch, and upkeep may run only once in each run. One
run of upkeep reads a limited number of commits. If a reader is far behind and each run of upkeep started reading at the
same commit, no run of upkeep would reach the newest commit. The hourly buckets of the log would then never be deleted.
Therefore, the facts are kept in the context of the warehouse, which outlives the runs of a job.
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
    """The known facts about the commits of the table whose Delta id is ``table_id``."""

    table_id: str
    unread: UnreadBuckets
    files: TableFiles


@contextmanager
def known_commits(
    context: Context, object_id: int, generation: int, *, table: str, table_id: str
) -> Iterator[KnownCommits]:
    """A context manager that provides the known facts about the table of one generation of an object. ``table`` is the
    path of the table, and ``table_id`` is its Delta id. Facts about an earlier table at this path are discarded.

    Only one run of upkeep at a time can use the facts. If a fenced run of the job is still performing upkeep, the next
    run begins without known facts.
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
    """Forgets the known facts about the tables of ``generations`` of an object. Must be called after these tables were
    deleted. If ``generations`` is None, forgets the facts about all generations."""
    known = _known(context)
    for key in list(known):
        if key[0] == object_id and (generations is None or key[1] in generations):
            known.pop(key, None)


def _known(context: Context) -> dict[tuple[int, int], KnownCommits]:
    found: dict[tuple[int, int], KnownCommits] = context.made.setdefault(_KNOWN, {})
    return found
