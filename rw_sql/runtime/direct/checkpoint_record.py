"""Reads and writes the record of the catalog's state that a view's checkpoint reflects.

The record is stored inside the checkpoint. Copies of the checkpoint therefore include the record.

``_rw_sql/readers.json`` contains the fragment of each line of the offset log, and the positions of splits that are no
longer read. It also contains the epoch up to which the offsets reflect the catalog's statements. The files
``_rw_sql/000001.json``, ``_rw_sql/000002.json`` and so on each contain the checkpoint's record and last offset entry
before one change, because UNDO needs a reader's earlier positions.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import msgspec

from rw_sql.checkpoints.journal import FOLDER
from rw_sql.checkpoints.offset_log import OffsetEntry, read_entry

if TYPE_CHECKING:
    from rw_sql.checkpoints.files import CheckpointFiles
    from rw_sql.connectors.base import Connector

_FILE = f"{FOLDER}/readers.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderRecord:
    """The state that a checkpoint reflects. ``lines`` contains the fragment for each line of the offset log; None for
    the line of a source without a direct reader.

    ``epochs`` maps each fragment to the epoch up to which its offsets reflect the catalog's statements. ``lives`` maps
    each fragment and split to the cluster and the incarnation from which the split was last read. ``parked`` maps
    fragments to the offsets of splits that are no longer read.
    """

    lines: tuple[str | None, ...]
    epochs: Mapping[str, int]
    lives: Mapping[str, Mapping[str, tuple[str | None, str | None]]]
    parked: Mapping[str, Mapping[str, int]]


EMPTY = ReaderRecord(lines=(), epochs={}, lives={}, parked={})
"""The record that is assumed if a checkpoint does not contain one."""


class Change(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One change to a checkpoint. ``was`` is the record before the change. ``before`` is the last committed entry of
    the offset log before the change; None if there was no entry.

    ``epochs`` are the epochs in the record after the change. If the change removed a planned batch that had written
    nothing, ``dropped`` is the offset entry of this batch; otherwise None.
    """

    number: int
    was: ReaderRecord
    before: str | None
    epochs: Mapping[str, int]
    batch: int
    dropped: str | None = None


def read_record(files: CheckpointFiles) -> ReaderRecord | None:
    """Reads the record; None if the checkpoint has no record yet."""
    try:
        return msgspec.json.decode(files.read(_FILE), type=ReaderRecord)
    except FileNotFoundError:
        return None


def write_record(files: CheckpointFiles, record: ReaderRecord) -> None:
    """Writes the record atomically."""
    files.write(_FILE, _to_json(record))


def read_changes(files: CheckpointFiles) -> tuple[Change, ...]:
    """Reads all changes to a checkpoint, oldest first."""
    names = sorted(name for name in files.stamps(FOLDER) if name.endswith(".json") and name[:-5].isdecimal())
    return tuple(msgspec.json.decode(files.read(f"{FOLDER}/{name}"), type=Change) for name in names)


def write_change(files: CheckpointFiles, change: Change) -> None:
    """Writes a change. Replaces the change with the same number, if there is one."""
    files.write(f"{FOLDER}/{change.number:06d}.json", _to_json(change))


def _to_json(stored: ReaderRecord | Change) -> str:
    # Uses json, because these files have been ASCII since their first version and msgspec writes UTF-8.
    return json.dumps(msgspec.to_builtins(stored), separators=(",", ":"))


def unfinished(changes: tuple[Change, ...], record: ReaderRecord) -> Change | None:
    """Returns the last change if, according to the record, it is not complete; otherwise None."""
    return changes[-1] if changes and changes[-1].was == record else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """The end of a checkpoint. ``committed`` and ``planned`` are the numbers of the last committed batch and the last
    planned batch; -1 if there is no such batch.

    ``text`` is the offset log's entry of the last committed batch. If a change to this entry is unfinished, ``text`` is
    the entry's content before the change.
    """

    committed: int
    planned: int
    text: str | None
    record: ReaderRecord | None
    changes: tuple[Change, ...]

    @property
    def entry(self) -> OffsetEntry | None:
        """``text``, parsed."""
        return read_entry(self.text) if self.text is not None else None

    def offsets(self, fragment: str, kind: Connector) -> dict[str, int] | None:
        """The positions of a fragment's splits after the last committed batch; None if the offset log has no line for
        the fragment."""
        return self._offsets(self.entry, fragment, kind)

    def planned_offsets(self, files: CheckpointFiles, fragment: str, kind: Connector) -> dict[str, int] | None:
        """The positions of a fragment's splits after the last planned batch; None if the offset log has no line for the
        fragment."""
        return self._offsets(read_entry(files.read(f"offsets/{self.planned}")), fragment, kind)

    def _offsets(self, entry: OffsetEntry | None, fragment: str, kind: Connector) -> dict[str, int] | None:
        if entry is None or self.record is None:
            return None
        return offsets_of(entry, self.record.lines, fragment, kind)


def offsets_of(
    entry: OffsetEntry, lines: tuple[str | None, ...], fragment: str, kind: Connector
) -> dict[str, int] | None:
    """A fragment's offsets in an entry of the offset log; None if the entry has no line for the fragment."""
    for line, text in zip(lines, entry.offsets, strict=True):
        if line == fragment and text is not None:
            return kind.read_positions(text)
    return None


def read_head(files: CheckpointFiles) -> Head:
    """Reads the end of a checkpoint. If there is no checkpoint, the result has no batch, no record and no changes."""
    committed = max(files.batches("commits"), default=-1)
    planned = max(files.batches("offsets"), default=-1)
    record, changes = read_record(files), read_changes(files)
    text = files.read(f"offsets/{committed}") if committed >= 0 else None
    begun = unfinished(changes, record) if record is not None else None
    if begun is not None and begun.before is not None:
        text = begun.before
    return Head(committed=committed, planned=max(planned, committed), text=text, record=record, changes=changes)


def with_lines(record: ReaderRecord, lines: tuple[str | None, ...]) -> ReaderRecord:
    """Returns the record with ``lines`` filled in. ``lines`` contains the fragment for each line of the offset log."""
    return replace(record, lines=lines)
