"""Defines the port for rewind points, and for the effect of a rewind."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from rw_sql.metastore.facts import RewindPoint


@dataclass(frozen=True, slots=True, kw_only=True)
class TableBack:
    """The effect of a rewind on one table. ``now`` is the number of rows that the table has now, and ``then`` is the
    number that it had at the rewind point; None if the rows were not counted.

    ``lost`` is the reason why the table cannot be restored; None if the table can be restored. ``has_emitted`` is True
    for a sink that has sent rows since the rewind point.
    """

    object_id: int
    now: int | None = None
    then: int | None = None
    lost: str | None = None
    has_emitted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RewindLook:
    """The effect of a rewind on the source's log and on the dependents in the rewind point. The result omits dependents
    that no longer exist."""

    tables: tuple[TableBack, ...]


class RewindPort(Protocol):
    """The port for rewind points."""

    def points(self, source_id: int | None = None) -> tuple[RewindPoint, ...]:
        """Returns the rewind points, in the order of their operations. An operation without a rewind point has an entry
        only if the reason for the missing point is known."""
        ...

    def carried_out(self) -> frozenset[int]:
        """Returns the epochs of the REWIND operations that are complete."""
        ...

    def look(self, point: RewindPoint) -> RewindLook:
        """Returns the effect that a rewind to the given point would have."""
        ...
