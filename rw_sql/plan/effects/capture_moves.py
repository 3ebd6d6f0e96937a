"""Computes the notices about moves of a change data capture source. The notices state whether the source can continue
at its position, and which tables of the source are read again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rw_sql.connectors.changes import ChangeConnector
from rw_sql.model.options import visible
from rw_sql.model.split_status import AHEAD, EXPIRED, split_status
from rw_sql.syntax.lexing.identifiers import sql_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from rw_sql.connectors.base import Connector, SplitState, Upstream
    from rw_sql.metastore.records import SourceRecord
    from rw_sql.model.options import PlannedOptions
    from rw_sql.model.source_readers import CdcTableSpec
    from rw_sql.plan.ports.inspector import Inspector

_PUBLICATION = "publication.name"


def notes_on_capture(
    inspector: Inspector,
    kind: Connector,
    source: SourceRecord,
    options: tuple[PlannedOptions, PlannedOptions],
    upstream: Upstream,
    states: Mapping[str, SplitState],
) -> Iterator[str]:
    """Yields the reasons why the source stalls after its options were changed, each with the statement to run.
    ``options`` are the old options and the new options. Yields nothing if the source can continue or does not capture
    changes.
    """
    if not isinstance(kind, ChangeConnector) or not upstream.is_reachable:
        return
    old, new = options
    again = (
        f"RESET SOURCE SPLITS {sql_name(source.name)} ALLOW GAPS WITH (FORGET_OFFSETS = true) reads the tables again"
    )
    known = {split: state for split, state in states.items() if split in upstream.splits}
    if known and inspector.upstreams.slot_details(source.connector, new) is None:
        name = visible(new).get("slot.name", "")
        yield f'slot "{name}" does not exist there, and a new slot would skip changes, so the source stalls: {again}'
        return
    for split, state in known.items():
        seen = upstream.splits[split]
        status, at = split_status(state, seen), kind.show_position(state.offset)
        if status == EXPIRED:
            yield (
                f"the slot begins at {kind.show_position(seen.start)}, after the position {at} of the source: "
                f"the changes between the two are missing, so the source stalls: {again}"
            )
        elif status == AHEAD:
            end = kind.show_position(seen.end)
            yield (
                f"the server's log ends at {end}, before the position {at} of the source, so the source stalls: {again}"
            )
    if known and visible(old).get(_PUBLICATION) != visible(new).get(_PUBLICATION):
        yield (
            f"it is not known whether the other publication always contained the tables, so the source stalls: {again}"
        )


def tables_read_again(tables: Iterable[CdcTableSpec]) -> Iterator[str]:
    """The effect of a new snapshot on each table of a source."""
    for table in tables:
        does = (
            "is read again; queries see the existing rows until then"
            if table.has_snapshot
            else "reads changes from that position on"
        )
        yield f"{table.upstream} {does}"
