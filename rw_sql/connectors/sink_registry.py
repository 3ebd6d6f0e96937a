"""Finds sink connectors, built-in and third parties' alike, through the entry-point group ``rw_sql.sinks``."""

from __future__ import annotations

from functools import cache
from importlib.metadata import entry_points
from typing import TYPE_CHECKING

from rw_sql.errors import NOT_SUPPORTED, Span, SqlError, near_names

if TYPE_CHECKING:
    from rw_sql.connectors.sink_base import SinkConnector

GROUP = "rw_sql.sinks"


@cache
def sink_connector_names() -> tuple[str, ...]:
    """The names that ``connector = '…'`` of a sink may take, sorted; as installed when the process first asked."""
    return tuple(sorted({entry.name for entry in entry_points(group=GROUP)}))


def sink_connector(name: str, span: Span | None = None) -> SinkConnector:
    """The sink connector of a name. Raises SqlError NOT_SUPPORTED where there is none."""
    if name not in sink_connector_names():
        near = near_names(name.lower(), sink_connector_names())
        raise SqlError(
            NOT_SUPPORTED,
            f'sink connector "{name}" is not supported, accept [{", ".join(sink_connector_names())}]',
            hint=f"did you mean '{near[0]}'?" if near else None,
            span=span,
        )
    return _load(name)


@cache
def _load(name: str) -> SinkConnector:
    (entry, *_) = entry_points(group=GROUP, name=name)
    made: SinkConnector = entry.load()()
    return made
