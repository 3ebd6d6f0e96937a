"""Computes the changes between a catalog and a folder. A view is created again if it cannot follow the rebuild of a
view that it reads.

``compare`` knows only definitions. Whether a view can keep its columns when a view that it reads gets another query is
known only after planning. This module plans the statements as ``rw-sql check`` does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rw_sql.plan.deploy.change import REBUILD
from rw_sql.plan.deploy.changes import compare
from rw_sql.plan.offline.script import ScriptChecker
from rw_sql.plan.result.steps import after
from rw_sql.plan.statements.view.alter_query import ReaderCannotFollowError
from rw_sql.plan.statements.view.rebuild import rebuild_groups, swap_operation
from rw_sql.syntax import render
from rw_sql.syntax.statements import Wait

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rw_sql.metastore import Snapshot
    from rw_sql.plan.deploy.change import DeployChange
    from rw_sql.plan.deploy.folder import FolderObject


def possible_changes(
    snapshot: Snapshot, folder: Sequence[FolderObject], allow: Sequence[str] = ()
) -> tuple[DeployChange, ...]:
    """The changes that make the catalog match the folder; see :func:`rw_sql.plan.deploy.changes.compare`.

    If a view of the folder could not keep its columns because a view that it reads gets another query, the changes
    create the view again.
    """
    unable: dict[int, str] = {}
    while True:
        changes = compare(snapshot, folder, allow, unable)
        found = _reader_that_cannot_follow(snapshot, changes)
        if found is None or found.reader_id in unable:
            return changes
        unable[found.reader_id] = found.why


def _reader_that_cannot_follow(snapshot: Snapshot, changes: Sequence[DeployChange]) -> ReaderCannotFollowError | None:
    """The first error that refuses a rebuild because of a view that reads the rebuilt view; None if there is no such
    error."""
    last = max((place for place, change in enumerate(changes) if change.action == REBUILD), default=-1)
    checker = ScriptChecker(snapshot)
    for statement in (statement for change in changes[: last + 1] for statement in change.statements):
        for checked in checker.check(render(statement), "folder"):
            for error in checked.errors:
                if isinstance(error, ReaderCannotFollowError):
                    return error
        if isinstance(statement, Wait):
            for group in rebuild_groups(checker.snapshot):
                checker.snapshot = after(checker.snapshot, swap_operation(checker.snapshot, group, "").changes)
    return None
