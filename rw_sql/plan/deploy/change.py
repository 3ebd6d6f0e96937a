"""Represents one change of a deployment. A change contains the statements that make an object match its definition in
the folder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rw_sql.syntax import render
from rw_sql.syntax.statements import AlterTableDropColumn

if TYPE_CHECKING:
    from rw_sql.syntax.statements import Statement

CREATE, ALTER, RENAME, UNSAFE, REBUILD, RECREATE, DROP = (
    "create",
    "alter",
    "rename",
    "unsafe",
    "rebuild",
    "recreate",
    "drop",
)
"""The classes of changes.

The user confirms each *unsafe* change individually, after seeing its preview. A view that is *rebuilt* gets a second
table. Queries read the old table until the second table has processed as much input as the old table. An object is
*recreated* (dropped and created again, with all its dependents) if no statement can make the change in place. A
dependent that is not in the folder is only dropped. Objects are recreated or dropped only with ``--allow-drop``.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeployChange:
    """The change to one object.

    ``place`` is the position of the object's definition in the folder. ``reason`` states why the object cannot be
    altered in place. A change of the class *drop* has a reason only if other changes require this drop.

    ``touches`` are the ids of two kinds of objects: objects that the change modifies, and objects on which the change
    depends. Objects that do not exist yet are not included, because they have no id.
    """

    action: str
    kind: str
    name: str
    statements: tuple[Statement, ...]
    place: str = ""
    reason: str = ""
    touches: tuple[int, ...] = ()

    @property
    def texts(self) -> tuple[str, ...]:
        """The statements in canonical form."""
        return tuple(render(statement) for statement in self.statements)

    @property
    def is_required_drop(self) -> bool:
        """True if the change drops an object that is not in the folder, and other changes require this drop."""
        return self.action == DROP and bool(self.reason)

    @property
    def needs_drop(self) -> bool:
        """True if the change needs ``--allow-drop``, because the change drops an existing object."""
        return self.action in (RECREATE, DROP) or any(isinstance(s, AlterTableDropColumn) for s in self.statements)
