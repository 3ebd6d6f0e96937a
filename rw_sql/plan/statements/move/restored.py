"""Checks the definitions, splits and positions that UNDO OPERATION and REWIND SOURCE restore."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rw_sql.errors import CANNOT_UNDO, SqlError
from rw_sql.metastore.records import (
    DEFAULT_GROUP,
    AssignSplits,
    ConnectionRecord,
    PauseRecord,
    PutObject,
    PutSplitStates,
    SinkRecord,
    SourceRecord,
)
from rw_sql.model.definitions import definition_of
from rw_sql.model.job_ids import fragment_object, fragment_source
from rw_sql.model.object_lookup import spoken
from rw_sql.model.options import SecretReference, connection_options
from rw_sql.model.resource_groups import as_grouped_now
from rw_sql.plan.checks.sources import check_source
from rw_sql.plan.result.steps import after
from rw_sql.plan.statements.common import source_record
from rw_sql.syntax.lexing.identifiers import literal, sql_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from rw_sql.metastore import Snapshot
    from rw_sql.metastore.records import Change, ObjectRecord


def put_records(changes: Sequence[Change]) -> dict[int, ObjectRecord]:
    """Returns the records that the changes put into the catalog. The keys are the ids of the records."""
    return {change.record.id: change.record for change in changes if isinstance(change, PutObject)}


def checked(
    snapshot: Snapshot, changes: tuple[Change, ...], refused: Callable[[str, str | None], SqlError]
) -> tuple[Change, ...]:
    """Checks that the restored definitions are valid in the current catalog. Returns the changes, in which the derived
    fields of the records are computed again.

    A connection or secret that a definition names may have been dropped since the operation. It may also have been
    created again with a different id.
    """
    try:
        by_id = {id_: _as_named_now(snapshot, _in_its_group(snapshot, r)) for id_, r in put_records(changes).items()}
        others = tuple(change for change in changes if not isinstance(change, PutObject))
        then = after(snapshot, (*others, *(PutObject(record=record) for record in by_id.values())))
        for record in list(by_id.values()):
            if isinstance(record, ConnectionRecord):
                planned = connection_options(then, record)
                secrets = tuple(dict.fromkeys(v.id for _, v in planned if isinstance(v, SecretReference)))
                by_id[record.id] = replace(record, uses=secrets)
        users = {user.id: user for id_ in by_id for user in then.users_of(id_) if isinstance(user, SourceRecord)}
        for source in (*users.values(), *(r for r in list(by_id.values()) if isinstance(r, SourceRecord))):
            check_source(then, definition_of(source))
            made = as_grouped_now(snapshot, source_record(then, source, definition_of(source)))
            if source.id in by_id or made != source:
                by_id[source.id] = made
        _require_used(then, by_id.values())
        _require_readers(then, others)
    except SqlError as error:
        raise refused(error.message, error.hint) from error
    except ValueError as error:
        raise refused(str(error), None) from error
    return (*others, *(PutObject(record=record) for record in by_id.values()))


def _in_its_group(snapshot: Snapshot, record: ObjectRecord) -> ObjectRecord:
    """Calls :func:`as_grouped_now`. If this function raises ValueError, raises SqlError with a hint that names the
    statement for moving the object back to its former group."""
    try:
        return as_grouped_now(snapshot, record)
    except ValueError as error:
        kind = "TABLE" if snapshot.table_of(record.id) is not None else spoken(record.kind).upper()
        group = literal(getattr(record, "resource_group", DEFAULT_GROUP))
        raise SqlError(
            CANNOT_UNDO,
            f'"{record.name}": {error}',
            hint=f"ALTER {kind} {sql_name(record.name)} SET RESOURCE_GROUP TO {group}; then repeat this statement",
        ) from error


def _as_named_now(snapshot: Snapshot, record: ObjectRecord) -> ObjectRecord:
    """Returns the record. If the record is the pause of a source, the result has the source's present name. Raises
    ValueError if the paused source was dropped, because no statement could remove the pause."""
    if not isinstance(record, PauseRecord) or record.source_id is None:
        return record
    source = snapshot.get(record.source_id)
    if source is None:
        raise ValueError(f'source "{record.name}", which it would pause, was dropped since')
    return replace(record, name=source.name)


def _require_used(then: Snapshot, records: Iterable[ObjectRecord]) -> None:
    for record in records:
        if isinstance(record, SinkRecord) and any(then.get(used) is None for used in record.uses):
            raise ValueError(f'sink "{record.name}" used a connection or secret that no longer exists')


def _require_readers(then: Snapshot, changes: Iterable[Change]) -> None:
    """Raises ValueError if the changes restore splits or positions of a reader that no longer exists."""
    for change in changes:
        if isinstance(change, AssignSplits | PutSplitStates) and None in (
            then.get(fragment_source(change.fragment)),
            then.get(fragment_object(change.fragment)),
        ):
            raise ValueError("the source, or the view that read it, was dropped since")
