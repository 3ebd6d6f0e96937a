"""What lowering asks of sources' logs as tables: how large they are and how far back they reach."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rw_sql.plan.requests.ask import ask

if TYPE_CHECKING:
    from collections.abc import Generator


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureLogs:
    """How large the logs of these sources are now, by source id; a source without a log has none."""

    source_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSize:
    """A source's log: its rows (decode errors among them), the bytes of its files, and since when it holds rows.

    ``since_ms`` is the beginning of the hour in which its oldest rows were written, in milliseconds since 1970; None
    where it has none. ``empty`` are the columns, and fields of structs, that its newest rows have no value of.
    """

    rows: int = 0
    errors: int = 0
    bytes: int = 0
    files: int = 0
    since_ms: int | None = None
    empty: tuple[str, ...] = ()


def log_sizes(source_ids: tuple[int, ...]) -> Generator[MeasureLogs, object, dict[int, LogSize]]:
    """Asks how large the logs of sources are, by source id."""
    return ask(MeasureLogs(source_ids=source_ids), dict)
