"""Records which objects the runs of a source have created upstream: a slot or subscription, and a publication.

The record is a file beside the checkpoints. It includes the source's definition, so that the objects can be dropped
after the source was dropped. The record is written before a slot is created, so that a killed process never leaves an
unrecorded slot.
"""

from __future__ import annotations

import json
import logging
import time
from typing import TYPE_CHECKING, Any

from rw_sql.connectors.base import HoldingConnector
from rw_sql.connectors.changes import CaptureError
from rw_sql.connectors.registry import captures_changes, connector
from rw_sql.errors import SqlError
from rw_sql.model.definitions import connector_of, option_text, source_definition
from rw_sql.model.options import plan_options
from rw_sql.runtime.support.event_log import log_event

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rw_sql.metastore import Snapshot
    from rw_sql.metastore.records import SourceRecord
    from rw_sql.runtime.jobs.context import Context
    from rw_sql.runtime.support.warehouse import Warehouse

logger = logging.getLogger(__name__)

_NAME = "upstream.json"
_OBJECTS = {"slot": "slot.name", "publication": "publication.name"}
_PLACE = ("hostname", "port", "database.name", *_OBJECTS.values())
"""The options that determine where the objects of a captured database are."""

_SERVER = ("hostname", "port")

_SECONDS = 8.0
_FIRST_RETRY_SECONDS, _LAST_RETRY_SECONDS = 5.0, 3600.0

_RETRIES: dict[tuple[str, int], tuple[float, float]] = {}
"""For each source whose objects could not be dropped, by (warehouse, source): the time of the next try on the monotonic
clock, and the delay after that try. An upstream that no longer exists must not delay the owner at every statement.
"""


def made_upstream(warehouse: Warehouse, source: SourceRecord) -> dict[str, Any]:
    """The record of a source's objects upstream. ``slot`` and ``publication`` are true if a run has created them."""
    return _read(warehouse, source.id)


def note_made(warehouse: Warehouse, source: SourceRecord, **made: bool) -> None:
    """Records that a run creates a slot or a publication, and the source's current definition.

    Definitions that read another upstream are kept, because the objects that their runs created still exist there. A
    slot of another name was not created by these runs.
    """
    known = _read(warehouse, source.id)
    told = {**known, **made, "definition": source.definition}
    before, former = known.get("definition"), list(known.get("former", []))
    if before not in (None, source.definition):
        if not captures_changes(source.connector):
            former += [before] if before not in former else []
        elif (old := _place(before)) != (new := _place(source.definition)):
            left = {what: bool(known.get(what)) for what in _OBJECTS}
            former += [{"definition": before, **left}] if any(left.values()) else []
            for what, name in _OBJECTS.items():
                if any(old.get(key) != new.get(key) for key in ("database.name", name)):
                    told[what] = made.get(what, False)
    if former:
        told["former"] = former
    if told != known and (former or any(told.get(what) for what in _OBJECTS)):
        warehouse.write_text(_path(warehouse, source.id), json.dumps(told))


def _place(definition: str) -> dict[str, str]:
    options = source_definition(definition).options
    return {option.key: option_text(option.value) for option in options if option.key in _PLACE}


def has_slot_to_drop(context: Context, snapshot: Snapshot, options: Mapping[str, str]) -> bool:
    """True if a source that is not in the catalog ``snapshot`` still has a slot on the server that ``options`` name.
    The slot is dropped soon, which makes room for another slot."""
    warehouse = context.warehouse
    for name in warehouse.list_names(f"{warehouse.uri}/checkpoints"):
        id_ = name.removeprefix("ranges-")
        if id_ == name or not id_.isdecimal() or snapshot.get(int(id_)) is not None:
            continue
        made = _read(warehouse, int(id_))
        if not made.get("slot"):
            continue
        try:
            statement = source_definition(made["definition"])
            there = context.resolve(plan_options(snapshot, statement), snapshot)
        except SqlError:
            continue  # The source's connection or secret no longer exists, so its slot has to be dropped manually.
        if all(there.get(key) == options.get(key) for key in _SERVER):
            return True
    return False


def release_upstream(context: Context, snapshot: Snapshot, source_id: int) -> bool:
    """Drops the objects that a dropped source had created upstream.

    Returns False if the upstream does not respond, so that the call must be repeated. Calls before a retry is due
    return False at once.
    """
    made = _read(context.warehouse, source_id)
    if not made:
        return True
    place = (context.warehouse.uri, source_id)
    due, delay = _RETRIES.pop(place, (0.0, _FIRST_RETRY_SECONDS))
    is_due = time.monotonic() >= due
    is_done = is_due and _released(context, snapshot, made, made["definition"])
    if not is_done:
        next_due = (time.monotonic() + delay, min(2 * delay, _LAST_RETRY_SECONDS)) if is_due else (due, delay)
        _RETRIES[place] = next_due
    else:
        for former in made.get("former", []):
            # An object of a former upstream is dropped at the first attempt or not at all, because that upstream may
            # be unreachable for ever.
            is_whole = isinstance(former, dict)
            _released(context, snapshot, former if is_whole else made, former["definition"] if is_whole else former)
    return is_done


def _released(context: Context, snapshot: Snapshot, made: dict[str, Any], definition: str) -> bool:
    statement = source_definition(definition)
    name, kind = statement.name.key, connector(connector_of(statement) or "")
    if not isinstance(kind, HoldingConnector):
        return True
    try:
        options = context.resolve(plan_options(snapshot, statement), snapshot)
        notices = kind.release(
            options, slot=bool(made.get("slot")), publication=bool(made.get("publication")), timeout=_SECONDS
        )
    except OSError as error:
        logger.warning("source %s was dropped, but its subscription is not dropped yet: %s", name, error)
        return False
    except CaptureError as error:
        logger.warning("source %s was dropped, but its slot is not dropped yet: %s", name, error.message)
        return not error.is_temporary
    except SqlError as error:
        # The source's connection or secret no longer exists, so the slot can only be dropped manually.
        logger.warning("source %s was dropped, but its slot cannot be dropped: %s", name, error.message)
        return True
    for notice in notices:
        logger.warning("source %s was dropped: %s", name, notice)
    log_event("upstream_released", source=name, notices=len(notices))
    return True


def _read(warehouse: Warehouse, source_id: int) -> dict[str, Any]:
    try:
        body: dict[str, Any] = json.loads(warehouse.read_text(_path(warehouse, source_id)))
    except FileNotFoundError:
        return {}
    return body


def _path(warehouse: Warehouse, source_id: int) -> str:
    return f"{warehouse.uri}/checkpoints/ranges-{source_id}/{_NAME}"
