"""Requests about foreign checkpoints, and about the files that their sources read."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import TypeVar

from rw_sql.checkpoints.checkpoint import Checkpoint
from rw_sql.checkpoints.delta_table import DeltaTable, VersionRows
from rw_sql.checkpoints.file_lists import FileLists
from rw_sql.checkpoints.journal import JournalEntry
from rw_sql.plan.ports.ask import ask


@dataclass(frozen=True, slots=True, kw_only=True)
class LookAtCheckpoint:
    """The state of a checkpoint."""

    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointLook:
    """The answer: the checkpoint, and the query of this process that uses it, as a message names it."""

    checkpoint: Checkpoint
    running: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FindRewrite:
    """The newest rewrite of a checkpoint, if it can be undone."""

    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LookAtTable:
    """A Delta table's id and the versions in its log."""

    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CountRows:
    """The rows that versions ``[start, end)`` of a table added."""

    table: DeltaTable
    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FindVersionAt:
    """The first version of a table committed at or after a time."""

    table: DeltaTable
    milliseconds: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadFileLists:
    """The lists of files that a file source has read."""

    path: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FindMissingFiles:
    """The given files that no longer exist."""

    paths: tuple[str, ...]


CheckpointRequest = (
    LookAtCheckpoint | FindRewrite | LookAtTable | CountRows | FindVersionAt | ReadFileLists | FindMissingFiles
)
T = TypeVar("T")
Asking = Generator[CheckpointRequest, object, T]


def look_at_checkpoint(path: str) -> Asking[CheckpointLook]:
    """Requests the state of a checkpoint. Raises SqlError if there is none."""
    return ask(LookAtCheckpoint(path=path), CheckpointLook)


def find_rewrite(path: str) -> Asking[JournalEntry]:
    """Requests the rewrite that can be undone. Raises SqlError with the reason if there is none."""
    return ask(FindRewrite(path=path), JournalEntry)


def look_at_table(path: str) -> Asking[DeltaTable]:
    """Requests the state of a Delta table. Raises SqlError if there is none."""
    return ask(LookAtTable(path=path), DeltaTable)


def rows_between(table: DeltaTable, start: int, end: int) -> Asking[VersionRows]:
    """Requests the rows that versions of a table added."""
    return ask(CountRows(table=table, start=start, end=end), VersionRows)


def version_at(table: DeltaTable, milliseconds: int) -> Asking[int]:
    """Requests the first version at or after a time."""
    return ask(FindVersionAt(table=table, milliseconds=milliseconds), int)


def file_lists(path: str, source: str) -> Asking[FileLists]:
    """Requests the lists of files of a source."""
    return ask(ReadFileLists(path=path, source=source), FileLists)


def missing_files(paths: tuple[str, ...]) -> Asking[tuple[str, ...]]:
    """Requests the files that no longer exist."""
    return ask(FindMissingFiles(paths=paths), tuple)
