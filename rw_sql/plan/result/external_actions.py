"""What a plan does outside of the catalog, as data; the runtime carries it out once the operation is committed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rw_sql.checkpoints.checkpoint import Rewrite

WATCH_SECONDS = 3.0
"""How long a checkpoint's files must stand still before they are rewritten, unless the statement says otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RewriteCheckpoint:
    """New offsets in a checkpoint, once its files have stood still for ``watch_seconds``."""

    path: str
    rewrite: Rewrite
    watch_seconds: float

    def describe(self) -> str:
        """As EXPLAIN prints it."""
        return f"RewriteCheckpoint {self.path}: {', '.join(change.name for change in self.rewrite.files)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class UndoCheckpoint:
    """Puts back what rewrite ``number`` replaced, while the checkpoint still has this stamp."""

    path: str
    number: int
    stamp: str
    watch_seconds: float

    def describe(self) -> str:
        """As EXPLAIN prints it."""
        return f"UndoCheckpoint {self.path}: operation {self.number} of its journal"


Effect = RewriteCheckpoint | UndoCheckpoint
