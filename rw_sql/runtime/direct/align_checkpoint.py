"""Aligns a view's checkpoint with the catalog's positions for its direct readers, before the view's query starts.

The state of the query's operators is not changed. The last committed entry of the offset log is replaced, and the new
entry keeps the old number. A planned batch that has written nothing is removed. A planned batch whose rows are already
in the view must be finished first. Because of these rules, no batch number is reused for other rows, and no batch
number is skipped.

The process may be killed after any step. Therefore, the old content is recorded before every change to the checkpoint,
and the record is updated after the change. If a change was interrupted, the next start computes the new content again
from the recorded old content.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from rw_sql.checkpoints.journal import FOLDER
from rw_sql.metastore.records import FORGOTTEN
from rw_sql.runtime.direct.checkpoint_record import (
    EMPTY,
    Change,
    Head,
    ReaderRecord,
    read_head,
    unfinished,
    write_change,
    write_record,
)
from rw_sql.runtime.support.failures import StalledError
from rw_sql.runtime.support.faults import fault

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rw_sql.checkpoints.files import CheckpointFiles
    from rw_sql.connectors.base import Connector, SplitState
    from rw_sql.metastore.records import StoredState


@dataclass(frozen=True, slots=True, kw_only=True)
class DesiredReader:
    """The catalog's requirement for one reader. The fields are the splits of the reader, the states that statements
    have set for these splits (``stored``), and the epoch of the last of these statements (``since``)."""

    fragment: str
    kind: Connector
    splits: tuple[str, ...]
    stored: Mapping[str, StoredState]
    since: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Alignment:
    """The result of aligning a checkpoint. ``states`` maps each fragment to the states of its splits.

    ``unfinished`` is the number of a batch that must be finished before the checkpoint can be aligned; None if there is
    no such batch.
    """

    states: Mapping[str, Mapping[str, SplitState]] = field(default_factory=dict)
    unfinished: int | None = None


def positions_of(
    head: Head, fragment: str, kind: Connector, stored: Mapping[str, StoredState]
) -> dict[str, SplitState]:
    """The positions of a fragment's splits. If a statement has set a split's position after the checkpoint was last
    aligned, the result has that position; otherwise, it has the position in the checkpoint."""
    record = head.record or EMPTY
    reflected = record.epochs.get(fragment, -1)
    known = {**record.parked.get(fragment, {}), **(head.offsets(fragment, kind) or {})}
    states: dict[str, SplitState] = {}
    for split, row in stored.items():
        if row.state == FORGOTTEN:
            continue
        state = kind.decode_state(split, row.state)
        if row.epoch <= reflected and split in known:
            # The term belongs to the position that the statement has set. The reader may have read further since then.
            state = replace(state, offset=known[split], term=state.term if known[split] == state.offset else None)
        states[split] = state
    return states


def align(files: CheckpointFiles, wanted: Iterable[DesiredReader], *, done: int) -> Alignment:
    """Aligns the checkpoint. ``done`` is the last batch whose rows are in the view.

    If a planned batch must be finished first, changes nothing and returns the number of this batch in ``unfinished``.
    Raises StalledError if the checkpoint lacks needed information.
    """
    readers = tuple(wanted)
    head = read_head(files)
    if head.record is None and head.committed >= 0:
        raise StalledError(
            f"CHECKPOINT damaged: {files.path(FOLDER)} has no record of the statements that the offsets reflect: "
            "restore it from a copy"
        )
    positions = {reader.fragment: positions_of(head, reader.fragment, reader.kind, reader.stored) for reader in readers}
    states = {r.fragment: {split: positions[r.fragment][split] for split in r.splits} for r in readers}
    record = head.record or EMPTY
    fresh = ReaderRecord(
        lines=record.lines if head.committed >= 0 else (),
        epochs={reader.fragment: reader.since for reader in readers},
        lives={f: {s: (state.cluster, state.incarnation) for s, state in of.items()} for f, of in states.items()},
        parked={f: {s: at.offset for s, at in of.items() if s not in states[f]} for f, of in positions.items()},
    )
    moved = {
        reader.fragment
        for reader in readers
        if head.offsets(reader.fragment, reader.kind) != _offsets(states[reader.fragment])
    }
    begun = unfinished(head.changes, record)
    if not moved and begun is None and fresh == head.record:
        return Alignment(states=states)
    if head.committed < 0 and begun is None and fresh == replace(record, lines=()):
        # An earlier start has written a record, but its query has committed no batch. Without this step, Spark would
        # begin at the positions of that start.
        if head.planned < 0 or done < head.planned:
            _clear(files)
            write_record(files, fresh)
        return Alignment(states=states)
    if moved and head.planned > head.committed and done >= head.planned:
        return Alignment(unfinished=head.planned)
    _change(files, head, record, fresh, readers, states, moved)
    return Alignment(states=states)


def _offsets(states: Mapping[str, SplitState]) -> dict[str, int]:
    return {split: state.offset for split, state in states.items()}


def _change(
    files: CheckpointFiles,
    head: Head,
    record: ReaderRecord,
    fresh: ReaderRecord,
    readers: tuple[DesiredReader, ...],
    states: Mapping[str, Mapping[str, SplitState]],
    moved: set[str],
) -> None:
    begun = unfinished(head.changes, record)
    number = begun.number if begun is not None else (head.changes[-1].number + 1 if head.changes else 1)
    is_dropping = bool(moved) and head.planned > head.committed
    dropped = files.read(f"offsets/{head.planned}") if is_dropping else begun.dropped if begun is not None else None
    if head.record is None:
        # After a kill during the change, this record shows that the change had begun.
        write_record(files, record)
    change = Change(
        number=number, was=record, before=head.text, epochs=fresh.epochs, batch=head.committed, dropped=dropped
    )
    fault("reader.before_journal")
    write_change(files, change)
    fault("reader.after_journal")
    if head.committed < 0 and moved:
        _clear(files)
    elif moved:
        if is_dropping:
            # Removes checksums first, because a stale checksum would invalidate the next entry with that number.
            _remove(files, f"offsets/.{head.planned}.crc")
            fault("reader.in_drop")
            _remove(files, f"offsets/{head.planned}")
            fault("reader.after_drop")
        entry = head.entry
        if entry is None:
            raise TypeError("a committed batch has an entry")
        texts = {
            name: _line(reader.kind, states[reader.fragment])
            for reader in readers
            for name, line in zip(entry.names, record.lines, strict=True)
            if line == reader.fragment
        }
        files.write(f"offsets/{head.committed}", entry.with_offsets(texts).render())
    elif begun is not None and head.text is not None:
        files.write(f"offsets/{head.committed}", head.text)
    fault("reader.after_rewrite")
    write_record(files, fresh)
    fault("reader.after_record")


def _line(kind: Connector, states: Mapping[str, SplitState]) -> str:
    text = kind.write_positions({split: state.offset for split, state in states.items()})
    if kind.read_positions(text) != {split: state.offset for split, state in states.items()}:
        raise StalledError(
            f"the connector reads other positions from the offset that it wrote: {json.dumps(text[:200])}"
        )
    return text


def _clear(files: CheckpointFiles) -> None:
    """Empties a checkpoint that has no valid batches. The records in ``_rw_sql`` are kept."""
    for name in ("offsets", "sources", "commits", "state", ".metadata.crc", "metadata"):
        _remove(files, name)


def _remove(files: CheckpointFiles, name: str) -> None:
    try:
        files.system.rm(files.path(name), recursive=True)
    except FileNotFoundError:
        return
