"""Computes the number of rows that a planned batch reads. The computation reads the commits of the batch's input, but
not the rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rw_sql.runtime.decoding.decoder import ERROR
from rw_sql.runtime.delta.delta_log import (
    added_rows,
    changed_rows,
    read_actions,
    rows_of_table,
    rows_without,
    written_bytes,
)
from rw_sql.runtime.delta.job_output import SMALL_FILE_BYTES, SMALL_ROWS
from rw_sql.runtime.delta.young_table import YoungTable
from rw_sql.runtime.positions.progress import first_end, planned_stretch

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rw_sql.runtime.support.warehouse import Warehouse


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """The number of rows that a batch reads: ``most`` is an upper limit, and ``exact`` is the exact number without
    undecodable records. Each of the two numbers is None if it is unknown. ``size`` is the size in bytes of the files
    that contain the rows."""

    most: int | None = None
    exact: int | None = None
    size: int = field(default=0, compare=False)

    @property
    def is_small(self) -> bool:
        """True if the batch has at most SMALL_ROWS rows, in files of at most SMALL_FILE_BYTES bytes. The rows of such a
        batch fit into this process's memory."""
        return self.most is not None and self.most <= SMALL_ROWS and self.size <= SMALL_FILE_BYTES

    def plus(self, other: Planned) -> Planned:
        """The numbers of a batch that reads the rows of both."""
        most = None if self.most is None or other.most is None else self.most + other.most
        exact = None if self.exact is None or other.exact is None else self.exact + other.exact
        return Planned(most=most, exact=exact, size=self.size + other.size)


def planned_rows(
    warehouse: Warehouse,
    table: str,
    checkpoint: str,
    batch: int,
    *,
    is_log: bool,
    is_all_read: bool = True,
    upstream: str | None = None,
) -> Planned:
    """Returns the number of rows that a planned batch reads, according to the commits of the query's only input. This
    input must be append-only.

    ``is_log`` is true if the input is a source's log. The query skips the undecodable records of a log. ``is_all_read``
    is true if the query reads all decodable records. If ``upstream`` is not None, the query reads only the rows of this
    upstream table. The exact number is unknown if the query does not read all decodable records.
    """
    is_first = batch == 0
    stretch = _first(warehouse, table, checkpoint) if is_first else planned_stretch(warehouse, checkpoint, batch)
    if stretch is None:
        return Planned()
    versions, is_whole = stretch
    commits = (read_actions(warehouse, table, version) for version in versions)
    is_exact = is_whole and is_all_read
    return rows_of_commits(commits, is_log=is_log, is_exact=is_exact, upstream=upstream)


def rows_of_commits(
    commits: Iterable[list[dict[str, Any]]], *, is_log: bool, is_exact: bool = True, upstream: str | None = None
) -> Planned:
    """The number of rows that a batch reads if it consists of ``commits``; see :func:`planned_rows`. ``is_exact`` is
    true if the batch reads all decodable records of these commits."""
    most, size, exact = 0, 0, 0 if is_exact and upstream is None else None
    for actions in commits:
        own = rows_of_table(actions, upstream) if upstream is not None else None
        added = added_rows(actions) if own is None else own
        if added is None:
            return Planned()
        most += added
        size += written_bytes(actions)
        if exact is not None:
            good = rows_without(actions, ERROR) if is_log else added
            exact = None if good is None else exact + good
    return Planned(most=most, exact=exact, size=size)


def planned_changes(warehouse: Warehouse, table: str, checkpoint: str, batch: int) -> Planned:
    """An upper limit of the number of rows that a planned batch reads from the change feed of the query's only
    input."""
    stretch = planned_stretch(warehouse, checkpoint, batch)
    if stretch is None:
        return Planned()
    return changes_of_commits(read_actions(warehouse, table, version) for version in stretch[0])


def changes_of_commits(commits: Iterable[list[dict[str, Any]]]) -> Planned:
    """An upper limit of the number of rows that a batch reads from a change feed if it consists of ``commits``."""
    most = size = 0
    for actions in commits:
        changed = changed_rows(actions)
        if changed is None:
            return Planned()
        most += changed
        size += written_bytes(actions)
    return Planned(most=most, size=size)


def _first(warehouse: Warehouse, table: str, checkpoint: str) -> tuple[range, bool] | None:
    """Returns the versions whose rows a query's first batch reads, and True because the batch reads all rows of these
    versions. Returns None if the batch reads only a part of a version, if the query has several inputs, or if the table
    is not young (see :class:`rw_sql.runtime.delta.young_table.YoungTable`)."""
    end = first_end(warehouse, checkpoint)
    if end is None:
        return None
    young = YoungTable.of(warehouse, table)
    return (range(end + 1), True) if young is not None and end <= young.newest else None
