"""Records the objects that the runs of a source have created upstream. Such an object is a slot, a subscription or a
publication.

The record is a file beside the checkpoints. The record includes the source's definition and the place of the objects.
The objects can therefore be dropped after the source was dropped, even if the source's connection names another server
by then. The record is written before an object is created. Therefore, neither a failed attempt nor a killed process
leaves an unrecorded object.

A server may have several addresses. If the connection's present address differs from the address in the record, both
addresses may belong to the same server. Therefore, an object at the recorded address is kept if a source in the catalog
uses an object of the same name at any address. But if the identities of the servers show that this source uses another
server, the object is dropped. A publication at the present address is kept or dropped by the same rule.

Another source may use the objects of a dropped source, for example because a source was created again with the same
names before the first source's slot could be dropped. Such a source inherits the objects. The inherited objects are
dropped after the inheriting source is dropped. A source inherits objects only if it has the same address as the dropped
source, or if it has found the objects on a server with the same identity.
"""

from __future__ import annotations

import json
import logging
import time
from typing import TYPE_CHECKING, Any

from rw_sql.connectors.base import HoldingConnector
from rw_sql.connectors.changes import CaptureError, ChangeConnector
from rw_sql.connectors.registry import connector
from rw_sql.errors import SqlError
from rw_sql.metastore.records import FORGOTTEN
from rw_sql.model.definitions import connector_of, option_text, source_definition
from rw_sql.model.job_ids import ingest_fragment
from rw_sql.model.options import SecretReference, effective_options, plan_options, shown, source_options
from rw_sql.runtime.support.event_log import log_event

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from rw_sql.connectors.base import Connector
    from rw_sql.connectors.slot_details import SlotDetails
    from rw_sql.metastore import Snapshot
    from rw_sql.metastore.records import SourceRecord
    from rw_sql.model.options import PlannedOptions
    from rw_sql.runtime.jobs.context import Context
    from rw_sql.runtime.support.warehouse import Warehouse
    from rw_sql.syntax.statements import CreateSource

logger = logging.getLogger(__name__)

_NAME = "upstream.json"
_OBJECTS = {"slot": "slot.name", "publication": "publication.name"}
_SERVER = ("hostname", "port")

_OF_DATABASE = (*_SERVER, "database.name")
_OF_SUBSCRIPTION = ("service.url", "topic", "subscription.name")
_ADDRESS = (*_SERVER, "service.url")
_PLACE = (*_OF_DATABASE, *_OBJECTS.values(), *_OF_SUBSCRIPTION)
"""The options that determine the server and the names of the objects."""

_NAMED_BY: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "postgres-cdc": {"slot": (*_OF_DATABASE, "slot.name"), "publication": (*_OF_DATABASE, "publication.name")},
    "pulsar": {"slot": _OF_SUBSCRIPTION},
}
"""For each connector, the options that determine each object. Two sources of a connector that is not listed here have
the same objects if all their options are equal."""

_SECONDS = 8.0
_FIRST_RETRY_SECONDS, _LAST_RETRY_SECONDS = 5.0, 3600.0

_RETRIES: dict[tuple[str, int], tuple[float, float]] = {}
"""Maps each source whose objects could not be dropped, as (warehouse, source), to two values: the time of the next
retry on the monotonic clock, and the delay that follows this retry if it fails. Without a delay, an upstream that no
longer exists would slow down the owner at every statement."""


def made_upstream(warehouse: Warehouse, source: SourceRecord) -> dict[str, Any]:
    """The record of a source's objects upstream. ``slot`` is true if a run has created the slot, and ``publication`` is
    true if a run has created the publication.

    If ``is_marked`` is true, the publication counts as created by the source only if the publication has the source's
    mark on the server. Without the mark, the source's attempt to create the publication may have failed, and another
    client may have created the publication since then.

    ``inherited`` lists the objects that this source uses although a run of a dropped source has created them.
    """
    return _read(warehouse, source.id)


def note_made(warehouse: Warehouse, source: SourceRecord, options: PlannedOptions = (), **made: bool) -> None:
    """Records the objects in ``made`` (slot, publication) that a run creates. The record also contains the source's
    current definition and the place that the source's effective ``options`` name.

    Former places stay in the record, because the objects that earlier runs have created there still exist. If the slot
    or publication that the present options name differs from the earlier one, the record no longer states that an
    earlier run has created this object.
    """
    _note(warehouse, source, options, made)


def _note(
    warehouse: Warehouse,
    source: SourceRecord,
    options: PlannedOptions,
    made: Mapping[str, bool],
    inherited: Collection[str] = (),
) -> None:
    """Does the same as :func:`note_made`. ``inherited`` are the objects that a dropped source had created and that this
    source uses."""
    known, place = _read(warehouse, source.id), _place_of(options)
    told = {**known, **made, "definition": source.definition, **({"place": place} if place else {})}
    kept = set(known.get("inherited", ()))
    before, former = known.get("definition"), list(known.get("former", []))
    if before is not None:
        # The records of rw_sql 0.1.0 contain no place, so only the definitions can be compared.
        is_placed = bool(place) and "place" in known
        old = known["place"] if is_placed else _place(before)
        new = place if is_placed else _place(source.definition)
        if old != new:
            left = _objects(known)
            more = {key: known[key] for key in ("is_marked", "place") if known.get(key)}
            entry = {"definition": before, **left, **more}
            former += [entry] if any(left.values()) and entry not in former else []
            for what, name in _OBJECTS.items():
                if any(old.get(key) != new.get(key) for key in ("database.name", name)):
                    told[what] = made.get(what, False)
                    kept.discard(what)
    if former:
        told["former"] = former
    if kept := kept.union(inherited):
        told["inherited"] = sorted(kept)
    else:
        told.pop("inherited", None)
    if told != known and (known or former or any(_objects(told).values())):
        warehouse.write_text(_path(warehouse, source.id), json.dumps(told), is_durable=True)


def _objects(made: Mapping[str, Any]) -> dict[str, bool]:
    """Maps each kind of upstream object to True if the object must be dropped when the source is dropped. ``made`` is
    the source's record of its upstream objects."""
    return {what: bool(made.get(what)) or what in made.get("inherited", ()) for what in _OBJECTS}


def _place(definition: str) -> dict[str, str]:
    options = source_definition(definition).options
    return {option.key: option_text(option.value) for option in options if option.key in _PLACE}


def _place_of(options: PlannedOptions) -> dict[str, str]:
    """Returns the options that determine where the objects are. The source or the source's connection may set these
    options. A secret's value is never stored."""
    return {key: value for key, value in options if key in _PLACE and isinstance(value, str)}


def _at(options: PlannedOptions, made: Mapping[str, Any]) -> PlannedOptions:
    """The options ``options``, but with the place from the record ``made``, because the connection may now name another
    place."""
    place: Mapping[str, str] | None = made.get("place")
    if place is None:
        return options
    kept = [
        (key, value)
        for key, value in options
        if key not in place and (key not in _PLACE or isinstance(value, SecretReference))
    ]
    return (*kept, *place.items())


def has_slot_to_drop(context: Context, snapshot: Snapshot, options: Mapping[str, str]) -> bool:
    """True if a source that is not in the catalog ``snapshot`` still has a slot on the server that ``options`` name.
    This slot will be dropped soon. Afterwards, the server can create another slot."""
    warehouse = context.warehouse
    for name in warehouse.list_names(f"{warehouse.uri}/checkpoints"):
        id_ = name.removeprefix("ranges-")
        if id_ == name or not id_.isdecimal() or snapshot.get(int(id_)) is not None:
            continue
        made = _read(warehouse, int(id_))
        if not _objects(made)["slot"]:
            continue
        try:
            statement = source_definition(made["definition"])
            there = context.resolve(_at(plan_options(snapshot, statement), made), snapshot)
        except SqlError:
            continue  # The source's connection or secret no longer exists, so its slot has to be dropped manually.
        kind = connector(connector_of(statement) or "")
        if _address(kind, there) == _address(kind, options):
            return True
    return False


def left_slots(context: Context, snapshot: Snapshot, source: SourceRecord) -> Iterator[tuple[str, SlotDetails]]:
    """Yields the slots that were created by runs of ``source``, a source in the catalog, that still exist, and that no
    source in the catalog reads. Each slot comes with the statement that drops it on the server.

    A move to another slot or server leaves such a slot, and so does the UNDO of such a move. The slot stays, because an
    UNDO may need it. The result omits a slot that a client (such as a source of another warehouse) reads, a slot whose
    server does not respond, and a slot whose login cannot be read.
    """
    kind, made = connector(source.connector), made_upstream(context.warehouse, source)
    if not isinstance(kind, ChangeConnector):
        return
    # Until a run has begun after a move, the record itself describes the former place.
    entries = [made, *(each for each in made.get("former", []) if isinstance(each, dict))]
    found: set[tuple[str, str]] = set()  # A server may have several addresses.
    for entry in entries:
        if not _objects(entry)["slot"]:
            continue
        try:
            own = _at(plan_options(snapshot, source_definition(entry["definition"])), entry)
            options = context.resolve(own, snapshot)
            if _is_read(snapshot, kind, source.connector, own, options):
                continue
            details, removal = kind.slot_details(options, timeout=_SECONDS), kind.slot_removal(options)
        except SqlError:
            continue
        if details is None or removal is None or details.active_pid is not None:
            continue
        if (details.cluster, details.name) not in found:
            found.add((details.cluster, details.name))
            yield removal, details


def _is_read(
    snapshot: Snapshot, kind: Connector, connector_name: str, own: PlannedOptions, options: Mapping[str, str]
) -> bool:
    """True if a source in the catalog reads the slot that ``own`` names, at this or another address of its server.
    ``options`` are the resolved options. If a source in the catalog reads a slot of the same name at another address,
    the slot counts as read unless the address certainly belongs to another server."""
    return any(
        _named(kind, own, "slot") == _named(kind, others, "slot")
        or (_is_named(kind, own, others, "slot") and not _is_another_server(snapshot, kind, reader, options))
        for reader in snapshot.all("source")
        if reader.connector == connector_name
        for others in (source_options(snapshot, reader),)
    )


def release_upstream(context: Context, catalog: Callable[[], Snapshot], source_id: int) -> bool:
    """Drops the objects that a dropped source had created upstream, except those that a source in the catalog uses.
    ``catalog`` returns the current catalog.

    Returns False if the upstream does not respond. The caller must then call again later. A call before the next retry
    is due returns False at once.
    """
    made = _read(context.warehouse, source_id)
    if not made:
        return True
    place = (context.warehouse.uri, source_id)
    due, delay = _RETRIES.pop(place, (0.0, _FIRST_RETRY_SECONDS))
    is_due = time.monotonic() >= due
    is_done = is_due and _released(context, catalog, made, made["definition"])
    left: list[Mapping[str, Any]] = []
    for former in made.get("former", []) if is_done else ():
        # rw_sql 0.1.0 stores only the definition of a source that reads Pulsar.
        found = former if isinstance(former, dict) else {**made, "definition": former, "place": None}
        if _released(context, catalog, found, found["definition"], is_former=True):
            continue
        if _address_of(found) == _address_of(made):
            left.append({key: value for key, value in found.items() if key != "former"})
        else:
            # An object on a former server is dropped at the first attempt or not at all, because that server may be
            # unreachable for ever.
            _warn_of_left_slot(found)
    if left:
        # The next call must not drop the other objects again: somebody may have created objects of the same names.
        is_done = False
        told = {**made, **dict.fromkeys(_OBJECTS, False), "inherited": [], "former": left}
        if told != made:
            context.warehouse.write_text(_path(context.warehouse, source_id), json.dumps(told), is_durable=True)
    if not is_done:
        next_due = (time.monotonic() + delay, min(2 * delay, _LAST_RETRY_SECONDS)) if is_due else (due, delay)
        _RETRIES[place] = next_due
    return is_done


def _recorded_place(made: Mapping[str, Any]) -> Mapping[str, str]:
    return made.get("place") or _place(made["definition"])


def _address_of(made: Mapping[str, Any]) -> list[str]:
    """The address of the server in the record ``made``."""
    place = _recorded_place(made)
    return [place.get(key, "").lower() for key in _ADDRESS]


def _warn_of_left_slot(made: Mapping[str, Any]) -> None:
    """Logs that a slot of a dropped source stays on a former server, with the statement that drops the slot."""
    statement, place = source_definition(made["definition"]), _recorded_place(made)
    kind = connector(connector_of(statement) or "")
    if not _objects(made)["slot"] or not isinstance(kind, ChangeConnector) or "slot.name" not in place:
        return
    logger.warning(
        "source %s was dropped, but its slot at the former address %s is not dropped: on that server, run %s",
        statement.name.key, ":".join(filter(None, _address_of(made))), kind.slot_removal(place),
    )  # fmt: skip


def _released(
    context: Context,
    catalog: Callable[[], Snapshot],
    made: dict[str, Any],
    definition: str,
    *,
    is_former: bool = False,
) -> bool:
    statement = source_definition(definition)
    name, kind = statement.name.key, connector(connector_of(statement) or "")
    if not isinstance(kind, HoldingConnector):
        return True
    try:
        snapshot = catalog()
        options = context.resolve(_at(plan_options(snapshot, statement), made), snapshot)
        left = _objects(made)
        is_unsure = made.get("is_marked") and "publication" not in made.get("inherited", ())
        if left["publication"] and is_unsure and isinstance(kind, ChangeConnector):
            left["publication"] = bool(kind.owns_publication(options, timeout=_SECONDS))
        present = catalog()
        planned = plan_options(present, statement)
        own = _at(planned, made)
        is_elsewhere = is_former or _address(kind, shown(own)) != _address(kind, shown(planned))
        here = None if is_elsewhere else options
        left = _without_used(context.warehouse, present, kind, statement, own, left, here)
        # At the present address, a publication that a source may use is kept. A slot is kept only if a source certainly
        # uses it, because an unused slot prevents the server from deleting its log.
        kinds = tuple(_OBJECTS) if is_elsewhere else ("publication",)
        left = _without_named(present, kind, statement, own, left, options, kinds)
        if not any(left.values()):
            return True
        notices = kind.release(options, slot=left["slot"], publication=left["publication"], timeout=_SECONDS)
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


def _without_used(
    warehouse: Warehouse,
    snapshot: Snapshot,
    kind: Connector,
    statement: CreateSource,
    own: PlannedOptions,
    made: Mapping[str, bool],
    here: Mapping[str, str] | None,
) -> dict[str, bool]:
    """Returns the objects in ``made`` that no source in the catalog uses. A dropped source with the options ``own`` has
    created the objects in ``made``. The source in the catalog inherits the objects that it uses.

    ``here`` are the resolved options if ``own`` has the present address of the server. In this case, a source with
    another address also counts as a user of an object with the same name, if it has found the object on a server with
    the same identity. A source that has created its object itself does not count, because it reads another server, such
    as a copy with the same identity. If ``own`` has another address, ``here`` is None. Raises CaptureError if the
    server does not respond.
    """
    left = dict(made)
    for source in snapshot.all("source"):
        if source.connector != connector_of(statement) or not any(left.values()):
            continue
        others = source_options(snapshot, source)
        used = [what for what in _OBJECTS if left[what] and _named(kind, own, what) == _named(kind, others, what)]
        if here is not None and not used:
            used = _found_elsewhere(warehouse, snapshot, kind, source, own, left, here)
        if used:
            _note(warehouse, source, effective_options(kind.spec, others), {}, inherited=used)
            left |= dict.fromkeys(used, False)
            log_event("upstream_inherited", source=statement.name.key, by=source.name, objects=used)
    return left


def _found_elsewhere(
    warehouse: Warehouse,
    snapshot: Snapshot,
    kind: Connector,
    source: SourceRecord,
    own: PlannedOptions,
    left: Mapping[str, bool],
    here: Mapping[str, str],
) -> list[str]:
    """The objects in ``left`` that ``source`` has found under another address; see :func:`_without_used`."""
    others, made = source_options(snapshot, source), made_upstream(warehouse, source)
    found = [what for what in _OBJECTS if left[what] and not made.get(what) and _is_named(kind, own, others, what)]
    systems = _systems_of(snapshot, kind, source) if found else None
    return found if systems is not None and systems == {_system_at(kind, here)} else []


def _without_named(
    snapshot: Snapshot,
    kind: Connector,
    statement: CreateSource,
    own: PlannedOptions,
    made: Mapping[str, bool],
    options: Mapping[str, str],
    kinds: Collection[str],
) -> dict[str, bool]:
    """Returns ``made`` without the objects of ``kinds`` whose names a source in the catalog uses at any address. But if
    the server that ``options`` name is certainly not the server of that source, the object stays in the result. The
    source does not inherit an object that is left out, because the two addresses may belong to different servers."""
    left = dict(made)
    for source in snapshot.all("source"):
        if source.connector != connector_of(statement):
            continue
        others = source_options(snapshot, source)
        for what in kinds:
            option, named = _OBJECTS[what], _named(kind, own, what)
            if not left[what] or not _is_named(kind, own, others, what):
                continue
            if _is_another_server(snapshot, kind, source, options):
                continue
            left[what] = False
            address = ":".join(value for value in _address(kind, shown(own)).values() if value)
            logger.warning(
                "source %s was dropped: %s %s at %s is kept because source %s uses one of this name: if that is "
                "on another server, drop it manually",
                statement.name.key, what if option in named else "subscription",
                named.get(option) or named.get("subscription.name") or "", address, source.name,
            )  # fmt: skip
    return left


def _is_another_server(snapshot: Snapshot, kind: Connector, source: SourceRecord, options: Mapping[str, str]) -> bool:
    """True if the server that ``options`` name is certainly not the server that ``source`` has read. Raises
    CaptureError if the server does not respond."""
    systems = _systems_of(snapshot, kind, source)
    there = _system_at(kind, options) if systems is not None else None
    return systems is not None and there is not None and there not in systems


def _systems_of(snapshot: Snapshot, kind: Connector, source: SourceRecord) -> set[str] | None:
    """The identities of the servers from which the positions of ``source`` come; None if an identity is unknown or if
    the source has no positions."""
    rows = snapshot.states(ingest_fragment(source.id))
    read = {kind.decode_state(split, row.state).cluster for split, row in rows.items() if row.state != FORGOTTEN}
    systems = {system for cluster in read if (system := _system(cluster)) is not None}
    return systems if systems and all(read) else None


def _system_at(kind: Connector, options: Mapping[str, str]) -> str | None:
    """The identity of the server that ``options`` name; None if the server reports no identity. Raises CaptureError if
    the server does not respond; the caller then tries again later."""
    seen = kind.look(options, timeout=_SECONDS)
    if not seen.is_reachable and isinstance(kind, ChangeConnector):
        kind.owns_publication(options, timeout=_SECONDS)  # raises the error, with the kind of the failure
    return _system(seen.cluster)


def _system(cluster: str | None) -> str | None:
    """The identity of a server without the timeline, which a failover of PostgreSQL changes."""
    return cluster.partition("/")[0] if cluster else None


def _named(kind: Connector, options: PlannedOptions, what: str) -> dict[str, str | None]:
    """The options that determine an object upstream, in a comparable form. A secret is compared by its name, not by its
    value."""
    given = shown(options)
    keys = _NAMED_BY.get(kind.spec.name, {}).get(what, tuple(given))
    found = {key: kind.spec.value(given, key) for key in keys}
    if "topic" in found:
        found["topic"] = ",".join(kind.named_topics(given))
    return {**found, **{key: value for key, value in _address(kind, given).items() if key in found}}


def _address(kind: Connector, options: Mapping[str, str]) -> dict[str, str | None]:
    """The address of the server that ``options`` name, in a comparable form."""
    found = {key: kind.spec.value(options, key) for key in _ADDRESS}
    return {**found, "hostname": (found["hostname"] or "").lower() or None}


def _is_named(kind: Connector, own: PlannedOptions, others: PlannedOptions, what: str) -> bool:
    """True if the two sets of options name the same object, apart from the server's address."""
    return _without_address(_named(kind, own, what)) == _without_address(_named(kind, others, what))


def _without_address(named: Mapping[str, str | None]) -> dict[str, str | None]:
    return {key: value for key, value in named.items() if key not in _ADDRESS}


def _read(warehouse: Warehouse, source_id: int) -> dict[str, Any]:
    """The record of a source's objects; empty if there is no record. If the record cannot be read, logs a warning and
    returns an empty record. The objects upstream must then be dropped manually."""
    try:
        body: dict[str, Any] | None = warehouse.read_json(_path(warehouse, source_id))
    except FileNotFoundError:
        return {}
    if body is None:
        logger.warning("a slot or publication that source %d has created must be dropped manually", source_id)
    return body or {}


def _path(warehouse: Warehouse, source_id: int) -> str:
    return f"{warehouse.uri}/checkpoints/ranges-{source_id}/{_NAME}"
