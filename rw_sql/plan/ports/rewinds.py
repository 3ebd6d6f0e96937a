"""Rewind points, and the effect of a rewind."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from rw_sql.metastore.facts import RewindPoint


@dataclass(frozen=True, slots=True, kw_only=True)
class TableBack:
    """A table's number of rows now and at a rewind point; None if not counted.

    ``lost`` is the reason why the table cannot be restored. ``has_emitted``: the sink has sent rows since the rewind
    point.
    """

    object_id: int
    now: int | None = None
    then: int | None = None
    lost: str | None = None
    has_emitted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RewindLook:
    """The effect of a rewind: first on the source's log, then on each of the point's dependents that still exists."""

    tables: tuple[TableBack, ...]


class RewindPort(Protocol):
    """Rewind points."""

    def points(self, source_id: int | None = None) -> tuple[RewindPoint, ...]:
        """The rewind points, and the operations that have none for a known reason, oldest operation first."""
        ...

    def carried_out(self) -> frozenset[int]:
        """The REWINDs that have been carried out, as their own operation numbers."""
        ...

    def look(self, point: RewindPoint) -> RewindLook:
        """The effect of a rewind to a point."""
        ...
