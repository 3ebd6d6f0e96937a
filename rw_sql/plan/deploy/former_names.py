"""Renames an object of the catalog if a comment in the folder states the object's former name. Exchanges the names of
two objects if the former name in a comment belongs to another object of the folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rw_sql.errors import DUPLICATE_OBJECT, NOT_SUPPORTED
from rw_sql.metastore.records import MaterializedViewRecord, SinkRecord, SourceRecord
from rw_sql.model.object_lookup import RELATION_KINDS, require_new_name, spoken
from rw_sql.plan.deploy.change import RENAME, DeployChange
from rw_sql.plan.deploy.definitions import find_object
from rw_sql.plan.deploy.folder import DefinitionError
from rw_sql.plan.deploy.renames import half_names, names_of
from rw_sql.plan.result.steps import after
from rw_sql.plan.statements.table.new_names import renamed
from rw_sql.syntax.lexing.identifiers import PUBLIC
from rw_sql.syntax.statements import AlterRename, AlterSetSchema, AlterSwap, Name

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rw_sql.metastore import Snapshot
    from rw_sql.plan.deploy.folder import FolderObject
    from rw_sql.syntax.statements import Statement

_Named = SourceRecord | MaterializedViewRecord | SinkRecord
"""The record types of the objects that can be renamed."""


def rename_object(
    snapshot: Snapshot, wanted: FolderObject, folder: Sequence[FolderObject]
) -> tuple[Snapshot, DeployChange]:
    """Renames an object. Returns the catalog in which the object has its new name, and the change that renames the
    object."""
    assert wanted.was is not None
    record = find_object(snapshot, wanted.kind, wanted.was)
    if not isinstance(record, _Named):
        raise DefinitionError(
            wanted,
            NOT_SUPPORTED,
            f"{wanted.place}: {spoken(wanted.kind)} {wanted.was} cannot be renamed",
            hint=f"omit the comment; then {wanted.name} is created, and {wanted.was} is dropped when no object uses it",
        )
    require_new_name(snapshot, wanted.statement.name, renamed=record.name)
    made, _ = renamed(snapshot, {record.id: wanted.name}, wanted.statement.name.span)
    change = DeployChange(
        action=RENAME,
        kind=wanted.kind,
        name=wanted.name,
        statements=_moves(snapshot, wanted, folder, Name.of(wanted.was), Name.of(wanted.name)),
        place=wanted.place,
        touches=(record.id,),
    )
    return after(snapshot, tuple(made)), change


def exchange_names(
    snapshot: Snapshot,
    folder: Sequence[FolderObject],
    is_defined: Callable[[Snapshot, FolderObject], bool],
    changes: list[DeployChange],
) -> Snapshot:
    """Exchanges names as the folder's comments require. Returns the catalog after the exchanges, and appends a change
    to ``changes`` for each exchange.

    Both names exist before and after an exchange. Only the definitions therefore show whether an earlier deployment has
    already made the exchange. Two names are exchanged under two conditions. First, under each of the two names, the
    catalog and the folder have different definitions. Second, after the exchange, the catalog and the folder have the
    same definition under the name whose statement has the comment.
    """
    by_key = {(wanted.kind, wanted.name): wanted for wanted in folder}
    for wanted in folder:
        if wanted.was is None or is_defined(snapshot, wanted):
            continue
        one, other = find_object(snapshot, wanted.kind, wanted.name), find_object(snapshot, wanted.kind, wanted.was)
        holder = by_key.get((wanted.kind, wanted.was))
        if not isinstance(one, _Named) or not isinstance(other, _Named) or holder is None:
            continue
        if is_defined(snapshot, holder):
            continue
        made, _ = renamed(snapshot, {one.id: other.name, other.id: one.name}, wanted.statement.name.span)
        swapped = after(snapshot, tuple(made))
        if not is_defined(swapped, wanted):
            continue
        swap = AlterSwap(kind=spoken(wanted.kind).upper(), name=Name.of(wanted.was), other=Name.of(wanted.name))
        changes.append(
            DeployChange(
                action=RENAME,
                kind=wanted.kind,
                name=wanted.name,
                statements=(swap,),
                place=wanted.place,
                touches=(other.id, one.id),
            )
        )
        snapshot = swapped
    return snapshot


def _moves(
    snapshot: Snapshot, wanted: FolderObject, folder: Sequence[FolderObject], old: Name, new: Name
) -> tuple[Statement, ...]:
    """The statements that rename an object, possibly to another schema.

    Between two statements, the object has an intermediate name, which no other object of the catalog has. A name that
    the folder does not contain is preferred, because :func:`half_renamed` then recognizes the object after an
    interruption. Raises SqlError if both possible intermediate names are taken.
    """
    words = spoken(wanted.kind).upper()
    schema = Name(parts=(new.schema or PUBLIC,))
    if old.schema == new.schema:
        return (AlterRename(kind=words, name=old, new_name=new),)
    if old.last == new.last:
        return (AlterSetSchema(kind=words, name=old, schema=schema),)
    names = names_of(folder)
    moved, called = half_names(old, new)
    free = [half for half in (moved, called) if _is_free(snapshot, half)]
    half = next((half for half in free if half.key not in names), free[0] if free else None)
    if half is None:
        raise DefinitionError(
            wanted,
            DUPLICATE_OBJECT,
            f"{wanted.place}: {spoken(wanted.kind)} {old.key} cannot get both another schema and another name in one "
            f"deployment, because {moved.key} and {called.key} exist",
            hint=f"rename it in the folder to another name, such as {new.key}_2, apply the folder, and then rename it "
            f"to {new.key}",
        )
    if half is moved:
        return (
            AlterSetSchema(kind=words, name=old, schema=schema),
            AlterRename(kind=words, name=half, new_name=new),
        )
    return (
        AlterRename(kind=words, name=old, new_name=half),
        AlterSetSchema(kind=words, name=half, schema=schema),
    )


def _is_free(snapshot: Snapshot, name: Name) -> bool:
    """True if no relation has the name. The case of letters is ignored."""
    records = (record for kind in (*RELATION_KINDS, "sink") for record in snapshot.all(kind))
    return all(record.name.lower() != name.key.lower() for record in records)
