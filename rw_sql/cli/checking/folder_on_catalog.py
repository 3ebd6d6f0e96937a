"""Checks a folder for a catalog that may already have the folder's objects.

If an object already exists, ``rw-sql apply`` changes the object instead of creating it. The check therefore has two
steps. The first step checks the definitions on the catalog without the folder's objects. The second step plans the
changes that ``rw-sql diff`` finds on the catalog with these objects.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rw_sql.cli.deploy.possible_changes import check_changes, possible_changes
from rw_sql.errors import SqlError
from rw_sql.metastore.records import DropObject, PutObject
from rw_sql.model.object_lookup import objects_in
from rw_sql.plan.deploy.folder import RELATIONS, DefinitionError
from rw_sql.plan.result.steps import after
from rw_sql.plan.statements.schema.schema import cascading_drops

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from rw_sql.metastore import Snapshot
    from rw_sql.metastore.records import ObjectRecord
    from rw_sql.plan.deploy.change import DeployChange
    from rw_sql.plan.deploy.folder import FolderObject
    from rw_sql.plan.offline.script import ScriptChecker


def without_objects(catalog: Snapshot, objects: Iterable[FolderObject]) -> Snapshot:
    """Returns the catalog without the objects that a folder defines, and without the dependents of these objects. The
    result still contains the user's own Delta tables."""
    defined = [record for made in objects for record in _same_name(catalog, made)]
    schemas = [record for record in defined if record.kind == "schema"]
    inside = [record for schema in schemas for record in objects_in(catalog, schema.name)]
    changes, _ = cascading_drops(catalog, (*inside, *defined))
    left = after(catalog, (*changes, *(DropObject(id=schema.id) for schema in schemas)))
    tables = (table for table in catalog.all("delta_table") if left.get(table.id) is None)
    return after(left, tuple(PutObject(record=table) for table in tables))


def _same_name(catalog: Snapshot, made: FolderObject) -> list[ObjectRecord]:
    """Returns the objects of the catalog that have the name of the folder's object. The result does not contain the
    source of a table, because DROP TABLE drops this source too."""
    kinds = RELATIONS if made.kind in RELATIONS else (made.kind,)
    found = (catalog.find(kind, made.name) for kind in kinds)
    return [
        record
        for record in found
        if record is not None and not (record.kind == "source" and catalog.table_of(record.id) is not None)
    ]


def errors_of_changes(
    checker: ScriptChecker, catalog: Snapshot, objects: Sequence[FolderObject]
) -> Iterator[tuple[FolderObject, SqlError]]:
    """Yields the errors of the changes that make the catalog match the folder. Each error comes with the affected
    definition, and is located at the name in this definition. After the last error, the checker's catalog includes
    these changes.

    The caller must have checked that the definitions have no errors.
    """
    # The ids of the checked objects are not assigned again, because the checker still has facts about objects with
    # these ids.
    checker.snapshot = replace(catalog, next_id=checker.snapshot.next_id)
    try:
        changes = possible_changes(checker.snapshot, objects)
    except SqlError as error:
        wanted = error.wanted if isinstance(error, DefinitionError) else objects[0]
        yield wanted, _at_name(error, wanted)
        return
    for change, checked in check_changes(checker, changes):
        wanted = _definition(change, objects)
        for found in checked.errors:
            found.detail = found.detail or f"rw-sql apply would run: {'; '.join(change.texts)}"
            yield wanted, _at_name(found, wanted)


def _definition(change: DeployChange, objects: Sequence[FolderObject]) -> FolderObject:
    """Returns the definition of the object that a change concerns. If the folder does not define the object, returns
    the first definition of the folder."""
    named = (made for made in objects if (made.kind, made.name) == (change.kind, change.name))
    return next(named, objects[0])


def _at_name(error: SqlError, wanted: FolderObject) -> SqlError:
    error.span = wanted.statement.name.span
    return error
