"""Renames an object of the catalog if a comment in the folder states the object's former name. Also exchanges the names
of two objects if a comment in the folder requests this."""

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
"""The records of objects that can be renamed."""


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
    """Returns the catalog after the exchanges of names that the folder's comments request. Appends the changes that
    make these exchanges to ``changes``.

    Both names exist before and after an exchange, so only the definitions show whether the exchange has been made
    already. Two names are exchanged if two conditions are met. First, for neither object, the definition in the catalog
    is the folder's definition of the object's present name. Second, the definition of the object with the comment is
    the folder's definition of the name that this object gets in the exchange.
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

    Between two statements, the object has a name that no object of the catalog has. If possible, the folder does not
    contain this name either, so that :func:`half_renamed` recognizes the object after an interruption. Raises SqlError
    if both possible names are taken.
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
    """True if no relation has the name. Upper and lower case are not distinguished."""
    records = (record for kind in (*RELATION_KINDS, "sink") for record in snapshot.all(kind))
    return all(record.name.lower() != name.key.lower() for record in records)
