"""Requests of the planning of REWIND, and the answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rw_sql.metastore.facts import RewindPoint
from rw_sql.plan.ports.ask import ask

if TYPE_CHECKING:
    from collections.abc import Generator


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadRewindPoints:
    """The rewind points, and the operations that are known to have none."""

    source_id: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LookAtRewind:
    """What a rewind to a point would revert."""

    point: RewindPoint


@dataclass(frozen=True, slots=True, kw_only=True)
class TableBack:
    """One table now and at a point: its numbers of rows, None if not counted.

    ``lost`` says why it cannot be restored. ``has_emitted``: a sink has sent rows since.
    """

    object_id: int
    now: int | None = None
    then: int | None = None
    lost: str | None = None
    has_emitted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RewindLook:
    """The answer: the source's log first, then each dependent of the point that still exists."""

    tables: tuple[TableBack, ...]


RewindRequest = ReadRewindPoints | LookAtRewind


def rewind_points(source_id: int | None = None) -> Generator[RewindRequest, object, tuple[RewindPoint, ...]]:
    """Requests rewind points, oldest operation first."""
    return ask(ReadRewindPoints(source_id=source_id), tuple)


def look_at_rewind(point: RewindPoint) -> Generator[RewindRequest, object, RewindLook]:
    """Requests what a rewind to a point would revert."""
    return ask(LookAtRewind(point=point), RewindLook)
