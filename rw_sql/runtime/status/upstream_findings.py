"""Finds captured databases from which a source cannot continue to read although the source's status does not show this
problem. Also finds slots that no source reads any more."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from rw_sql.connectors.registry import captures_changes, change_connector
from rw_sql.errors import SqlError
from rw_sql.model.source_readers import readers_of
from rw_sql.plan.effects.capture_moves import find_obstacle, hint_for
from rw_sql.plan.statements.show.job_states import source_state
from rw_sql.runtime.control.inspector import WarehouseInspector
from rw_sql.runtime.jobs.made_upstream import left_slots
from rw_sql.runtime.status.findings import UPSTREAM, Finding, named
from rw_sql.runtime.support.background import KeyedWork

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rw_sql.metastore import Snapshot
    from rw_sql.metastore.records import SourceRecord
    from rw_sql.runtime.jobs.context import Context

_SECONDS = 20.0
"""The time limit, in seconds, for the requests to all servers together."""


def of_upstreams(context: Context, snapshot: Snapshot) -> Iterator[Finding]:
    """Returns findings about the servers of captured databases. A server that does not respond, or to which this
    process cannot send a request, gives no finding."""
    sources = [source for source in snapshot.all("source") if captures_changes(source.connector)]
    works = {source.id: partial(_of_source, context, snapshot, source) for source in sources}
    found = KeyedWork[int, list[Finding]](UPSTREAM).results(works, _SECONDS) if works else {}
    for source in sources:
        yield from found.get(source.id, ())


def _of_source(context: Context, snapshot: Snapshot, source: SourceRecord) -> list[Finding]:
    found: list[Finding] = []
    for look in (_of_position, _of_left_slots):
        try:
            found += look(context, snapshot, source)
        except SqlError:
            continue  # The server does not respond, or a secret cannot be read.
    return found


def _of_position(context: Context, snapshot: Snapshot, source: SourceRecord) -> Iterator[Finding]:
    """Returns a finding if the source's reader could not continue at its position. If the job does not run, for example
    because the source is paused, the job's status does not show this problem."""
    inspector = WarehouseInspector(context, snapshot)
    state, _ = source_state(snapshot, source, inspector.jobs.statuses())
    if state == "STALLED":
        return
    # Raises SqlError if this process cannot ask the server, for example without the connector's package, or if the
    # server refuses logins from this machine. The owner may be able to.
    slot = change_connector(source.connector).slot_details(context.options_of(source, snapshot))
    for reader in readers_of(snapshot, source):
        for split in snapshot.splits(reader.fragment):
            reason = find_obstacle(inspector, snapshot, source, reader.fragment, split, slot)
            if reason is not None and not reason.is_temporary:
                yield Finding(
                    about=UPSTREAM,
                    subject=named(source),
                    problem=f"it is {state}, and its reader cannot continue: {reason.message}",
                    remedy=hint_for(reason, source),
                )


def _of_left_slots(context: Context, snapshot: Snapshot, source: SourceRecord) -> Iterator[Finding]:
    for removal, slot in left_slots(context, snapshot, source):
        kept = f" and keeps {slot.retained_bytes} bytes of the server's log" if slot.retained_bytes else ""
        yield Finding(
            about=UPSTREAM,
            subject=f"slot {slot.name} of {named(source)}",
            problem=f"rw_sql created the slot, no source reads it after a move or an UNDO{kept}",
            remedy=f"if neither an UNDO nor another program or warehouse needs the slot, run on its server: {removal}",
        )
