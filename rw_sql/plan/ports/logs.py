"""Requests about sources' logs as tables: their size and age."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rw_sql.plan.ports.ask import ask

if TYPE_CHECKING:
    from collections.abc import Generator


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureLogs:
    """The sizes of these sources' logs, by source id; sources without a log are missing."""

    source_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSize:
    """A source's log: its rows (decode errors included), the bytes of its files, and the age of its oldest rows.

    ``since_ms`` is the beginning of the hour in which its oldest rows were written, in milliseconds since 1970; None if
    it is empty. ``empty`` are the columns, and fields of structs, without a value in its newest rows.
    """

    rows: int = 0
    errors: int = 0
    bytes: int = 0
    files: int = 0
    since_ms: int | None = None
    empty: tuple[str, ...] = ()


def log_sizes(source_ids: tuple[int, ...]) -> Generator[MeasureLogs, object, dict[int, LogSize]]:
    """Requests the sizes of sources' logs, by source id."""
    return ask(MeasureLogs(source_ids=source_ids), dict)
