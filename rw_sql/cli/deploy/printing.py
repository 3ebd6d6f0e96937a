"""Prints the changes that ``rw-sql diff`` and ``apply`` found between a warehouse and a folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from rw_sql.cli.script.loading import SecretHider
    from rw_sql.metastore import Snapshot
    from rw_sql.plan.deploy.change import DeployChange
    from rw_sql.runtime.support.warehouse import Warehouse

_MARKS = {"create": "+", "alter": "~", "rename": "~", "unsafe": "!", "rebuild": "↻", "recreate": "±", "drop": "-"}


def show_changes(
    console: Console,
    warehouse: Warehouse,
    snapshot: Snapshot,
    changes: Sequence[DeployChange],
    hide: SecretHider,
    left: Sequence[DeployChange] = (),
    *,
    is_counted: bool = True,
) -> None:
    """Prints the changes with their statements, the number of changes of each kind, and the amount of data that the
    changes will read. ``hide`` replaces the secrets in the statements.

    Prints nothing if there are no changes.
    """
    from rich.text import Text

    from rw_sql.plan.deploy.changes import may_ask

    if not changes:
        return
    for change in changes:
        head = f"{_MARKS[change.action]} {change.action} {change.kind.replace('_', ' ')} {change.name}"
        notes = [change.place, change.reason, "asks for a confirmation" if may_ask(change) else ""]
        notes.append("unchanged: needs --allow-drop" if change in left else "")
        line = "  ".join([head, *(f"[{note}]" for note in notes if note)])
        console.print(Text(hide.values(line), style="bold"))
        if change in left:
            continue
        for text in change.texts:
            console.print(Text("    " + hide(text).replace("\n", "\n    ") + ";", style="cyan"))
    counts = {action: sum(change.action == action for change in changes) for action in _MARKS}
    console.print(", ".join(_counted(action, count) for action, count in counts.items() if count))
    if is_counted:
        _show_reading(console, warehouse, snapshot, [change for change in changes if change not in left])


def _counted(action: str, count: int) -> str:
    return f"{count} unsafe" if action == "unsafe" else f"{count} to {action}"


def _show_reading(console: Console, warehouse: Warehouse, snapshot: Snapshot, changes: Sequence[DeployChange]) -> None:
    if snapshot.epoch == 0:
        return  # A new warehouse has no rows, and an installation without delta-rs could not count rows.
    # The rebuild of one view may consist of two changes.
    made = {
        (change.kind, change.name): change
        for change in changes
        if change.action in ("create", "rebuild", "recreate")
        and change.kind in ("materialized_view", "sink")
        and change.place
    }
    if not made:
        return
    from rw_sql.runtime.positions.rows_to_read import rows_to_read
    from rw_sql.runtime.support.store_errors import store_errors

    # The first id in a rebuild's ``touches`` is the id of the view itself, which is not read.
    read = [id_ for change in made.values() for id_ in change.touches[change.action == "rebuild" :]]
    with store_errors(lambda _: None, done=""):
        found = rows_to_read(warehouse, snapshot, read)
    if found.rows or found.bytes:
        console.print(f"to read: about {found.rows:,} rows, {found.bytes / 1_000_000:,.1f} MB of files")
