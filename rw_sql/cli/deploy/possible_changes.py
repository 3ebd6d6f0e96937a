"""Computes the changes that make a catalog match a folder. If planning shows that an object cannot be altered in place,
the changes drop the object and create it again.

``compare`` compares only definitions. Only planning shows two facts: whether the columns of a table can change in
place, and, if a view gets a new query, whether the views that read it can keep their columns. This module therefore
plans the statements, as ``rw-sql check`` does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rw_sql.errors import (
    DEPENDENTS_EXIST,
    DUPLICATE_CLAUSE,
    DUPLICATE_OBJECT,
    INVALID_DEFINITION,
    NOT_SUPPORTED,
    UNDEFINED_COLUMN,
)
from rw_sql.metastore.records import TableRecord
from rw_sql.plan.deploy.change import REBUILD
from rw_sql.plan.deploy.changes import compare
from rw_sql.plan.deploy.columns import rebuilt_users, why_dropped_first
from rw_sql.plan.deploy.widening import adds_columns, why_created_again
from rw_sql.plan.offline.script import ScriptChecker
from rw_sql.plan.result.steps import after
from rw_sql.plan.statements.view.alter_query import ReaderCannotFollowError
from rw_sql.plan.statements.view.rebuild import rebuild_groups, swap_operation
from rw_sql.syntax import render
from rw_sql.syntax.statements import (
    AlterAddColumn,
    AlterTableDropColumn,
    AlterTableRenameColumn,
    DropTable,
    Wait,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rw_sql.metastore import Snapshot
    from rw_sql.plan.deploy.change import DeployChange
    from rw_sql.plan.deploy.folder import FolderObject
    from rw_sql.plan.offline.report import Checked
    from rw_sql.syntax.statements import Statement

_OF_COLUMNS = (AlterAddColumn, AlterTableDropColumn, AlterTableRenameColumn)
_LIMITS = (DUPLICATE_CLAUSE, DUPLICATE_OBJECT, INVALID_DEFINITION, NOT_SUPPORTED)
"""If a statement that changes a column is refused with one of these errors, the cause is the definition of the table.
The cause of any other error may be temporary."""


def possible_changes(
    snapshot: Snapshot, folder: Sequence[FolderObject], allow: Sequence[str] = ()
) -> tuple[DeployChange, ...]:
    """The changes that make the catalog match the folder; see :func:`rw_sql.plan.deploy.changes.compare`.

    The changes create a view V again in three cases. In the first case, a view that V reads gets a new query, and V
    cannot keep its columns with this query. In the second case, V lacks a column that another definition needs, and a
    rebuild cannot add the column. In the third case, the new query of V no longer uses a column that is dropped, but
    the DROP COLUMN cannot wait until V has this query. A table is created again if its columns cannot change in place.
    """
    unable: dict[int, str] = {}
    while True:
        changes = compare(snapshot, folder, allow, unable)
        found = (
            _rebuild_after_drop(snapshot, changes)
            or _fixed_table(snapshot, folder, changes)
            or _reader_that_cannot_follow(snapshot, changes)
            or _view_without_columns(snapshot, changes)
        )
        if found is None or found[0] in unable:
            return changes
        unable[found[0]] = found[1]


def check_changes(checker: ScriptChecker, changes: Sequence[DeployChange]) -> Iterator[tuple[DeployChange, Checked]]:
    """Plans the statements of the changes on the checker's catalog, and yields each statement with its change and its
    errors. If a change must wait for a rebuild, the rebuild is assumed to succeed."""
    for change, _, checked in _planned(checker, changes):
        yield change, checked


def _planned(
    checker: ScriptChecker, changes: Sequence[DeployChange]
) -> Iterator[tuple[DeployChange, Statement, Checked]]:
    for change in changes:
        for statement in change.statements:
            for checked in checker.check(render(statement), "folder"):
                yield change, statement, checked
            if isinstance(statement, Wait):
                for group in rebuild_groups(checker.snapshot):
                    checker.snapshot = after(checker.snapshot, swap_operation(checker.snapshot, group, "").changes)


def _rebuild_after_drop(snapshot: Snapshot, changes: Sequence[DeployChange]) -> tuple[int, str] | None:
    """Finds the first change of a table's columns that is refused because a DROP COLUMN waits for a view's rebuild.
    Returns the id of the view and the reason for creating the view again; None if no such change is refused.

    A DROP COLUMN that follows a rebuild is refused if a new query contains the column's name. While a DROP COLUMN
    waits, an ADD COLUMN or RENAME COLUMN is refused if it conflicts with the column to drop.
    """
    rebuilt = {change.touches[0] for change in changes if change.action == REBUILD}
    dropped = [
        (change.touches[0], statement)
        for change in changes
        for statement in change.statements
        if isinstance(statement, AlterTableDropColumn)
    ]
    if not rebuilt or not dropped:
        return None
    for change, statement, checked in _planned(ScriptChecker(snapshot), changes):
        is_drop = isinstance(statement, AlterTableDropColumn)
        limits = (DEPENDENTS_EXIST,) if is_drop else _LIMITS
        if not isinstance(statement, _OF_COLUMNS) or all(error.kind not in limits for error in checked.errors):
            continue
        table = snapshot.get(change.touches[0])
        drops = [drop for id_, drop in dropped if id_ == change.touches[0]]
        for drop in sorted(drops, key=lambda drop: drop is not statement):
            if isinstance(table, TableRecord) and (users := rebuilt_users(snapshot, table, drop, rebuilt)):
                return users[0].id, why_dropped_first(table, drop)
    return None


def _fixed_table(
    snapshot: Snapshot, folder: Sequence[FolderObject], changes: Sequence[DeployChange]
) -> tuple[int, str] | None:
    """Finds the first table whose columns cannot change in place, but which could be created again. Returns the id of
    the table and the reason for creating the table again; None if there is no such table."""
    if not any(isinstance(statement, _OF_COLUMNS) for change in changes for statement in change.statements):
        return None
    checker = ScriptChecker(snapshot)
    for change, statement, checked in _planned(checker, changes):
        errors = [error for error in checked.errors if error.kind in _LIMITS]
        if errors and isinstance(statement, _OF_COLUMNS) and _can_create_again(checker.snapshot, folder, change):
            return change.touches[0], errors[0].message
    return None


def _can_create_again(snapshot: Snapshot, folder: Sequence[FolderObject], change: DeployChange) -> bool:
    """True if the table of a change could be dropped, and could be created again with the folder's definition."""
    wanted = next(wanted.statement for wanted in folder if (wanted.kind, wanted.name) == (change.kind, change.name))
    checker, texts = ScriptChecker(snapshot), (render(DropTable(name=wanted.name, is_cascade=True)), render(wanted))
    return not any(checked.errors for text in texts for checked in checker.check(text, "folder"))


def _reader_that_cannot_follow(snapshot: Snapshot, changes: Sequence[DeployChange]) -> tuple[int, str] | None:
    """Finds the first rebuild that is refused because of another view that reads the rebuilt view. Returns the id of
    the reading view and the reason; None if no rebuild is refused."""
    last = max((place for place, change in enumerate(changes) if change.action == REBUILD), default=-1)
    for _, checked in check_changes(ScriptChecker(snapshot), changes[: last + 1]):
        for error in checked.errors:
            if isinstance(error, ReaderCannotFollowError):
                return error.reader_id, error.why
    return None


def _view_without_columns(snapshot: Snapshot, changes: Sequence[DeployChange]) -> tuple[int, str] | None:
    """Finds the first view that lacks a column that a change needs, if the view cannot get this column by a rebuild.
    Returns the id of the view and the reason for creating the view again; None if there is no such view."""
    if not adds_columns(snapshot, changes):
        return None
    checker = ScriptChecker(snapshot)
    for change, checked in check_changes(checker, changes):
        if any(error.kind is UNDEFINED_COLUMN for error in checked.errors):
            reasons = ((id_, why_created_again(checker.snapshot, id_)) for id_ in change.touches)
            found = next(((id_, why) for id_, why in reasons if why), None)
            if found is not None:
                return found
    return None
