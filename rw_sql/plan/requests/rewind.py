"""What the lowering of REWIND asks of the world, and the answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rw_sql.metastore.facts import RewindPoint
from rw_sql.plan.requests.ask import ask

if TYPE_CHECKING:
    from collections.abc import Generator


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadRewindPoints:
    """The rewind points there are, and of which operations it is known that there is none."""

    source_id: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LookAtRewind:
    """What going back to a point would take back."""

    point: RewindPoint


@dataclass(frozen=True, slots=True, kw_only=True)
class TableBack:
    """One table now and at a point: its rows, None where they are not counted.

    ``lost`` says why it cannot be taken back. ``has_emitted``: a sink has sent rows out since.
    """

    object_id: int
    now: int | None = None
    then: int | None = None
    lost: str | None = None
    has_emitted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RewindLook:
    """The answer: the source's log first, then each dependent of the point that is still there."""

    tables: tuple[TableBack, ...]


RewindRequest = ReadRewindPoints | LookAtRewind


def rewind_points(source_id: int | None = None) -> Generator[RewindRequest, object, tuple[RewindPoint, ...]]:
    """Asks for rewind points, oldest operation first."""
    return ask(ReadRewindPoints(source_id=source_id), tuple)


def look_at_rewind(point: RewindPoint) -> Generator[RewindRequest, object, RewindLook]:
    """Asks what going back to a point would take back."""
    return ask(LookAtRewind(point=point), RewindLook)
