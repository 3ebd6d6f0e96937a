"""Lowers UNDO OPERATION for a RENAME TO or SET SCHEMA. The undo gives the object its former name in the current
catalog."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rw_sql.errors import SqlError
from rw_sql.metastore.codec import before_from_json, changes_from_json
from rw_sql.metastore.records import (
    ConnectionRecord,
    MaterializedViewRecord,
    PutObject,
    SecretRecord,
    SinkRecord,
    SourceRecord,
)
from rw_sql.model.object_lookup import schema_of, spoken
from rw_sql.plan.statements.table.new_name_plan import new_name_plan
from rw_sql.plan.statements.table.set_schema import require_free_name
from rw_sql.syntax.lexing.identifiers import PUBLIC, quoted
from rw_sql.syntax.statements import Name

if TYPE_CHECKING:
    from collections.abc import Callable

    from rw_sql.metastore import Snapshot
    from rw_sql.metastore.records import OperationRecord
    from rw_sql.plan.ports.inspector import Inspector
    from rw_sql.plan.result.plan import Plan
    from rw_sql.syntax.statements import UndoOperation

_KINDS = ("table", "materialized_view", "source", "sink", "connection", "secret")
"""The kinds of objects that can be renamed. Tables precede sources, because renaming a table also renames the table's
source but must count as a rename of the table."""

_RECORDS = SourceRecord | MaterializedViewRecord | SinkRecord | ConnectionRecord | SecretRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Renaming:
    """An object, the object's name before an operation, and the name that the operation gave the object."""

    id: int
    old: str
    new: str

    @property
    def is_move(self) -> bool:
        """True if the operation moved the object to another schema and kept its name within the schema."""
        return self.old.rpartition(".")[2] == self.new.rpartition(".")[2]


def renaming_of(record: OperationRecord) -> Renaming | None:
    """The object that an operation (or its undo) renamed or moved to another schema; None for operations of other
    kinds."""
    if not record.kind.startswith(("RENAME ", "SET SCHEMA ", "UNDO ")):
        return None
    put = {c.record.id: c.record for c in changes_from_json(record.changes) if isinstance(c, PutObject)}
    before = before_from_json(record.before).objects
    for kind in _KINDS:
        changed = [
            Renaming(id=id_, old=old.name, new=new.name)
            for id_, old in before.items()
            if old is not None and old.kind == kind and (new := put.get(id_)) is not None and new.name != old.name
        ]
        if changed:
            return changed[0] if len(changed) == 1 else None
    return None


def lower_undo_rename(
    statement: UndoOperation,
    snapshot: Snapshot,
    inspector: Inspector,
    renaming: Renaming,
    kind: str,
    refused: Callable[[str, str | None], SqlError],
) -> Plan:
    """The plan that gives the object its former name. ``refused`` builds an error from a reason. The function raises
    this error if the object was renamed again, if the object's former name is taken, or if the object's former schema
    does not exist."""
    record = snapshot.get(renaming.id)
    if not isinstance(record, _RECORDS):
        raise refused(f'"{renaming.new}" was dropped since', None)
    if record.name != renaming.new:
        raise refused(f'{spoken(record.kind)} "{renaming.new}" is now called "{record.name}"', None)
    name = Name.of(renaming.old)
    if renaming.is_move:
        schema, dot, _ = renaming.old.partition(".")
        if dot and schema_of(snapshot, renaming.old) == PUBLIC:
            raise refused(f'schema "{schema}" was dropped since', f"CREATE SCHEMA {quoted(schema)}")
    try:
        require_free_name(snapshot, record, name)
    except SqlError as error:
        raise refused(error.message, error.hint) from error
    return new_name_plan(
        statement,
        snapshot,
        inspector,
        record,
        renaming.old,
        kind=kind,
        change="MOVED" if renaming.is_move else "RENAMED",
        span=statement.span,
    )
