"""Represents a plan's actions outside the catalog as data. The runtime carries out these actions after the commit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rw_sql.checkpoints.checkpoint import Rewrite

WATCH_SECONDS = 3.0
"""The default time, in seconds, for which a checkpoint's files must stay unchanged before rw_sql rewrites these
files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RewriteCheckpoint:
    """Writes new offsets to a checkpoint after its files have been unchanged for ``watch_seconds``."""

    path: str
    rewrite: Rewrite
    watch_seconds: float

    def describe(self) -> str:
        """The action as printed by EXPLAIN."""
        return f"RewriteCheckpoint {self.path}: {', '.join(change.name for change in self.rewrite.files)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class UndoCheckpoint:
    """Reverts rewrite ``number`` of a checkpoint, unless the checkpoint has changed since ``stamp`` was computed."""

    path: str
    number: int
    stamp: str
    watch_seconds: float

    def describe(self) -> str:
        """The action as printed by EXPLAIN."""
        return f"UndoCheckpoint {self.path}: operation {self.number} of its journal"


Effect = RewriteCheckpoint | UndoCheckpoint
